"""Lower bounds on the number of rank-limited heads: unfoldings, pencils, algebras, the discriminant."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ssmbook.heads._coordinates import numerical_rank


def joint_ranks(matrices: np.ndarray, rtol: float) -> tuple[int, int]:
    """Ranks of the matrices (k, p, d) side by side and stacked: p', d'."""
    if len(matrices) == 0:
        return 0, 0
    return tuple(
        numerical_rank(np.linalg.svd(np.concatenate(list(matrices), axis=axis), compute_uv=False), rtol)
        for axis in (1, 0)
    )


def lower_bounds(lags: np.ndarray, matrices: np.ndarray, r: int, rtol: float) -> dict[str, int]:
    """Every lower bound by name for lags (n, p, d) and an orthonormal basis of their span (k, p, d).

    Ranks and eigenvalues are those of every tensor within 10 rtol of the lags: what a construction may miss
    them by.
    """
    slack = 10 * rtol * np.linalg.norm(lags)
    columns, rows = (
        _certain_rank(np.moveaxis(lags, axis, 0).reshape(lags.shape[axis], -1), slack) for axis in (1, 2)
    )
    largest = int((np.linalg.svd(lags, compute_uv=False) > slack).sum(1).max(initial=0))
    tensor_rank = max(len(matrices), columns, rows, _beyond_unfoldings(lags, matrices, columns, rows, slack))
    return {
        "span": len(matrices),
        "columns": -(-columns // r),
        "rows": -(-rows // r),
        "largest lag": -(-largest // r),
        "tensor rank": -(-tensor_rank // r),
    }


def _certain_rank(matrix, slack):
    """The least rank within a Frobenius distance ``slack`` of a matrix."""
    return int((np.linalg.svd(matrix, compute_uv=False) > slack).sum()) if matrix.size else 0


def _beyond_unfoldings(lags, matrices, columns, rows, slack):
    """A lower bound of the tensor rank that the three unfoldings do not see; 0 where nothing applies."""
    k, m = len(matrices), columns
    if k < 2 or m < 2 or columns != rows:
        return 0
    turning = max(_certain_pairs(*pencil, slack) for pencil in _pencils(lags, k, m))
    bound = m + 1 if turning else 0
    found = _pencil(matrices, m)
    if k == m and found is not None and _is_algebra(found[0], found[2]):
        bound = max(bound, m + turning)
    if k == m == 2 and not turning and _exact_double_root(lags):
        bound = 3
    return bound


def _pencils(lags, k, m):
    """Pairs E, F of combinations of the lags in an m x m core of them, and the norm of their weights.

    Weights of norm one see the strong directions of the span, others, as large as 1/sigma, all alike.
    """
    left = np.linalg.svd(np.moveaxis(lags, 1, 0).reshape(lags.shape[1], -1), full_matrices=False)[0][:, :m]
    right = np.linalg.svd(lags.reshape(-1, lags.shape[2]), full_matrices=False)[2][:m]
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
    if 1 / np.linalg.cond(vectors) < 100 * m * np.finfo(float).eps:
        return 0
    radius = m * np.linalg.norm(np.linalg.inv(vectors), axis=1) * (change + rounding)
    joined = np.abs(values[:, None] - values) <= radius[:, None] + radius
    real = radius >= np.abs(values.imag)
    for _ in range(m):
        real = joined @ real
    return int((~real & (values.imag > 0)).sum())


def _pencil(matrices, m):
    """Two well-conditioned elements of the span in its m x m core, and the core of every basis matrix."""
    left = np.linalg.svd(np.concatenate(list(matrices), axis=1), full_matrices=False)[0][:, :m]
    right = np.linalg.svd(np.concatenate(list(matrices), axis=0), full_matrices=False)[2][:m]
    core = left.T @ matrices @ right.T
    rng = np.random.default_rng(0)
    draws = [np.tensordot(rng.standard_normal(len(matrices)), core, 1) for _ in range(8)]
    draws.sort(key=np.linalg.cond)
    return (draws[0], draws[1], core) if np.linalg.cond(draws[0]) < 1e6 else None


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
    exact = [[Fraction(float(v)) for v in lag.ravel()] for lag in lags]
    pair = next(((e, f) for i, e in enumerate(exact) for f in exact[i + 1 :] if not _parallel(e, f)), None)
    if pair is None or not all(_rank_two(pair, lag) for lag in exact):
        return False
    (a, b, c, d), (e, f, g, h) = pair
    return (a * h + d * e - b * g - c * f) ** 2 == 4 * (a * d - b * c) * (e * h - f * g)


def _parallel(e, f):
    return all(e[i] * f[j] == e[j] * f[i] for i in range(4) for j in range(i))


def _rank_two(pair, lag):
    """Whether lag is an exact combination of the two, by Cramer on the first invertible minor."""
    e, f = pair
    i, j = next((i, j) for i in range(4) for j in range(i) if e[i] * f[j] != e[j] * f[i])
    minor = e[i] * f[j] - e[j] * f[i]
    x, y = (lag[i] * f[j] - lag[j] * f[i]) / minor, (e[i] * lag[j] - e[j] * lag[i]) / minor
    return all(x * e[q] + y * f[q] == lag[q] for q in range(4))


def rank_one_elements(matrices: np.ndarray, tol: float, rtol: float):
    """Unit rank-one elements (m, p, d) of a span with a 2 x 2 core, k = 2, and its discriminant, or None."""
    if len(matrices) != 2 or joint_ranks(matrices, rtol) != (2, 2):
        return None
    left = np.linalg.svd(np.concatenate(list(matrices), axis=1), full_matrices=False)[0][:, :2]
    right = np.linalg.svd(np.concatenate(list(matrices), axis=0), full_matrices=False)[2][:2]
    E, F = left.T @ matrices @ right.T
    a, c = np.linalg.det(E), np.linalg.det(F)
    b = np.linalg.det(E + F) - a - c
    discriminant = float(b * b - 4 * a * c)
    if discriminant < -tol:
        return np.zeros((0, *matrices.shape[1:])), discriminant
    root = np.sqrt(discriminant) if discriminant > tol else 0.0
    # The line (x : y) with a x^2 + b x y + c y^2 = 0, in the form that does not cancel.
    half = -(b + np.copysign(root, b)) / 2
    lines = [(half, a), (c, half)] if root else [(-b, 2 * a) if abs(a) >= abs(c) else (2 * c, -b)]
    elements = [(x * matrices[0] + y * matrices[1]) / np.hypot(x, y) for x, y in lines]
    return np.array(elements), discriminant


def pencil_modes(matrices: np.ndarray, rtol: float):
    """Modes: values (m,), columns (p, m), rows (m, d) with every element = columns diag rows, or None.

    Jennrich's simultaneous diagonalization of two random elements; it needs p' = d' and simple eigenvalues.
    """
    columns, rows = joint_ranks(matrices, rtol)
    found = _pencil(matrices, columns) if columns == rows and columns > 0 else None
    if found is None:
        return None
    E, F, _ = found
    values, vectors = np.linalg.eig(np.linalg.solve(E, F))
    if np.linalg.cond(vectors) > 1e8:
        return None
    left = np.linalg.svd(np.concatenate(list(matrices), axis=1), full_matrices=False)[0][:, :columns]
    right = np.linalg.svd(np.concatenate(list(matrices), axis=0), full_matrices=False)[2][:columns]
    return values, left @ E @ vectors, np.linalg.solve(vectors, right.astype(complex))
