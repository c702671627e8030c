"""Find the layers of a model that mix tokens, and freeze one."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn

from ssmbook._checks import check_choice
from ssmbook.lens._attention import is_attention, read_attention
from ssmbook.lens._calls import Call, capture
from ssmbook.lens._frozen import Frozen, Reading, check_frozen
from ssmbook.lens._recurrent import read_gated_delta, read_rg_lru, read_selective, read_ssd
from ssmbook.maps import SequenceMap

# Modules that mix tokens are called so; layers of these names without a reader are reported.
_MIXER = re.compile(
    r"(Attention|Attn|Mixer|SSM|S4D?|DeltaNet|ShortConv|RecurrentBlock|Retention|TimeMix\w*|LSTM|GRU|RNN)$"
)
# Attention between two sequences is called so, last in a decoder layer of torch.
_BETWEEN = re.compile(r"cross|encoder_attn|multihead_attn")


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


_DELTA = "in_proj_qkvz in_proj_ba conv1d A_log dt_bias norm out_proj"
FAMILIES = [
    Family("map of the book", lambda module: isinstance(module, SequenceMap), _read_map),
    Family("attention", is_attention, read_attention),
    Family("selective SSM", _has("in_proj conv1d x_proj dt_proj out_proj A_log D"), read_selective),
    Family("SSD", _has("in_proj conv1d out_proj A_log dt_bias D norm num_heads n_groups"), read_ssd),
    Family("RG-LRU", _has("rg_lru linear_x linear_y linear_out conv_1d"), read_rg_lru),
    Family("gated DeltaNet", _has(_DELTA), read_gated_delta),
]


@dataclass(frozen=True)
class MixingLayer:
    """A layer that mixes tokens: its ``name`` in the ``model``, its ``module`` and its ``family``."""

    name: str
    module: nn.Module = field(repr=False)
    family: str
    model: nn.Module = field(repr=False)

    @property
    def kind(self) -> str:
        """The class of the module."""
        return type(self.module).__name__


def register(kind: str, family: str | None = None) -> Callable:
    """Teach the lens another mixer: a decorator for the reader of modules whose class is named ``kind``.

    The reader receives a float64 copy of the module and the call that it got inside the model, with the
    hidden states ``call.x`` (batch, n, d), and returns a ``Reading``.
    """

    def add(read: Callable[[nn.Module, Call], Reading]):
        FAMILIES.insert(0, Family(family or kind, lambda module: type(module).__name__ == kind, read))
        return read

    return add


def family_of(module: nn.Module) -> Family | None:
    """Return the family that reads this module, or ``None``."""
    return next((family for family in FAMILIES if family.matches(module)), None)


def layers(model: nn.Module, unknown: str = "refuse") -> list[MixingLayer]:
    """Return the layers of a model that mix the tokens of one sequence, in the order of its modules.

    ``model``: a model of transformers, or any ``nn.Module`` that holds or is such layers; attention between
    two sequences (an encoder's and a decoder's) is left out. ``unknown``: "refuse" a mixer that no reader
    knows (``ValueError``, with the lines that register one) or "skip" it. Each layer has a ``name``, a
    ``kind`` (the class of its ``module``) and a ``family``. Raises ``ValueError`` where nothing mixes.

    >>> from ssmbook.maps import SSD
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 4), SSD(4, 4, H=2, head_width=3, N=8))
    >>> layers(model)
    [MixingLayer(name='1', family='map of the book')]
    """
    check_choice("unknown", unknown, ("refuse", "skip"))
    found = [
        MixingLayer(name, module, family.name, model)
        for name, module in model.named_modules()
        if not _BETWEEN.search(name) and (family := family_of(module))
    ]
    found = [layer for layer in found if not any(_inside(layer.name, other.name) for other in found)]
    strange = unknown_mixers(model, found)
    if strange and unknown == "refuse":
        raise ValueError(how_to_register(strange))
    if not found:
        what = f" that the lens can read: {how_to_register(strange)}" if strange else ""
        raise ValueError(
            f"model must hold a layer that mixes tokens; got none in {type(model).__name__}{what}"
        )
    return found


def select(found: list[MixingLayer], names: Sequence[str] | None) -> list[MixingLayer]:
    """Return the layers of these names, each of which must exist."""
    known = {layer.name: layer for layer in found}
    for name in names or ():
        check_choice("layers", name, known)
    return found if names is None else [known[name] for name in known if name in names]


def unknown_mixers(model: nn.Module, found: list[MixingLayer]) -> dict[str, str]:
    """Return name -> class of the modules without a reader that mix tokens, to judge by their class."""
    known = [layer.name for layer in found]
    strange = {
        name: type(module).__name__
        for name, module in model.named_modules()
        if _MIXER.search(type(module).__name__)
        and next(module.parameters(), None) is not None
        and not _BETWEEN.search(name)
        and not any(name == other or _inside(name, other) or _inside(other, name) for other in known)
    }
    return {
        name: kind for name, kind in strange.items() if not any(_inside(name, other) for other in strange)
    }


def how_to_register(strange: dict[str, str]) -> str:
    """Return a message that names the first unknown mixer and the lines that register a reader for it."""
    name, kind = next(iter(strange.items()))
    return (
        f"model must hold mixers that the lens can read; got {kind} ({name or 'the model itself'}). "
        f'Register one:\n    @ssmbook.lens.register("{kind}")\n    def read(mixer, call):\n'
        f"        return ssmbook.lens.Reading(ssmbook.lens.Frozen(W, x=call.one(call.x), y=y))"
    )


def _inside(name: str, other: str) -> bool:
    return name != other and (other == "" or name.startswith(other + "."))


def operator(layer: MixingLayer | nn.Module, inputs: Any) -> Frozen:
    """Return the frozen interaction operator of a layer on these inputs: y == W x + offset, checked.

    ``layer``: one of ``layers(model)``, or a mixing module itself; ``inputs``: the model's token ids (n,) or
    (batch, n), hidden states (n, d) or (batch, n, d), or its keyword arguments. The layer is copied to
    float64 and run on what it received inside the model; the model itself is left as it was. ``W`` is the
    part that mixes tokens, without gates, norms and short convolution; it is batched as the inputs were.
    Exact to 1e-10 relative to the largest output, or 1e-5 where the layer casts to float32 inside; otherwise
    refused with the miss (``ValueError``).

    >>> from ssmbook.maps import SSD
    >>> layer, x = SSD(4, 4, H=2, head_width=3, N=8).eval(), torch.randn(16, 4)
    >>> operator(layer, x).W.interaction_rank(), operator(layer, x[None]).W.interaction_rank()
    (2, tensor([2]))
    """
    if isinstance(layer, nn.Module):
        family = family_of(layer)
        if family is None:
            kind = type(layer).__name__
            raise ValueError(f"layer must be one of lens.layers(model), or a mixer with a reader; got {kind}")
        layer = MixingLayer("", layer, family.name, layer)
    calls, _ = capture(layer.model, {layer.name: layer.module}, inputs)
    core = read(layer, calls[layer.name]).core
    check_frozen(layer.name or layer.kind, core)
    return core


@torch.no_grad()
def read(layer: MixingLayer, call: Call, change: Callable[[nn.Module], None] | None = None) -> Reading:
    """Read one call of a layer from a float64 copy of it, which ``change`` may alter first."""
    module = copy.deepcopy(layer.module).to(torch.float64).eval().requires_grad_(False)
    for part in module.modules():
        config = getattr(part, "config", None)
        if getattr(config, "_attn_implementation", None) not in (None, "eager"):
            config._attn_implementation = "eager"
    if change is not None:
        change(module)
    family = family_of(layer.module)
    try:
        return family.read(module, call.to(torch.float64))
    except (AttributeError, KeyError, IndexError, RuntimeError) as error:
        why = f"{layer.name or 'the layer'} must be a layer that the reader of {family.name} knows; got"
        next_step = f'register one for it: @ssmbook.lens.register("{layer.kind}")'
        raise ValueError(f"{why} {layer.kind} ({type(error).__name__}: {error}); {next_step}") from error
