"""One small instance of every architecture, for the ruler and for the tests."""

from __future__ import annotations

import torch

from .._checks import check_integer
from .attention import Attention
from .base import SequenceMap
from .combined import Gated, Hybrid, Residual
from .convolution import Convolution
from .delta_net import DeltaNet
from .diagonal import DiagonalSSM
from .feed_forward import FeedForward
from .gla import GLA
from .kan import KAN
from .linear_attention import LinearAttention
from .lti import LTISSM
from .retnet import RetNet
from .rnn import RNN
from .selective import SelectiveSSM
from .ssd import SSD


def zoo(
    d, p, n, *, heads=2, head_width=3, N=4, generator=None, dtype=torch.float64, device=None
) -> dict[str, SequenceMap]:
    """One instance of every architecture of the book, by name, in the order of the chapter's table.

    d, p: widths in and out (maps that keep the width, and sums with them, are built with d alone); n: the
    longest sequence the learned relative bias must serve; heads, head_width: of the attention side; N:
    states, even.
    Parameters are drawn with ``generator`` in ``dtype`` on ``device``. Returns name -> map.
    Raises ``ValueError``/``TypeError`` for bad sizes. Introduced in *zoo*.
    """
    check_integer("n", n, low=0)
    like = {"generator": generator, "dtype": dtype, "device": device}
    head = {"heads": heads, "head_width": head_width, **like}
    bias = torch.randn(heads, n, **like)
    return {
        "feed-forward": FeedForward(d, p, width=d + p, **like),
        "KAN": KAN(d, p, grid=5, **like),
        "convolution": Convolution(d, p, width=3, **like),
        "RNN": RNN(d, p, N=N, **like),
        "attention": Attention(d, p, **head),
        "attention, not causal": Attention(d, p, causal=False, **head),
        "attention, relative bias": Attention(d, p, bias=bias, **head),
        "attention, ALiBi": Attention(d, p, alibi=True, **head),
        "attention, sink": Attention(d, p, sink=True, **head),
        "linear attention": LinearAttention(d, p, feature_map="identity", **head),
        "linear attention, normalized": LinearAttention(d, p, normalized=True, feature_map="elu+1", **head),
        "RetNet": RetNet(d, p, **head),
        "GLA": GLA(d, p, **head),
        "DeltaNet": DeltaNet(d, p, **head),
        "SSD": SSD(d, p, N=N, **head),
        **_state_space_side(d, p, N, like),
        **_combinations(d, p, N, head, like),
    }


def _state_space_side(d, p, N, like):
    return {
        "LTI SSM": LTISSM.random(d, p, N=N, rho=0.9, **like),
        "LTI SSM with skip": LTISSM.random(d, p, N=N, rho=0.9, skip=True, **like),
        "S4D": DiagonalSSM(d, N=N, **like),
        "S4D, real": DiagonalSSM(d, N=N, pairs=False, **like),
        "selective SSM, zoh": SelectiveSSM(d, N=N, discretization="zoh", **like),
        "selective SSM, Euler": SelectiveSSM(d, N=N, discretization="euler", **like),
    }


def _combinations(d, p, N, head, like):
    generator = like["generator"]
    square = {"attention": Attention(d, d, **head), "SSM": LTISSM.random(d, d, N=N, rho=0.9, **like)}
    return {
        "gated SSD": Gated(SSD(d, p, N=N, **head), gate="output", generator=generator),
        "gated SSD, both sides": Gated(SSD(d, p, N=N, **head), gate="both", generator=generator),
        "residual attention": Residual(square["attention"]),
        "hybrid, sum": Hybrid(
            [Attention(d, p, **head), LTISSM.random(d, p, N=N, rho=0.9, **like)], mode="sum"
        ),
        "hybrid, stack": Hybrid([square["SSM"], Attention(d, p, **head)], mode="stack"),
    }
