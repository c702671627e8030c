"""Heads: scalar coefficients times value maps, the form shared by every map on attention's side."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ssmbook._checks import check_integer
from ssmbook.maps.base import RecurrentMap, SequenceMap, draw, spelled_out, zero_state
from ssmbook.numerics import single
from ssmbook.operators import FactorizedOperator
from ssmbook.scans import ssd_scan


class HeadMap(SequenceMap):
    """A sum of heads, W_ij(X) = sum_h alpha^h_ij(X) V_h with V_h = W_O[h] W_V[h] of rank <= head_width.

    Subclasses write ``coefficients``. Parameters ``W_V`` (H, head_width, d) and ``W_O`` (H, p, head_width).
    Introduced in *zoo*.

    >>> layer = Attention(4, 4, H=2, head_width=3)  # one of its kinds
    >>> layer.coefficients(torch.randn(8, 4)).shape, layer.value_maps().shape
    (torch.Size([2, 8, 8]), torch.Size([2, 4, 4]))
    """

    @spelled_out
    def __init__(self, d: int, p: int, *, H: int, head_width: int, causal: bool = True, **new: Any):
        SequenceMap.__init__(self, d, p, causal=causal)
        H = check_integer("H", H, low=1)
        head_width = check_integer("head_width", head_width, low=1)
        self.H, self.head_width, self.key_width = H, head_width, head_width
        self.W_V = draw(H, head_width, d, fan_in=d, **new)
        self.W_O = draw(H, p, head_width, fan_in=H * head_width, **new)

    def _draw_queries_and_keys(self, new: dict) -> None:
        """Parameters ``W_Q`` and ``W_K`` (H, head_width, d), as wide as the values."""
        self.W_Q = draw(self.H, self.head_width, self.d, fan_in=self.d, **new)
        self.W_K = draw(self.H, self.head_width, self.d, fan_in=self.d, **new)

    @abstractmethod
    def _coefficients(self, x: Tensor) -> Tensor: ...

    def coefficients(self, x: Tensor) -> Tensor:
        """The mixing coefficients alpha of every head at X.

        x: (..., n, d). Returns (..., H, n, n). Raises as ``forward``. Introduced in *zoo*.
        """
        self._check(x)
        return self._coefficients(x)

    def value_maps(self) -> Tensor:
        """The value maps V_h = W_O[h] W_V[h], (H, p, d). Introduced in *zoo*."""
        return self.W_O @ self.W_V

    def _forward(self, x: Tensor) -> Tensor:
        return torch.einsum("hpr,...hnr->...np", self.W_O, self._mix(x, per_head(self.W_V, x)))

    def _mix(self, x: Tensor, v: Tensor) -> Tensor:
        """sum_j alpha_ij v_j for the values v (..., H, n, head_width)."""
        return self._coefficients(x) @ v

    def _interaction(self, x: Tensor) -> FactorizedOperator:
        return FactorizedOperator(self._coefficients(x), self.value_maps())


class KeySideMap(HeadMap, RecurrentMap):
    """Heads with a memory of shape (key width, head_width): written at a key, read by a query.

    The recurrence acts on the key side only, so each head's W_ij is a scalar times V_h. Subclasses write
    ``_read_write`` (queries, keys and gates of any number of tokens), ``_coefficients``, and ``_update``
    where a step of the memory is more than a decay given as the one gate. Introduced in *zoo*.

    >>> layer = RetNet(4, 4, H=2, head_width=3)  # one of its kinds
    >>> layer.initial_state().shape  # a memory (key width, head width) in each head
    torch.Size([2, 3, 3])
    """

    @abstractmethod
    def _read_write(self, x: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys (..., H, n, key_width) and whatever gates the recurrence takes, (..., H, n, any)."""

    def _update(self, memory: Tensor, v: Tensor, k: Tensor, log_a: Tensor) -> Tensor:
        """One step of the memory: it decays, (..., H, key_width) or (..., H, 1), and takes k v^T in."""
        return log_a.exp()[..., None] * memory + outer(k, v)

    def initial_state(self, batch_shape: Sequence[int] = ()) -> Tensor:
        return zero_state(self.W_V, batch_shape, self.H, self.key_width, self.head_width)

    def _step(self, x_t: Tensor, state: Tensor):
        q, *written = (single(a.squeeze(-2)) for a in self._read_write(x_t[..., None, :]))
        v = single(torch.einsum("hrd,...d->...hr", self.W_V, x_t))
        state = self._update(state, v, *written)
        return torch.einsum("hpr,...hr->...p", self.W_O, self._read(q, state).to(x_t.dtype)), state

    def _read(self, q: Tensor, memory: Tensor) -> Tensor:
        return (q[..., None, :] @ memory).squeeze(-2)


def per_head(weight: Tensor, x: Tensor) -> Tensor:
    """Apply one matrix per head to every token: weight (H, c, d), x (..., n, d) -> (..., H, n, c)."""
    return torch.einsum("hcd,...nd->...hnc", weight, x)


def scalar_decay_mix(q: Tensor, k: Tensor, log_a: Tensor, v: Tensor) -> Tensor:
    """What ``scalar_decay_coefficients(q, k, log_a) @ v`` gives, in time and memory linear in n."""
    v, k, q = (a.transpose(-3, -2) for a in (v, k, q))
    return ssd_scan(v, log_a.mT, k, q)[0].transpose(-3, -2)


def outer(k: Tensor, v: Tensor) -> Tensor:
    """k v^T per head: (..., H, c), (..., H, r) -> (..., H, c, r)."""
    return k[..., :, None] * v[..., None, :]
