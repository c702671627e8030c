"""Matrices of rank at most r whose span contains the lags: value maps of few heads, in six ways.

Each way gives a list of matrices V (H, p, d); `rank_limited` checks how well the lags fit
their span and takes the shortest list that fits. The first three always fit. The others
look for structure: modes of the system, and poles that can be placed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.linalg import qr

from ssmbook.heads._jordan import pole_placement_heads
from ssmbook.heads._lags import array_rank, column_and_row_bases

# Eigenvectors with a larger condition number give no modes, and combinations of lags no
# pencil.
_EIGENVECTOR_LIMIT = 1e8
_PENCIL_LIMIT = 1e6


def low_rank_maps(
    lags: np.ndarray, basis: np.ndarray, r: int, system: tuple | None, rtol: float
) -> Iterator[np.ndarray]:
    """Yield value maps of rank <= r for lags (n, p, d) with an orthonormal basis (k, p, d) of their span.

    ``system``: A, B, C, D as arrays, or None where only the lags are known.
    """
    yield _split(basis, r, rtol)
    if len(basis) == 0:
        return
    left, right = column_and_row_bases(basis, rtol)
    yield _elementary(left, right)
    yield _split(_independent(lags, len(basis)), r, rtol)
    steered = _by_pole_placement(left, basis, right)
    if steered is not None:
        yield steered
    for modes in (_modes_of_span(basis, left, right), _modes_of_system(system)):
        if modes is not None:
            yield _modal_maps(modes, r, rtol)


# Without structure ------------------------------------------------------------------------


def _split(matrices: np.ndarray, r: int, rtol: float) -> np.ndarray:
    """Cut each matrix by its SVD into parts of rank <= r: r singular values each."""
    parts = [np.zeros((0, *matrices.shape[1:]))]
    for matrix in matrices:
        left, sigma, right = np.linalg.svd(matrix, full_matrices=False)
        rank = array_rank(sigma, rtol)
        for start in range(0, rank, r):
            part = slice(start, min(start + r, rank))
            parts.append(((left[:, part] * sigma[part]) @ right[part])[None])
    return np.concatenate(parts)


def _elementary(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """All products of a direction that is written and one that is read: they span every such matrix."""
    p, d = len(left), len(right)
    return np.einsum("pa,db->abpd", left, right).reshape(-1, p, d)


def _independent(lags: np.ndarray, k: int) -> np.ndarray:
    """k of the lags themselves, chosen greedily as far apart as possible; they may have a lower rank."""
    _, pivots = qr(lags.reshape(len(lags), -1).T, mode="r", pivoting=True)
    return lags[pivots[:k]]


# From two matrices ------------------------------------------------------------------------
#
# The core of the lags are m x m matrices. Two of its combinations E and F, E invertible,
# are a pencil, and the eigenvalues of E^-1 F say how the whole span can be taken apart.


def pencil_of(core: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Two well-conditioned random combinations of a core (k, m, m); None where none is."""
    rng = np.random.default_rng(0)
    draws = [np.tensordot(rng.standard_normal(len(core)), core, 1) for _ in range(8)]
    draws.sort(key=np.linalg.cond)
    return (draws[0], draws[1]) if np.linalg.cond(draws[0]) < _PENCIL_LIMIT else None


def _by_pole_placement(left: np.ndarray, basis: np.ndarray, right: np.ndarray) -> np.ndarray | None:
    """m + 1 maps of rank one for a span of two matrices one of which is invertible in its core."""
    if len(basis) != 2 or left.shape[1] != right.shape[1]:
        return None
    core = left.T @ basis @ right
    # Two independent combinations, not the basis itself: either of its matrices may be
    # singular.
    combined = [np.tensordot(weights, core, 1) for weights in ((1, 0.3), (-0.4, 1))]
    E, F = sorted(combined, key=np.linalg.cond)
    if np.linalg.cond(E) >= _PENCIL_LIMIT:
        return None
    heads = pole_placement_heads(E, F)
    return None if heads is None else left @ heads @ right.T


# From modes -------------------------------------------------------------------------------
#
# With eigenvalues z_s, and the columns c_s that a mode writes and the rows b_s that it
# reads,
#
#     M_tau = sum_s z_s^tau c_s b_s^T.
#
# A real pole is one map of rank one (poles that coincide, one map of a larger rank). A
# conjugate pair gives 2 Re(z^tau c b^T), a combination of Re(c b^T) and Im(c b^T), which
# have rank two. In maps of rank one it takes three, as Gauss multiplied complex numbers:
# with c = c' + i c'' and b = b' + i b'',
#
#     Re = c'b' - c''b'',    Im = (c' + c'')(b' + b'') - c'b' - c''b''.


class Modes(NamedTuple):
    """Every matrix of the span is columns diag(some numbers) rows; complex ones come in conjugate pairs."""

    values: np.ndarray  # (m,)
    columns: np.ndarray  # (p, m)
    rows: np.ndarray  # (m, d)


def _modes_of_span(basis: np.ndarray, left: np.ndarray, right: np.ndarray) -> Modes | None:
    """Jennrich's way: the eigenvectors of E^-1 F diagonalize the whole span, if it has simple modes.

    Needs a square core; None where eigenvectors nearly depend.
    """
    if not left.shape[1] == right.shape[1] > 0:
        return None
    pencil = pencil_of(left.T @ basis @ right)
    if pencil is None:
        return None
    E, F = pencil
    values, vectors = np.linalg.eig(np.linalg.solve(E, F))
    if np.linalg.cond(vectors) > _EIGENVECTOR_LIMIT:
        return None
    return Modes(values, left @ E @ vectors, np.linalg.solve(vectors, right.T.astype(complex)))


def _modes_of_system(system: tuple | None) -> Modes | None:
    """The modes of A, a skip as d modes of eigenvalue 0; None where eigenvectors nearly depend."""
    if system is None:
        return None
    A, B, C, D = system
    values, vectors = np.linalg.eig(A)
    if values.size == 0 or np.linalg.cond(vectors) > _EIGENVECTOR_LIMIT:
        return None
    columns, rows = C @ vectors, np.linalg.solve(vectors, B.astype(complex))
    if D is not None:
        d = D.shape[1]
        values = np.append(values, np.zeros(d))
        columns, rows = np.hstack([columns, D]), np.vstack([rows, np.eye(d)])
    return Modes(values, columns, rows)


def _modal_maps(modes: Modes, r: int, rtol: float) -> np.ndarray:
    """The residue of each real pole cut to rank <= r; Re and Im of a pair, or three maps of rank one."""
    values, columns, rows = modes
    scale = np.abs(values).max()
    sizes = np.linalg.norm(columns, axis=0) * np.linalg.norm(rows, axis=1)
    seen = sizes > 1e-13 * sizes.max()
    maps = [np.zeros((0, len(columns), rows.shape[1]))]

    real = list(np.flatnonzero((values.imag == 0) & seen))
    while real:
        same = [s for s in real if abs(values[s] - values[real[0]]) <= 1e-9 * scale]
        real = [s for s in real if s not in same]
        residue = (columns[:, same] @ rows[same]).real
        maps.append(_split(residue[None], r, rtol))

    for s in np.flatnonzero((values.imag > 0) & seen):
        c, b = columns[:, s], rows[s]
        if r > 1:
            residue = np.outer(c, b)
            maps.append(np.array([residue.real, residue.imag]))
        else:
            factors = (c.real, b.real), (c.imag, b.imag), (c.real + c.imag, b.real + b.imag)
            maps.append(np.array([np.outer(*pair) for pair in factors]))
    return np.concatenate(maps)
