"""Lag operators of a linear time-invariant system: M_tau = C A^tau B, with the skip at lag 0."""

from __future__ import annotations

import torch

from ssmbook._checks import check_alike, check_finite, check_integer, check_shape
from ssmbook.scans._lags import lags_by_recurrence
from ssmbook.scans.kernels import lags


def check_system(A, B, C, D=None, *, complex_ok: bool = False) -> dict[str, int]:
    """Hold one system (A, B, C, D) to the book's shapes, one dtype, one device, finite entries; return N, d,
    p.

    A (..., N, N), B (..., N, d), C (..., p, N), D (..., p, d) or None, all with the same batch shape; float
    dtypes, complex only with ``complex_ok``. Raises ``TypeError`` for dtypes, ``ValueError`` for shapes,
    devices and non-finite entries. Introduced in *structured-dynamics*.
    """
    sizes = check_shape("A", A, "... N N", complex_ok=complex_ok)
    sizes = check_shape("B", B, "... N d", sizes, complex_ok=complex_ok)
    sizes = check_shape("C", C, "... p N", sizes, complex_ok=complex_ok)
    named = {"A": A, "B": B, "C": C}
    if D is not None:
        check_shape("D", D, "... p d", sizes, complex_ok=complex_ok)
        named["D"] = D
    check_alike(**named)
    for name, tensor in named.items():
        if tensor.shape[:-2] != A.shape[:-2]:
            wanted, got = tuple(A.shape[:-2]), tuple(tensor.shape[:-2])
            raise ValueError(f"{name} must have the batch shape of A, {wanted}; got {got}")
        check_finite(name, tensor)
    return sizes


def lag_operators(A, B, C, n, D=None) -> torch.Tensor:
    """Return the lag operators M_tau = C A^tau B of a state space model for tau = 0 … n-1, the skip in M_0.

    A (..., N, N), B (..., N, d), C (..., p, N), D (..., p, d) or None; n >= 0 an ``int``. Result (..., n, p,
    d) in the dtype of the inputs (real or complex, one for all), differentiable. Two-level powers: with L
    near sqrt(n), A^(iL+j) = A^(iL) A^j. Where powers of A grow before they decay and these would be less
    exact, it is the recurrence; ``TransientPeakWarning`` where that is off as well. An unstable A is allowed
    as long as its lags stay finite.

    Raises ``TypeError`` for a wrong or mixed dtype, ``ValueError`` for shapes, devices, non-finite entries, n
    < 0, and for lags that overflow the dtype (the first such lag is named). Introduced in
    *structured-dynamics*.
    """
    check_integer("n", n, low=0)
    check_system(A, B, C, D, complex_ok=True)
    M = lags(A, B, C, n)
    if n == 0:
        return M
    if not torch.isfinite(M).all():
        M = lags_by_recurrence(A, B, C, n)  # no power of A overflows here that B never excites
    if D is not None:
        M = torch.cat([M[..., :1, :, :] + D.unsqueeze(-3), M[..., 1:, :, :]], dim=-3)
    finite = torch.isfinite(M).flatten(-2).all(-1).reshape(-1, n).all(0)
    if not finite.all():
        first = int((~finite).nonzero()[0])
        raise ValueError(f"n must stay below the lag where M overflows {M.dtype}, {first}; got n = {n}")
    return M
