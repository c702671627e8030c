"""Retention: linear attention that forgets at a fixed rate per head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ssmbook._checks import check_number, check_sequence
from ssmbook.maps.base import spelled_out
from ssmbook.maps.coefficients import scalar_decay_coefficients
from ssmbook.maps.key_side import KeySideMap, outer, per_head, scalar_decay_mix


class RetNet(KeySideMap):
    """Retention: alpha_ij = gamma_h^(i - j) <q_i, k_j> / sqrt(head_width) for j <= i.

    d, p: widths in and out; H heads; head_width: width of queries, keys and values; decay: H numbers
    gamma_h in (0, 1], by default 1 - 2^(-5 - h), h = 0, 1, ... Buffer ``decay`` (H,); parameters ``W_Q``,
    ``W_K`` (H, head_width, d), ``W_V``, ``W_O``.
    Left out (core): rotation of queries and keys, group norm, output gate (`sun2023retentive`).
    Raises ``ValueError``/``TypeError`` for bad sizes or decays. Introduced in *zoo*.

    >>> layer = RetNet(4, 4, H=2, head_width=3, decay=[0.5, 0.9])
    >>> layer.interaction(torch.randn(8, 4)).interaction_rank()
    2
    """

    @spelled_out
    def __init__(
        self,
        d: int,
        p: int,
        *,
        H: int,
        head_width: int,
        decay: Sequence[float] | None = None,
        **new: Any,
    ):
        super().__init__(d, p, H=H, head_width=head_width, **new)
        decay = [1 - 2.0 ** (-5 - h) for h in range(H)] if decay is None else decay
        decay = decay.tolist() if isinstance(decay, Tensor) else decay
        decay = check_sequence("decay", decay, "numbers, one per head")
        inside = "numbers in (0, 1], one per head", lambda gamma: 0 < gamma <= 1
        decay = [check_number("decay", gamma, *inside) for gamma in decay]
        if len(decay) != H:
            raise ValueError(f"decay must hold one number per head, {H}; got {len(decay)}")
        self.register_buffer("decay", self.W_V.detach().new_tensor(decay))
        self._draw_queries_and_keys(new)

    def _read_write(self, x: Tensor):
        return per_head(self.W_Q, x) / self.head_width**0.5, per_head(self.W_K, x)

    def _coefficients(self, x: Tensor) -> Tensor:
        q, k = self._read_write(x)
        return scalar_decay_coefficients(q, k, self._log_decay(q))

    def _log_decay(self, q: Tensor) -> Tensor:
        return self.decay.log()[:, None].expand(q.shape[:-1])

    def _mix(self, x: Tensor, v: Tensor) -> Tensor:
        q, k = self._read_write(x)
        return scalar_decay_mix(q, k, self._log_decay(q), v)

    def _update(self, memory, v, k):
        return self.decay[:, None, None] * memory + outer(k, v)
