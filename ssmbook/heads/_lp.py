"""Linear programs behind the counts of softmax heads: a U positive on every row, or what forbids it.

Everything works on unit rows Z (m, k). Gordan's alternative: either some u has <u, z> > 0 for every row z, or
some weights lambda >= 0 with sum 1 have sum lambda z = 0.
"""

from __future__ import annotations

import numpy as np
import scipy  # its optimizers are slow to load and load at the first program

# HiGHS' tightest tolerances: margins of 1e-7 are common, and its defaults are as coarse as that.
_HIGHS = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
_DENSE = 2000


def unit_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rows (m, q) divided by their norms, and which of them (m,) are not zero."""
    largest = np.abs(rows).max(axis=1, initial=0.0)
    nonzero = largest > 0
    scaled = rows / np.where(nonzero, largest, 1.0)[:, None]  # squares of tiny entries would be zero
    norms = np.linalg.norm(scaled, axis=1)
    return scaled / np.where(nonzero, norms, 1.0)[:, None], nonzero


def widest_margin(Z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Solve max t, <u, z> >= t for every row z of Z (m, k), |u|_inf <= 1, by cutting planes.

    Returns u (k,), the dual weights lambda (m,) >= 0 with sum 1, and the indices of the rows that entered,
    far fewer than m.
    """
    m, k = Z.shape
    working = np.union1d(np.arange(min(m, 2 * k + 2)), np.linspace(0, m - 1, 2 * k).astype(int))
    for _ in range(100):
        result = _margin_program(Z[working])
        if result is None:
            return np.zeros(k), np.zeros(m), working
        u, t = result.x[:k], result.x[k]
        margins = Z @ u
        worst = np.argsort(margins)[: 2 * k + 2]
        new = np.setdiff1d(worst[margins[worst] < t - 1e-10], working)
        if new.size == 0:
            break
        working = np.union1d(working, new)
    weights = np.zeros(m)
    weights[working] = np.maximum(-result.ineqlin.marginals, 0)
    return u, weights / max(weights.sum(), np.finfo(float).tiny), working


def _margin_program(Z):
    m, k = Z.shape
    objective = np.append(np.zeros(k), -1.0)
    constraints = np.hstack([-Z, np.ones((m, 1))])
    bounds = [(-1, 1)] * k + [(None, 1)]
    for options in (_HIGHS, {}):
        # A hard program may defeat the tight tolerances; what it returns is verified anyway.
        result = scipy.optimize.linprog(objective, constraints, np.zeros(m), bounds=bounds, options=options)
        if result.status == 0:
            return result
    return None


def balanced(Z: np.ndarray) -> np.ndarray:
    """Return a k x k matrix T that makes the unit rows of Z T nearly isotropic (Tyler's fixed point).

    The signs <u, z> survive any invertible T, and a balanced cone is wider, so the program sees more margin.
    """
    k = Z.shape[1]
    T = np.eye(k)
    # The transition is early, the tail nearly one direction: geometric spacing sees both.
    Z = Z[np.unique(np.geomspace(1, len(Z), _DENSE).astype(int)) - 1]
    for _ in range(10):
        rows, _ = unit_rows(Z @ T)
        values, vectors = np.linalg.eigh(rows.T @ rows * (k / len(rows)))
        T = T @ (vectors / np.sqrt(np.maximum(values, 1e-12)))
        T /= np.abs(T).max()
    return T


def positive_dependency(Z: np.ndarray, working: np.ndarray) -> np.ndarray | None:
    """Return weights (m,) >= 0 with sum 1, positive on enough rows, and sum lambda z = 0; or None.

    Maximizes the least weight over the working rows, then over all (a sample of many).
    """
    m, k = Z.shape
    rows = np.arange(m) if m <= _DENSE else np.union1d(working, np.linspace(0, m - 1, _DENSE).astype(int))
    for subset in (working, rows):
        size = subset.size
        equalities = np.vstack(
            [np.hstack([Z[subset].T, Z[subset].sum(0)[:, None]]), np.append(np.ones(size), size)]
        )
        objective = np.append(np.zeros(size), -1.0)
        right = np.append(np.zeros(k), 1.0)
        result = scipy.optimize.linprog(objective, A_eq=equalities, b_eq=right, options=_HIGHS)
        if result.status == 0 and result.x[-1] > 0:
            weights = np.zeros(m)
            weights[subset] = result.x[:-1] + result.x[-1]
            return polished(Z, weights)
    return None


def polished(Z: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return nearly the same weights, sum 1, with sum lambda z pushed to rounding by factors 1 + Z y."""
    for _ in range(3):
        gram = Z.T @ (weights[:, None] * Z)
        step = np.linalg.lstsq(gram, -(weights @ Z), rcond=None)[0]
        weights = weights * (1 + Z @ step)
    return weights / weights.sum()


def dependency_radius(Z: np.ndarray, weights: np.ndarray) -> float:
    """A lower bound of the radius of the ball about 0 in the convex hull of the rows of Z; <= 0: no proof.

    For unit u, sum lambda |<u, z>| is at least both sigma_min(diag(lambda) Z) and the least eigenvalue of
    Z^T diag(lambda) Z. Its negative part is half of it up to the residual r = sum lambda z. So some row has
    <u, z> <= -(bound - |r|)/2, for every u.
    """
    if (weights < 0).any() or weights.sum() > 1 + 1e-9:
        return -np.inf
    first = np.linalg.svd(weights[:, None] * Z, compute_uv=False)
    second = np.linalg.svd(np.sqrt(weights)[:, None] * Z, compute_uv=False) ** 2
    if first.size < Z.shape[1]:
        return -np.inf
    rounding = Z.size * np.finfo(float).eps
    return 0.5 * (max(first[-1], second[-1]) - np.linalg.norm(weights @ Z) - rounding)
