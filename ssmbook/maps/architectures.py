"""One small instance of every architecture, for the ruler and for the tests."""

from __future__ import annotations

import zlib
from typing import NamedTuple

import torch

from ssmbook._checks import check_integer, check_like
from ssmbook.maps.attention import Attention
from ssmbook.maps.base import SequenceMap
from ssmbook.maps.combined import Gated, Hybrid, Residual
from ssmbook.maps.convolution import Convolution
from ssmbook.maps.delta_net import DeltaNet
from ssmbook.maps.diagonal import DiagonalSSM
from ssmbook.maps.feed_forward import FeedForward
from ssmbook.maps.gla import GLA
from ssmbook.maps.kan import KAN
from ssmbook.maps.linear_attention import LinearAttention
from ssmbook.maps.lti import LTISSM
from ssmbook.maps.retnet import RetNet
from ssmbook.maps.rnn import RNN
from ssmbook.maps.selective import SelectiveSSM
from ssmbook.maps.ssd import SSD


class _Sizes(NamedTuple):
    d: int
    p: int
    n: int
    H: int
    head_width: int
    N: int

    @property
    def head(self) -> dict[str, int]:
        return {"H": self.H, "head_width": self.head_width}


def zoo(
    d: int,
    p: int,
    n: int,
    *,
    H: int = 2,
    head_width: int = 3,
    N: int = 4,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str | None = None,
) -> dict[str, SequenceMap]:
    """One instance of every architecture of the book, by name, in the order of the chapter's table.

    d, p: widths in and out (maps that keep the width, and sums with them, are built with d alone); n: the
    longest sequence the learned relative bias must serve; H, head_width: of the attention side (2
    heads of width 3); N: states, even (4). Every map draws its parameters, in ``dtype`` on ``device``, from a
    generator of its own, seeded by one number from ``generator`` and by the map's name: another map more or
    less changes no other. Returns name -> map. Raises ``ValueError``/``TypeError`` for bad sizes. Introduced
    in *zoo*.

    >>> layers, x = zoo(4, 4, 9), torch.randn(9, 4, dtype=torch.float64)
    >>> [layers[name].interaction(x).interaction_rank() for name in ("attention", "SSD", "convolution")]
    [2, 2, 3]
    """
    check_like(generator=generator, dtype=dtype, device=device)
    asked = zip(_Sizes._fields, (d, p, n, H, head_width, N), strict=True)
    sizes = _Sizes(*(check_integer(name, size, low=int(name != "n")) for name, size in asked))
    where = torch.device("cpu") if generator is None else generator.device
    seed = int(torch.randint(2**31, (), generator=generator, device=where))
    place = torch.empty(0, device=device).device
    drawn = torch.device("cpu") if place.type == "meta" else place  # no generator draws on meta
    found = {}
    for name, build in _FACTORIES.items():
        # On a CPU only the lower 32 bits of a seed count.
        own = torch.Generator(drawn).manual_seed(seed ^ zlib.crc32(name.encode()))
        found[name] = build(sizes, {"generator": own, "dtype": dtype, "device": drawn}).to(place)
    return found


def _lti(d, p, s, like, **options):
    return LTISSM.random(d, p, N=s.N, rho=0.9, **options, **like)


def _gated(s, like, gate):
    return Gated(SSD(s.d, s.p, N=s.N, **s.head, **like), gate=gate, generator=like["generator"])


_FACTORIES = {
    "feed-forward": lambda s, like: FeedForward(s.d, s.p, width=s.d + s.p, **like),
    "KAN": lambda s, like: KAN(s.d, s.p, grid=5, **like),
    "convolution": lambda s, like: Convolution(s.d, s.p, width=3, **like),
    "RNN": lambda s, like: RNN(s.d, s.p, N=s.N, **like),
    "attention": lambda s, like: Attention(s.d, s.p, **s.head, **like),
    "attention, not causal": lambda s, like: Attention(s.d, s.p, causal=False, **s.head, **like),
    "attention, relative bias": lambda s, like: Attention(
        s.d, s.p, bias=torch.randn(s.H, s.n, **like), **s.head, **like
    ),
    "attention, ALiBi": lambda s, like: Attention(s.d, s.p, alibi=True, **s.head, **like),
    "attention, sink": lambda s, like: Attention(s.d, s.p, sink=True, **s.head, **like),
    "linear attention": lambda s, like: LinearAttention(s.d, s.p, feature_map="identity", **s.head, **like),
    "linear attention, normalized": lambda s, like: LinearAttention(
        s.d, s.p, normalized=True, feature_map="elu+1", **s.head, **like
    ),
    "RetNet": lambda s, like: RetNet(s.d, s.p, **s.head, **like),
    "GLA": lambda s, like: GLA(s.d, s.p, **s.head, **like),
    "DeltaNet": lambda s, like: DeltaNet(s.d, s.p, **s.head, **like),
    "SSD": lambda s, like: SSD(s.d, s.p, N=s.N, **s.head, **like),
    "LTI SSM": lambda s, like: _lti(s.d, s.p, s, like),
    "LTI SSM with skip": lambda s, like: _lti(s.d, s.p, s, like, skip=True),
    "S4D": lambda s, like: DiagonalSSM(s.d, N=s.N, **like),
    "S4D, real": lambda s, like: DiagonalSSM(s.d, N=s.N, pairs=False, **like),
    "selective SSM, zoh": lambda s, like: SelectiveSSM(s.d, N=s.N, discretization="zoh", **like),
    "selective SSM, Euler": lambda s, like: SelectiveSSM(s.d, N=s.N, discretization="euler", **like),
    "gated SSD": lambda s, like: _gated(s, like, "output"),
    "gated SSD, both sides": lambda s, like: _gated(s, like, "both"),
    "residual attention": lambda s, like: Residual(Attention(s.d, s.d, **s.head, **like)),
    "hybrid, sum": lambda s, like: Hybrid(
        [Attention(s.d, s.p, **s.head, **like), _lti(s.d, s.p, s, like)], mode="sum"
    ),
    "hybrid, stack": lambda s, like: Hybrid(
        [_lti(s.d, s.d, s, like), Attention(s.d, s.p, **s.head, **like)], mode="stack"
    ),
}
