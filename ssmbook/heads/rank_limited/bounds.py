"""Lower bounds on the number of rank-limited heads: unfoldings, pencils, algebras, the discriminant."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ssmbook.heads._coordinates import frames, sides
from ssmbook.heads.fixed.exact import pivots


def lower_bounds(lags: np.ndarray, matrices: np.ndarray, r: int, rtol: float) -> dict[str, int]:
    """Every lower bound by name for lags (n, p, d) and an orthonormal basis of their span (k, p, d).

    Ranks and eigenvalues are those of every tensor within 10 rtol of the lags: what a construction may miss
    them by.
    """
    slack = 10 * rtol * np.linalg.norm(lags)
    # The least rank within a Frobenius distance of slack counts the singular values above it.
    left, sigma, right, tau = sides(lags)
    columns, rows = int((sigma > slack).sum()), int((tau > slack).sum())
    beyond = _beyond_unfoldings(lags, matrices, left[:, :columns], right[:rows], slack)
    largest = int((np.linalg.svd(lags, compute_uv=False) > slack).sum(1).max(initial=0))
    tensor_rank = max(len(matrices), columns, rows, beyond)
    return {
        "span": len(matrices),
        "columns": -(-columns // r),
        "rows": -(-rows // r),
        "largest lag": -(-largest // r),
        "tensor rank": -(-tensor_rank // r),
    }


def _beyond_unfoldings(lags, matrices, left, right, slack):
    """A lower bound of the tensor rank that the three unfoldings do not see; 0 where nothing applies.

    ``left`` (p, columns), ``right`` (rows, d): orthonormal bases of what the lags write and read.
    """
    k, m = len(matrices), left.shape[1]
    if m < 2 or m != len(right):
        return 0
    turning = max(_certain_pairs(*pencil, slack) for pencil in _pencils(lags, k, left, right))
    bound = m + 1 if turning else 0
    left, _, right, _ = sides(matrices)
    core = left[:, :m].T @ matrices @ right[:m].T
    pencil = _pencil(core)
    if k == m and pencil is not None and _is_algebra(pencil[0], core):
        bound = m + turning
    if k == m == 2 and not turning and _exact_double_root(lags):
        bound = 3
    return bound


def _pencils(lags, k, left, right):
    """Pairs E, F of combinations of the lags in an m x m core of them.

    Weights of norm one see the strong directions of the span, others, as large as 1/sigma, all alike.
    """
    directions, sigma, _ = np.linalg.svd(lags.reshape(len(lags), -1), full_matrices=False)
    rng = np.random.default_rng(0)
    for draw in rng.standard_normal((8, 2, k)):
        for size in (np.ones(k), sigma[:k] / sigma[0]):
            weights = draw / size
            weights = weights / np.linalg.norm(weights, axis=1, keepdims=True)
            pair = np.tensordot(weights @ directions[:, :k].T, lags, 1)
            yield left.T @ pair @ right.T


def _certain_pairs(E, F, slack) -> int:
    """How many conjugate pairs of eigenvalues E^-1 F keeps, whatever E and F are changed by, up to ``slack``.

    With X = V diag(values) V^-1 the eigenvalues of X + Y lie in discs of radius m ||row of V^-1|| ||Y|| about
    the values, and a connected group of discs holds as many as discs (Gerschgorin, for V^-1 (X + Y) V): those
    of a group off the real axis stay off it.
    """
    m, sigma = len(E), np.linalg.svd(E, compute_uv=False)
    if sigma[-1] <= 2 * slack:
        return 0
    X = np.linalg.solve(E, F)
    values, vectors = np.linalg.eig(X)
    size = np.linalg.norm(X, 2)
    change = slack * (1 + size) / (sigma[-1] - slack)
    rounding = 100 * m * np.finfo(float).eps * size * sigma[0] / sigma[-1]
    if np.linalg.cond(vectors) > 1 / np.finfo(float).eps:  # dependent to rounding
        return 0
    radius = m * np.linalg.norm(np.linalg.inv(vectors), axis=1) * (change + rounding)
    joined = np.abs(values[:, None] - values) <= radius[:, None] + radius
    real = radius >= np.abs(values.imag)
    for _ in range(m):
        real = joined @ real
    return int((~real & (values.imag > 0)).sum())


def _pencil(core):
    """Two well-conditioned combinations of a core (k, m, m); None where none is."""
    rng = np.random.default_rng(0)
    draws = [np.tensordot(rng.standard_normal(len(core)), core, 1) for _ in range(8)]
    draws.sort(key=np.linalg.cond)
    return (draws[0], draws[1]) if np.linalg.cond(draws[0]) < 1e6 else None


def _is_algebra(E, core):
    """Whether E^-1 span is closed under multiplication and commutative, to 1e-8."""
    units = np.linalg.solve(E, core)
    k = len(units)
    orthonormal = np.linalg.qr(units.reshape(k, -1).T)[0]
    products = np.einsum("iab,jbc->ijac", units, units)
    size = np.linalg.norm(products)
    flat = products.reshape(k * k, -1).T
    outside = np.linalg.norm(flat - orthonormal @ (orthonormal.T @ flat))
    return max(outside, np.linalg.norm(products - products.swapaxes(0, 1))) < 1e-8 * size


def _exact_double_root(lags):
    """Whether 2 x 2 lags, as the rationals they are, span two dimensions with discriminant exactly zero."""
    if lags.shape[1:] != (2, 2) or len(lags) > 256:
        return False
    exact = [[Fraction(v) for v in lag] for lag in lags.reshape(-1, 4).tolist()]
    basis, _ = pivots(exact)
    if len(basis) != 2:
        return False
    (a, b, c, d), (e, f, g, h) = (exact[i] for i in basis)
    return (a * h + d * e - b * g - c * f) ** 2 == 4 * (a * d - b * c) * (e * h - f * g)


def pencil_modes(matrices: np.ndarray, rtol: float):
    """Modes: values (m,), columns (p, m), rows (m, d) with every element = columns diag rows, or None.

    Jennrich's simultaneous diagonalization of two random elements; it needs p' = d' and simple eigenvalues.
    """
    left, right = frames(matrices, rtol)
    found = _pencil(left.T @ matrices @ right) if left.shape[1] == right.shape[1] > 0 else None
    if found is None:
        return None
    E, F = found
    values, vectors = np.linalg.eig(np.linalg.solve(E, F))
    if np.linalg.cond(vectors) > 1e8:
        return None
    return values, left @ E @ vectors, np.linalg.solve(vectors, right.T.astype(complex))
