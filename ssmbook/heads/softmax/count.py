"""How many softmax heads with a sink a time-invariant system needs, with a certificate for the answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import torch

from ssmbook._checks import check_rtol
from ssmbook.heads._coordinates import span_coordinates
from ssmbook.heads._target import lags_of, system_behind
from ssmbook.heads.count import Count
from ssmbook.heads.fixed.counts import head_count
from ssmbook.heads.fixed.exact import rational_matrix
from ssmbook.heads.softmax import lp
from ssmbook.heads.softmax.eigenvalues import eigenvalue_test
from ssmbook.heads.softmax.rows import lag_rows
from ssmbook.numerics import tolerance
from ssmbook.systems.system import System, system_first

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

    >>> turn = System(torch.tensor([[0.0, -0.9], [0.9, 0.0]]), torch.eye(2), torch.eye(2))
    >>> softmax_head_count(turn, 16).evidence.kind
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


@system_first
def softmax_head_count(
    system: System | torch.Tensor,
    n: int | None = None,
    rtol: float | None = None,
    lag_rtol: float | None = None,
) -> Count:
    """Return the fewest causal softmax heads with a sink that are a system exactly, and the certificate.

    Class: coefficients independent of the input, finite logits on j <= i, a sink of value 0 (equivalently
    softmax with a + 1 in the denominator), equality of operators. The count is k = dim span{M_tau} if some U
    has <U, M_tau> > 0 for *all* lags, else k + 1 (a zero lag always costs the extra head); 0 for the zero
    system.

    A real `System` and n, or lag operators M (n, p, d) alone; the work is done in float64. ``rtol`` is the
    rank tolerance relative to the largest singular value, ``lag_rtol`` the relative accuracy to which each
    lag is trusted: margins below it are not decided unless exact arithmetic settles them. Defaults: 1e-10 and
    1e-12 in float64, 16 epsilons in shorter types. Returns a `Count` (k to k + 1 where undecided), evidence a
    `SoftmaxCertificate`. Of a System without a skip the eigenvalue test is asked first, which neither
    underflows nor needs a linear program, and the lags only where it cannot decide this length. A lag that
    underflowed to zero is made again from the System; given as a number it is a zero lag.

    Raises ``TypeError``/``ValueError`` for a wrong dtype or shape, NaN and infinity, and tolerances that are
    not numbers in [0, 1). Source: Theorem *thm-sink-count*. Introduced in *how-many-heads-really*.

    >>> one = torch.ones(1, 1)
    >>> print(softmax_head_count(System(0.5 * one, one, one), 8))
    1 head (eigenvalue)
    >>> print(softmax_head_count(System(-0.5 * one, one, one), 8))  # it changes sign, and no weight may
    2 heads (eigenvalue)
    """
    M, behind = lags_of(system, n), system_behind(system)
    tolerances = trust(M, rtol, lag_rtol)
    if behind is not None and len(M) and system.minimal().N == 0:  # nothing of it passes through a state
        M = torch.zeros_like(M)
        M[0] = 0 if system.D is None else system.D
    test = eigenvalue_test(system) if behind is not None and system.D is None else None
    if test is not None and _decides(test, M, system.N):
        return _by_eigenvalues(test, M[: system.N + 1])
    certificate = certify(lag_rows(M, behind)[0], *tolerances)
    if test is not None and certificate.kind == "undecided":
        certificate = replace(certificate, reason=f"{certificate.reason}; of the poles: {test.reason}")
    return counted(shaped(certificate, M))


def counted(certificate: SoftmaxCertificate) -> Count:
    """The number of heads a certificate proves, k to k + 1 where it is open.

    Introduced in *how-many-heads-really*.
    """
    k = certificate.k
    low, high = {"separating": (k, k), "dependency": (k + 1, k + 1), "zero": (0, 0)}.get(
        certificate.kind, (k, k + 1)
    )
    return Count(low, high, certificate.kind, certificate)


def shaped(certificate, M):
    """The certificate with U a matrix, in the dtype and on the device of M.

    Introduced in *how-many-heads-really*.
    """
    U, weights = certificate.U, certificate.weights
    return replace(
        certificate,
        U=None if U is None else U.reshape(M.shape[1:]).to(M),
        weights=None if weights is None else weights.to(M),
        spectrum=certificate.spectrum.to(M.device),
    )


def _decides(test, M, N) -> bool:
    """Whether the poles decide the count of these lags, which show no more heads than the poles do."""
    n = len(M)
    if n < test.nu or test.k == 0 or test.verdict == "inconclusive":
        return False
    if test.verdict == "k+1" and n < test.n0_high:
        return False
    return head_count(M[: N + 1]).value <= test.k


def _by_eigenvalues(test, lags):
    """The count where the poles decide, with the spectrum of the first lags."""
    spectrum = torch.linalg.svdvals(lags.detach().double().flatten(1))
    found = {"margin": float("nan"), "exact": False, "reason": test.reason}
    certificate = SoftmaxCertificate("eigenvalue", test.k, spectrum=spectrum, residual=0.0, **found)
    count = test.k + (test.verdict == "k+1")
    return Count(count, count, "eigenvalue", certificate)


def trust(M: torch.Tensor, rtol: float | None, lag_rtol: float | None) -> tuple[float, float]:
    """The rank tolerance and the accuracy of the lags, from the dtype of M where None.

    Introduced in *how-many-heads-really*.
    """
    if lag_rtol is None:
        lag_rtol = 1e-12 if M.dtype == torch.float64 else tolerance(None, M.dtype)
    check_rtol(lag_rtol, "lag_rtol")
    return tolerance(rtol, M.dtype), lag_rtol


def certify(rows: np.ndarray, rtol: float, lag_rtol: float) -> SoftmaxCertificate:
    """Decide whether one functional is positive on every row of a float64 array (m, q); U, weights flat.

    Used for lags and, without a sink, for every block W_ij. Introduced in *how-many-heads-really*.
    """
    basis, spectrum = span_coordinates(rows, rtol)
    unit, nonzero = lp.unit_rows(rows)
    k = basis.shape[0]
    known = {"k": k, "spectrum": torch.from_numpy(spectrum)}
    if k == 0:
        return SoftmaxCertificate(
            "zero", margin=0.0, exact=True, residual=0.0, reason="every lag is zero", **known
        )
    Z = unit @ basis.T
    known["residual"] = float(np.linalg.norm(unit - Z @ basis, axis=1).max())
    if not nonzero.all():
        weights = torch.zeros(len(rows), dtype=torch.float64)
        weights[int(np.argmin(nonzero))] = 1.0
        reason = f"lag {int(np.argmin(nonzero))} is exactly zero"
        return SoftmaxCertificate(
            "dependency", margin=0.0, exact=True, weights=weights, reason=reason, **known
        )
    if known["residual"] > max(_SPAN_TOLERANCE, 10 * rtol):
        reason = f"a lag leaves the span of the {k} leading directions by {known['residual']:.1e} of its norm"
        return SoftmaxCertificate("undecided", margin=float("nan"), exact=False, reason=reason, **known)
    return _decided(Z, rows, basis, known, lag_rtol)


def _decided(Z, rows, basis, known, lag_rtol):
    """Try the program as it is, then in balanced coordinates; keep the first verified answer."""
    unit, _ = lp.unit_rows(rows)
    best = -np.inf
    for T in (np.eye(known["k"]), lp.balanced(Z)):
        turned, _ = lp.unit_rows(Z @ T)
        u, weights, working = lp.widest_margin(turned)
        U, margin = _separation(T @ u, unit, basis)
        best = max(best, margin)
        if margin > lag_rtol:
            reason = f"one U has <U, M_tau> > 0 on every lag, with relative margin at least {margin:.1e}"
            return SoftmaxCertificate("separating", margin=margin, exact=True, U=U, reason=reason, **known)
        inner = lp.positive_dependency(turned, working)
        if inner is not None:
            inner = lp.polished(Z, inner / np.linalg.norm(Z @ T, axis=1))
            radius = lp.dependency_radius(Z, inner)
            if radius > lag_rtol + known["residual"]:
                reason = (
                    f"0 lies inside the hull of the normalized lags, {radius:.1e} or more from its boundary"
                )
                found = {
                    "margin": radius,
                    "exact": False,
                    "weights": torch.from_numpy(inner),
                    "reason": reason,
                }
                return SoftmaxCertificate("dependency", **found, **known)
        exact = _exact_dependency(rows, weights)
        if exact is not None:
            reason = "a non-negative combination of the lags given is exactly zero over the rationals"
            return SoftmaxCertificate(
                "dependency", margin=0.0, exact=True, weights=exact, reason=reason, **known
            )
    reason = (
        f"best margin {best:.1e} is below the trusted accuracy {lag_rtol:.1e} and no dependency was proved"
    )
    return SoftmaxCertificate("undecided", margin=best, exact=False, reason=reason, **known)


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
    columns = [[Fraction(float(value)) for value in rows[t]] for t in support]
    kernel = rational_matrix(columns, (support.size, rows.shape[1])).transpose().nullspace().to_Matrix()
    if kernel.shape[0] != 1:
        return None
    combination = [value * (1 if kernel[0] > 0 else -1) for value in kernel]
    if min(combination) <= 0:
        return None
    largest = max(combination)
    exact = np.zeros(len(rows))
    exact[support] = [float(c / largest) for c in combination] * np.linalg.norm(rows[support], axis=1)
    return torch.from_numpy(exact / exact.sum())
