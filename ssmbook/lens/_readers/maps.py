"""The book's own maps: they know their interaction operator."""

from __future__ import annotations

from torch import nn

from ssmbook.lens._capture import Call
from ssmbook.lens._frozen import Frozen, Reading
from ssmbook.maps import SequenceMap


def is_map(module: nn.Module) -> bool:
    return isinstance(module, SequenceMap)


def read_map(module: nn.Module, call: Call) -> Reading:
    x = call.one(call.x)
    return Reading(Frozen(module.interaction(x), x, module(x)), F=module)
