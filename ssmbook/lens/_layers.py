"""Find the layers of a model that mix tokens, and freeze one."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from ssmbook._checks import check_choice
from ssmbook.lens._capture import Call, capture
from ssmbook.lens._frozen import Frozen, Reading, check_frozen
from ssmbook.lens._readers import FAMILIES, Family

PARTS = ("core", "mixer")
# Modules that mix tokens are called so; layers of these names without a reader are reported.
_MIXER = re.compile(
    r"(Attention|Attn|Mixer|SSM|S4D?|DeltaNet|RecurrentBlock|Retention|TimeMix\w*|LSTM|GRU|RNN)$"
)

# Attention between two sequences is called so, last in a decoder layer of torch.
_BETWEEN = re.compile(r"cross|encoder_attn|multihead_attn")


@dataclass(frozen=True)
class MixingLayer:
    """A layer that mixes tokens: its ``name`` in the ``model``, its ``module`` and its ``family``.

    Introduced in *trained-layers*.

    >>> from ssmbook.maps import SSD
    >>> found = layers(torch.nn.ModuleDict({"mixer": SSD(4, 4, H=2, head_width=3, N=8)}))
    >>> found[0].name, found[0].kind, found[0].family
    ('mixer', 'SSD', 'map of the book')
    """

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

    The reader gets a float64 copy of the module and the ``Call`` it received, and returns a ``Reading``.
    Introduced in *trained-layers*.
    """

    def add(read: Callable[[nn.Module, Call], Reading]):
        FAMILIES.insert(0, Family(family or kind, lambda module: type(module).__name__ == kind, read))
        return read

    return add


def family_of(module: nn.Module) -> Family | None:
    """The family that reads this module, or ``None``."""
    return next((family for family in FAMILIES if family.matches(module)), None)


def layers(model: nn.Module, unknown: str = "refuse") -> list[MixingLayer]:
    """Return the layers of a model that mix the tokens of one sequence, in the order of its modules.

    Attention between two sequences (an encoder's and a decoder's) is left out.

    ``model``: a model of transformers, or any ``nn.Module`` that holds or is such layers. ``unknown``:
    "refuse" a mixer that no reader knows (``ValueError``, with the lines that register one) or "skip" it.
    Raises ``TypeError`` for a non-module, ``ValueError`` where nothing mixes. Introduced in *trained-layers*.

    >>> from ssmbook.maps import SSD
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 4), SSD(4, 4, H=2, head_width=3, N=8))
    >>> layers(model)
    [MixingLayer(name='1', family='map of the book')]
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module; got {type(model).__name__}")
    check_choice("unknown", unknown, ("refuse", "skip"))
    found = [
        MixingLayer(name, module, family.name, model)
        for name, module in model.named_modules()
        if not _BETWEEN.search(name) and (family := family_of(module))
    ]
    found = [layer for layer in found if not any(_inside(layer.name, other.name) for other in found)]
    strange = unknown_mixers(model, found)
    if strange and unknown == "refuse":
        raise ValueError(unknown_words(strange))
    if not found:
        raise ValueError(f"model must hold a layer that mixes tokens; got none in {type(model).__name__}")
    return found


def unknown_mixers(model: nn.Module, found: list[MixingLayer]) -> dict[str, str]:
    """Modules by name whose class says that they mix tokens, which no reader knows."""
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


def unknown_words(strange: dict[str, str]) -> str:
    name, kind = next(iter(strange.items()))
    return (
        f"model must hold mixers that the lens can read; got {kind} ({name or 'the model itself'}). "
        f'Register one:\n    @ssmbook.lens.register("{kind}")\n    def read(mixer, call):\n'
        f"        return ssmbook.lens.Reading(ssmbook.lens.Frozen(W, x=call.one(call.x), y=y))"
    )


def _inside(name: str, other: str) -> bool:
    return name != other and (other == "" or name.startswith(other + "."))


def operator(layer: MixingLayer | nn.Module, inputs: Any, part: str = "core") -> Frozen:
    """Return the frozen interaction operator of a layer on these inputs: y == W x + offset, checked.

    ``layer``: one of ``layers(model)``, or a mixing module itself; ``inputs``: the model's token ids (n,) or
    (batch, n), hidden states (n, d) or (batch, n, d), or its keyword arguments; ``part``: "core" (W_ij
    without gates, norms and short convolution) or "mixer" (hidden state to hidden state). The layer is copied
    to float64 and run on what it received inside the model; the model itself is left as it was. Returns a
    ``Frozen``: ``W``, ``x``, ``y``, ``offset``, ``notes``; unbatched when the inputs were, so that ranks of
    one text (n,) are ints and those of a batch (1, n) tensors (1,), as for every operator. Exact to 1e-10
    relative to the largest output, or 1e-5 where the layer casts to float32 inside; otherwise refused with
    the miss (``ValueError``). Raises ``TypeError``/``ValueError`` for bad inputs. Introduced in
    *trained-layers*.

    >>> from ssmbook.maps import SSD
    >>> layer, x = SSD(4, 4, H=2, head_width=3, N=8).eval(), torch.randn(16, 4)
    >>> operator(layer, x).W.interaction_rank(), operator(layer, x[None]).W.interaction_rank()
    (2, tensor([2]))
    """
    check_choice("part", part, PARTS)
    layer = as_layer(layer)
    calls, notes = capture(layer.model, {layer.name: layer.module}, inputs)
    reading = read(layer, calls[layer.name])
    frozen = (reading.mixer or reading.core) if part == "mixer" else reading.core
    check_frozen(f"{layer.name or layer.kind} ({part})", frozen)
    return replace(frozen, notes=tuple(notes))


def as_layer(layer: MixingLayer | nn.Module) -> MixingLayer:
    """A mixing module alone as a layer of itself."""
    if isinstance(layer, MixingLayer):
        return layer
    if not isinstance(layer, nn.Module):
        raise TypeError(f"layer must be one of lens.layers(model) or a module; got {type(layer).__name__}")
    family = family_of(layer)
    if family is None and any(family_of(module) for module in layer.modules()):
        raise ValueError(f"layer must be one of lens.layers(model); got the model, a {type(layer).__name__}")
    if family is None:
        raise ValueError(unknown_words({"": type(layer).__name__}))
    return MixingLayer("", layer, family.name, layer)


@torch.no_grad()
def read(layer: MixingLayer, call: Call, change: Callable[[nn.Module], None] | None = None) -> Reading:
    """Read one call of a layer from a float64 copy of it, which ``change`` may alter first."""
    module = float64_copy(layer.module)
    if change is not None:
        change(module)
    return family_of(layer.module).read(module, call.to(torch.float64))


def float64_copy(module: nn.Module) -> nn.Module:
    """A copy that computes in float64, without gradients of its weights, its attention in the open."""
    twin = copy.deepcopy(module).to(torch.float64).eval().requires_grad_(False)
    for part in twin.modules():
        config = getattr(part, "config", None)
        if getattr(config, "_attn_implementation", None) not in (None, "eager"):
            config._attn_implementation = "eager"
    return twin
