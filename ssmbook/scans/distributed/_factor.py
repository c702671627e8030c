"""What a slice of time multiplies a state with: a product of many decays that neither vanishes nor overflows.

A product of a million decays leaves the range of double precision long before the state does (a decay that
grows meets a state that is tiny, or zero). So it is kept as ``fraction * 2**power``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ssmbook.scans._engine import wide

LN2 = math.log(2)
REACH = 2200  # 2**REACH takes the smallest double beyond the largest; further is nothing new


class Factor(NamedTuple):
    """The product ``fraction * 2**power``: ``fraction`` real or complex, ``power`` real, of one shape."""

    fraction: Tensor
    power: Tensor

    def times(self, state: Tensor) -> Tensor:
        """The product and a state in the wide dtype, multiplied."""
        return shifted(self.fraction * state, self.power)

    def conj(self) -> Factor:
        """The factor of the adjoint."""
        return Factor(self.fraction.conj(), self.power)


def shifted(x: Tensor, power: Tensor) -> Tensor:
    """``x * 2**power``; in four steps, as a power of two may be out of range where the result is not."""
    power = power.clamp(-REACH, REACH)
    quarter = (power / 4).round()
    for step in (quarter, quarter, quarter, power - 3 * quarter):
        x = x * torch.exp2(step)
    return x


def summed(logarithms: Tensor) -> Tensor:
    """The sum over time, dim -2, in the wide dtype."""
    return logarithms.sum(-2, dtype=wide(logarithms.dtype))


def factor_of_logarithms(total: Tensor) -> Factor:
    """exp(total), also where that is no number of double precision; minus infinity gives zero."""
    power = (total / LN2).round().clamp(-1e15, 1e15)  # finite, and infinity stays with the fraction
    return Factor((total - power * LN2).exp(), power)


def factor_of_product(a: Tensor) -> Factor:
    """The product over time, dim -2: its modulus by logarithms, and its phase.

    A product rounds T times, for equal decays perhaps always the same way; a sum of logarithms is as exact
    as they are small. The modulus of a complex number is itself rounded: those are multiplied in blocks
    first.
    """
    a = _in_blocks(a) if a.is_complex() and a.numel() else a.to(wide(a.dtype))
    size = factor_of_logarithms(summed(a.abs().log_()))
    return Factor(size.fraction * a.sgn().prod(-2).sgn(), size.power)


def _in_blocks(a: Tensor) -> Tensor:
    """The products of as many decays as stay in range whatever their order, and those that are left over."""
    a, T = a.to(wide(a.dtype)), a.shape[-2]
    furthest = a.abs().log().abs().nan_to_num(nan=torch.inf).amax().item()
    steps = int(min(max(600 / max(furthest, 1e-300), 1), T))
    whole = T // steps * steps
    blocks = a[..., :whole, :].unflatten(-2, (-1, steps)).prod(-2)
    return torch.cat((blocks, a[..., whole:, :]), -2)
