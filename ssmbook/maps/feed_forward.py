"""The feed-forward layer: acts on each token alone, so W is block diagonal."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ssmbook._checks import check_integer
from ssmbook.maps.activations import activate, check_activation, secant_slope
from ssmbook.maps.base import SequenceMap, draw, spelled_out
from ssmbook.operators import PointwiseOperator


class FeedForward(SequenceMap):
    """Two-layer perceptron on each token: y_i = W_2 sigma(W_1 x_i), W_ii = W_2 diag(sigma(z_i)/z_i) W_1.

    d, p: widths in and out; width: hidden units; activation: "tanh", "relu", "silu" or "gelu".
    Parameters ``W_1`` (width, d), ``W_2`` (p, width) in ``dtype`` on ``device``, drawn with ``generator``.
    Left out (core): the biases, which would make F(0) differ from 0. Raises ``ValueError``/``TypeError`` for
    an unknown activation or a bad size. Introduced in *zoo*.

    >>> W = FeedForward(4, 4, width=8).interaction(torch.randn(5, 4))
    >>> W.past_future_rank()  # no token hears another
    0
    """

    @spelled_out
    def __init__(self, d: int, p: int, *, width: int, activation: str = "silu", **new: Any):
        super().__init__(d, p, causal=True)
        width = check_integer("width", width, low=1)
        self.width, self.activation = width, check_activation(activation)
        self.W_1 = draw(width, d, fan_in=d, **new)
        self.W_2 = draw(p, width, fan_in=width, **new)

    def _forward(self, x: Tensor) -> Tensor:
        return activate(self.activation, x @ self.W_1.mT) @ self.W_2.mT

    def _interaction(self, x: Tensor) -> PointwiseOperator:
        slope = secant_slope(self.activation, x @ self.W_1.mT)
        return PointwiseOperator(torch.einsum("pk,...nk,kd->...npd", self.W_2, slope, self.W_1))
