"""Lag operators of a linear time-invariant system: M_tau = C A^tau B, with the skip at lag 0."""

from __future__ import annotations

import torch

from ssmbook._checks import check_integer
from ssmbook.scans import lti_kernel_naive
from ssmbook.scans.kernels import lags


def lag_operators(A, B, C, D, n: int) -> torch.Tensor:
    """The lag operators of checked matrices, by the fast route: see `System.lags`."""
    n = check_integer("n", n, low=0)
    M = lags(A, B, C, n)
    if n == 0:
        return M
    if not M.is_meta and not torch.isfinite(M).all():
        M = lti_kernel_naive(A, B, C, n)  # no power of A overflows here that B never excites
    if D is not None:
        M = torch.cat([M[..., :1, :, :] + D.unsqueeze(-3), M[..., 1:, :, :]], dim=-3)
    if M.is_meta:
        return M
    finite = torch.isfinite(M).flatten(-2).all(-1).reshape(-1, n).all(0)
    if not finite.all():
        first = int((~finite).nonzero()[0])
        raise ValueError(f"n must stay below the lag where M overflows {M.dtype}, {first}; got n = {n}")
    return M
