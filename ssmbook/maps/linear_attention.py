"""Linear attention: softmax's exponential replaced by an inner product of features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ssmbook._checks import check_choice, check_flags
from ssmbook.maps.base import spelled_out, zero_state
from ssmbook.maps.coefficients import linear_coefficients, safe_reciprocal
from ssmbook.maps.key_side import KeySideMap, outer, per_head, scalar_decay_mix

_FEATURES = {"identity": lambda z: z, "elu+1": lambda z: functional.elu(z) + 1}


class LinearAttention(KeySideMap):
    """Causal linear attention: alpha_ij = <phi(q_i), phi(k_j)>, divided by its row sum if normalized.

    d, p: widths in and out; H heads; head_width: width of queries, keys and values; feature_map: phi,
    "identity" or "elu+1" (positive, so that row sums cannot vanish). A row sum of exactly 0 gives
    coefficients 0.
    Parameters ``W_Q``, ``W_K`` (H, head_width, d), ``W_V``, ``W_O``.
    Left out (core): projection biases, norms (`katharopoulos2020transformers`).
    Raises ``ValueError``/``TypeError`` for bad sizes or an unknown feature map. Introduced in *zoo*.

    >>> layer = LinearAttention(4, 4, H=2, head_width=3)
    >>> x = torch.randn(8, 4)
    >>> layer.interaction(x).interaction_rank(), torch.allclose(layer(x), layer.run(x)[0], atol=1e-5)
    (2, True)
    """

    @spelled_out
    def __init__(
        self,
        d: int,
        p: int,
        *,
        H: int,
        head_width: int,
        normalized: bool = False,
        feature_map: str = "elu+1",
        **new: Any,
    ):
        super().__init__(d, p, H=H, head_width=head_width, **new)
        check_choice("feature_map", feature_map, _FEATURES)
        check_flags(normalized=normalized)
        self.normalized, self.feature_map = normalized, feature_map
        self._draw_queries_and_keys(new)

    def _read_write(self, x: Tensor):
        phi = _FEATURES[self.feature_map]
        return phi(per_head(self.W_Q, x)), phi(per_head(self.W_K, x))

    def _coefficients(self, x: Tensor) -> Tensor:
        return linear_coefficients(*self._read_write(x), normalized=self.normalized)

    def _mix(self, x: Tensor, v: Tensor) -> Tensor:
        q, k = self._read_write(x)
        return self._normalize(scalar_decay_mix(q, k, q.new_zeros(q.shape[:-1]), self._with_ones(v)))

    def initial_state(self, batch_shape: Sequence[int] = ()) -> Tensor:
        # the last column of the memory sums the keys themselves: it is the normalizer
        columns = self.head_width + int(self.normalized)
        return zero_state(self.W_V, batch_shape, self.H, self.key_width, columns)

    def _update(self, memory, v, k):
        return memory + outer(k, self._with_ones(v))

    def _read(self, q: Tensor, memory: Tensor) -> Tensor:
        return self._normalize(super()._read(q, memory))

    def _with_ones(self, v: Tensor) -> Tensor:
        return torch.cat([v, torch.ones_like(v[..., :1])], dim=-1) if self.normalized else v

    def _normalize(self, read: Tensor) -> Tensor:
        return read[..., :-1] * safe_reciprocal(read[..., -1:]) if self.normalized else read
