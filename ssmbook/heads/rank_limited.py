"""Heads with value maps of rank at most r: lower bounds on how many a system takes, and constructions.

For r = 1 the count is the real tensor rank of the lags. Lower bounds come from ranks of their unfoldings and
from non-real eigenvalues; upper bounds are constructions, checked against the lags. Where B and C see all
states, exact algebra (`_jordan`) settles r = 1.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.linalg import qr

from ssmbook.heads._count import Count
from ssmbook.heads._evidence import RankLimitedEvidence
from ssmbook.heads._jordan import exact_rank_one_heads, pole_placement_heads
from ssmbook.heads._lags import (
    array_rank,
    column_and_row_bases,
    column_and_row_svd,
    lag_span,
    lags_of,
    system_arrays,
)
from ssmbook.systems.system import System


def rank_limited_head_count(
    system: System | torch.Tensor, n: int | None = None, *, r: int, rtol: float | None = None
) -> Count:
    """Return the count for a ``value_rank`` of r, often an interval.

    ``low`` is the largest of several lower bounds: "span", the count k without a limit; and over r, rounded
    up: "columns" and "rows", the rank of all lags side by side or stacked; "largest lag", its rank; "tensor
    rank", the least number of rank-one heads. ``high`` heads were constructed, with an error of 10 rtol at
    most. A System may show modes that its lags hide.
    """
    if r < 1:
        raise ValueError(f"value maps must have rank at least 1; got {r}")
    M, behind = lags_of(system, n), system_arrays(system) if isinstance(system, System) else None
    lags, matrices, rtol = lag_span(M, rtol)
    close = max(10 * rtol, 1e-12)  # rtol may be 0
    bounds = _lower_bounds(lags, matrices, r, rtol)
    found = [_fit(V, lags) for V in _candidates(lags, matrices, r, behind, rtol)]
    if min(len(V) for V, _, error in found if error <= close) > max(bounds.values()):
        exact, constructed = exact_rank_one_heads(lags, behind)
        bounds["tensor rank"] = max(bounds["tensor rank"], -(-exact // r))
        found += [_fit(V, lags) for V in constructed]
    low = max(bounds.values())
    # Fewer heads than the bound can come arbitrarily close (a border case), but never equal the system.
    fair = [each for each in found if each[2] <= close and len(each[0]) >= low]
    V, coefficients, error = min(fair, key=lambda each: (len(each[0]), each[2]))
    V, coefficients = (torch.from_numpy(part).to(M) for part in (V, coefficients))
    evidence = RankLimitedEvidence(len(matrices), bounds, V, coefficients, error)
    return Count(low, len(V), f"value maps of rank at most {r}", evidence)


# Constructions ---------------------------------------------------------------------------------------------


def _candidates(lags, matrices, r, system, rtol):
    """Yield value maps of rank <= r that may span the lags; the first ones always do."""
    yield _split(matrices, r, rtol)
    if len(matrices) == 0:
        return
    left, right = column_and_row_bases(matrices, rtol)
    yield np.einsum("pa,db->abpd", left, right).reshape(-1, *lags.shape[1:])  # the elementary matrices
    yield _split(_independent(lags, len(matrices)), r, rtol)
    steered = _by_pole_placement(left, matrices, right)
    if steered is not None:
        yield steered
    for modes in (_modes_of_span(matrices, left, right), None if system is None else _modes_of(*system)):
        if modes is not None:
            yield _modal_heads(*modes, r, rtol)


def _split(matrices, r, rtol):
    """Cut each matrix by its SVD into parts of rank <= r."""
    parts = [np.zeros((0, *matrices.shape[1:]))]
    for matrix in matrices:
        left, sigma, right = np.linalg.svd(matrix, full_matrices=False)
        rank = array_rank(sigma, rtol)
        for start in range(0, rank, r):
            part = slice(start, min(start + r, rank))
            parts.append(((left[:, part] * sigma[part]) @ right[part])[None])
    return np.concatenate(parts)


def _independent(lags, k):
    """k of the lags themselves, chosen greedily as far apart as possible."""
    _, pivots = qr(lags.reshape(len(lags), -1).T, mode="r", pivoting=True)
    return lags[pivots[:k]]


def _by_pole_placement(left, matrices, right):
    """One head more than states, for a span of two matrices one of which is invertible in its core."""
    if len(matrices) != 2 or left.shape[1] != right.shape[1]:
        return None
    core = left.T @ matrices @ right
    E, F = sorted((np.tensordot(w, core, 1) for w in ((1, 0.3), (-0.4, 1))), key=np.linalg.cond)
    heads = pole_placement_heads(E, F) if np.linalg.cond(E) < 1e6 else None
    return None if heads is None else left @ heads @ right.T


def _modes_of_span(matrices, left, right):
    """Values (m,), columns (p, m), rows (m, d) with every matrix of the span = columns diag rows, or None.

    Jennrich's simultaneous diagonalization of two random elements, for square cores and simple eigenvalues.
    """
    found = _pencil(left.T @ matrices @ right) if left.shape[1] == right.shape[1] > 0 else None
    if found is None:
        return None
    E, F = found
    values, vectors = np.linalg.eig(np.linalg.solve(E, F))
    if np.linalg.cond(vectors) > 1e8:
        return None
    return values, left @ E @ vectors, np.linalg.solve(vectors, right.T.astype(complex))


def _modes_of(A, B, C, D):
    """The modes of a system, a skip as modes of eigenvalue 0; None where its eigenvectors nearly depend."""
    values, vectors = np.linalg.eig(A)
    if values.size == 0 or np.linalg.cond(vectors) > 1e8:
        return None
    columns, rows = C @ vectors, np.linalg.solve(vectors, B.astype(complex))
    if D is None:
        return values, columns, rows
    zeros = np.zeros(D.shape[1])
    return np.append(values, zeros), np.hstack([columns, D]), np.vstack([rows, np.eye(D.shape[1])])


def _modal_heads(values, columns, rows, r, rtol):
    """The residue of each real pole cut to rank <= r; Re and Im of a pair, or three rank-one heads."""
    heads, scale = [np.zeros((0, len(columns), rows.shape[1]))], np.abs(values).max()
    sizes = np.linalg.norm(columns, axis=0) * np.linalg.norm(rows, axis=1)
    seen = sizes > 1e-13 * sizes.max()
    real = list(np.flatnonzero((values.imag == 0) & seen))
    while real:
        same = [s for s in real if abs(values[s] - values[real[0]]) <= 1e-9 * scale]
        real = [s for s in real if s not in same]
        heads.append(_split((columns[:, same] @ rows[same]).real[None], r, rtol))
    for s in np.flatnonzero((values.imag > 0) & seen):
        c, b = columns[:, s], rows[s]
        if r > 1:
            heads.append(np.array([np.outer(c, b).real, np.outer(c, b).imag]))
        else:
            pairs = (c.real, b.real), (c.imag, b.imag), (c.real + c.imag, b.real + b.imag)
            heads.append(np.array([np.outer(*pair) for pair in pairs]))
    return np.concatenate(heads)


def _fit(V, lags):
    """The value maps in unit norm, least-squares coefficients of the lags on them, and the relative error."""
    rows = lags.reshape(len(lags), lags.shape[1] * lags.shape[2])
    norms = np.linalg.norm(V, axis=(1, 2))
    V = V / np.where(norms > 0, norms, 1)[:, None, None]
    flat = V.reshape(len(V), rows.shape[1])
    coefficients = np.linalg.pinv(flat.T) @ rows.T
    error = np.linalg.norm(rows - coefficients.T @ flat) / (np.linalg.norm(rows) or 1.0)
    return V, coefficients, float(error)


# Lower bounds ----------------------------------------------------------------------------------------------


def _lower_bounds(lags, matrices, r, rtol) -> dict[str, int]:
    """Lower bounds by name for lags (n, p, d), ``matrices`` (k, p, d) an orthonormal basis of their span.

    They hold for every tensor within 10 rtol of the lags, which is the error that a construction may have.
    """
    slack = 10 * rtol * np.linalg.norm(lags)
    # The least rank within a Frobenius distance of slack counts the singular values above it.
    left, sigma, right, tau = column_and_row_svd(lags)
    columns, rows = int((sigma > slack).sum()), int((tau > slack).sum())
    largest = int((np.linalg.svd(lags, compute_uv=False) > slack).sum(1).max(initial=0))
    by_eigenvalues = _rank_by_eigenvalues(lags, matrices, left[:, :columns], right[:rows], slack)
    tensor_rank = max(len(matrices), columns, rows, by_eigenvalues)
    over_r = {"columns": columns, "rows": rows, "largest lag": largest, "tensor rank": tensor_rank}
    return {"span": len(matrices), **{name: -(-bound // r) for name, bound in over_r.items()}}


def _rank_by_eigenvalues(lags, matrices, left, right, slack):
    """A lower bound of the tensor rank from non-real eigenvalues of E^-1 F, E and F in the span; or 0.

    ``left`` (p, m), ``right`` (m', d): orthonormal bases of what the lags write and read. If the span is an
    algebra of dimension m, every pair of eigenvalues costs a head; otherwise all pairs together cost one.
    """
    k, m = len(matrices), left.shape[1]
    if m < 2 or m != len(right):
        return 0
    pairs = max(_certain_pairs(*pencil, slack) for pencil in _pencils(lags, k, left, right))
    left, _, right, _ = column_and_row_svd(matrices)
    core = left[:, :m].T @ matrices @ right[:m].T
    pencil = _pencil(core) if k == m else None
    if pencil is not None and _is_algebra(pencil[0], core):
        return m + pairs
    return m + 1 if pairs else 0


def _pencils(lags, k, left, right):
    """Yield pairs E, F of combinations of the lags in an m x m core of them.

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
    """How many conjugate pairs of eigenvalues E^-1 F keeps if E and F change by up to ``slack``.

    With X = V diag(values) V^-1 the eigenvalues of X + Y lie in discs of radius m ||row of V^-1|| ||Y|| about
    the values, and a connected group of discs contains as many as it has discs (Gerschgorin, for
    V^-1 (X + Y) V). So eigenvalues in a group that does not meet the real axis stay off it.
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
