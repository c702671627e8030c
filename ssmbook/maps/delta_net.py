"""DeltaNet: a memory that erases what it held under a key before it writes there."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ssmbook.maps.base import draw, spelled_out
from ssmbook.maps.coefficients import delta_coefficients
from ssmbook.maps.key_side import KeySideMap, outer, per_head


class DeltaNet(KeySideMap):
    """The delta rule with unit keys: S_i = (I - beta_i k_i k_i^T) S_{i-1} + beta_i k_i v_i^T, read by q_i.

    d, p: widths in and out; H heads; head_width: width of queries, keys and values. beta_i = sigmoid(W_beta
    x_i + b_beta) in (0, 1). Parameters ``W_Q``, ``W_K`` (H, head_width, d), ``W_beta`` (H, 1, d), ``b_beta``
    (H,), ``W_V``, ``W_O``. A key of length 0 stays 0.
    Left out (core): short convolutions, SiLU on queries, keys and values, query normalization, output norm
    (`yang2024parallelizing`). Raises ``ValueError``/``TypeError`` for bad sizes. Introduced in *zoo*.

    >>> layer = DeltaNet(4, 4, H=1, head_width=4)
    >>> layer.interaction(torch.randn(8, 4)).interaction_rank()  # it erases, and is one head all the same
    1
    """

    @spelled_out
    def __init__(self, d: int, p: int, *, H: int, head_width: int, **new: Any):
        super().__init__(d, p, H=H, head_width=head_width, **new)
        self._draw_queries_and_keys(new)
        self.W_beta = draw(H, 1, d, fan_in=d, **new)
        self.b_beta = nn.Parameter(self.W_beta.new_zeros(H))

    def _read_write(self, x: Tensor):
        k = per_head(self.W_K, x)
        length = torch.linalg.vector_norm(k, dim=-1, keepdim=True)
        k = k / torch.where(length == 0, 1.0, length)
        beta = torch.sigmoid(per_head(self.W_beta, x) + self.b_beta[:, None, None])
        return per_head(self.W_Q, x), k, beta

    def _coefficients(self, x: Tensor) -> Tensor:
        q, k, beta = self._read_write(x)
        return delta_coefficients(q, k, beta.squeeze(-1))

    def _update(self, memory, v, k, beta):
        held = (k[..., None, :] @ memory).squeeze(-2)
        return memory + outer(beta * k, v - held)
