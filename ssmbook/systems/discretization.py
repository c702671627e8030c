"""From dh/dt = A h + B x to h_t = A_bar h_{t-1} + B_bar x_t: zero-order hold, Euler, mixed, bilinear.

Each rule is a pair of functions of Z = Delta A:

    zoh        A_bar = exp(Z)                      B_bar = phi_1(Z) Delta B
    mixed      A_bar = exp(Z)                      B_bar = Delta B
    euler      A_bar = I + Z                       B_bar = Delta B
    bilinear   A_bar = (I - Z/2)^-1 (I + Z/2)      B_bar = (I - Z/2)^-1 Delta B

with phi_1(Z) = (exp(Z) - I) Z^-1, a series that needs no inverse. For an input that is held
over the step the first is exact (`prop-zoh`).
"""

import math
from typing import Literal

import torch
from torch import Tensor

from ssmbook._checks import as_real, check_matrices, check_same_dtype_device, shared_batch
from ssmbook.numerics import phi1

# The one list of values of `discretization`; each function that takes one takes all of
# these or a part.
Discretization = Literal["zoh", "bilinear", "euler", "mixed"]
_TERMS = 20  # of the series of phi1, for matrices of norm below 1


def zoh(A: Tensor, B: Tensor, delta: float | Tensor) -> tuple[Tensor, Tensor]:
    """Zero-order hold: the exact step for an input held constant over ``delta``, for singular A as well.

    A_bar = exp(delta A), B_bar = delta phi1(delta A) B. A (..., N, N), B (..., N, d), real or complex; delta
    a number or a real tensor of the batch shape (any shape when A and B are unbatched), at least 0. Returns
    (A_bar, B_bar) of those shapes, in the dtype of A. Raises TypeError/ValueError for wrong shapes, mixed
    dtypes, non-finite entries, a negative or overflowing step. Source: `gu2022efficiently`.

    >>> A_bar, B_bar = zoh(torch.tensor([[-2.0]]), torch.ones(1, 1), 0.5)
    >>> f"{A_bar.item():.4f} {B_bar.item():.4f}"  # e^(-1) and (1 - e^(-1)) / 2
    '0.3679 0.3161'
    """
    return sampled(A, B, delta, "zoh")


def sampled(
    A: Tensor, B: Tensor, step: float | Tensor, discretization: Discretization
) -> tuple[Tensor, Tensor]:
    """A_bar and B_bar of one step by any rule of `System.discretize`, with the arguments of `zoh`."""
    check_matrices(A=A, B=B)
    delta = as_real("step", step, low=0.0, like=A.real)
    check_same_dtype_device(**{"the real part of the system": A.real, "step": delta})
    shared_batch(**{"the system": A.shape[:-2], "step": delta.shape})
    delta = delta[..., None, None]
    A_bar, B_bar = RULES[discretization](delta * A, delta * B)
    if not bool(A_bar.isfinite().all() and B_bar.isfinite().all()):
        raise ValueError(f"step must not overflow in {A.dtype}; got a longer step")
    return A_bar, B_bar


def _held(Z: Tensor, step_B: Tensor) -> tuple[Tensor, Tensor]:
    """exp(Z) and phi1(Z) step_B, by doubling P = phi1 and E = exp - 1, which are series for Z / 2^s.

    For 2 Z they are P (1 + E / 2) and 2 E + E^2. A slow mode beside a fast one keeps its digits in E; exp
    would round it to 1. A diagonal Z is taken entry by entry.
    """
    modes = Z.diagonal(dim1=-2, dim2=-1)
    if not Z.requires_grad and torch.equal(torch.diag_embed(modes), Z):
        return torch.diag_embed(modes.exp()), phi1(modes)[..., None] * step_B
    one = torch.eye(Z.shape[-1], dtype=Z.dtype, device=Z.device)
    s = max(0, math.frexp(float(Z.detach().abs().sum(-1).max()) if Z.numel() else 0.0)[1])
    small, P = Z / 2.0**s, one.expand_as(Z)
    for k in range(_TERMS, 1, -1):
        P = one + small @ P / k
    E = small @ P
    for _ in range(s):
        P, E = P + P @ E / 2, 2 * E + E @ E
    return one + E, P @ step_B


def _euler(Z: Tensor, step_B: Tensor) -> tuple[Tensor, Tensor]:
    """Forward Euler, unstable once some |1 + delta lam| > 1. Source: `gu2021combining`."""
    return torch.eye(Z.shape[-1], dtype=Z.dtype, device=Z.device) + Z, step_B


def _mixed(Z: Tensor, step_B: Tensor) -> tuple[Tensor, Tensor]:
    """The exact A_bar with the Euler B_bar, as in the code of `gu2024mamba`."""
    return _held(Z, step_B)[0], step_B


def _bilinear(Z: Tensor, step_B: Tensor) -> tuple[Tensor, Tensor]:
    """(I - Z/2)^(-1) (I + Z/2) and (I - Z/2)^(-1) step_B, stable where A is. Source: `gu2021combining`."""
    N = Z.shape[-1]
    eye = torch.eye(N, dtype=Z.dtype, device=Z.device)
    solved, info = torch.linalg.solve_ex(eye - Z / 2, torch.cat([eye + Z / 2, step_B], dim=-1))
    if bool((info != 0).any()):
        raise ValueError("step makes I - step A/2 singular, because 2/step is an eigenvalue of A")
    return solved[..., :N], solved[..., N:]


RULES = {"zoh": _held, "bilinear": _bilinear, "euler": _euler, "mixed": _mixed}
