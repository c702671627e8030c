"""Pairwise heads exact for every input, with coefficients bounded by a constant times the lag's norm."""

from __future__ import annotations

import math

import torch

from ssmbook.heads._target import lags_of
from ssmbook.heads.pairwise.count import PairwiseHeads
from ssmbook.systems.system import System, system_first

# e_a e_b = sign * e_c for the quaternion units 1, i, j, k: rows a, columns b, entries (sign, c).
_QUATERNION = (
    ((1, 0), (1, 1), (1, 2), (1, 3)),
    ((1, 1), (-1, 0), (1, 3), (-1, 2)),
    ((1, 2), (-1, 3), (-1, 0), (1, 1)),
    ((1, 3), (1, 2), (-1, 1), (-1, 0)),
)


@system_first
def hankel_heads(system: System | torch.Tensor, n: int | None = None) -> PairwiseHeads:
    """Return p + d - 1 Hankel heads V_h[a, b] = 1 if a + b = h, which realize any system for every input.

    For x != 0 the vectors V_h x are the shifts of x and span R^p; the least-norm coefficients obey |alpha_ij|
    <= sqrt(binom(2d-2, d-1) binom(2p-2, p-1)) ||M_{i-j}||_2, and 0 serves x_j = 0.

    A real `System` and n, or lag operators M (n, p, d), with p, d >= 1. Returns ``PairwiseHeads`` in their
    dtype and on their device. Raises ``TypeError``/``ValueError`` for a wrong dtype or shape, NaN and
    infinity. Source: Proposition *prop-bounded-heads*. Introduced in *how-many-heads-really*.

    >>> heads = hankel_heads(torch.randn(8, 3, 2))
    >>> heads.V.shape, heads.V[1].tolist()
    (torch.Size([4, 3, 2]), [[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]])
    """
    M = _checked(system, n)
    _, p, d = M.shape
    sums = torch.arange(p, device=M.device)[:, None] + torch.arange(d, device=M.device)
    heads = torch.arange(p + d - 1, device=M.device)[:, None, None]
    bound = math.sqrt(math.comb(2 * d - 2, d - 1) * math.comb(2 * p - 2, p - 1))
    return PairwiseHeads(M.detach(), (sums == heads).to(M.dtype), bound)


@system_first
def complex_heads(system: System | torch.Tensor, n: int | None = None) -> PairwiseHeads:
    """Return the heads {I, J}, J the quarter turn: any system with p, d <= 2, for every input.

    x and J x are orthogonal and equally long, so |alpha_ij| <= ||M_{i-j}||_2, and 0 serves x_j = 0. Smaller p
    or d keep the top left corners.

    A real `System` and n, or lag operators M (n, p, d), 1 <= p, d <= 2. Returns ``PairwiseHeads`` in their
    dtype and on their device. Raises ``TypeError``/``ValueError`` for a wrong dtype or shape, NaN and
    infinity. Source: Proposition *prop-bounded-heads*. Introduced in *how-many-heads-really*.

    >>> from ssmbook.operators import LagOperator
    >>> M, x = torch.randn(8, 2, 2), torch.randn(8, 2)
    >>> torch.allclose(complex_heads(M)(x), LagOperator(M) @ x, atol=1e-5)
    True
    """
    return _division_heads(_checked(system, n), 2)


@system_first
def quaternion_heads(system: System | torch.Tensor, n: int | None = None) -> PairwiseHeads:
    """Return the left multiplications by 1, i, j, k: any system with p, d <= 4, for every input.

    The four images of x are orthogonal and equally long, so |alpha_ij| <= ||M_{i-j}||_2, and 0 serves x_j =
    0. Smaller p or d keep the top left corners.

    A real `System` and n, or lag operators M (n, p, d), 1 <= p, d <= 4. Returns ``PairwiseHeads`` in their
    dtype and on their device. Raises ``TypeError``/``ValueError`` for a wrong dtype or shape, NaN and
    infinity. Source: Proposition *prop-bounded-heads*. Introduced in *how-many-heads-really*.

    >>> heads = quaternion_heads(torch.randn(8, 4, 4))
    >>> heads.V.shape, round(heads.bound, 6)
    (torch.Size([4, 4, 4]), 1.0)
    """
    return _division_heads(_checked(system, n), 4)


def _division_heads(M, size):
    """Left multiplication by the units of the complex numbers or the quaternions, cut to (p, d)."""
    _, p, d = M.shape
    if p > size or d > size:
        raise ValueError(f"M must have p, d <= {size} for {size} heads; got p = {p}, d = {d}")
    V = M.new_zeros(size, size, size)
    for a in range(size):
        for b in range(size):
            sign, c = _QUATERNION[a][b]
            V[a, c, b] = sign
    return PairwiseHeads(M.detach(), V[:, :p, :d].contiguous(), 1.0)


def _checked(system, n):
    M = lags_of(system, n)
    if min(M.shape[1:]) == 0:
        raise ValueError(f"M must have p, d >= 1; got shape {tuple(M.shape)}")
    return M
