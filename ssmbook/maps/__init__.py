"""Sequence maps, each with its own interaction operator in closed form."""

from .activations import activate, secant_slope
from .architectures import zoo
from .attention import Attention
from .base import RecurrentMap, SequenceMap
from .coefficients import (
    alibi_bias,
    causal_mask,
    decay_matrix,
    delta_coefficients,
    distances,
    linear_coefficients,
    scalar_decay_coefficients,
    softmax_coefficients,
    vector_decay_coefficients,
)
from .combined import Gated, Hybrid, Residual
from .convolution import Convolution
from .delta_net import DeltaNet
from .diagonal import DiagonalSSM
from .feed_forward import FeedForward
from .gla import GLA
from .kan import KAN
from .key_side import HeadMap, KeySideMap
from .linear_attention import LinearAttention
from .lti import LTISSM
from .retnet import RetNet
from .rnn import RNN
from .selective import SelectiveSSM
from .ssd import SSD
from .timescales import draw_steps, inverse_softplus

__all__ = [
    "Attention",
    "Convolution",
    "DeltaNet",
    "DiagonalSSM",
    "FeedForward",
    "GLA",
    "Gated",
    "HeadMap",
    "Hybrid",
    "KAN",
    "KeySideMap",
    "LTISSM",
    "LinearAttention",
    "RNN",
    "RecurrentMap",
    "Residual",
    "RetNet",
    "SSD",
    "SelectiveSSM",
    "SequenceMap",
    "activate",
    "alibi_bias",
    "causal_mask",
    "decay_matrix",
    "delta_coefficients",
    "distances",
    "draw_steps",
    "inverse_softplus",
    "linear_coefficients",
    "scalar_decay_coefficients",
    "secant_slope",
    "softmax_coefficients",
    "vector_decay_coefficients",
    "zoo",
]
