"""The Kolmogorov-Arnold layer: a learned scalar function on every edge, W again block diagonal."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ssmbook._checks import check_integer, check_positive
from ssmbook.maps.base import SequenceMap, draw, spelled_out
from ssmbook.operators import PointwiseOperator


class KAN(SequenceMap):
    """Kolmogorov-Arnold layer, y_i[a] = sum_b phi_ab(x_i[b]), with piecewise-linear edges and phi_ab(0) = 0.

    d, p: widths in and out; grid: number of linear pieces (5), odd, so that 0 lies inside the middle one;
    reach > 0 (2): the pieces split [-reach, reach] evenly and the outer two go on for ever. Parameter
    ``slopes`` (p, d, grid). W_ii[a, b] = phi_ab(x_i[b]) / x_i[b], at 0 the slope of the middle piece.
    Left out (core): the SiLU branch beside each spline and splines of higher order (`liu2024kan`).
    Raises ``ValueError``/``TypeError`` for a bad grid or reach. Introduced in *zoo*.

    >>> layer, x = KAN(3, 2), torch.randn(5, 3)
    >>> torch.allclose(layer(x), layer.interaction(x) @ x, atol=1e-5)
    True
    """

    @spelled_out
    def __init__(self, d: int, p: int, *, grid: int = 5, reach: float = 2.0, **new: Any):
        super().__init__(d, p, causal=True)
        grid = check_integer("grid", grid, low=1)
        if grid % 2 == 0:
            raise ValueError(f"grid must be odd (0 inside the middle piece); got {grid}")
        self.grid, self.reach = grid, check_positive("reach", reach)
        self.slopes = draw(p, d, grid, fan_in=d, **new)

    def _forward(self, x: Tensor) -> Tensor:
        return torch.einsum("pdg,...ndg->...np", self.slopes, self._lengths(x))

    def _interaction(self, x: Tensor) -> PointwiseOperator:
        at_zero = (x == 0)[..., None]
        share = self._lengths(x) / torch.where(at_zero, 1.0, x[..., None])
        middle = torch.arange(self.grid, device=x.device) == self.grid // 2
        share = torch.where(at_zero, middle.to(x.dtype), share)
        return PointwiseOperator(torch.einsum("pdg,...ndg->...npd", self.slopes, share))

    def _lengths(self, x: Tensor) -> Tensor:
        """Signed length of [0, x] inside each piece: (..., grid), summing to x."""
        inner = torch.linspace(-1, 1, self.grid + 1, dtype=x.dtype, device=x.device)[1:-1] * self.reach
        end = x.new_full((1,), float("inf"))
        low, high = torch.cat([-end, inner]), torch.cat([inner, end])
        zero = x.new_zeros(()).clamp(low, high)
        return x[..., None].clamp(low, high) - zero
