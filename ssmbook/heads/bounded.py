"""Heads that equal a system at every input: bounded coefficients, and how few heads allow them."""

from __future__ import annotations

import math

import numpy as np
import torch

from ssmbook.heads._count import Count
from ssmbook.heads._evidence import TokenEvidence
from ssmbook.heads._lags import column_and_row_bases, lag_span, lags_of
from ssmbook.heads.pairwise import PairwiseHeads, pairwise_head_count
from ssmbook.systems.system import System

_DIRECTIONS = 4096


def bounded_heads(
    system: System | torch.Tensor, n: int | None = None, *, algebra: int | None = None
) -> PairwiseHeads:
    """Return heads that equal a system at every input, with bounded coefficients.

    They use the multiplication of the real numbers, the complex numbers, the quaternions or
    the octonions, ``algebra`` a = 1, 2, 4 or 8 (default: the one with the fewest heads,
    then the least bound). Tokens and outputs are read as polynomials with D = ceil(d/a) and
    P = ceil(p/a) coefficients in it, and the value maps are the H = a (P + D - 1)
    coefficients of a product. ``bound`` = sqrt(binom(P + D - 2, P - 1)) is the best
    constant for these heads. a = 4 and 8 need P or D to be 1.

    A real `System` and n, or lag operators M (n, p, d) alone, p, d >= 1. Raises
    ``ValueError`` for an algebra that does not fit. Source: prop-bounded-heads.

    >>> M = torch.eye(3).expand(5, 3, 3)
    >>> bounded_heads(M).H, bounded_heads(M).bound, bounded_heads(M, algebra=1).H
    (4, 1.0, 5)
    """
    M = lags_of(system, n)
    _, p, d = M.shape
    algebra = _best_algebra(p, d) if algebra is None else algebra
    if algebra not in _algebras(p, d):
        raise ValueError(f"algebra must be one of {_algebras(p, d)} for p = {p}, d = {d}; got {algebra!r}")
    P, D, weights = -(-p // algebra), -(-d // algebra), _weights(p, d, algebra)
    units = _left_multiplications(algebra)
    V = np.zeros((P + D - 1, algebra, P, algebra, D, algebra))
    for A in range(P):
        for B in range(D):
            V[A + B, :, A, :, B] = weights[A, B] * units
    V = V.reshape(algebra * (P + D - 1), algebra * P, algebra * D)[:, :p, :d]
    bound = math.sqrt(math.comb(P + D - 2, P - 1))
    return PairwiseHeads(M.detach(), torch.from_numpy(V.copy()).to(M), bound)


def bilinear_head_count(p: int, d: int) -> Count[None]:
    """Return p # d: the fewest heads whose value maps serve every system of p outputs and d inputs.

    It is the least H for which a nonsingular bilinear map from R^p x R^d to R^H exists.
    From below: the least H for which the binomial coefficients (H choose j), H - p < j < d,
    are all even (Hopf and Stiefel). From above: `bounded_heads`. The two agree if p or d is
    at most 8. Source: prop-bounded-heads.

    >>> print(bilinear_head_count(3, 5), bilinear_head_count(16, 16), sep="; ")
    7 heads (nonsingular bilinear maps); 16 to 30 heads (nonsingular bilinear maps)
    """
    if min(p, d) < 1:
        raise ValueError(f"p and d must be at least 1; got {p} and {d}")
    low = max(p, d)
    while any(math.comb(low, j) % 2 for j in range(low - p + 1, d)):
        low += 1
    return Count(low, _size(p, d, _best_algebra(p, d))[0], "nonsingular bilinear maps")


def every_input_head_count(
    system: System | torch.Tensor, n: int | None = None, *, rtol: float | None = None
) -> Count[TokenEvidence]:
    """Return the count for "any": heads that equal the system at *every* input.

    From below: l, the count for almost every input, and p # d (`bilinear_head_count`) if
    the M_tau x span R^p for every x != 0; this is proved for p or d at most 2, and if the
    lags span all p x d matrices. From above: k and p # d. Outputs and inputs that no lag
    uses do not count in p and d.
    """
    M = lags_of(system, n)
    almost = pairwise_head_count(M, rtol=rtol).value
    if almost == 0:
        return Count(0, 0, "the zero system", TokenEvidence(k=0, almost=0))
    _, E, rtol = lag_span(M, rtol)
    outputs, inputs = column_and_row_bases(E, rtol)
    E = outputs.T @ E @ inputs  # without outputs and inputs that no lag uses
    every = bilinear_head_count(*E.shape[1:])
    low = max(almost, every.low) if _always_onto(E) else almost
    evidence = TokenEvidence(len(E), almost)
    return Count(low, max(low, min(len(E), every.high)), "nonsingular bilinear maps", evidence)


def _always_onto(E: np.ndarray) -> bool:
    """Whether {E_b x} is proved to span R^p for every x != 0: no w, x have w^T E_b x = 0 for all b."""
    k, p, d = E.shape
    if k == p * d or p == 1 or d == 1:
        return True
    if p > 2:
        if d > 2:
            return False
        E, d = E.transpose(0, 2, 1), p
    # For every direction w of the plane the rows w^T E_b must have rank d; they turn no
    # faster than |E|.
    angles = np.arange(_DIRECTIONS) * np.pi / _DIRECTIONS
    rows = np.einsum("mp,bpd->mbd", np.stack([np.cos(angles), np.sin(angles)], 1), E)
    least = np.linalg.svd(rows, compute_uv=False)[:, d - 1].min() if k >= d else 0.0
    return bool(least > np.linalg.norm(E) * np.pi / _DIRECTIONS)


def _algebras(p: int, d: int) -> tuple[int, ...]:
    """Dimensions of the normed algebras whose polynomials serve p x d with a known bound."""
    return tuple(a for a in (1, 2, 4, 8) if a <= 2 or min(p, d) <= a)


def _size(p: int, d: int, a: int) -> tuple[int, int]:
    """The number of heads, and the square of their bound."""
    P, D = -(-p // a), -(-d // a)
    return a * (P + D - 1), math.comb(P + D - 2, P - 1)


def _best_algebra(p: int, d: int) -> int:
    return min(_algebras(p, d), key=lambda a: _size(p, d, a))


def _weights(p: int, d: int, a: int) -> np.ndarray:
    """Bombieri's weights: with them the product of two polynomials is as long as it can be."""
    P, D = -(-p // a), -(-d // a)
    rows = [math.comb(P - 1, A) for A in range(P)]
    columns = [math.comb(D - 1, B) for B in range(D)]
    products = [[math.comb(P + D - 2, A + B) for B in range(D)] for A in range(P)]
    return np.sqrt(np.outer(rows, columns) / np.array(products, dtype=float))


def _left_multiplications(a: int) -> np.ndarray:
    """Matrices L (a, a, a) of x -> e_b x for the units of R, C, the quaternions or the octonions.

    Each algebra is pairs of the one before it, (u, v)(x, y) = (u x - y* v, y u + v x*).
    """
    product = np.ones((1, 1, 1))  # e_b e_x = sum_c product[b, x, c] e_c
    while len(product) < a:
        m = len(product)
        conjugate = np.diag([1.0] + [-1.0] * (m - 1))
        larger = np.zeros((2 * m, 2 * m, 2 * m))
        larger[:m, :m, :m] = product
        larger[m:, m:, :m] = -np.einsum("ys,svc->vyc", conjugate, product)
        larger[:m, m:, m:] = product.transpose(1, 0, 2)
        larger[m:, :m, m:] = np.einsum("vsc,xs->vxc", product, conjugate)
        product = larger
    return product.transpose(0, 2, 1)
