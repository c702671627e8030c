"""The families of mixing layers that the lens reads, recognized by the parts that they are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import nn

from .._capture import Call
from .._frozen import Reading
from .attention import is_bert, is_gpt2, is_projected, read_bert, read_gpt2, read_projected
from .delta import is_gated_delta, read_gated_delta
from .maps import is_map, read_map
from .rg_lru import is_rg_lru, read_rg_lru
from .selective import is_selective, read_selective
from .ssd import is_ssd, read_ssd


class Family(NamedTuple):
    """A kind of layer: its name, how to recognize it, and how to read one call of it."""

    name: str
    matches: Callable[[nn.Module], bool]
    read: Callable[[nn.Module, Call], Reading]


FAMILIES = [
    Family("map of the book", is_map, read_map),
    Family("attention", is_bert, read_bert),
    Family("attention", is_gpt2, read_gpt2),
    Family("attention", is_projected, read_projected),
    Family("selective SSM", is_selective, read_selective),
    Family("SSD", is_ssd, read_ssd),
    Family("RG-LRU", is_rg_lru, read_rg_lru),
    Family("gated DeltaNet", is_gated_delta, read_gated_delta),
]
