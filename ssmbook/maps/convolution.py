"""The causal convolution: a window of fixed taps, W constant along diagonals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ssmbook._checks import check_integer
from ssmbook.maps.base import RecurrentMap, draw, spelled_out, zero_state
from ssmbook.operators import LagOperator


class Convolution(RecurrentMap):
    """Causal convolution y_i = sum over 0 <= tau < width of K_tau x_{i - tau}; W_ij = K_{i - j}.

    d, p: widths in and out; width: number of taps. Parameter ``K`` (width, p, d), K[0] the tap at lag 0
    (``torch.nn.functional.conv1d`` correlates: its kernel is K flipped). The state is the last width - 1
    tokens. Introduced in *zoo*.

    >>> layer = Convolution(4, 4, width=3)
    >>> layer.interaction(torch.randn(8, 4)).interaction_rank()  # a matrix for each lag
    3
    """

    @spelled_out
    def __init__(self, d: int, p: int, *, width: int, **new: Any):
        super().__init__(d, p)
        width = check_integer("width", width, low=1)
        self.width = width
        self.K = draw(width, p, d, fan_in=width * d, **new)

    def initial_state(self, batch_shape: Sequence[int] = ()) -> Tensor:
        return zero_state(self.K, batch_shape, self.width - 1, self.d).to(self.K.dtype)  # tokens, no sums

    def _forward(self, x: Tensor) -> Tensor:
        n = x.shape[-2]
        padded = functional.pad(x, (0, 0, self.width - 1, 0))
        return sum(
            padded.narrow(-2, self.width - 1 - tau, n) @ tap.mT for tau, tap in enumerate(self.K.unbind(0))
        )

    def _interaction(self, x: Tensor) -> LagOperator:
        n = x.shape[-2]
        return LagOperator(self.K[:n], n)

    def _step(self, x_t: Tensor, state: Tensor):
        window = torch.cat([state, x_t[..., None, :]], dim=-2)
        return torch.einsum("kpd,...kd->...p", self.K.flip(0), window), window[..., 1:, :]
