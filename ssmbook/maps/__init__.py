"""Sequence maps, each with its own interaction operator in closed form.

A recurrent map trains on whole sequences, several of them packed into one if ``resets`` are
given, and serves token by token. Only a call that is given a state returns one:

>>> import torch
>>> from ssmbook import maps
>>> embed, layer = torch.nn.Embedding(3, 16), maps.SSD(16, 3, H=4, head_width=8, N=8)
>>> train = torch.optim.Adam([*embed.parameters(), *layer.parameters()], lr=0.02)
>>> text = torch.tensor([0, 1, 0, 2] * 16)  # what follows a 0 depends on what came before
>>> for _ in range(100):
...     logits = layer(embed(text[:-1]), resets=torch.arange(63) % 32 == 0)  # two sequences
...     torch.nn.functional.cross_entropy(logits, text[1:]).backward()
...     train.step()
...     train.zero_grad()
>>> logits, state = layer(embed(text[:3]), layer.initial_state())  # a prompt at once, 0 1 0
>>> said = [int(logits[-1].argmax())]
>>> for _ in range(4):
...     logits, state = layer.step(embed(torch.tensor(said[-1])), state)
...     said.append(int(logits.argmax()))
>>> said
[2, 0, 1, 0, 2]
"""
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
