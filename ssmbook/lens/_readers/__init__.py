"""The families of mixing layers that the lens reads, recognized by the parts that they are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import nn

from ssmbook.lens._capture import Call
from ssmbook.lens._frozen import Frozen, Reading
from ssmbook.lens._readers.attention import is_attention, read_attention
from ssmbook.lens._readers.delta import read_gated_delta
from ssmbook.lens._readers.rg_lru import read_rg_lru
from ssmbook.lens._readers.selective import read_selective
from ssmbook.lens._readers.ssd import read_ssd
from ssmbook.maps import SequenceMap


class Family(NamedTuple):
    """A kind of layer: its name, how to recognize it, and how to read one call of it."""

    name: str
    matches: Callable[[nn.Module], bool]
    read: Callable[[nn.Module, Call], Reading]


def _has(parts: str) -> Callable[[nn.Module], bool]:
    return lambda module: all(hasattr(module, part) for part in parts.split())


def _read_map(module: SequenceMap, call: Call) -> Reading:
    """The book's own maps know their interaction operator."""
    x = call.one(call.x)
    return Reading(Frozen(module.interaction(x), x, module(x)), F=module)


FAMILIES = [
    Family("map of the book", lambda module: isinstance(module, SequenceMap), _read_map),
    Family("attention", is_attention, read_attention),
    Family("selective SSM", _has("in_proj conv1d x_proj dt_proj out_proj A_log D"), read_selective),
    Family("SSD", _has("in_proj conv1d out_proj A_log dt_bias D norm num_heads n_groups"), read_ssd),
    Family("RG-LRU", _has("rg_lru linear_x linear_y linear_out conv_1d"), read_rg_lru),
    Family(
        "gated DeltaNet",
        _has("in_proj_qkvz in_proj_ba conv1d A_log dt_bias norm out_proj"),
        read_gated_delta,
    ),
]
