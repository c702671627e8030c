"""The plain recurrent network, whose secant slopes make W exact although the map is not linear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ssmbook._checks import check_integer
from ssmbook.maps.activations import activate, check_activation, secant_slope
from ssmbook.maps.base import RecurrentMap, draw, spelled_out, stack_tokens, zero_state
from ssmbook.numerics import single
from ssmbook.operators import RecurrentOperator


class RNN(RecurrentMap):
    """Recurrent network h_i = sigma(A h_{i-1} + B x_i), y_i = C h_i.

    With z_i the pre-activation and D_i = diag(sigma(z_i)/z_i), W_ij = C D_i A D_{i-1} A ... A D_j B exactly:
    a secant, not the derivative. d, p: widths in and out; N: states; activation: "tanh", "relu", "silu" or
    "gelu".
    Parameters ``A`` (N, N), ``B`` (N, d), ``C`` (p, N).
    Left out (core): the biases, which would make F(0) differ from 0. Introduced in *zoo*.

    >>> layer, x = RNN(3, 2, N=4), torch.randn(6, 3)
    >>> W = layer.interaction(x)
    >>> torch.allclose(layer(x), W @ x, atol=1e-5), W.past_future_rank() <= 4
    (True, True)
    """

    @spelled_out
    def __init__(self, d: int, p: int, *, N: int, activation: str = "tanh", **new: Any):
        super().__init__(d, p)
        N = check_integer("N", N, low=1)
        self.N, self.activation = N, check_activation(activation)
        self.A = draw(N, N, fan_in=N, **new)
        self.B = draw(N, d, fan_in=d, **new)
        self.C = draw(p, N, fan_in=N, **new)

    def initial_state(self, batch_shape: Sequence[int] = ()) -> Tensor:
        return zero_state(self.A, batch_shape, self.N)

    def _pre_activations(self, x: Tensor) -> Tensor:
        """z of every token, (..., n, N)."""
        h, A = self.initial_state(x.shape[:-2]), single(self.A)
        collected = []
        for u_t in single(x @ self.B.mT).unbind(-2):
            collected.append(h @ A.mT + u_t)
            h = activate(self.activation, collected[-1])
        return stack_tokens(collected, h.new_zeros(*x.shape[:-1], self.N)).to(x.dtype)

    def _forward(self, x: Tensor) -> Tensor:
        return activate(self.activation, self._pre_activations(x)) @ self.C.mT

    def _interaction(self, x: Tensor) -> RecurrentOperator:
        slope = secant_slope(self.activation, self._pre_activations(x))[..., None]
        A, B = slope * self.A, slope * self.B
        return RecurrentOperator(A, B, self.C.expand(*x.shape[:-1], self.p, self.N))

    def _step(self, x_t: Tensor, state: Tensor):
        h = activate(self.activation, state @ single(self.A).mT + single(x_t @ self.B.mT))
        return h.to(x_t.dtype) @ self.C.mT, h
