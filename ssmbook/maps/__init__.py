"""Sequence maps, each with its own interaction operator in closed form."""

from ssmbook.maps.architectures import zoo
from ssmbook.maps.attention import Attention, LatentAttention, softmax_coefficients
from ssmbook.maps.base import RecurrentMap, SequenceMap
from ssmbook.maps.combined import Gated, Hybrid, Residual
from ssmbook.maps.key_side import (
    GLA,
    MLSTM,
    SSD,
    DeltaNet,
    LinearAttention,
    Mamba3,
    RetNet,
    linear_coefficients,
    scalar_decay_coefficients,
)
from ssmbook.maps.layers import KAN, RNN, Convolution, FeedForward
from ssmbook.maps.state_space import LTISSM, RGLRU, DiagonalSSM, SelectiveSSM

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
    "LatentAttention",
    "LinearAttention",
    "MLSTM",
    "Mamba3",
    "RGLRU",
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
