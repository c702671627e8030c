"""The lags C A^tau B of a time-invariant system: one step at a time, from either side, and by powers of A."""

from __future__ import annotations

import torch
from torch import Tensor


def lags_by_recurrence(A: Tensor, B: Tensor, C: Tensor, n: int) -> Tensor:
    """C A^tau B for tau = 0 ... n - 1, (..., n, p, d), one step at a time."""
    lags, column = [], B
    for _ in range(n):
        lags.append(C @ column)
        column = A @ column
    shape = (*A.shape[:-2], 0, C.shape[-2], B.shape[-1])
    return torch.stack(lags, dim=-3) if lags else A.new_zeros(shape)


def lags_from_the_left(A: Tensor, B: Tensor, C: Tensor, n: int) -> Tensor:
    """The lags of :func:`lags_by_recurrence` by the recurrence of the transposed system: rounded on their
    own.
    """
    return lags_by_recurrence(A.mT, C.mT, B.mT, n).mT


def krylov(powers: list[Tensor], B: Tensor, count: int) -> Tensor:
    """B, AB, A^2 B, ... side by side, (..., N, count d), by doubling: each product doubles how many there
    are.
    """
    columns, d = B, B.shape[-1]
    for power in powers:
        if columns.shape[-1] >= count * d:
            break
        columns = torch.cat((columns, power @ columns), -1)
    return columns[..., : count * d]


def lags_by_powers(powers: list[Tensor], B: Tensor, C: Tensor, n: int) -> Tensor:
    """The lags from A, A^2, A^4, ... (up to an exponent of at least n), at two levels of about sqrt(n)."""
    level = ((n - 1).bit_length() + 1) // 2
    inner, p, d = 1 << level, C.shape[-2], B.shape[-1]
    outer = -(-n // inner)
    rows = krylov([power.mT for power in powers[level:]], C.mT, outer).mT
    blocks = (rows @ krylov(powers, B, inner)).unflatten(-1, (inner, d)).unflatten(-3, (outer, p))
    return blocks.transpose(-3, -2).flatten(-4, -3)[..., :n, :, :]
