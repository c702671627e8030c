"""One small instance of every architecture, for the chapters and for the tests."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import torch

from ssmbook.maps.attention import Attention, LatentAttention
from ssmbook.maps.base import SequenceMap
from ssmbook.maps.combined import Gated, Hybrid, Residual
from ssmbook.maps.key_side import GLA, MLSTM, SSD, DeltaNet, LinearAttention, Mamba3, RetNet
from ssmbook.maps.layers import KAN, RNN, Convolution, FeedForward
from ssmbook.maps.state_space import LTISSM, RGLRU, DiagonalSSM, SelectiveSSM


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

    d, p: widths in and out (d alone for maps that keep the width); n: the longest sequence for the learned
    relative bias; H, head_width: of the heads; N: states, even. Every map has its own generator, seeded by
    one number from ``generator`` and by the map's name, so adding a map changes no other.

    >>> layers, x = zoo(4, 4, 9), torch.randn(9, 4, dtype=torch.float64)
    >>> [layers[name].interaction(x).interaction_rank() for name in ("attention", "SSD", "convolution")]
    [2, 2, 3]
    """
    source = torch.device("cpu") if generator is None else generator.device
    seed = int(torch.randint(2**31, (), generator=generator, device=source))
    device = torch.empty(0, device=device).device  # PyTorch's default for None
    layers = {}
    for name, build in _constructors(d, p, n, H, head_width, N).items():
        # On a CPU only the lower 32 bits of a seed count.
        own = torch.Generator(device).manual_seed(seed ^ zlib.crc32(name.encode()))
        layers[name] = build({"generator": own, "dtype": dtype, "device": device})
    return layers


def _constructors(d: int, p: int, n: int, H: int, head_width: int, N: int) -> dict[str, Callable]:
    """By name, what builds each map from the generator, dtype and device of its parameters."""
    head = {"H": H, "head_width": head_width}

    def lti(new, d, p, **options):
        return LTISSM.random(d, p, N=N, rho=0.9, **options, **new)

    def gated(new, gate):
        return Gated(SSD(d, p, N=N, **head, **new), gate=gate, generator=new["generator"])

    return {
        "feed-forward": lambda new: FeedForward(d, p, width=d + p, **new),
        "KAN": lambda new: KAN(d, p, grid=5, **new),
        "convolution": lambda new: Convolution(d, p, width=3, **new),
        "RNN": lambda new: RNN(d, p, N=N, **new),
        "attention": lambda new: Attention(d, p, **head, **new),
        "attention, not causal": lambda new: Attention(d, p, causal=False, **head, **new),
        "attention, relative bias": lambda new: Attention(d, p, bias=torch.randn(H, n, **new), **head, **new),
        "attention, ALiBi": lambda new: Attention(d, p, alibi=True, **head, **new),
        "attention, sink": lambda new: Attention(d, p, sink=True, **head, **new),
        "latent attention": lambda new: LatentAttention(d, p, latent=d - 1, **head, **new),
        "linear attention": lambda new: LinearAttention(d, p, feature_map="identity", **head, **new),
        "linear attention, normalized": lambda new: LinearAttention(d, p, normalized=True, **head, **new),
        "RetNet": lambda new: RetNet(d, p, **head, **new),
        "GLA": lambda new: GLA(d, p, **head, **new),
        "DeltaNet": lambda new: DeltaNet(d, p, **head, **new),
        "Gated DeltaNet": lambda new: DeltaNet(d, p, rule="Gated DeltaNet", **head, **new),
        "KDA": lambda new: DeltaNet(d, p, rule="KDA", **head, **new),
        "RWKV-7": lambda new: DeltaNet(d, p, rule="RWKV-7", **head, **new),
        "DeltaProduct": lambda new: DeltaNet(d, p, pairs=2, **head, **new),
        "mLSTM": lambda new: MLSTM(d, p, **head, **new),
        "SSD": lambda new: SSD(d, p, N=N, **head, **new),
        "Mamba-3": lambda new: Mamba3(d, p, N=N, **head, **new),
        "Mamba-3, MIMO": lambda new: Mamba3(d, p, N=N, R=2, **head, **new),
        "LTI SSM": lambda new: lti(new, d, p),
        "LTI SSM with skip": lambda new: lti(new, d, p, skip=True),
        "S4D": lambda new: DiagonalSSM(d, N=N, **new),
        "S4D, real": lambda new: DiagonalSSM(d, N=N, pairs=False, **new),
        "selective SSM, zoh": lambda new: SelectiveSSM(d, N=N, discretization="zoh", **new),
        "selective SSM, Euler": lambda new: SelectiveSSM(d, N=N, discretization="mixed", **new),
        "RG-LRU": lambda new: RGLRU(d, **new),
        "gated SSD": lambda new: gated(new, "output"),
        "gated SSD, both sides": lambda new: gated(new, "both"),
        "residual attention": lambda new: Residual(Attention(d, d, **head, **new)),
        "hybrid, sum": lambda new: Hybrid([Attention(d, p, **head, **new), lti(new, d, p)], mode="sum"),
        "hybrid, stack": lambda new: Hybrid([lti(new, d, d), Attention(d, p, **head, **new)], mode="stack"),
    }
