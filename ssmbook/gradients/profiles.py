"""Exact gradients against distance, by autograd, for any callable, and the rate at which they decay."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ssmbook._checks import check_integer, check_tensors
from ssmbook.numerics import half_to_float32
from ssmbook.operators import jacobian_operator


def gradient_profile(F: Callable, x: torch.Tensor, target: int = -1) -> tuple[torch.Tensor, torch.Tensor]:
    """The spectral norm of dy_i/dx_{i - tau} at each distance tau from the output position i = ``target``.

    F, x and errors as in :func:`ssmbook.operators.jacobian_operator`, of which this is a
    row; target: the place of one token. Returns the distances 0, 1, ..., i, int64 (i + 1,),
    and the norms (..., i + 1) in the dtype of x. Use float64 at long distances, because
    norms that decay exponentially soon leave the range of float32.

    >>> distance, width = gradient_profile(lambda x: 0.5 * x + x.roll(1, 0), torch.ones(4, 2))
    >>> distance.tolist(), width.tolist()  # half of the token itself, all of the one before
    ([0, 1, 2, 3], [0.5, 1.0, 0.0, 0.0])
    """
    n = check_tensors(x=(x, "... n d"))["n"]
    i = range(n)[check_integer("target", target, low=-n, high=n - 1)]
    past = jacobian_operator(F, x)[i, : i + 1].flip(-3)
    distances = torch.arange(i + 1, device=x.device)
    if past.numel() == 0:
        return distances, past.new_zeros(past.shape[:-2])
    return distances, torch.linalg.matrix_norm(half_to_float32(past), ord=2).to(past.dtype)


def fit_log_slope(
    distances: torch.Tensor, norms: torch.Tensor, *, window: tuple[int, int] | None = None
) -> float:
    """The exponential rate of a gradient profile: the slope of log norm on distance, by least squares.

    distances (m,) integers; norms (m,), worked in float64; window (low, high): use only the
    distances from low to high. An exact decay rho^tau has slope log rho. Raises
    ``ValueError`` for other shapes, fewer than 3 different distances, and norms that are
    not positive in the window.

    >>> tau = torch.arange(20)
    >>> round(torch.tensor(fit_log_slope(tau, 3 * 0.9**tau)).exp().item(), 4)
    0.9
    """
    m = check_tensors(norms=(norms, "m"), finite=True)["m"]
    if distances.shape != (m,):
        raise ValueError(f"distances must have shape ({m},) like norms; got {tuple(distances.shape)}")
    low, high = (0, torch.inf) if window is None else window
    inside = (distances >= low) & (distances <= high)
    tau, norms = distances[inside].double(), norms.detach()[inside].double()
    if not (norms > 0).all():
        raise ValueError(f"norms must be positive inside the window; got {float(norms.min())}")
    if (different := len(tau.unique())) < 3:
        raise ValueError(f"distances must leave at least 3 different ones to fit; got {different}")
    centered = tau - tau.mean()
    return float(centered @ norms.log() / centered.square().sum())
