"""Sequence maps, each with its own interaction operator in closed form."""
# ruff: noqa: I001 (in the order of the zoo; a new layer is its file and its line here)

from ssmbook.maps.base import RecurrentMap as RecurrentMap, SequenceMap as SequenceMap
from ssmbook.maps.elementary import KAN as KAN, Convolution as Convolution, FeedForward as FeedForward
from ssmbook.maps.attention import Attention as Attention, LatentAttention as LatentAttention
from ssmbook.maps.attention import softmax_coefficients as softmax_coefficients
from ssmbook.maps.linear_attention import LinearAttention as LinearAttention
from ssmbook.maps.linear_attention import linear_coefficients as linear_coefficients
from ssmbook.maps.linear_attention import scalar_decay_coefficients as scalar_decay_coefficients
from ssmbook.maps.retention import GLA as GLA, RetNet as RetNet
from ssmbook.maps.delta import DeltaNet as DeltaNet
from ssmbook.maps.mlstm import MLSTM as MLSTM
from ssmbook.maps.ssd import SSD as SSD
from ssmbook.maps.mamba3 import Mamba3 as Mamba3
from ssmbook.maps.diagonal_ssm import DiagonalSSM as DiagonalSSM
from ssmbook.maps.selective_ssm import RGLRU as RGLRU, SelectiveSSM as SelectiveSSM
from ssmbook.maps.recurrent import LTISSM as LTISSM, RNN as RNN
from ssmbook.maps.combined import Gated as Gated, Hybrid as Hybrid, Residual as Residual
from ssmbook.maps.architectures import zoo as zoo

# What is imported above, without the files themselves.
__all__ = sorted(name for name, value in vars().items() if __name__ in getattr(value, "__module__", ""))
