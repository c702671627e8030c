"""Pairwise heads exact for every input, with coefficients bounded by a constant times the lag's norm."""

from __future__ import annotations

import math

import numpy as np
import torch

from ssmbook._checks import check_integer
from ssmbook._count import Count
from ssmbook.heads._coordinates import frames
from ssmbook.heads._target import lag_span, lags_of
from ssmbook.heads.pairwise.count import PairwiseHeads, pairwise_head_count
from ssmbook.systems.system import System, system_first

_DIRECTIONS = 4096


@system_first
def bounded_heads(
    system: System | torch.Tensor, n: int | None = None, *, algebra: int | None = None
) -> PairwiseHeads:
    """Return heads that realize any system of their size for every input, with bounded coefficients.

    Outputs and tokens are read as polynomials with P = ceil(p/a) and D = ceil(d/a) coefficients in the real
    numbers, the complex numbers, the quaternions or the octonions (a = 1, 2, 4, 8), and the heads ask for
    their product: H = a (P + D - 1), and |alpha_ij| <= sqrt(binom(P + D - 2, P - 1)) ||M_{i-j}||_2. That
    constant, ``bound``, is the best for these heads; it is 1 where P or D is 1. 0 serves x_j = 0.

    A real `System` and n, or lag operators M (n, p, d), with p, d >= 1. ``algebra`` is a; a = 4 and 8 need P
    or D to be 1. By default the a with the fewest heads, of several the one with the least bound. Returns
    `PairwiseHeads` in their dtype and on their device. Raises ``TypeError``/``ValueError`` for a wrong dtype
    or shape, NaN, infinity and an algebra that does not fit. Source: prop-bounded-heads.
    Introduced in *how-many-heads-really*.

    >>> M = torch.eye(3).expand(5, 3, 3)
    >>> bounded_heads(M).H, bounded_heads(M).bound, bounded_heads(M, algebra=1).H
    (4, 1.0, 5)
    """
    M = lags_of(system, n)
    _, p, d = M.shape
    if min(p, d) == 0:
        raise ValueError(f"M must have p, d >= 1; got shape {tuple(M.shape)}")
    algebra = _best_algebra(p, d) if algebra is None else check_integer("algebra", algebra, low=1)
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


def bounded_head_count(p: int, d: int) -> Count:
    """Return the fewest heads that realize every system of p outputs and d inputs for every input.

    It is p # d, the least H for which a nonsingular bilinear map of R^p x R^d to R^H exists. From below: the
    least H for which the binomial coefficients (H choose j), H - p < j < d, are all even (Hopf and Stiefel).
    From above: `bounded_heads`. The two agree whenever p or d is at most 8.

    p, d >= 1 ints. Raises ``TypeError``/``ValueError`` for others. Source: prop-bounded-heads.
    Introduced in *how-many-heads-really*.

    >>> print(bounded_head_count(3, 5), bounded_head_count(16, 16), sep="; ")
    7 heads (nonsingular bilinear maps); 16 to 30 heads (nonsingular bilinear maps)
    """
    p, d = check_integer("p", p, low=1), check_integer("d", d, low=1)
    low = max(p, d)
    while any(math.comb(low, j) % 2 for j in range(low - p + 1, d)):
        low += 1
    return Count(low, _size(p, d, _best_algebra(p, d))[0], "nonsingular bilinear maps")


@system_first
def every_input_head_count(
    system: System | torch.Tensor, n: int | None = None, *, rtol: float | None = None
) -> Count:
    """Return how few heads with coefficients that read the input are a system for *every* input.

    Locally bounded coefficients that serve almost every input count here too: softmax with any logits.
    At least l = max_x dim span{M_tau x}, and at least p # d where that span is all of R^p for every x != 0
    (proved for p or d at most 2, and where the lags span all p x d matrices); at most k, and at most p # d.
    Outputs and inputs that no lag uses do not count in p and d.

    A real `System` and n, or lag operators M (n, p, d) alone; ``rtol`` the rank tolerance (1e-10 in float64).
    Worked in float64. Returns a `Count`. Raises as `pairwise_head_count`. Source:
    thm-strong-form, prop-bounded-heads. Introduced in *how-many-heads-really*.

    >>> turn = System(torch.tensor([[0.0, -0.9], [0.9, 0.0]]), torch.eye(2), torch.eye(2))
    >>> print(every_input_head_count(turn, 8))
    2 heads (nonsingular bilinear maps)
    """
    M = lags_of(system, n)
    almost = pairwise_head_count(M, rtol=rtol)
    if almost == 0:
        return Count(0, 0, "the zero system")
    E = _span(M, rtol)
    every = bounded_head_count(*E.shape[1:])
    low = max(almost.value, every.low) if _always_onto(E) else almost.value
    return Count(low, max(low, min(len(E), every.high)), "nonsingular bilinear maps")


def _span(M, rtol) -> np.ndarray:
    """A basis (k, p', d') of the lags' span, without outputs that are idle and inputs that are not read."""
    _, E, rtol = lag_span(M, rtol)
    outputs, inputs = frames(E, rtol)
    return outputs.T @ E @ inputs


def _always_onto(E) -> bool:
    """Whether {E_b x} is proved to span R^p for every x != 0: no w, x have w^T E_b x = 0 for all b."""
    k, p, d = E.shape
    if k == p * d or p == 1 or d == 1:
        return True
    if p > 2:
        if d > 2:
            return False
        E, d = E.transpose(0, 2, 1), p
    # For every direction w of the plane the rows w^T E_b must have rank d; they turn no faster than |E|.
    angles = np.arange(_DIRECTIONS) * np.pi / _DIRECTIONS
    rows = np.einsum("mp,bpd->mbd", np.stack([np.cos(angles), np.sin(angles)], 1), E)
    least = np.linalg.svd(rows, compute_uv=False)[:, d - 1].min() if k >= d else 0.0
    return bool(least > np.linalg.norm(E) * np.pi / _DIRECTIONS)


def _algebras(p, d) -> tuple[int, ...]:
    """Dimensions of the normed algebras whose polynomials serve p x d with a known bound."""
    return tuple(a for a in (1, 2, 4, 8) if a <= 2 or min(p, d) <= a)


def _size(p, d, a) -> tuple[int, int]:
    """The number of heads, and the square of their bound."""
    P, D = -(-p // a), -(-d // a)
    return a * (P + D - 1), math.comb(P + D - 2, P - 1)


def _best_algebra(p, d) -> int:
    return min(_algebras(p, d), key=lambda a: _size(p, d, a))


def _weights(p, d, a):
    """Bombieri's weights: with them the product of two polynomials is as long as it can be."""
    P, D = -(-p // a), -(-d // a)
    rows = [math.comb(P - 1, A) for A in range(P)]
    columns = [math.comb(D - 1, B) for B in range(D)]
    products = [[math.comb(P + D - 2, A + B) for B in range(D)] for A in range(P)]
    return np.sqrt(np.outer(rows, columns) / np.array(products, dtype=float))


def _left_multiplications(a):
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
