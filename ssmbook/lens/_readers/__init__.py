"""The families of mixing layers that the lens reads, recognized by the parts that they are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import nn

from ssmbook.lens._capture import Call
from ssmbook.lens._frozen import Reading
from ssmbook.lens._readers.attention import is_attention, read_attention
from ssmbook.lens._readers.delta import is_gated_delta, read_gated_delta
from ssmbook.lens._readers.maps import is_map, read_map
from ssmbook.lens._readers.rg_lru import is_rg_lru, read_rg_lru
from ssmbook.lens._readers.selective import is_selective, read_selective
from ssmbook.lens._readers.ssd import is_ssd, read_ssd


class Family(NamedTuple):
    """A kind of layer: its name, how to recognize it, and how to read one call of it."""

    name: str
    matches: Callable[[nn.Module], bool]
    read: Callable[[nn.Module, Call], Reading]


FAMILIES = [
    Family("map of the book", is_map, read_map),
    Family("attention", is_attention, read_attention),
    Family("selective SSM", is_selective, read_selective),
    Family("SSD", is_ssd, read_ssd),
    Family("RG-LRU", is_rg_lru, read_rg_lru),
    Family("gated DeltaNet", is_gated_delta, read_gated_delta),
]
