"""Convolution kernels of time-invariant systems by two-level powers.

A^{iL+j} = A^{iL} A^j costs one product.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ssmbook._checks import check_integer, check_room
from ssmbook.scans._ops import dense
from ssmbook.scans._powers import choose, lags_by_powers
from ssmbook.scans._transients import STEPS, warn_of_transient
from ssmbook.scans._validate import check_arguments


def lags(A: Tensor, B: Tensor, C: Tensor, n: int) -> Tensor:
    """The lags C A^tau B for tau = 0 ... n - 1, (..., n, p, d).

    By two-level powers where these are as exact as the recurrence, else by the recurrence, with a warning
    where that is off as well. A (..., N, N), B (..., N, d), C (..., p, N), one dtype. Powers of float32 are
    formed in float64.
    """
    route = choose(A, B, C, n)
    if route is None:
        return lags_by_states(A, B, C, n)
    wide = (t.to(route.powers[0].dtype) for t in (B, C))
    M = lags_by_powers(route.powers, *wide, n) if route.sound else lti_kernel_naive(A, B, C, n)
    if route.suspect:
        few = min(n, STEPS)
        again = lti_kernel_naive(A.mT, C.mT, B.mT, few).mT  # from the left: rounded elsewhere
        warn_of_transient(A, n, M[..., :few, :, :], again)
    return M.to(A.dtype)


def lags_by_states(A: Tensor, B: Tensor, C: Tensor, n: int) -> Tensor:
    """The lags from the states after each column of B: for tracers, which cannot choose."""
    if n < 2:
        return lti_kernel_naive(A, B, C, n)
    states, _ = dense(A, B.new_zeros(B.shape[-1], n - 1, B.shape[-2]), B.mT)
    return torch.cat(((C @ B).unsqueeze(0), (states @ C.mT).permute(1, 2, 0)))


def lti_kernel(A: Tensor, B: Tensor, C: Tensor, n: int) -> Tensor:
    """Compute the kernel K_tau = C A^tau B of a linear time-invariant system for tau = 0 ... n - 1.

    A: (N, N), B: (N, d), C: (p, N), all of one dtype (real or complex) and device. Returns (n, p, d) in that
    dtype, differentiable in A, B and C; cost O(sqrt(n) N^2 (p + d) + n N p d), memory that of the kernel.
    Where powers of A grow before they decay and two-level powers would be less exact than the recurrence, it
    is the recurrence; ``TransientPeakWarning`` where that is off as well. A power that overflows gives
    non-finite lags, as it would one step at a time. Raises ``ValueError`` / ``TypeError`` naming the
    argument. Introduced in *structured-dynamics*.

    >>> turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    >>> lti_kernel(turn, torch.eye(2), torch.eye(2), 4)[:, 0].tolist()  # first rows of I, the turn, …
    [[1.0, 0.0], [0.0, -1.0], [-1.0, 0.0], [0.0, 1.0]]
    """
    check_arguments("A: N N, B: N d, C: p N", A, B, C, complex_ok=True)
    n = _checked_length(n, B, C)
    return lags(A, B, C, n)


def lti_kernel_naive(A: Tensor, B: Tensor, C: Tensor, n: int) -> Tensor:
    """The kernel of :func:`lti_kernel` as it is written, one power of A at a time; A, B, C may be batches."""
    check_arguments("A: ... N N, B: ... N d, C: ... p N", A, B, C, complex_ok=True)
    column, kernel = B, []
    for _ in range(_checked_length(n, B, C)):
        kernel.append(C @ column)
        column = A @ column
    return torch.stack(kernel, -3) if kernel else A.new_zeros((*A.shape[:-2], 0, C.shape[-2], B.shape[-1]))


def _checked_length(n: int, B: Tensor, C: Tensor) -> int:
    n = check_integer("n", n, low=0)
    check_room("n", n, C.shape[-2], B.shape[-1])
    return n
