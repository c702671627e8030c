"""Heads that read the tokens and equal a system at every input: how many, how narrow, and which."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from ssmbook.heads._count import Count
from ssmbook.heads._evidence import TokenEvidence
from ssmbook.heads._lags import check_width, column_and_row_bases, lag_span, lags_of
from ssmbook.heads.pairwise import PairwiseHeads, pairwise_head_count
from ssmbook.heads.rank_limited import narrow_head_count, rank_limited_head_count
from ssmbook.heads.softmax import softmax_head_count
from ssmbook.numerics import sink_softmax
from ssmbook.systems.system import System

_DIRECTIONS = 4096
_ALGEBRAS = {1: "real numbers", 2: "complex numbers", 4: "quaternions", 8: "octonions"}


# The heads --------------------------------------------------------------------------------


def bounded_heads(
    system: System | torch.Tensor,
    n: int | None = None,
    *,
    algebra: int | None = None,
    value_rank: int | None = None,
    sink: bool = False,
) -> PairwiseHeads:
    """Return heads that equal a system at every input, with bounded coefficients.

    They multiply polynomials with D = ceil(d/a) and P = ceil(p/a) coefficients in an
    algebra of dimension a: the real or complex numbers, the quaternions or the octonions.
    Wide heads are the H = a (P + D - 1) coefficients of the product, with the best constant
    for them: the square of ``bound`` is binom(m, P - 1), m = P + D - 2, if a <= 2 or P or D
    is 1. Narrow ones, of rank a, are as many values of the product, at angles pi t/H',
    H' = H/a, and the square of ``bound`` is 2^m binom(m, P - 1)/H'. Source:
    prop-bounded-heads, prop-token-heads.

    Parameters
    ----------
    system : System or Tensor (n, p, d)
        A real system, or its lag operators, p, d >= 1.
    n : int, optional
        The number of tokens, beside a System.
    algebra : int, optional
        1, 2, 4 or 8, at most ``value_rank``. Default: the one with the fewest heads, then
        the least bound.
    value_rank : int, optional
        The largest rank of a value map. Default: any.
    sink : bool, default False
        Whether the coefficients are a softmax beside a sink: `SinkHeads`, wide ones with
        one head more, narrow ones with a more.

    Returns
    -------
    PairwiseHeads
        In the dtype of the system.

    Raises
    ------
    ValueError
        For an algebra that does not fit.

    Examples
    --------
    >>> M = torch.eye(3).expand(5, 3, 3)
    >>> bounded_heads(M).H, bounded_heads(M).bound, bounded_heads(M, value_rank=1).H
    (4, 1.0, 5)
    >>> bounded_heads(M, sink=True).H, bounded_heads(M, value_rank=1, sink=True).H
    (5, 6)
    """
    M = lags_of(system, n)
    _, p, d = M.shape
    r = check_width(value_rank, p, d)
    if algebra is not None and algebra not in _fitting(p, d, r):
        raise ValueError(
            f"algebra must be one of {_fitting(p, d, r)} for value maps of rank {r}; got {algebra!r}"
        )
    wide = r == min(p, d)
    a = min(_fitting(p, d, r), key=lambda a: _size(p, d, a, wide, sink)) if algebra is None else algebra
    V, (_, squared) = _value_maps(p, d, a, wide, sink), _size(p, d, a, wide, sink)
    V, bound = torch.from_numpy(V.copy()).to(M), math.sqrt(squared)
    if not sink:
        return PairwiseHeads(M.detach(), V, bound)
    # The coefficients of a head are at most bound max |M|. With value maps of this size they
    # are below 1/(4n), and with 1/(4n) more they are positive and rows sum to less than 1/2.
    largest = float(torch.linalg.matrix_norm(M.detach(), 2).amax()) if len(M) else 0.0
    scale = 4.04 * max(len(M), 1) * bound * (largest or 1.0)
    return SinkHeads(M.detach(), V * scale, bound / scale)


@dataclass(frozen=True)
class SinkHeads(PairwiseHeads):
    """Heads whose value maps sum to zero: a constant beside every coefficient makes them softmax weights.

    The logits read the tokens; every row also has a sink, a key with logit 0 and value 0.

    >>> heads = bounded_heads(torch.randn(8, 2, 2), sink=True)
    >>> heads.V.shape, bool((heads.coefficients(torch.randn(8, 2)).sum(-1) < 0.5).all())
    (torch.Size([3, 2, 2]), True)
    """

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits (..., H, n, n), -inf above the diagonal, for x (..., n, d)."""
        alpha = super().coefficients(x)
        visible = torch.ones(alpha.shape[-2:], dtype=torch.bool, device=x.device).tril()
        alpha = torch.where(visible, alpha + 1 / (4 * len(self.M)), 0)
        return alpha.log() - torch.log1p(-alpha.sum(-1, keepdim=True))

    def coefficients(self, x: torch.Tensor) -> torch.Tensor:
        """Return the softmax weights (..., H, n, n) for x (..., n, d)."""
        return sink_softmax(self.logits(x), 0.0)


def _fitting(p: int, d: int, r: int) -> tuple[int, ...]:
    """Dimensions of the normed algebras that make heads for value maps of rank at most r."""
    return tuple(a for a in _ALGEBRAS if a <= r or r == min(p, d))


def _size(p: int, d: int, a: int, wide: bool, sink: bool) -> tuple[int, float]:
    """The number of heads, and the square of their bound."""
    P, D = -(-p // a), -(-d // a)
    m, points = P + D - 2, P + D - 1 + (sink and not wide)
    squared = math.comb(m, P - 1) * (1.0 if wide and _best_constant(P, D, a) else 2.0**m / points)
    return a * points + (sink and wide), squared


def _best_constant(P: int, D: int, a: int) -> bool:
    """Whether the coefficients of the product are known to have the best constant."""
    return a <= 2 or min(P, D) == 1


def _value_maps(p: int, d: int, a: int, wide: bool, sink: bool) -> np.ndarray:
    """Value maps (H, p, d) that no w, x != 0 makes vanish; with a sink they sum to zero."""
    P, D, units = -(-p // a), -(-d // a), _left_multiplications(a)
    if wide and _best_constant(P, D, a):
        grid, weights = np.zeros((P + D - 1, P, D)), _weights(P, D)
        for A, B in np.ndindex(P, D):
            grid[A + B, A, B] = weights[A, B]
    else:
        # At P + D angles the values with alternating signs cancel, as a Fourier sum.
        points = P + D - 1 + (sink and not wide)
        angles = np.arange(points) * np.pi / points
        signs = (-1.0) ** np.arange(points)
        grid = signs[:, None, None] * _moments(angles, P)[:, :, None] * _moments(angles, D)[:, None, :]
    V = np.einsum("tAB,epd->teApBd", grid, units).reshape(len(grid) * a, P * a, D * a)[:, :p, :d]
    return np.concatenate([V, -V.sum(0, keepdims=True)]) if sink and wide else V


def _moments(angles: np.ndarray, P: int) -> np.ndarray:
    """Rows (P) on which a form of degree P - 1 has its values at the angles, in Bombieri's norm."""
    A, cos, sin = np.arange(P), np.cos(angles)[:, None], np.sin(angles)[:, None]
    return np.sqrt([math.comb(P - 1, each) for each in A]) * cos ** (P - 1 - A) * sin**A


# The count --------------------------------------------------------------------------------


def bilinear_head_count(p: int, d: int, value_rank: int | None = None) -> Count[None]:
    """Return the fewest heads whose value maps serve every system of p outputs and d inputs.

    Without a ``value_rank`` it is p # d, the least H for which a nonsingular bilinear map
    from R^p x R^d to R^H exists. From below: the least H for which the binomial
    coefficients (H choose j), H - p < j < d, are all even (Hopf and Stiefel); with value
    maps of rank at most r, m of them vanish at some w, and the others must serve p - m r
    outputs. From above: `bounded_heads`. Source: prop-bounded-heads, prop-token-heads.

    >>> print(bilinear_head_count(3, 5), bilinear_head_count(16, 16), sep="; ")
    7 heads (nonsingular bilinear maps); 16 to 24 heads (nonsingular bilinear maps)
    >>> print(bilinear_head_count(8, 8, 1).short, bilinear_head_count(8, 8, 2).short, sep="; ")
    15; 11 to 14
    """
    if min(p, d) < 1:
        raise ValueError(f"p and d must be at least 1; got {p} and {d}")
    r = check_width(value_rank, p, d)
    return Count(_least(p, d, r), _most(p, d, r, False)[0], "nonsingular bilinear maps")


def _least(p: int, d: int, r: int) -> int:
    """A lower bound of the number of value maps of rank at most r that no w, x != 0 makes vanish."""
    left = [m + _hopf_stiefel(p - m * r, d) for m in range(-(-p // r))]
    return max(left + [m + _hopf_stiefel(p, d - m * r) for m in range(-(-d // r))])


def _hopf_stiefel(p: int, d: int) -> int:
    H = max(p, d)
    while any(math.comb(H, j) % 2 for j in range(H - p + 1, d)):
        H += 1
    return H


def _most(p: int, d: int, r: int, sink: bool) -> tuple[int, int]:
    """The fewest heads of `bounded_heads`, and the dimension of their algebra."""
    (heads, _), algebra = min((_size(p, d, a, r == min(p, d), sink), a) for a in _fitting(p, d, r))
    return heads, algebra


def every_input_head_count(
    system: System | torch.Tensor,
    n: int | None = None,
    *,
    rtol: float | None = None,
    value_rank: int | None = None,
    sink: bool = False,
) -> Count[TokenEvidence]:
    """Return the count for "any" and, with a sink, for "softmax any": equality at *every* input.

    From below: l, the count for almost every input, and what `bilinear_head_count` says if
    the M_tau x span R^p for every x != 0; this is proved for p or d at most 2, and if the
    lags span all p x d matrices. One head more beside a sink, if a positive combination of
    the lags is zero and they surround it. From above: the heads of the same width with
    fixed coefficients, and `bounded_heads`. Outputs and inputs that no lag uses do not
    count in p and d.
    """
    M = lags_of(system, n)
    r = check_width(value_rank, *M.shape[1:])
    almost = pairwise_head_count(M, rtol=rtol).value
    if almost == 0:
        return Count(0, 0, "the zero system", TokenEvidence(k=0, almost=0))
    _, E, tol = lag_span(M, rtol)
    outputs, inputs = column_and_row_bases(E, tol)
    E = outputs.T @ E @ inputs  # without outputs and inputs that no lag uses
    k, p, d = E.shape
    r = min(r, p, d)
    bounds = {"directions of a token": almost, "width": -(-max(p, d) // r)}
    if _always_onto(E):
        bounds["no zero product"] = _least(p, d, r)
    high, a = _most(p, d, r, sink)
    attained = _ALGEBRAS[a]
    fixed = softmax_head_count(M, rtol=rtol) if sink else Count(k, k, "fixed")
    if sink and fixed.evidence.kind == "dependency" and fixed.evidence.margin > 0:
        bounds = {name: bound + (name != "width") for name, bound in bounds.items()}
    if fixed.high < high and r < min(p, d):
        fixed = narrow_head_count(fixed, M, r, rtol) if sink else rank_limited_head_count(M, r=r, rtol=rtol)
    if fixed.high < high:
        high, attained = fixed.high, "fixed coefficients"
    low = max(bounds.values())
    evidence = TokenEvidence(k, almost, bounds, attained)
    return Count(low, max(low, high), "nonsingular bilinear maps", evidence)


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


def _weights(P: int, D: int) -> np.ndarray:
    """Bombieri's weights: with them the product of two polynomials is as long as it can be."""
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
