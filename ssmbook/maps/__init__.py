"""Sequence maps, each with its own interaction operator in closed form."""

from ssmbook.maps.architectures import zoo
from ssmbook.maps.attention import Attention, softmax_coefficients
from ssmbook.maps.base import RecurrentMap, SequenceMap
from ssmbook.maps.combined import Gated, Hybrid, Residual
from ssmbook.maps.key_side import (
    GLA,
    SSD,
    DeltaNet,
    LinearAttention,
    RetNet,
    linear_coefficients,
    scalar_decay_coefficients,
)
from ssmbook.maps.layers import KAN, RNN, Convolution, FeedForward
from ssmbook.maps.state_space import LTISSM, DiagonalSSM, SelectiveSSM

__all__ = [
    "Attention",
    "Convolution",
    "DeltaNet",
    "DiagonalSSM",
    "FeedForward",
    "GLA",
    "Gated",
    "Hybrid",
    "KAN",
    "LTISSM",
    "LinearAttention",
    "RNN",
    "RecurrentMap",
    "Residual",
    "RetNet",
    "SSD",
    "SelectiveSSM",
    "SequenceMap",
    "linear_coefficients",
    "scalar_decay_coefficients",
    "softmax_coefficients",
    "zoo",
]
