"""Softmax heads with fixed finite logits and a sink: how many a system takes, why, and which.

Up to scale, the weights of such a head can be any positive numbers: the sink takes the rest of each row. So
the lags must lie in the open cone of the value maps. k maps have such a cone if some U has <U, M_tau> > 0 for
every lag; otherwise it takes k + 1, whose cone can be the whole span.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch

from ssmbook._count import Count
from ssmbook.heads import _lp
from ssmbook.heads._evidence import Evidence
from ssmbook.heads._lags import check_real_system, lags_of, row_space, system_arrays
from ssmbook.heads.exact import pivots
from ssmbook.heads.poles import poles_decide, verdict_of_poles
from ssmbook.numerics import tolerance
from ssmbook.operators import FactorizedOperator
from ssmbook.scans import lti_kernel
from ssmbook.systems.system import System

_EPS = np.finfo(np.float64).eps
# A lag this far outside the numerical span (relative to the lag) makes the rank itself doubtful.
_OUTSIDE = 1e-7
# A lag this small beside the terms it sums is zero: what is left of it is rounding.
_CANCELLED = 1e-12
# Constructions with a larger relative error are refused.
_FAITHFUL = 1e-10
_EXACT_SUPPORT = 12


# The count -------------------------------------------------------------------------------------------------


def softmax_head_count(
    system: System | torch.Tensor, n: int | None = None, *, rtol: float | None = None
) -> Count:
    """Return the fewest causal softmax heads with a sink and fixed finite logits that equal the system.

    It is k = dim span{M_tau} if some U has <U, M_tau> > 0 for all lags, else k + 1; a zero lag always costs
    the extra head. The poles of a System without a skip decide most cases (`eigenvalue_test`), a linear
    program the others. Evidence: ``kind`` is "eigenvalue", "separating" (``U`` (p, d) is positive on every
    lag), "dependency" (``weights`` (n,) >= 0 with sum 1 have sum_tau weights_tau M_tau/|M_tau| = 0), "zero"
    or "undecided"; ``k``; ``reason`` in words; ``margin``, relative to |M_tau|: a lower bound of the least
    <U, M_tau>, or of the radius about 0 inside the hull of the lags (0 if the dependency is exact), or the
    best one found. Source: thm-sink-count.

    >>> one = torch.ones(1, 1)
    >>> print(softmax_head_count(System(0.5 * one, one, one), 8))
    1 head (eigenvalue)
    >>> print(softmax_head_count(System(-0.5 * one, one, one), 8))  # it changes sign, and no weight may
    2 heads (eigenvalue)
    """
    test = None
    if isinstance(system, System) and system.D is None:
        test = verdict_of_poles(system)
        if poles_decide(test, system, n):
            kind, count = "eigenvalue" if test.k else "zero", test.k + (test.verdict == "k+1")
            return Count(count, count, kind, Evidence(kind=kind, k=test.k, reason=test.reason))
    rows, _, like = _lag_rows(system, n)
    evidence = certify(rows, tolerance(rtol, like.dtype), accuracy(like.dtype))
    if test is not None and evidence.kind == "undecided":
        evidence.reason = f"{evidence.reason}; of the poles: {test.reason}"
    return counted(_shaped(evidence, like))


def counted(evidence: Evidence) -> Count:
    """The number of heads that the evidence proves, k to k + 1 where it is undecided."""
    k = evidence.k
    known = {"separating": (k, k), "dependency": (k + 1, k + 1), "zero": (0, 0)}
    low, high = known.get(evidence.kind, (k, k + 1))
    return Count(low, high, evidence.kind, evidence)


def accuracy(dtype) -> float:
    """The relative accuracy to which a lag is trusted."""
    return 1e-12 if dtype == torch.float64 else tolerance(None, dtype)


def _shaped(evidence, like):
    """The evidence with U a matrix, in the dtype and on the device of the lags."""
    U, weights = evidence.U, evidence.weights
    evidence.U = None if U is None else U.reshape(like.shape[1:]).to(like)
    evidence.weights = None if weights is None else weights.to(like)
    return evidence


def _lag_rows(system, n):
    """Rows (n, p d) and logarithms (n,) with e^log rows = vec M_tau in float64, and lags of their dtype.

    A lag that cancels is zero. If lags of a System would underflow, its A is divided by the spectral radius.
    """
    if isinstance(system, torch.Tensor):
        M = lags_of(system, n)
        return M.detach().double().cpu().flatten(1).numpy(), np.zeros(len(M)), M
    A, B, C, D = system_arrays(check_real_system(system))
    radius, logs = np.abs(np.linalg.eigvals(A)).max(initial=0.0), np.zeros(n)
    if radius > 0 and n * math.log(radius) < -600:
        A, logs = A / radius, math.log(radius) * np.arange(n)
    states = lti_kernel(*map(torch.from_numpy, (A, B, np.eye(len(A)))), n).numpy()
    rows, terms = (C @ states).reshape(n, -1), (np.abs(C) @ np.abs(states)).reshape(n, -1)
    cancelled = np.abs(rows).max(1, initial=0.0) <= _CANCELLED * terms.max(1, initial=0.0)
    rows[cancelled | (system.minimal().N == 0)] = 0.0  # without a minimal state all lags are rounding
    if D is not None and n:
        rows[0] += D.ravel()
    return rows, logs, system.C.detach().new_empty(0, C.shape[0], B.shape[1])


def certify(rows: np.ndarray, rtol: float, accuracy: float) -> Evidence:
    """Decide whether one functional is positive on every row of a float64 array (m, q); U and weights flat.

    Used for lags and, without a sink, for all blocks W_ij.
    """
    basis, _ = row_space(rows, rtol)
    unit, nonzero = _lp.unit_rows(rows)
    k = len(basis)

    def found(kind, margin, reason, U=None, weights=None):
        return Evidence(kind=kind, k=k, margin=float(margin), reason=reason, U=U, weights=weights)

    if k == 0:
        return found("zero", 0.0, "every lag is zero")
    if not nonzero.all():
        zero = int(np.argmin(nonzero))
        weights = torch.nn.functional.one_hot(torch.tensor(zero), len(rows)).double()
        return found("dependency", 0.0, f"lag {zero} is exactly zero", weights=weights)
    Z = unit @ basis.T
    residual = float(np.linalg.norm(unit - Z @ basis, axis=1).max())
    if residual > max(_OUTSIDE, 10 * rtol):
        reason = f"a lag leaves the span of the {k} leading directions by {residual:.1e} of its norm"
        return found("undecided", math.nan, reason)
    best = -np.inf
    for T in (np.eye(k), _lp.balanced(Z)):  # the program as it is, then in balanced coordinates
        turned, _ = _lp.unit_rows(Z @ T)
        u, weights, working = _lp.widest_margin(turned)
        U, margin = _separation(T @ u, unit, basis)
        best = max(best, margin)
        if margin > accuracy:
            return found("separating", margin, f"one U is positive on every lag, margin {margin:.1e}", U=U)
        inner = _lp.positive_dependency(turned, working)
        if inner is not None:
            inner = _lp.polished(Z, inner / np.linalg.norm(Z @ T, axis=1))
            radius = _lp.dependency_radius(Z, inner)
            if radius > accuracy + residual:
                reason = f"0 lies in the hull of the normalized lags, {radius:.1e} or more from its boundary"
                return found("dependency", radius, reason, weights=torch.from_numpy(inner))
        exact = _exact_dependency(rows, weights)
        if exact is not None:
            reason = "a non-negative combination of the given lags is exactly zero over the rationals"
            return found("dependency", 0.0, reason, weights=exact)
    reason = f"best margin {best:.1e}, below the accuracy {accuracy:.1e}, and no dependency was proved"
    return found("undecided", best, reason)


def _separation(u, unit, basis):
    """The functional u as a unit U, and the margin that it certainly has, rounding taken off."""
    U = u @ basis
    norm = np.linalg.norm(U)
    if norm == 0:
        return None, 0.0
    U = U / norm
    rounding = (U.size + 4) * _EPS * (np.abs(unit) @ np.abs(U))
    return torch.from_numpy(U), float((unit @ U - rounding).min())


def _exact_dependency(rows, weights):
    """Weights of an exact rational positive dependency on the support of ``weights``, or None.

    The weights are a vertex of the dual program, so the rows that they use depend in one way at most.
    """
    support = np.flatnonzero(weights > 1e-9)
    if not 2 <= support.size <= _EXACT_SUPPORT:
        return None
    *others, last = range(support.size)
    basis, relations = pivots([[Fraction(value) for value in row] for row in rows[support].tolist()])
    if basis != others or max(relations[last]) >= 0:
        return None
    exact = np.zeros(len(rows))
    exact[support] = np.array([*(-float(c) for c in relations[last]), 1.0])
    exact[support] *= np.linalg.norm(rows[support], axis=1)
    return torch.from_numpy(exact / exact.sum())


# The heads -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SoftmaxHeads:
    """Causal softmax heads, given by their logits and value maps.

    ``logits`` (H, n, n), -inf above the diagonal; ``V`` (H, p, d); ``sink``: whether every row also has a
    sink with logit 0 and value 0; ``relative_error``: the Frobenius error over the norm of the target;
    ``evidence``: that of the count.

    >>> one = torch.ones(1, 1, dtype=torch.float64)
    >>> heads = softmax_heads(System(0.5 * one, one, one), 8)
    >>> heads.logits.shape, heads.sink, heads.relative_error < 1e-12
    (torch.Size([1, 8, 8]), True, True)
    """

    logits: torch.Tensor
    V: torch.Tensor
    sink: bool
    relative_error: float
    evidence: Evidence

    @property
    def H(self) -> int:
        """Number of heads."""
        return len(self.V)

    def coefficients(self) -> torch.Tensor:
        """Return alpha (H, n, n) by a softmax over the visible keys and the sink, if there is one."""
        if not self.sink:
            return torch.softmax(self.logits, dim=-1)
        column = self.logits.new_zeros(*self.logits.shape[:-1], 1)
        return torch.softmax(torch.cat([column, self.logits], dim=-1), dim=-1)[..., 1:]

    def operator(self) -> FactorizedOperator:
        """Return the heads as a ``FactorizedOperator``."""
        return FactorizedOperator(self.coefficients(), self.V)


def softmax_heads(system: System, n: int, *, H: int | None = None, rtol: float | None = None) -> SoftmaxHeads:
    """Return softmax heads with a sink and finite logits whose operator is the system's.

    One real `System`, n >= 1 tokens. ``H``: k or k + 1; None takes k if they are certified and keep ten
    digits, else k + 1. Built in float64, returned in the dtype of the system. Raises ``ValueError`` for
    another H, for k heads that are not certified, and if rounding forbids a relative error of 1e-10. Source:
    thm-sink-count.

    >>> one = torch.ones(1, 1, dtype=torch.float64)
    >>> heads = softmax_heads(System(-0.5 * one, one, one), 8)
    >>> len(heads.V), heads.relative_error < 1e-10
    (2, True)
    """
    if n < 1:
        raise ValueError(f"n must be at least 1; got {n}")
    rows, logs, like = _lag_rows(system, n)
    # Directions below the standard tolerance still count against ten digits: try again with all but rounding.
    for share in (tolerance(rtol, torch.float64), max(rows.shape) * _EPS)[: 1 if rtol is not None else 2]:
        evidence = certify(rows, share, accuracy(torch.float64))
        check_heads(H, evidence)
        coefficients, V, error = _made(rows, logs, row_space(rows, share)[0], evidence, H)
        if error <= _FAITHFUL:
            break
    else:
        raise ValueError(f"rounding in A, B, C leaves {len(V)} heads a relative error of {error:.1e}")
    # No row may sum to more than 1/2, and the logits are log alpha - log(1 - row sum).
    totals = 2 * (np.exp(logs)[:, None] * coefficients).sum(0)
    logarithms = np.log(coefficients / totals) + logs[:, None]
    slack = np.log1p(-np.cumsum(np.exp(logarithms), axis=0))
    lag = np.arange(n)[:, None] - np.arange(n)
    logits = np.where(lag >= 0, logarithms.T[:, np.maximum(lag, 0)] - slack.T[:, :, None], -np.inf)
    V = (V * totals[:, None]).reshape(len(V), *like.shape[1:])
    logits, V = (torch.from_numpy(part).to(like) for part in (logits, V))
    return SoftmaxHeads(logits, V, True, error, _shaped(evidence, like))


def check_heads(H, evidence):
    """Refuse a number of heads that is neither k nor k + 1, and k where no separating U was found."""
    k = evidence.k
    if H is not None and H not in ((k, k + 1) if k else (0,)):
        raise ValueError(f"H must be {f'{k} or {k + 1}' if k else 0}; got {H}")
    if H == k > 0 and evidence.kind != "separating":
        raise ValueError(f"H = {k} is not certified here: {evidence.reason}; ask for {k + 1}")


def _made(rows, logs, basis, evidence, H):
    """Coefficients and value maps of k heads if certified, wanted and faithful, else of k + 1; the error."""
    Z, made = rows @ basis.T, None
    if evidence.kind == "separating" and H in (None, evidence.k):
        made = slice_simplex(Z, basis @ evidence.U.numpy())
    if made is None or (H is None and _error(rows, logs, basis, *made) > _FAITHFUL):
        made = full_simplex(Z)
    return made[0], made[1] @ basis, _error(rows, logs, basis, *made)


def _error(rows, logs, basis, coefficients, vertices) -> float:
    """The relative error of the operator, in which lag tau occurs n - tau times."""
    weights = (np.exp(logs) * np.sqrt(len(rows) - np.arange(len(rows))))[:, None]
    size = np.linalg.norm(weights * rows)
    return float(np.linalg.norm(weights * (rows - coefficients @ vertices @ basis)) / size) if size else 0.0


def regular_simplex(k: int) -> np.ndarray:
    """Return the k + 1 unit vertices (k + 1, k) of a regular simplex centered at 0."""
    centered = np.eye(k + 1) - 1 / (k + 1)
    left, sigma, _ = np.linalg.svd(centered)
    return left[:, :k] * sigma[:k] / np.sqrt(k / (k + 1))


def full_simplex(Z: np.ndarray):
    """Return positive coefficients (m, k + 1) and generators (k + 1, k) whose product is Z (m, k).

    The generators sum to 0, so adding a constant to all coefficients of a row changes nothing.
    """
    k = Z.shape[1]
    if k == 0:
        return np.zeros((len(Z), 0)), np.zeros((0, 0))
    generators = regular_simplex(k)
    signed = Z @ generators.T * (k / (k + 1))
    sizes = np.linalg.norm(Z, axis=1)
    return signed + np.maximum(1.1 * sizes, 1e-30 * sizes.max())[:, None], generators


def slice_simplex(Z: np.ndarray, u: np.ndarray):
    """Return positive coefficients (m, k) and k generators around the slice <u, .> = 1 of rows Z (m, k).

    Needs <u, z> > 0 for every row: the points z/<u, z> lie in a hyperplane off 0; a simplex there, stretched
    to their shape, contains them with barycentric coordinates of at least 1/(10 k).
    """
    k = Z.shape[1]
    frame = np.linalg.qr(np.column_stack([u, np.eye(k)]))[0]
    frame[:, 0] = u / np.linalg.norm(u)
    heights = Z @ frame[:, 0]
    points = Z @ frame[:, 1:] / heights[:, None]
    if k == 1:
        return heights[:, None], frame.T
    center = (points.max(0) + points.min(0)) / 2
    _, sigma, axes = np.linalg.svd(points - center, full_matrices=False)
    axes = axes / np.maximum(sigma, 1e-8 * sigma[0])[:, None]
    inside = (points - center) @ axes.T @ regular_simplex(k - 1).T
    radius = (k - 1) * -inside.min() / 0.9
    barycentric = (1 + (k - 1) * inside / radius) / k
    corners = center + radius * regular_simplex(k - 1) @ np.linalg.pinv(axes.T, rcond=1e-12)
    return heights[:, None] * barycentric, np.hstack([np.ones((k, 1)), corners]) @ frame.T
