"""Is some functional positive on every lag? The decision behind the counts of softmax heads, with its proof.

Everything works on unit rows Z (m, k), the normalized lags in coordinates of their span. By
Gordan exactly one of two things exists, and a linear program looks for each:

    u      with <u, z> > 0 for every row z:                     "separating", k heads are enough;
    lambda >= 0 of sum 1 with sum_z lambda_z z = 0:             "dependency", it takes k + 1.

A program only suggests. What it found is verified with rounding errors taken off, or, for a
handful of rows, in rational arithmetic; where neither holds the answer is "undecided".
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import scipy  # its optimizers are slow to load and load at the first program
import torch
from torch import Tensor

from ssmbook.heads._count import Count
from ssmbook.heads._evidence import ConeEvidence
from ssmbook.heads._lags import row_space
from ssmbook.heads.exact import pivots
from ssmbook.numerics import tolerance

# HiGHS' tightest tolerances: margins of 1e-7 are common, and its defaults are as coarse as
# that.
_HIGHS = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
_DENSE = 2000
_EPS = np.finfo(np.float64).eps
# A lag this far outside the numerical span (relative to the lag) makes the rank itself
# doubtful.
_OUTSIDE = 1e-7
_EXACT_SUPPORT = 12


def count_of(evidence: ConeEvidence) -> Count[ConeEvidence]:
    """The number of heads that the evidence proves, k to k + 1 where it is undecided."""
    k = evidence.k
    known = {"separating": (k, k), "dependency": (k + 1, k + 1), "zero": (0, 0)}
    low, high = known.get(evidence.kind, (k, k + 1))
    return Count(low, high, evidence.kind, evidence)


def accuracy_of(dtype: torch.dtype) -> float:
    """The relative accuracy to which a lag is trusted."""
    return 1e-12 if dtype == torch.float64 else tolerance(None, dtype)


def certify(rows: np.ndarray, rtol: float, accuracy: float) -> ConeEvidence:
    """Decide whether one functional is positive on every row of a float64 array (m, q); U and weights flat.

    Used for lags and, without a sink, for all blocks W_ij.
    """
    basis = row_space(rows, rtol)
    k = len(basis)
    if k == 0:
        return ConeEvidence("zero", "every lag is zero", k, margin=0.0)

    unit, nonzero = unit_rows(rows)
    if not nonzero.all():  # 1 times a zero row is 0: the shortest dependency
        zero = int(np.argmin(nonzero))
        weights = torch.nn.functional.one_hot(torch.tensor(zero), len(rows)).double()
        return ConeEvidence("dependency", f"lag {zero} is exactly zero", k, margin=0.0, weights=weights)

    Z = unit @ basis.T
    residual = float(np.linalg.norm(unit - Z @ basis, axis=1).max())
    if residual > max(_OUTSIDE, 10 * rtol):
        reason = f"a lag leaves the span of the {k} leading directions by {residual:.1e} of its norm"
        return ConeEvidence("undecided", reason, k, margin=math.nan)

    best = -np.inf
    for T in (np.eye(k), balancing_matrix(Z)):  # the program as it is, then in balanced coordinates
        turned, _ = unit_rows(Z @ T)
        u, weights, working = widest_margin(turned)
        U, margin = _separation(T @ u, unit, basis)
        if margin > accuracy:
            reason = f"one U is positive on every lag, margin {margin:.1e}"
            return ConeEvidence("separating", reason, k, margin=margin, U=U)
        best = max(best, margin)

        inner = positive_dependency(turned, working)
        if inner is not None:
            inner = polish(Z, inner / np.linalg.norm(Z @ T, axis=1))
            radius = dependency_radius(Z, inner)
            if radius > accuracy + residual:
                reason = f"0 lies in the hull of the normalized lags, {radius:.1e} or more from its boundary"
                inner = torch.from_numpy(inner)
                return ConeEvidence("dependency", reason, k, margin=float(radius), weights=inner)

        exact = _exact_dependency(rows, weights)
        if exact is not None:
            reason = "a non-negative combination of the given lags is exactly zero over the rationals"
            return ConeEvidence("dependency", reason, k, margin=0.0, weights=exact)

    reason = f"best margin {best:.1e}, below the accuracy {accuracy:.1e}, and no dependency was proved"
    return ConeEvidence("undecided", reason, k, margin=float(best))


def _separation(u: np.ndarray, unit: np.ndarray, basis: np.ndarray) -> tuple[Tensor | None, float]:
    """The functional u as a unit U, and the margin that it certainly has, rounding taken off."""
    U = u @ basis
    norm = np.linalg.norm(U)
    if norm == 0:
        return None, 0.0
    U = U / norm
    rounding = (U.size + 4) * _EPS * (np.abs(unit) @ np.abs(U))
    return torch.from_numpy(U), float((unit @ U - rounding).min())


def _exact_dependency(rows: np.ndarray, weights: np.ndarray) -> Tensor | None:
    """Weights of an exact rational positive dependency on the support of ``weights``, or None.

    The weights are a vertex of the dual program, so the rows that they use depend in one
    way at most.
    """
    support = np.flatnonzero(weights > 1e-9)
    if not 2 <= support.size <= _EXACT_SUPPORT:
        return None
    fractions = [[Fraction(value) for value in row] for row in rows[support].tolist()]
    *others, last = range(support.size)
    basis, relations = pivots(fractions)
    # Only the last row may depend on the others, and with negative coefficients alone.
    if basis != others or max(relations[last]) >= 0:
        return None
    exact = np.zeros(len(rows))
    exact[support] = np.array([*(-float(c) for c in relations[last]), 1.0])
    # These weights are for the rows as given; the evidence speaks of rows of norm one.
    exact[support] *= np.linalg.norm(rows[support], axis=1)
    return torch.from_numpy(exact / exact.sum())


def unit_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rows (m, q) divided by their norms, and which of them (m,) are not zero."""
    largest = np.abs(rows).max(axis=1, initial=0.0)
    nonzero = largest > 0
    scaled = rows / np.where(nonzero, largest, 1.0)[:, None]  # squares of tiny entries would be zero
    norms = np.linalg.norm(scaled, axis=1)
    return scaled / np.where(nonzero, norms, 1.0)[:, None], nonzero


def widest_margin(Z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Solve max t, <u, z> >= t for every row z of Z (m, k), |u|_inf <= 1, by cutting planes.

    Returns u (k,), the dual weights lambda (m,) >= 0 with sum 1, and the indices of the
    rows that entered, far fewer than m.
    """
    m, k = Z.shape
    early, spread_out = np.arange(min(m, 2 * k + 2)), np.linspace(0, m - 1, 2 * k).astype(int)
    working = np.union1d(early, spread_out)
    for _ in range(100):
        result = _margin_program(Z[working])
        if result is None:
            return np.zeros(k), np.zeros(m), working
        u, t = result.x[:k], result.x[k]
        margins = Z @ u
        # The rows that are worst off join, until no row left outside is below t.
        worst = np.argsort(margins)[: 2 * k + 2]
        new = np.setdiff1d(worst[margins[worst] < t - 1e-10], working)
        if new.size == 0:
            break
        working = np.union1d(working, new)
    weights = np.zeros(m)
    weights[working] = np.maximum(-result.ineqlin.marginals, 0)
    return u, weights / max(weights.sum(), np.finfo(float).tiny), working


def _margin_program(Z: np.ndarray):
    """One linear program in (u, t): minimize -t under t - <u, z> <= 0; None where the solver fails."""
    m, k = Z.shape
    objective = np.append(np.zeros(k), -1.0)
    constraints = np.hstack([-Z, np.ones((m, 1))])
    bounds = [(-1, 1)] * k + [(None, 1)]
    for options in (_HIGHS, {}):
        # A hard program may defeat the tight tolerances; what it returns is verified
        # anyway.
        result = scipy.optimize.linprog(objective, constraints, np.zeros(m), bounds=bounds, options=options)
        if result.status == 0:
            return result
    return None


def balancing_matrix(Z: np.ndarray) -> np.ndarray:
    """Return a k x k matrix T that makes the unit rows of Z T nearly isotropic (Tyler's fixed point).

    The signs <u, z> survive any invertible T, and a balanced cone is wider, so the program
    sees more margin.
    """
    k = Z.shape[1]
    # The transition is early, the tail nearly one direction: geometric spacing sees both.
    Z = Z[np.unique(np.geomspace(1, len(Z), _DENSE).astype(int)) - 1]
    T = np.eye(k)
    for _ in range(10):
        rows, _ = unit_rows(Z @ T)
        values, vectors = np.linalg.eigh(rows.T @ rows * (k / len(rows)))
        T = T @ (vectors / np.sqrt(np.maximum(values, 1e-12)))
        T /= np.abs(T).max()
    return T


def positive_dependency(Z: np.ndarray, working: np.ndarray) -> np.ndarray | None:
    """Return weights (m,) >= 0 with sum 1, positive on enough rows, and sum lambda z = 0; or None.

    Maximizes the least weight s over the working rows, then over all (a sample of many):
    with lambda = s + mu, mu >= 0, the unknowns are (mu, s), and sum lambda z = 0, sum
    lambda = 1 are linear.
    """
    m, k = Z.shape
    rows = np.arange(m) if m <= _DENSE else np.union1d(working, np.linspace(0, m - 1, _DENSE).astype(int))
    for subset in (working, rows):
        size = subset.size
        cancels = np.hstack([Z[subset].T, Z[subset].sum(0)[:, None]])
        sums_to_one = np.append(np.ones(size), size)
        equalities = np.vstack([cancels, sums_to_one])
        right = np.append(np.zeros(k), 1.0)
        objective = np.append(np.zeros(size), -1.0)
        result = scipy.optimize.linprog(objective, A_eq=equalities, b_eq=right, options=_HIGHS)
        if result.status == 0 and result.x[-1] > 0:
            weights = np.zeros(m)
            weights[subset] = result.x[:-1] + result.x[-1]
            return polish(Z, weights)
    return None


def polish(Z: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return nearly the same weights, sum 1, with sum lambda z pushed to rounding by factors 1 + Z y."""
    for _ in range(3):
        # lambda (1 + Z y) sums to lambda Z + gram y, so one linear system makes that zero.
        gram = Z.T @ (weights[:, None] * Z)
        step = np.linalg.lstsq(gram, -(weights @ Z), rcond=None)[0]
        weights = weights * (1 + Z @ step)
    return weights / weights.sum()


def dependency_radius(Z: np.ndarray, weights: np.ndarray) -> float:
    """A lower bound of the radius of the ball about 0 in the convex hull of the rows of Z; <= 0: no proof.

    For unit u, sum lambda |<u, z>| is at least both sigma_min(diag(lambda) Z) and the least
    eigenvalue of Z^T diag(lambda) Z. Its negative part is half of it up to the residual r =
    sum lambda z. So some row has <u, z> <= -(bound - |r|)/2, for every u.
    """
    if (weights < 0).any() or weights.sum() > 1 + 1e-9:
        return -np.inf
    first = np.linalg.svd(weights[:, None] * Z, compute_uv=False)
    second = np.linalg.svd(np.sqrt(weights)[:, None] * Z, compute_uv=False) ** 2
    if first.size < Z.shape[1]:
        return -np.inf
    rounding = Z.size * np.finfo(float).eps
    return 0.5 * (max(first[-1], second[-1]) - np.linalg.norm(weights @ Z) - rounding)
