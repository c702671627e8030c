"""Heads with value maps of rank at most r: bounds on how many a system needs, and heads that attain one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import qr

from ssmbook._checks import check_integer
from ssmbook._count import Count
from ssmbook.heads._coordinates import frames, largest_exponent, numerical_rank
from ssmbook.heads._target import arrays, lag_span, lags_of
from ssmbook.heads.rank_limited.algebra import algebra_behind, placed_heads
from ssmbook.heads.rank_limited.bounds import lower_bounds, pencil_modes
from ssmbook.numerics import toeplitz
from ssmbook.operators import FactorizedOperator
from ssmbook.systems.system import System, system_first


@dataclass(frozen=True)
class LagHeads:
    """Time-invariant heads: W_ij = sum_h coefficients[h, i-j] V_h (introduced in *how-many-heads-really*).

    ``V`` (H, p, d), ``coefficients`` (H, n); ``relative_error`` of the lags they were fitted to, in Frobenius
    norm.

    >>> turn = System(torch.tensor([[0.0, -0.9], [0.9, 0.0]]), torch.eye(2), torch.eye(2))
    >>> heads = rank_limited_head_count(turn, 8, r=1).evidence
    >>> heads.V.shape, heads.coefficients.shape
    (torch.Size([3, 2, 2]), torch.Size([3, 8]))
    """

    V: torch.Tensor
    coefficients: torch.Tensor
    relative_error: float

    @property
    def H(self) -> int:
        """Number of heads."""
        return self.V.shape[0]

    def lags(self) -> torch.Tensor:
        """Return the lag operators (n, p, d) the heads make."""
        return torch.einsum("hn,hpd->npd", self.coefficients, self.V)

    def operator(self) -> FactorizedOperator:
        """Return the heads as a causal ``FactorizedOperator`` of length n."""
        return FactorizedOperator(toeplitz(self.coefficients), self.V)


@system_first
def rank_limited_head_count(
    system: System | torch.Tensor, n: int | None = None, *, r: int, rtol: float | None = None
) -> Count:
    """Return how many heads with value maps of rank <= r a system needs, between two bounds where it is open.

    Class: real coefficients independent of the input, equality of operators. For r = 1 the count is the real
    tensor (CP) rank of M. ``low`` is the largest of ``rank_limited_lower_bounds``; ``high`` belongs to the
    ``evidence``, a ``LagHeads`` verified to 10 rtol or 1e-12: the best of several bases of the span with
    each matrix cut into ceil(rank/r) parts, the p'd' elementary matrices, and the modes — one head a real
    mode, three (r = 1) or two a complex pair. The count is k iff the span has a basis of matrices of rank
    <= r. Where B and C have rank N and there is no skip, the Jordan structure of A, in exact arithmetic,
    settles r = 1: 2 N - t for n >= N, t poles and pairs, where each has one Jordan block.

    A real `System` and n, or lag operators M (n, p, d) alone; ``r`` an int >= 1; ``rtol`` the rank tolerance
    (1e-10 in float64). A System lends its modes where its lags alone do not show them. V and coefficients
    follow its dtype and device. Raises ``TypeError``/``ValueError``
    for bad input. Source: prop-rank-limited, prop-rank-one-count. Introduced in
    *how-many-heads-really*.

    >>> turn = System(torch.tensor([[0.0, -0.9], [0.9, 0.0]]), torch.eye(2), torch.eye(2))
    >>> print(rank_limited_head_count(turn, 8, r=1))  # two where a head may have any rank
    3 heads (value maps of rank at most 1)
    """
    M, behind = lags_of(system, n), arrays(system) if isinstance(system, System) else None
    r = check_integer("r", r, low=1)
    lags, matrices, rtol = lag_span(M, rtol)
    lags, behind, size = _near_one(lags, behind)
    close = max(10 * rtol, 1e-12)  # rtol may be 0: rounding is no error
    lower = max(lower_bounds(lags, matrices, r, rtol).values())
    found = [_fitted(parts, lags) for parts in _candidates(lags, matrices, r, behind, rtol)]
    if min(len(f[0]) for f in found if f[2] <= close) > lower:
        exact, parts = _algebra(lags, behind, r)
        lower, found = max(lower, exact), found + [_fitted(V, lags) for V in parts]
    # Fewer heads than the bound may come close, where no best approximation exists; they are not the lags.
    fair = [f for f in found if f[2] <= close and len(f[0]) >= lower]
    V, coefficients, error = min(fair, key=lambda f: (len(f[0]), f[2]))
    coefficients = np.ldexp(coefficients, size)
    heads = LagHeads(torch.from_numpy(V).to(M), torch.from_numpy(coefficients).to(M), error)
    return Count(lower, heads.H, f"value maps of rank at most {r}", heads)


def _near_one(lags, behind):
    """Lags and system with largest entries of 1/2 to 1, so that no square overflows or vanishes.

    With the power of two that the lags were divided by.
    """
    size = largest_exponent(lags)
    if behind is not None:
        A, B, C, D = behind
        b, c = largest_exponent(B), largest_exponent(C)
        behind = A, np.ldexp(B, -b), np.ldexp(C, -c), None if D is None else np.ldexp(D, -b - c)
    return np.ldexp(lags, -size), behind, size


def _algebra(lags, behind, r):
    """The lower bound of an exact Jordan structure, 0 where none is found, and the value maps it gives."""
    algebra = algebra_behind(lags, behind)
    if algebra is None:
        return 0, []
    try:
        return -(-algebra.lower_bound // r), algebra.value_maps()
    except np.linalg.LinAlgError:  # the structure is exact, and beyond float64
        return -(-algebra.lower_bound // r), []


@system_first
def rank_limited_lower_bounds(
    system: System | torch.Tensor, n: int | None = None, *, r: int, rtol: float | None = None
) -> dict[str, int]:
    """Return every lower bound on the heads of rank <= r by name, so that the reason for a count can be read.

    "span": k; "columns"/"rows": ceil of the joint column/row rank over r; "largest lag"; "tensor rank": ceil
    of a lower bound of the CP rank over r, from non-real pencil eigenvalues, the algebra bound 2m - t, an
    exact discriminant or an exact Jordan structure.

    A real `System` and n, or lag operators M (n, p, d) alone; r an int >= 1. Raises as
    ``rank_limited_head_count``. Source: prop-rank-limited. Introduced in
    *how-many-heads-really*.

    >>> turn = System(torch.tensor([[0.0, -0.9], [0.9, 0.0]]), torch.eye(2), torch.eye(2))
    >>> bounds = rank_limited_lower_bounds(turn, 8, r=1)
    >>> bounds["span"], bounds["tensor rank"]
    (2, 3)
    """
    M, behind = lags_of(system, n), arrays(system) if isinstance(system, System) else None
    r = check_integer("r", r, low=1)
    lags, matrices, rtol = lag_span(M, rtol)
    lags, behind, _ = _near_one(lags, behind)
    bounds = lower_bounds(lags, matrices, r, rtol)
    bounds["tensor rank"] = max(bounds["tensor rank"], _algebra(lags, behind, r)[0])
    return bounds


def _candidates(lags, matrices, r, system, rtol):
    """Lists of value maps of rank <= r, some of which span the lags; the first one always does."""
    yield _split(matrices, r, rtol)
    if len(matrices) == 0:
        return
    left, right = frames(matrices, rtol)
    yield np.einsum("pa,db->abpd", left, right).reshape(-1, *lags.shape[1:])
    yield _split(_pivoted(lags, len(matrices)), r, rtol)
    placed = _placed(left, matrices, right)
    if placed is not None:
        yield placed
    for modes in (pencil_modes(matrices, rtol), None if system is None else _system_modes(*system)):
        if modes is not None:
            yield _modal_heads(*modes, r, rtol)


def _placed(left, matrices, right):
    """One head more than states for two matrices with a square core, one of whose mixtures is invertible."""
    if len(matrices) != 2 or left.shape[1] != right.shape[1]:
        return None
    core = left.T @ matrices @ right
    E, F = sorted((np.tensordot(w, core, 1) for w in ((1, 0.3), (-0.4, 1))), key=np.linalg.cond)
    heads = placed_heads(E, F) if np.linalg.cond(E) < 1e6 else None
    return None if heads is None else left @ heads @ right.T


def _split(matrices, r, rtol):
    """Cut each matrix by its SVD into parts of rank <= r, numerically zero ones dropped."""
    parts = [np.zeros((0, *matrices.shape[1:]))]
    for matrix in matrices:
        left, sigma, right = np.linalg.svd(matrix, full_matrices=False)
        rank = numerical_rank(sigma, rtol)
        for start in range(0, rank, r):
            part = slice(start, min(start + r, rank))
            parts.append(((left[:, part] * sigma[part]) @ right[part])[None])
    return np.concatenate(parts)


def _pivoted(lags, k):
    """k of the lags themselves, chosen greedily as far apart as possible."""
    _, pivots = qr(lags.reshape(len(lags), -1).T, mode="r", pivoting=True, check_finite=False)
    return lags[pivots[:k]]


def _system_modes(A, B, C, D):
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
    heads, scale = [], np.abs(values).max()
    sizes = np.linalg.norm(columns, axis=0) * np.linalg.norm(rows, axis=1)
    real = [s for s in np.flatnonzero(values.imag == 0) if sizes[s] > 1e-13 * sizes.max()]
    while real:
        same = [s for s in real if abs(values[s] - values[real[0]]) <= 1e-9 * scale]
        real = [s for s in real if s not in same]
        heads.append(_split((columns[:, same] @ rows[same]).real[None], r, rtol))
    for s in np.flatnonzero((values.imag > 0) & (sizes > 1e-13 * sizes.max())):
        c, b = columns[:, s], rows[s]
        (c1, c2), (b1, b2) = (c.real, c.imag), (b.real, b.imag)
        if r > 1:
            heads.append(np.array([np.outer(c, b).real, np.outer(c, b).imag]))
        else:
            heads.append(np.array([np.outer(c1, b1), np.outer(c2, b2), np.outer(c1 + c2, b1 + b2)]))
    return np.concatenate([np.zeros((0, len(columns), rows.shape[1])), *heads])


def _fitted(V, lags):
    """Least-squares coefficients of the lags on the value maps, and the relative error they leave."""
    rows, size = lags.reshape(len(lags), lags.shape[1] * lags.shape[2]), np.linalg.norm(lags)
    if len(V) == 0:
        return V, np.zeros((0, len(lags))), float(size > 0)
    norms = np.linalg.norm(V.reshape(len(V), -1), axis=1)
    V = V / np.where(norms > 0, norms, 1)[:, None, None]
    flat = V.reshape(len(V), -1)
    # V has at most p d rows, the lags as many columns as there are tokens: one small inverse, one product.
    coefficients = np.linalg.pinv(flat.T) @ rows.T
    error = np.linalg.norm(rows - coefficients.T @ flat)
    return V, coefficients, float(error / size)  # lags of size zero have no value maps
