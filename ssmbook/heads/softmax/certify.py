"""What certifies a number of softmax heads: one functional positive on all rows, or a positive dependency."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

import numpy as np
import torch

from ssmbook._checks import check_rtol
from ssmbook._count import Count
from ssmbook.heads._coordinates import span_coordinates
from ssmbook.heads.softmax import lp
from ssmbook.heads.softmax.positive import positive_weights
from ssmbook.numerics import tolerance

_EPS = np.finfo(np.float64).eps
# Lags that leave the numerical span by more than this (relative to themselves) make the rank itself doubtful.
_SPAN_TOLERANCE = 1e-7
_EXACT_SUPPORT = 12


@dataclass(frozen=True)
class SoftmaxCertificate:
    """Why a softmax head count is k, k + 1 or open (introduced in *how-many-heads-really*).

    ``kind`` is "separating" (U (p, d) has <U, M_tau> > 0 for every lag: k heads), "dependency" (weights (n,)
    >= 0 with sum 1 have sum_tau weights_tau M_tau/|M_tau| = 0: k + 1 heads), "eigenvalue" (decided
    by the poles of the system, see ``eigenvalue_test``), "zero" (no heads) or
    "undecided". ``margin`` is relative to |M_tau|: for "separating" a lower bound of min <U,
    M_tau>/(|U||M_tau|), for "dependency" a lower bound of the radius about 0 inside the hull of the
    normalized lags (0 when the proof is exact), for "undecided" the best margin found. ``exact``: the sign
    pattern or the dependency was proved for the very floats given (rounding bound, or rational arithmetic).
    ``spectrum`` holds the singular values behind k and ``residual`` the largest part of a normalized lag
    outside their span; ``reason`` says it in words.

    >>> from ssmbook.heads import head_count
    >>> turn = System(torch.tensor([[0.0, -0.9], [0.9, 0.0]]), torch.eye(2), torch.eye(2))
    >>> head_count(turn, 16, "softmax").evidence.kind
    'eigenvalue'
    """

    kind: str
    k: int
    margin: float
    exact: bool
    reason: str
    spectrum: torch.Tensor
    residual: float
    U: torch.Tensor | None = None
    weights: torch.Tensor | None = None


def counted(certificate: SoftmaxCertificate) -> Count:
    """The number of heads a certificate proves, k to k + 1 where it is open."""
    k = certificate.k
    low, high = {"separating": (k, k), "dependency": (k + 1, k + 1), "zero": (0, 0)}.get(
        certificate.kind, (k, k + 1)
    )
    return Count(low, high, certificate.kind, certificate)


def shaped(certificate, M):
    """The certificate with U a matrix, in the dtype and on the device of M."""
    U, weights = certificate.U, certificate.weights
    return replace(
        certificate,
        U=None if U is None else U.reshape(M.shape[1:]).to(M),
        weights=None if weights is None else weights.to(M),
        spectrum=certificate.spectrum.to(M.device),
    )


def trust(M: torch.Tensor, rtol: float | None, lag_rtol: float | None) -> tuple[float, float]:
    """The rank tolerance and the accuracy of the lags, from the dtype of M where None."""
    if lag_rtol is None:
        lag_rtol = 1e-12 if M.dtype == torch.float64 else tolerance(None, M.dtype)
    lag_rtol = check_rtol(lag_rtol, "lag_rtol")
    return tolerance(rtol, M.dtype), lag_rtol


def certify(rows: np.ndarray, rtol: float, lag_rtol: float) -> SoftmaxCertificate:
    """Decide whether one functional is positive on every row of a float64 array (m, q); U, weights flat.

    Used for lags and, without a sink, for every block W_ij.
    """
    basis, spectrum = span_coordinates(rows, rtol)
    unit, nonzero = lp.unit_rows(rows)
    k = len(basis)
    certificate = partial(SoftmaxCertificate, k=k, spectrum=torch.from_numpy(spectrum))
    if k == 0:
        return certificate("zero", margin=0.0, exact=True, residual=0.0, reason="every lag is zero")
    Z = unit @ basis.T
    residual = float(np.linalg.norm(unit - Z @ basis, axis=1).max())
    certificate = partial(certificate, residual=residual)
    if not nonzero.all():
        zero = int(np.argmin(nonzero))
        weights = torch.nn.functional.one_hot(torch.tensor(zero), len(rows)).double()
        reason = f"lag {zero} is exactly zero"
        return certificate("dependency", margin=0.0, exact=True, weights=weights, reason=reason)
    if residual > max(_SPAN_TOLERANCE, 10 * rtol):
        reason = f"a lag leaves the span of the {k} leading directions by {residual:.1e} of its norm"
        return certificate("undecided", margin=float("nan"), exact=False, reason=reason)
    return _decided(Z, unit, rows, basis, certificate, lag_rtol, lag_rtol + residual)


def _decided(Z, unit, rows, basis, certificate, least_margin, least_radius):
    """Try the program as it is, then in balanced coordinates; keep the first verified answer."""
    best = -np.inf
    for T in (np.eye(Z.shape[1]), lp.balanced(Z)):
        turned, _ = lp.unit_rows(Z @ T)
        u, weights, working = lp.widest_margin(turned)
        U, margin = _separation(T @ u, unit, basis)
        best = max(best, margin)
        if margin > least_margin:
            reason = f"one U has <U, M_tau> > 0 on every lag, with relative margin at least {margin:.1e}"
            return certificate("separating", margin=margin, exact=True, U=U, reason=reason)
        inner = lp.positive_dependency(turned, working)
        if inner is not None:
            inner = lp.polished(Z, inner / np.linalg.norm(Z @ T, axis=1))
            radius = lp.dependency_radius(Z, inner)
            if radius > least_radius:
                reason = f"0 lies in the hull of the normalized lags, {radius:.1e} or more from its boundary"
                inner = torch.from_numpy(inner)
                return certificate("dependency", margin=radius, exact=False, weights=inner, reason=reason)
        exact = _exact_dependency(rows, weights)
        if exact is not None:
            reason = "a non-negative combination of the lags given is exactly zero over the rationals"
            return certificate("dependency", margin=0.0, exact=True, weights=exact, reason=reason)
    reason = f"best margin {best:.1e} is below the trusted accuracy {least_margin:.1e}"
    reason += " and no dependency was proved"
    return certificate("undecided", margin=best, exact=False, reason=reason)


def _separation(u, unit, basis):
    """The functional u as a unit U, and the margin it certainly has, rounding taken off."""
    U = u @ basis
    norm = np.linalg.norm(U)
    if norm == 0:
        return None, 0.0
    U = U / norm
    rounding = (U.size + 4) * _EPS * (np.abs(unit) @ np.abs(U))
    return torch.from_numpy(U), float((unit @ U - rounding).min())


def _exact_dependency(rows, weights):
    """Weights of an exact rational positive dependency on the support of ``weights``, or None."""
    support = np.flatnonzero(weights > 1e-9)
    if not 2 <= support.size <= _EXACT_SUPPORT:
        return None
    found = positive_weights([[Fraction(value) for value in row] for row in rows[support].tolist()])
    if found is None:
        return None
    exact = np.zeros(len(rows))
    exact[support] = [float(c) for c in found] * np.linalg.norm(rows[support], axis=1)
    return torch.from_numpy(exact / exact.sum())
