"""Sequence maps, each with its own interaction operator in closed form."""

from ssmbook.maps.activations import activate, secant_slope
from ssmbook.maps.architectures import zoo
from ssmbook.maps.attention import Attention
from ssmbook.maps.base import RecurrentMap, SequenceMap
from ssmbook.maps.coefficients import (
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
from ssmbook.maps.combined import Gated, Hybrid, Residual
from ssmbook.maps.convolution import Convolution
from ssmbook.maps.delta_net import DeltaNet
from ssmbook.maps.diagonal import DiagonalSSM
from ssmbook.maps.feed_forward import FeedForward
from ssmbook.maps.gla import GLA
from ssmbook.maps.kan import KAN
from ssmbook.maps.key_side import HeadMap, KeySideMap
from ssmbook.maps.linear_attention import LinearAttention
from ssmbook.maps.lti import LTISSM
from ssmbook.maps.retnet import RetNet
from ssmbook.maps.rnn import RNN
from ssmbook.maps.selective import SelectiveSSM
from ssmbook.maps.ssd import SSD
from ssmbook.maps.timescales import draw_steps, inverse_softplus

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
