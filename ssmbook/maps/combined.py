"""Maps made of maps: gates, residual connections and hybrids, with the operator of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from ssmbook._checks import check_choice
from ssmbook.maps.attention import Attention
from ssmbook.maps.base import SequenceMap, random_parameter
from ssmbook.maps.recurrent import LTISSM
from ssmbook.maps.ssd import SSD
from ssmbook.operators import (
    DiagonalOperator,
    FactorizedOperator,
    InteractionOperator,
    LagOperator,
    PointwiseOperator,
)

Gate = Literal["output", "input", "both"]


class Gated(SequenceMap):
    """A map between gates that each token sets for itself: y_i = g_i * F(u * X)_i, entry by entry.

    W_ij = diag(g_i) W^F_ij(u * X) diag(u_j) with g_i = sigmoid(W_g x_i), u_j = sigmoid(W_u
    x_j). map: the inner F; gate: "output" (g only), "input" (u only) or "both". Parameters
    ``W_g`` (p, d), ``W_u`` (d, d), in the dtype and on the device of the inner map.

    >>> layer = Gated(SSD(4, 4, H=1, head_width=4, N=8))
    >>> layer.interaction(torch.randn(16, 4)).interaction_rank()  # one head gated by four channels
    4
    """

    family = "gated or mixed"

    def __init__(self, map: SequenceMap, *, gate: Gate = "output", generator: torch.Generator | None = None):
        super().__init__(map.d, map.p, causal=map.causal)
        self.map, self.gate = map, check_choice("gate", gate, ("output", "input", "both"))
        inner = next(map.parameters(), torch.empty(0))
        new = {"generator": generator, "dtype": inner.dtype, "device": inner.device}
        self.W_g = None if gate == "input" else random_parameter(map.p, map.d, fan_in=map.d, **new)
        self.W_u = None if gate == "output" else random_parameter(map.d, map.d, fan_in=map.d, **new)

    def _forward(self, x: Tensor) -> Tensor:
        y = self.map(x if self.W_u is None else torch.sigmoid(x @ self.W_u.mT) * x)
        return y if self.W_g is None else torch.sigmoid(x @ self.W_g.mT) * y

    def _interaction(self, x: Tensor) -> InteractionOperator:
        if self.W_u is None:
            W = self.map.interaction(x)
        else:
            u = torch.sigmoid(x @ self.W_u.mT)
            W = self.map.interaction(u * x) @ gate_operator(u)
        if self.W_g is None:
            return W
        return gate_operator(torch.sigmoid(x @ self.W_g.mT)) @ W


def gate_operator(g: Tensor) -> DiagonalOperator:
    """The operator of tokens multiplied by gates g (..., n, d) entry by entry."""
    return DiagonalOperator(PointwiseOperator(g.mT[..., None, None]))


class Residual(SequenceMap):
    """A map plus its input, y = x + F(x): W_ij = W^F_ij, plus the identity at i = j.

    map: the inner F. Raises ``ValueError`` for p != d.

    >>> layer = Residual(RetNet(4, 4, H=2, head_width=3))
    >>> layer.interaction(torch.randn(8, 4)).interaction_rank()  # one more than its heads: the identity
    3
    """

    family = "gated or mixed"

    def __init__(self, map: SequenceMap):
        if map.p != map.d:
            raise ValueError(f"map must have p = d for a residual connection; got d = {map.d}, p = {map.p}")
        super().__init__(map.d, map.p, causal=map.causal)
        self.map = map

    def _forward(self, x: Tensor) -> Tensor:
        return x + self.map(x)

    def _interaction(self, x: Tensor) -> InteractionOperator:
        W = self.map.interaction(x)
        return identity_like(W) + W


def identity_like(W: InteractionOperator) -> InteractionOperator:
    """The identity operator, of the kind of W where there is one, so that W plus it is as cheap as W."""
    one, n = torch.eye(W.d, dtype=W.dtype, device=W.device), W.n
    if isinstance(W, FactorizedOperator):
        return FactorizedOperator(torch.eye(n, dtype=W.dtype, device=W.device)[None], one[None])
    if isinstance(W, PointwiseOperator):
        return PointwiseOperator(one.expand(n, W.d, W.d))
    if isinstance(W, DiagonalOperator):
        return DiagonalOperator(LagOperator(one.new_ones(*W.channels.batch_shape, 1, 1, 1), n))
    return LagOperator(one[None], n)


class Hybrid(SequenceMap):
    """Several maps at once (mode "sum": their outputs add) or in turn (mode "stack": each feeds the next).

    Sum: W is the sum of the operators at X. Stack: W is their product, each frozen at its
    own input. maps: at least one; for "sum" all of the same d and p, for "stack" each d
    equal to the p before. Raises ``ValueError`` for widths that do not fit or an unknown
    mode.

    >>> parts = [Attention(4, 4, H=1, head_width=4), RetNet(4, 4, H=1, head_width=4)]
    >>> Hybrid(parts).interaction(torch.randn(8, 4)).interaction_rank()  # side by side, heads add up
    2
    """

    family = "gated or mixed"

    def __init__(self, maps: Sequence[SequenceMap], *, mode: Literal["sum", "stack"] = "sum"):
        check_choice("mode", mode, ("sum", "stack"))
        if not maps:
            raise ValueError("maps must hold at least one map; got none")
        widths = [(m.d, m.p) for m in maps]
        pairs = zip(widths, widths[1:], strict=False)
        if not all(a == b if mode == "sum" else a[1] == b[0] for a, b in pairs):
            raise ValueError(f"maps must fit together for mode {mode!r}; got (d, p) = {widths}")
        super().__init__(maps[0].d, maps[-1].p, causal=all(m.causal for m in maps))
        self.mode, self.maps = mode, nn.ModuleList(maps)

    def _forward(self, x: Tensor) -> Tensor:
        if self.mode == "sum":
            return sum(m(x) for m in self.maps)
        for m in self.maps:
            x = m(x)
        return x

    def _interaction(self, x: Tensor) -> InteractionOperator:
        W = self.maps[0].interaction(x)
        for before, m in zip(self.maps, self.maps[1:], strict=False):
            if self.mode == "sum":
                W = W + m.interaction(x)
            else:
                x = before(x)
                W = m.interaction(x) @ W
        return W


ZOO = {
    "residual attention": lambda of, new: Residual(Attention(**of.head | {"p": of.d}, **new)),
    "gated SSD": lambda of, new: Gated(SSD(N=of.N, **of.head, **new), generator=new["generator"]),
    "hybrid, sum": lambda of, new: Hybrid(
        [Attention(**of.head, **new), LTISSM.random(of.d, of.p, N=of.N, **new)], mode="sum"
    ),
    "hybrid, stack": lambda of, new: Hybrid(
        [LTISSM.random(of.d, of.d, N=of.N, **new), Attention(**of.head, **new)], mode="stack"
    ),
    "gated SSD, both sides": lambda of, new: Gated(
        SSD(N=of.N, **of.head, **new), gate="both", generator=new["generator"]
    ),
}
