"""From dh/dt = A h + B x to h_t = A_bar h_{t-1} + B_bar x_t: zero-order hold, Euler, mixed, bilinear."""

from __future__ import annotations

import torch

from ssmbook._checks import as_real, check_alike, check_matrices, shared_batch
from ssmbook.numerics import in_single


def _scaled(A: torch.Tensor, B: torch.Tensor, delta) -> tuple[torch.Tensor, torch.Tensor]:
    """delta A and delta B, checked: delta of shape () or the batch shape (any where A and B have none)."""
    check_matrices(A=A, B=B)
    delta = as_real("delta", delta, low=0.0, open_ends=False, like=A.real)
    check_alike(**{"the real part of the system": A.real, "delta": delta})
    shared_batch(**{"the system": A.shape[:-2], "delta": delta.shape})
    step = delta[..., None, None]
    return step * A, step * B


def _in_range(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Refuse a step so long that exp(delta A) overflows: past that point inf - inf would be NaN."""
    if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors):
        raise ValueError(
            f"delta must keep exp(delta A) below overflow in {tensors[0].dtype}; got a longer step"
        )
    return tensors


def _exp_and_phi1(Z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """exp(Z) and phi1(Z) of Z (..., N, N) at once: exp([[Z, I], [0, 0]]) = [[e^Z, phi1(Z)], [0, I]].

    The identity, not delta B, stands in the corner: the scaling and squaring then does not depend on the
    size of B.
    """
    N = Z.shape[-1]
    eye = torch.eye(N, dtype=Z.dtype, device=Z.device).expand_as(Z)
    upper = torch.cat([Z, eye], dim=-1)
    both = torch.linalg.matrix_exp(torch.cat([upper, torch.zeros_like(upper)], dim=-2))
    return both[..., :N, :N], both[..., :N, N:]


@in_single
def zoh(A: torch.Tensor, B: torch.Tensor, delta: float | torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Zero-order hold: the exact step for an input held constant over ``delta``, for singular A as well.

    A_bar = exp(delta A), B_bar = delta phi1(delta A) B; no inverse of A is taken. A (..., N, N), B (..., N,
    d), real or complex; delta a number or a real tensor of the batch shape (any shape when A and B are
    unbatched), at least 0. Returns (A_bar, B_bar) of those shapes, in the dtype of A. Raises
    TypeError/ValueError for wrong shapes, mixed dtypes, non-finite entries, a negative or overflowing step.
    Source: `gu2022efficiently`. Introduced in *structured-dynamics*.

    >>> A_bar, B_bar = zoh(torch.tensor([[-2.0]]), torch.ones(1, 1), 0.5)
    >>> f"{A_bar.item():.4f} {B_bar.item():.4f}"  # e^(-1) and (1 - e^(-1)) / 2
    '0.3679 0.3161'
    """
    Z, step_B = _scaled(A, B, delta)
    exponential, phi = _exp_and_phi1(Z)
    return _in_range(exponential, phi @ step_B)


def euler(A: torch.Tensor, B: torch.Tensor, delta: float | torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Forward Euler: A_bar = I + delta A, B_bar = delta B; unstable once some |1 + delta lam| > 1.

    Shapes, dtypes and errors of :func:`zoh`. Mamba's code does not do this to A: see :func:`mixed_euler`.
    Source: `gu2021combining`. Introduced in *structured-dynamics*.

    >>> A_bar, B_bar = euler(torch.tensor([[-2.0]]), torch.ones(1, 1), 0.5)
    >>> A_bar.item(), B_bar.item()
    (0.0, 0.5)
    """
    Z, step_B = _scaled(A, B, delta)
    return torch.eye(A.shape[-1], dtype=A.dtype, device=A.device) + Z, step_B


@in_single
def mixed_euler(
    A: torch.Tensor, B: torch.Tensor, delta: float | torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mamba's mixed form: the exact A_bar = exp(delta A) with the Euler B_bar = delta B.

    It keeps the poles of the zero-order hold and drops the factor phi1(delta A) from the input: for an
    eigenvalue z of delta A with Re z <= 0 that is off by at most |z|/2. Shapes, dtypes and errors of
    :func:`zoh`. Source: `gu2024mamba` (its code). Introduced in *structured-dynamics*.

    >>> A_bar, B_bar = mixed_euler(torch.tensor([[-2.0]]), torch.ones(1, 1), 0.5)
    >>> f"{A_bar.item():.4f} {B_bar.item():.4f}"
    '0.3679 0.5000'
    """
    Z, step_B = _scaled(A, B, delta)
    return _in_range(torch.linalg.matrix_exp(Z), step_B)


@in_single
def bilinear(
    A: torch.Tensor, B: torch.Tensor, delta: float | torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Bilinear (Tustin): A_bar = (I - delta A/2)^{-1}(I + delta A/2), B_bar = (I - delta A/2)^{-1} delta B.

    It maps the left half plane onto the unit disk, so a stable system stays stable at every step; C is left
    alone. Shapes, dtypes and errors of :func:`zoh`; ValueError also when 2/delta is an eigenvalue of A.
    Source: `gu2021combining`. Introduced in *structured-dynamics*.

    >>> A_bar, B_bar = bilinear(torch.tensor([[-2.0]]), torch.ones(1, 1), 0.5)
    >>> f"{A_bar.item():.4f} {B_bar.item():.4f}"
    '0.3333 0.3333'
    """
    Z, step_B = _scaled(A, B, delta)
    eye = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    solved, info = torch.linalg.solve_ex(eye - Z / 2, torch.cat([eye + Z / 2, step_B], dim=-1))
    if bool((info != 0).any()):
        raise ValueError(
            "delta must not make I - delta A/2 singular; got 2/delta equal to an eigenvalue of A"
        )
    N = A.shape[-1]
    return solved[..., :N], solved[..., N:]
