"""Gated linear attention: every key channel forgets at a rate the token decides."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from ssmbook._checks import check_positive
from ssmbook.maps.base import draw, spelled_out
from ssmbook.maps.coefficients import vector_decay_coefficients
from ssmbook.maps.key_side import KeySideMap, outer, per_head
from ssmbook.scans import diagonal_scan


class GLA(KeySideMap):
    """Gated linear attention: S_i = diag(a_i) S_{i-1} + k_i v_i^T, each key channel with its own decay.

    a_i = sigmoid(W_a x_i + b_a)^(1/temperature). d, p: widths in and out; H heads; head_width: width of
    queries, keys and values; temperature > 0 slows the forgetting. Parameters ``W_Q``, ``W_K``, ``W_a`` (H,
    head_width, d), ``b_a`` (H, head_width), ``W_V``, ``W_O``.
    Left out (core): low-rank gate projection, head norm, output gate (`yang2024gated`).
    Raises ``ValueError``/``TypeError`` for bad sizes. Introduced in *zoo*.

    >>> layer = GLA(4, 4, H=2, head_width=3)
    >>> layer.interaction(torch.randn(8, 4)).interaction_rank()
    2
    """

    @spelled_out
    def __init__(self, d: int, p: int, *, H: int, head_width: int, temperature: float = 16.0, **new: Any):
        super().__init__(d, p, H=H, head_width=head_width, **new)
        self.temperature = check_positive("temperature", temperature)
        self._draw_queries_and_keys(new)
        self.W_a = draw(H, head_width, d, fan_in=d, **new)
        self.b_a = nn.Parameter(self.W_a.new_zeros(H, head_width))

    def _read_write(self, x: Tensor):
        gate = per_head(self.W_a, x) + self.b_a[:, None, :]
        log_a = functional.logsigmoid(gate) / self.temperature
        return per_head(self.W_Q, x) / self.head_width**0.5, per_head(self.W_K, x), log_a

    def _coefficients(self, x: Tensor) -> Tensor:
        return vector_decay_coefficients(*self._read_write(x))

    def _mix(self, x: Tensor, v: Tensor) -> Tensor:
        q, k, log_a = self._read_write(x)
        written = outer(k, v)
        rates = log_a[..., None].expand(written.shape)
        memory, _ = diagonal_scan(rates.flatten(-2), written.flatten(-2), log=True)
        return self._read(q, memory.view(written.shape))
