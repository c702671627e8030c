"""Rank-one heads of a system whose B and C have rank N, counted from the exact Jordan structure of A.

There the lags span the matrices g(A), g a polynomial, and multiply like polynomials modulo
the minimal one, so their tensor rank is known (prop-rank-one-count). Floats are taken as
the fractions they are. Importing this module loads no sympy; looking for the structure
does.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ssmbook.heads.exact import characteristic, from_qq, rational_matrix

LARGEST = 12  # states: beyond them exact polynomials take seconds
ROUNDING = 100 * np.finfo(float).eps


def exact_rank_one_heads(lags: np.ndarray, system) -> tuple[int, list[np.ndarray]]:
    """Return a lower bound of the tensor rank of lags (n, p, d), and lists of rank-one maps that span them.

    ``system``: A, B, C, D as arrays, or None for lags alone, which must be exactly M_0
    X^tau. The bound is 0 if the system has a skip, or B or C a rank below N. With one
    Jordan block for every eigenvalue and n >= N it is 2 N - t, t counting real eigenvalues
    and pairs, and maps that attain it are returned; for two tokens it is N + the number of
    invariant polynomials that are no product of different real linear factors.
    """
    found = _powers(lags) if system is None else _full_rank(*system)
    if found is None:
        return 0, []
    exact, A, B, C = found
    N, A_exact = len(A), rational_matrix(exact)
    polynomial = characteristic(A_exact)
    roots, cyclic = _roots(polynomial), _cyclic(A_exact)
    if cyclic == N:
        defect = int(any(root.imag or multiplicity > 1 for root, multiplicity in roots))
    else:
        defect = _defect(A_exact, polynomial)
    bound = N + max(cyclic - len(roots) if len(lags) >= N else 0, defect)
    try:
        maps = []
        if cyclic == N:
            maps.append(np.concatenate([_block_heads(A, *root) for root in roots]))
        if len(lags) == 2:
            maps.append(pole_placement_heads(np.eye(N), A, defect))
    except np.linalg.LinAlgError:  # the structure is exact, and its maps are beyond float64
        maps = []
    return bound, [np.einsum("pa,hab,bd->hpd", C, each, B) for each in maps if each is not None]


def _full_rank(A, B, C, D):
    """A in fractions and as floats with B and C, if both have rank N beyond rounding and there is no skip."""
    N = len(A)
    if not 2 <= N <= LARGEST or (D is not None and D.any()):
        return None
    for matrix in (B, C):
        sigma = np.linalg.svd(matrix, compute_uv=False)
        if len(sigma) < N or sigma[-1] <= ROUNDING * sigma[0]:
            return None
    return [[Fraction(float(entry)) for entry in row] for row in A], A, B, C


def _powers(lags):
    """The same from square lags that are exactly M_0 X^tau: A = X, B = I, C = M_0."""
    n, p, d = lags.shape
    if p != d or not 2 <= p <= LARGEST or n < 2 or n * p**3 > 20_000:
        return None
    sigma = np.linalg.svd(lags[0], compute_uv=False)
    if sigma[-1] <= ROUNDING * sigma[0]:
        return None
    exact = [rational_matrix([[Fraction(float(entry)) for entry in row] for row in lag]) for lag in lags]
    step = exact[0].inv() * exact[1]
    if any(exact[tau] * step != exact[tau + 1] for tau in range(1, n - 1)):
        return None
    rows = [[from_qq(x) for x in row] for row in step.to_list()]
    A = np.array([[float(entry) for entry in row] for row in rows])
    return rows, A, np.eye(p), lags[0]


def _cyclic(A) -> int:
    """The largest dimension of span{e, A e, A^2 e, ...} over a few integer vectors e, exact."""
    rng, size, best = np.random.default_rng(0), A.shape[0], 0
    for e in rng.integers(-3, 4, (3, size)):
        vector = rational_matrix([[Fraction(int(x))] for x in e])
        columns = []
        for _ in range(size):
            columns.append(vector.to_list_flat())
            vector = A * vector
        best = max(best, type(A)(columns, A.shape, A.domain).rank())
    return best


def _roots(polynomial):
    """Eigenvalues and multiplicities, one of each pair: which are real is exact, their values are float64.

    Each squarefree part over the rationals has one multiplicity, and sign changes count its
    real roots.
    """
    found = []
    for part, multiplicity in polynomial.sqf_list()[1]:
        real = part.count_roots()
        values = np.roots([float(c) for c in part.monic().all_coeffs()])
        values = values[np.argsort(np.abs(values.imag), kind="stable")]
        found += [(complex(value.real), multiplicity) for value in values[:real]]
        found += [(complex(value), multiplicity) for value in values[real:] if value.imag > 0]
    return tuple(found)


def _defect(A, polynomial) -> int:
    """How many invariant polynomials of A have a nonreal or a repeated root: the largest number at one root.

    At a nonreal root all Jordan blocks count, at a real one those of size two and more. The
    roots of one irreducible factor are alike.
    """
    most, size = 0, A.shape[0]
    for factor, _ in polynomial.factor_list()[1]:
        value, one = A * A.domain.zero, type(A).eye(size, A.domain)
        for coefficient in factor.all_coeffs():
            value = value * A + one * A.domain.from_sympy(coefficient)
        rank = value.rank()
        dropped = rank - (value * value).rank() if factor.count_roots() == factor.degree() else size - rank
        most = max(most, dropped // factor.degree())
    return most


def _block_heads(A, root, multiplicity):
    """2 m - 1 maps of rank one that span the g(A) on the m-dimensional space of one eigenvalue or one pair.

    With columns K = [e, X e, ...] and rows L = [f; f X; ...], X the block of A, L g(X) K is
    a Hankel matrix, and v v^T, v = (1, s, s^2, ...), at 2 m - 1 points s span those.
    """
    shifted = A - root.real * np.eye(len(A))
    factor = shifted @ shifted + root.imag**2 * np.eye(len(A)) if root.imag else shifted
    m = multiplicity * (2 if root.imag else 1)
    left, _, right = np.linalg.svd(np.linalg.matrix_power(factor, multiplicity))
    U, W = right[len(A) - m :].T, left[:, len(A) - m :].T
    W = np.linalg.solve(W @ U, W)
    block = W @ shifted @ U
    block = block / (abs(root.imag) or np.linalg.norm(block, 2) or 1.0)
    starts = np.random.default_rng(0).standard_normal((16, m))
    K, L = (min((_krylov(X, e) for e in starts), key=np.linalg.cond) for X in (block, block.T))
    points = np.cos(np.pi * (np.arange(2 * m - 1) + 0.5) / (2 * m - 1))
    v = points[:, None] ** np.arange(m)
    return np.einsum("ph,hd->hpd", U @ np.linalg.solve(L.T, v.T), np.linalg.solve(K.T, v.T).T @ W)


def _krylov(X, e):
    """The square matrix with the columns e, X e, X^2 e, ..."""
    columns = [e]
    for _ in range(len(X) - 1):
        columns.append(X @ columns[-1])
    return np.stack(columns, axis=1)


def pole_placement_heads(E: np.ndarray, F: np.ndarray, extra: int = 1) -> np.ndarray | None:
    """Return m + ``extra`` maps of rank one (m, m) that span E and F (m, m), E invertible, or None.

    With X = E^-1 F, suitable columns u_i and rows v_i^T give X - sum_i u_i v_i^T any m
    different real eigenvalues s, with eigenvectors (X - s)^-1 sum_i g_i u_i for any g, if
    no eigenvalue of X has more Jordan blocks than ``extra``. None if rounding prevails.
    """
    X = np.linalg.solve(E, F)
    m, size = len(X), np.linalg.norm(X, 2)
    if extra == 0 or size == 0:
        return None
    points = 1.1 * size * np.cos(np.pi * (np.arange(m) + 0.5) / m)
    steps = X - points[:, None, None] * np.eye(m)
    if np.linalg.cond(steps).max() > 1e12:
        return None
    rng = np.random.default_rng(0)
    draws = [(rng.standard_normal((m, extra)), rng.standard_normal((extra, m))) for _ in range(8)]
    tried = [(np.linalg.solve(steps, (U @ G).T[..., None])[..., 0].T, U, G) for U, G in draws]
    vectors, U, G = min(tried, key=lambda found: np.linalg.cond(found[0]))
    if np.linalg.cond(vectors) > 1e12:
        return None
    inverse = np.linalg.inv(vectors)
    heads = np.einsum("ph,hd->hpd", vectors, inverse), np.einsum("pe,ed->epd", U, G @ inverse)
    return E @ np.concatenate(heads)
