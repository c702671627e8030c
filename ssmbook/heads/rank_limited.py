"""How many heads a system takes if the rank of every value map is at most r.

H heads equal the system if their value maps span its lags, M_tau = sum_h c_h,tau V_h.
Without a limit any basis of span{M_tau} is enough, which makes k heads. With rank V_h <= r
we look for few matrices of low rank whose span contains the lags. For r = 1 the maps are
u_h w_h^T, and

    M_tau = sum_h c_h,tau u_h w_h^T

writes the lags, a tensor (n, p, d), as a sum of products of three vectors: the least H is
their tensor rank over the real numbers. Nobody knows how to compute it in general, so the
count is often an interval:

    from below    ranks of the tensor laid out as a matrix, and nonreal eigenvalues    (here)
    from above    heads that we construct, and check against the lags                  (`_low_rank_maps`)

Where B and C see all states, exact algebra settles r = 1 (`_jordan`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from ssmbook.heads._count import Count
from ssmbook.heads._evidence import ConeEvidence, RankLimitedEvidence
from ssmbook.heads._jordan import exact_rank_one_heads
from ssmbook.heads._lags import (
    check_width,
    column_and_row_bases,
    column_and_row_svd,
    lag_span,
    lags_of,
    system_arrays,
)
from ssmbook.heads._low_rank_maps import low_rank_maps, pencil_of
from ssmbook.systems.system import System


def rank_limited_head_count(
    system: System | torch.Tensor, n: int | None = None, *, r: int, rtol: float | None = None
) -> Count[RankLimitedEvidence]:
    """Return the count for a ``value_rank`` of r, often an interval.

    ``low`` is the largest of several lower bounds: "span", the count k without a limit; and
    over r, rounded up: "columns" and "rows", the rank of all lags side by side or stacked;
    "largest lag", its rank; "tensor rank", the least number of rank-one heads. ``high``
    heads were constructed, with an error of 10 rtol at most. A System may show modes that
    its lags hide.
    """
    M = lags_of(system, n)
    r = check_width(r, *M.shape[1:])
    behind = system_arrays(system) if isinstance(system, System) else None
    lags, basis, rtol = lag_span(M, rtol)
    close = max(10 * rtol, 1e-12)  # rtol may be 0

    bounds = _lower_bounds(lags, basis, r, rtol)
    found = [_fit(V, lags) for V in low_rank_maps(lags, basis, r, behind, rtol)]
    fewest = min(len(heads.V) for heads in found if heads.error <= close)
    if fewest > max(bounds.values()):  # exact algebra is slow, so it is asked last
        exact, constructed = exact_rank_one_heads(lags, behind)
        bounds["tensor rank"] = max(bounds["tensor rank"], _over(exact, r))
        found += [_fit(V, lags) for V in constructed]

    low = max(bounds.values())
    # Fewer heads than the bound can come arbitrarily close (a border case), but never equal
    # the system.
    fair = [heads for heads in found if heads.error <= close and len(heads.V) >= low]
    best = min(fair, key=lambda heads: (len(heads.V), heads.error))
    V, coefficients = (torch.from_numpy(part).to(M) for part in (best.V, best.coefficients))
    evidence = RankLimitedEvidence(len(basis), bounds, V, coefficients, best.error)
    return Count(low, len(V), f"value maps of rank at most {r}", evidence)


def narrow_head_count(
    wide: Count[ConeEvidence], M: torch.Tensor, value_rank: int, rtol: float | None = None
) -> Count[ConeEvidence]:
    """Return the count of softmax heads of rank at most r, often an interval, from that at full width.

    ``M`` (n, p, d): the lags, or without a sink the blocks. From below: ``wide``, and as
    many heads as real coefficients take. From above: the value maps V_h of these, and parts
    of -sum V_h, ceil(min(p, d)/r) at most; then all coefficients can be positive. If M spans
    all matrices, one part is enough: the products of two bases sum to a product.
    """
    r, (_, basis, tol) = check_width(value_rank, *M.shape[1:]), lag_span(M, rtol)
    p, d = (side.shape[1] for side in column_and_row_bases(basis, tol))
    if r >= min(p, d) or not wide.possible:
        return wide
    limited = rank_limited_head_count(M, r=r, rtol=rtol)
    more = 1 if len(basis) == p * d else -(-min(p, d) // r)
    low = max(wide.low, limited.low)
    method = f"{wide.method}, rank at most {r}"
    return Count(low, max(low, limited.high + more), method, wide.evidence)


class Fitted(NamedTuple):
    """Value maps V (H, p, d) in unit norm, coefficients (H, n) that fit best, and their relative error."""

    V: np.ndarray
    coefficients: np.ndarray
    error: float


def _fit(V: np.ndarray, lags: np.ndarray) -> Fitted:
    """Least squares for the coefficients of lags (n, p, d) on value maps (H, p, d)."""
    n, p, d = lags.shape
    norms = np.linalg.norm(V, axis=(1, 2))
    V = V / np.where(norms > 0, norms, 1)[:, None, None]
    rows, flat = lags.reshape(n, p * d), V.reshape(len(V), p * d)
    coefficients = np.linalg.pinv(flat.T) @ rows.T
    missed = np.linalg.norm(rows - coefficients.T @ flat)
    return Fitted(V, coefficients, float(missed / (np.linalg.norm(rows) or 1.0)))


def _over(rank: int, r: int) -> int:
    """How many matrices of rank r it takes to make one of this rank: rank / r, rounded up."""
    return -(-rank // r)


# Lower bounds from ranks ------------------------------------------------------------------
#
# Side by side, the lags of H heads are
#
#     [M_0 ... M_(n-1)] = sum_h V_h [c_h,0 I ... c_h,n-1 I],
#
# a sum of H matrices of rank at most r, so H >= rank / r. The same holds for the lags
# stacked and for each lag alone. A map of rank r is a sum of r maps of rank one, so every
# lower bound of the tensor rank is, over r, one of H as well.
#
# The lags are known up to rounding. So we want the least rank of any matrix within the
# Frobenius distance ``slack`` of what we have, and the singular values above slack count at
# most that many.


def _lower_bounds(lags: np.ndarray, basis: np.ndarray, r: int, rtol: float) -> dict[str, int]:
    """Lower bounds by name for lags (n, p, d), ``basis`` (k, p, d) an orthonormal basis of their span.

    They hold for every tensor within 10 rtol of the lags, which is the error that a
    construction may have.
    """
    slack = 10 * rtol * np.linalg.norm(lags)
    left, sigma, right, tau = column_and_row_svd(lags)
    columns = int((sigma > slack).sum())
    rows = int((tau > slack).sum())
    largest = int((np.linalg.svd(lags, compute_uv=False) > slack).sum(1).max(initial=0))
    by_eigenvalues = _rank_by_eigenvalues(lags, basis, left[:, :columns], right[:rows], slack)
    tensor_rank = max(len(basis), columns, rows, by_eigenvalues)
    return {
        "span": len(basis),
        "columns": _over(columns, r),
        "rows": _over(rows, r),
        "largest lag": _over(largest, r),
        "tensor rank": _over(tensor_rank, r),
    }


# Lower bounds from eigenvalues ------------------------------------------------------------
#
# Let the lags write m directions and read m, so that in bases of these they are m x m
# matrices, the core. If m heads of rank one were enough, all E and F in the span would be
#
#     E = U diag(e) W^T,    F = U diag(f) W^T,    so    E^-1 F = W^-T diag(f / e) W^T
#
# would have real eigenvalues. One certainly nonreal pair therefore costs a head more, m +
# 1. If the matrices E^-1 F commute and their span is closed under products, then it is an
# algebra, a sum of one block for each common eigenvalue, and every pair costs a head of its
# own, because complex numbers have tensor rank 3.


def _rank_by_eigenvalues(
    lags: np.ndarray, basis: np.ndarray, left: np.ndarray, right: np.ndarray, slack: float
) -> int:
    """A lower bound of the tensor rank from nonreal eigenvalues of E^-1 F, E and F in the span; or 0.

    ``left`` (p, m), ``right`` (m', d): orthonormal bases of what the lags write and read.
    """
    k, m = len(basis), left.shape[1]
    if m < 2 or m != len(right):
        return 0
    pairs = max(_certain_pairs(E, F, slack) for E, F in _pencils(lags, k, left, right))
    if k == m:
        left, _, right, _ = column_and_row_svd(basis)
        core = left[:, :m].T @ basis @ right[:m].T
        pencil = pencil_of(core)
        if pencil is not None and _is_algebra(pencil[0], core):
            return m + pairs
    return m + 1 if pairs else 0


def _pencils(
    lags: np.ndarray, k: int, left: np.ndarray, right: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield pairs E, F of random combinations of the lags, seen in their m x m core.

    Weights of norm one see the strong directions of the span, others, as large as 1/sigma,
    all alike.
    """
    directions, sigma, _ = np.linalg.svd(lags.reshape(len(lags), -1), full_matrices=False)
    rng = np.random.default_rng(0)
    for draw in rng.standard_normal((8, 2, k)):
        for size in (np.ones(k), sigma[:k] / sigma[0]):
            weights = draw / size
            # Norm one keeps the error of each combination below that of the lags, slack.
            weights = weights / np.linalg.norm(weights, axis=1, keepdims=True)
            E, F = np.tensordot(weights @ directions[:, :k].T, lags, 1)
            yield left.T @ E @ right.T, left.T @ F @ right.T


def _certain_pairs(E: np.ndarray, F: np.ndarray, slack: float) -> int:
    """How many conjugate pairs of eigenvalues E^-1 F keeps if E and F change by up to ``slack``.

    With X = V diag(values) V^-1 the eigenvalues of X + Y lie in discs of radius m ||row of
    V^-1|| ||Y|| about the values, and a connected group of discs contains as many as it has
    discs (Gerschgorin, for V^-1 (X + Y) V). So eigenvalues in a group that does not meet
    the real axis stay off it.
    """
    m, sigma = len(E), np.linalg.svd(E, compute_uv=False)
    if sigma[-1] <= 2 * slack:  # some E within slack may be singular
        return 0
    X = np.linalg.solve(E, F)
    values, vectors = np.linalg.eig(X)
    if np.linalg.cond(vectors) > 1 / np.finfo(float).eps:  # dependent to rounding
        return 0

    # ||Y||: what slack in E and F does to E^-1 F, and what rounding does.
    size = np.linalg.norm(X, 2)
    change = slack * (1 + size) / (sigma[-1] - slack)
    rounding = 100 * m * np.finfo(float).eps * size * sigma[0] / sigma[-1]
    radius = m * np.linalg.norm(np.linalg.inv(vectors), axis=1) * (change + rounding)

    joined = np.abs(values[:, None] - values) <= radius[:, None] + radius
    real = radius >= np.abs(values.imag)  # the disc meets the real axis
    for _ in range(m):  # and so does every group of discs with such a disc
        real = joined @ real
    return int((~real & (values.imag > 0)).sum())


def _is_algebra(E: np.ndarray, core: np.ndarray) -> bool:
    """Whether E^-1 span is closed under multiplication and commutative, to 1e-8."""
    units = np.linalg.solve(E, core)
    k = len(units)
    orthonormal = np.linalg.qr(units.reshape(k, -1).T)[0]
    products = np.einsum("iab,jbc->ijac", units, units)
    size = np.linalg.norm(products)
    flat = products.reshape(k * k, -1).T
    outside = np.linalg.norm(flat - orthonormal @ (orthonormal.T @ flat))
    commutators = np.linalg.norm(products - products.swapaxes(0, 1))
    return max(outside, commutators) < 1e-8 * size
