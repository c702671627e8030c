"""Find the layers of a model that mix tokens, and freeze one."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from ssmbook._checks import check_choice, check_integer
from ssmbook.lens._attention import is_attention, read_attention
from ssmbook.lens._calls import UNFORESEEN, Call, Texts, collect, main_result, padding, split_texts
from ssmbook.lens._caught import may_be_caught, read_caught
from ssmbook.lens._reading import LayerOperator, Reading, check_read, has
from ssmbook.lens._recurrent import (
    is_gated_delta,
    is_short_convolution,
    read_gated_delta,
    read_rg_lru,
    read_selective,
    read_short_convolution,
    read_ssd,
)
from ssmbook.maps import SequenceMap

# Modules that mix tokens are called so; layers of these names without a reader are
# reported.
_MIXER = re.compile(
    r"(Attention|Attn|Mixer|SSM|S4D?|DeltaNet|ShortConv|RecurrentBlock|Retention|TimeMix\w*|LSTM|GRU|RNN)$"
)
# Attention between two sequences is called so, last in a decoder layer of torch.
_BETWEEN = re.compile(r"cross|encoder_attn|multihead_attn|EncDecAttention")


class Family(NamedTuple):
    """A kind of layer: its name, how to recognize it, and how to read one call of it."""

    name: str
    matches: Callable[[nn.Module], bool]
    read: Callable[[nn.Module, Call], Reading]


def _read_map(module: SequenceMap, call: Call) -> Reading:
    """The book's own maps know their interaction operator."""
    x = call.one(call.x)
    return Reading(LayerOperator(module.interaction(x), x, module(x)), F=module)


FAMILIES = [
    Family("map of the book", lambda module: isinstance(module, SequenceMap), _read_map),
    Family("attention", is_attention, read_attention),
    Family("selective SSM", has("in_proj conv1d x_proj dt_proj out_proj A_log D"), read_selective),
    Family("SSD", has("in_proj conv1d out_proj A_log dt_bias D norm num_heads n_groups"), read_ssd),
    Family("RG-LRU", has("rg_lru linear_x linear_y linear_out conv_1d"), read_rg_lru),
    Family("gated DeltaNet", is_gated_delta, read_gated_delta),
    Family("short convolution", is_short_convolution, read_short_convolution),
]


# Tried where no reader knows a layer.
CAUGHT = Family("caught", may_be_caught, read_caught)


@dataclass(frozen=True)
class MixingLayer:
    """A layer that mixes tokens.

    Parameters
    ----------
    name : str
        Its name in the model; empty where it is the model itself.
    module : Module
        The layer itself.
    family : str
        What reads it.
    model : Module
        The model that it is a part of.
    """

    name: str
    module: nn.Module = field(repr=False)
    family: str
    model: nn.Module = field(repr=False)

    @property
    def kind(self) -> str:
        """The class of the module."""
        return type(self.module).__name__

    @property
    def title(self) -> str:
        """The name, or the class of a module that is the model itself."""
        return self.name or self.kind


Reader = Callable[[nn.Module, Call], Reading]


def register(kind: str) -> Callable[[Reader], Reader]:
    """Teach the lens another mixer: a decorator for the reader of modules whose class is named ``kind``.

    The reader receives a float64 copy of the module and the `Call` that it got inside the
    model, with the hidden states ``call.x`` (batch, n, d), and returns a `Reading`. A
    template, for one head that fades:

    >>> from ssmbook import lens
    >>> from ssmbook.operators import FactorizedOperator
    >>> class Fading(torch.nn.Module):
    ...     def __init__(self, d):
    ...         super().__init__()
    ...         self.out = torch.nn.Linear(d, d)
    ...     def coefficients(self, x):
    ...         i = torch.arange(x.shape[-2]).to(x)
    ...         return (0.9 ** (i[:, None] - i)).tril()
    ...     def forward(self, x):
    ...         return self.out(self.coefficients(x) @ x)
    >>> @lens.register("Fading")
    ... def read(mixer, call):
    ...     x, y = call.one(call.x), call.one(call.run(mixer))  # (..., n, d) in, (..., n, p) out
    ...     alpha = mixer.coefficients(x).expand(*x.shape[:-2], 1, -1, -1)  # (..., H, n, n)
    ...     W = FactorizedOperator(alpha, mixer.out.weight[None])  # value maps (H, p, d)
    ...     offset = mixer.out.bias.expand_as(y)
    ...     return lens.Reading(lens.LayerOperator(W, x, y, offset), F=mixer)
    >>> lens.operator(Fading(4).eval(), torch.randn(2, 9, 4)).W
    FactorizedOperator(batch_shape=(2,), n=9, p=4, d=4, dtype=torch.float64)
    """

    def add(read: Reader) -> Reader:
        FAMILIES.insert(0, Family(kind, lambda module: type(module).__name__ == kind, read))
        return read

    return add


def family_of(module: nn.Module) -> Family | None:
    """Return the family that reads this module, or ``None``."""
    return next((family for family in (*FAMILIES, CAUGHT) if family.matches(module)), None)


def layers(model: nn.Module, unknown: Literal["refuse", "skip"] = "refuse") -> list[MixingLayer]:
    """Return the layers of a model that mix the tokens of one sequence, in the order of its modules.

    ``model``: a model of transformers, or any ``nn.Module`` that holds or is such layers;
    attention between two sequences (an encoder's and a decoder's) is left out. A layer that
    no reader knows is found by its use of torch's attention function or of a scan of
    ``ssmbook.scans``, or as attention by its class, and read by catching its core;
    ``operator`` refuses it where that fails. ``unknown``: "refuse" any other mixer that no
    reader knows (``ValueError``, with the lines that register one) or "skip" it. Each
    `MixingLayer` has a ``name``, a ``kind`` (the class of its ``module``) and a ``family``.
    Raises ``ValueError`` where nothing mixes.

    >>> from ssmbook.maps import SSD
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 4), SSD(4, 4, H=2, head_width=3, N=8))
    >>> layers(model)
    [MixingLayer(name='1', family='map of the book')]
    """
    check_choice("unknown", unknown, ("refuse", "skip"))
    found, strange = mixers(model)
    if strange and unknown == "refuse":
        raise ValueError(how_to_register(strange))
    return _some(model, found, strange)


def survey(model: nn.Module, inputs: Texts) -> tuple[list[MixingLayer], dict[str, str]]:
    """Return ``layers(model)``, and name -> class of every other module that mixes the tokens of a text.

    To be judged by its class, or because another token at one place changes what it makes
    of the others.
    """
    found, strange = mixers(model)
    strange |= _mixing(model, [*(layer.name for layer in found), *strange], split_texts(model, inputs)[0])
    return _some(model, found, strange), strange


def mixers(model: nn.Module) -> tuple[list[MixingLayer], dict[str, str]]:
    """Return the layers that can be read, and name -> class of the other mixers, as their class is named."""
    modules = dict(model.named_modules())
    found = [
        MixingLayer(name, module, family.name, model)
        for name, module in modules.items()
        if not _between(name, module) and (family := family_of(module)) not in (None, CAUGHT)
    ]
    found = [layer for layer in found if not any(_inside(layer.name, other.name) for other in found)]
    known = [layer.name for layer in found]
    strange = {
        name: type(module).__name__
        for name, module in modules.items()
        if (_MIXER.search(type(module).__name__) or may_be_caught(module))
        and next(module.parameters(), None) is not None
        and not _between(name, module)
        and _apart(name, known)
    }
    outer = [name for name in strange if not any(_inside(name, other) for other in strange)]
    caught = [name for name in outer if may_be_caught(modules[name])]
    found += [MixingLayer(name, modules[name], CAUGHT.name, model) for name in caught]
    found.sort(key=lambda layer: [*modules].index(layer.name))
    return found, {name: strange[name] for name in outer if name not in caught}


def _between(name: str, module: nn.Module) -> bool:
    return bool(_BETWEEN.search(name)) or "CrossAttention" in type(module).__name__


def _some(model: nn.Module, found: list[MixingLayer], strange: dict[str, str]) -> list[MixingLayer]:
    if not found:
        what = f" that the lens can read, but {_unknown(strange)}" if strange else ""
        raise ValueError(
            f"model must hold a layer that mixes tokens; got none in {type(model).__name__}{what}"
        )
    return found


@torch.no_grad()
def _mixing(model: nn.Module, known: list[str], text: Tensor) -> dict[str, str]:
    """Return name -> class of the innermost modules, outside the known ones, that mix tokens.

    Each module that turns hidden states (1, n, ·) into others is run again, with another
    token in the middle: a module that mixes no tokens makes the same of all others.
    """
    n, mixes = len(text), {}
    modules = {name: module for name, module in model.named_modules() if _apart(name, known)}
    for name, given in collect(model, modules, text).calls.items():
        for call in (each for each in given if each.x.shape[1] == n):
            other = call.x.clone()
            other[:, n // 2] = 1 - other[:, n // 2].flip(-1)
            try:
                y, moved = (main_result(call.run(modules[name], x)) for x in (call.x, other))
            except ValueError:
                continue
            except UNFORESEEN:  # it cannot be tried, so it is not silently passed over
                mixes[name] = type(modules[name]).__name__
                continue
            if isinstance(y, Tensor) and y.ndim == 3 and y.shape[1] == n:
                gap = (moved - y).abs().amax((0, 2))
                gap[n // 2] = 0
                rounding = 1e-5 if y.dtype.itemsize > 2 else 1e-2
                if not float(gap.max()) <= rounding * float(y.abs().max()):
                    mixes[name] = type(modules[name]).__name__
    return {name: kind for name, kind in mixes.items() if not any(_inside(other, name) for other in mixes)}


def select(found: list[MixingLayer], names: Sequence[str] | None) -> list[MixingLayer]:
    """Return the layers of these names, each of which must exist."""
    known = {layer.name: layer for layer in found}
    for name in names or ():
        check_choice("layers", name, known)
    return found if names is None else [known[name] for name in known if name in names]


def how_to_register(strange: dict[str, str]) -> str:
    """Return a message that names the first unknown mixer and the lines that register a reader for it."""
    return f"model must hold mixers that the lens can read; got {_unknown(strange)}"


def _unknown(strange: dict[str, str]) -> str:
    name, kind = next(iter(strange.items()))
    return (
        f"{kind} ({name or 'the model itself'}). "
        f'Register one:\n    @ssmbook.lens.register("{kind}")\n    def read(mixer, call):\n'
        f"        return ssmbook.lens.Reading(ssmbook.lens.LayerOperator(W, x=call.one(call.x), y=y))"
    )


def _inside(name: str, other: str) -> bool:
    return name != other and (other == "" or name.startswith(other + "."))


def _apart(name: str, known: list[str]) -> bool:
    return not any(name == other or _inside(name, other) or _inside(other, name) for other in known)


def not_read(strange: dict[str, str]) -> list[str]:
    """Return a note on each mixer without a reader."""
    return [
        f"not read: {name or 'the model'} ({kind}): no reader knows it; register one: "
        f'@ssmbook.lens.register("{kind}")'
        for name, kind in strange.items()
    ]


def calls(found: Sequence[MixingLayer], inputs: Tensor | Mapping[str, Any]) -> dict[str, Call]:
    """Return what each of these layers of one model received in one forward pass, by its name.

    Each is good for ``operator`` in place of inputs, so that the model runs once for many
    layers. Raises as ``operator``.
    """
    seen = collect(found[0].model, {layer.name: layer.module for layer in found}, inputs)
    for error in seen.failed.values():
        raise error
    for name, each in seen.calls.items():
        if len(each) > 1:
            raise ValueError(
                f"{name} must be called once in a forward pass; got {len(each)} calls: lens.report reads "
                "each, and lens.operator the one with call=0, 1, …"
            )
    return {name: each[0] for name, each in seen.calls.items()}


def operator(
    layer: MixingLayer | nn.Module, inputs: Tensor | Mapping[str, Any] | Call, *,
    call: int | None = None, alter: Callable[[nn.Module], None] | None = None,
) -> LayerOperator:  # fmt: skip
    """Return the frozen interaction operator of a layer on these inputs: y == W x + offset, checked.

    The layer is copied to float64 and run on what it received inside the model; the model
    itself is left as it was. W is the part that mixes tokens, without gates, norms and
    short convolution; it is batched as the inputs were. Exact to 1e-10 relative to the
    largest output, or to 1e-5 where the layer casts to float32 inside.

    Parameters
    ----------
    layer : MixingLayer or Module
        One of ``layers(model)``, or a mixing module itself.
    inputs : Tensor, mapping or Call
        Of the model: token ids (n,) or (batch, n), hidden states (n, d) or (batch, n, d), or keyword
        arguments. Or what the layer received, one of ``calls``.
    call : int, optional
        Which one from 0, of a layer that the model calls more than once (ALBERT).
    alter : callable, optional
        Changes the float64 copy before it is read, such as ``permute_weights(seed)``.

    Returns
    -------
    LayerOperator
        The operator ``W`` in float64, with ``x``, ``y`` and ``offset``.

    Raises
    ------
    ValueError
        If the reader misses something that the layer does, with how much; if the model cannot take
        the inputs, is in training mode, or does not call the layer once; for inputs that are not finite.
    TypeError
        If the inputs are of another type.

    Examples
    --------
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
    if call is not None:
        several = collect(layer.model, {layer.name: layer.module}, inputs).calls[layer.name]
        inputs = several[check_integer("call", call, low=0, high=len(several) - 1)]
    core = read(layer, inputs, alter).core
    check_read(layer.title, core)
    return core


@torch.no_grad()
def read(
    layer: MixingLayer,
    inputs: Tensor | Mapping[str, Any] | Call,
    alter: Callable[[nn.Module], None] | None = None,
) -> Reading:
    """Read a layer from a float64 copy of it; arguments as for ``operator``."""
    given = inputs if isinstance(inputs, Call) else calls([layer], inputs)[layer.name]
    module = copy.deepcopy(layer.module).to(torch.float64).eval().requires_grad_(False)
    for part in module.modules():
        config = getattr(part, "config", None)
        if getattr(config, "_attn_implementation", None) not in (None, "eager"):
            config._attn_implementation = "eager"
    if alter is not None:
        alter(module)
    return read_call(layer, module, given.to(torch.float64))


def read_call(layer: MixingLayer, module: nn.Module, call: Call) -> Reading:
    """Read a call of a layer from this copy of its module, or of itself; ``ValueError`` where that fails."""
    family = family_of(layer.module)
    try:
        return dataclasses.replace(family.read(module, call), padding=padding(call))
    except ValueError as error:
        if family is CAUGHT:
            raise ValueError(f"{error}; {_next_step(layer)}") from error
        raise
    except UNFORESEEN as error:
        why = f"{layer.name or 'the layer'} must be a layer that the reader of {family.name} knows; got"
        raise ValueError(
            f"{why} {layer.kind} ({type(error).__name__}: {error}); {_next_step(layer)}"
        ) from error


def _next_step(layer: MixingLayer) -> str:
    return f'register one for it: @ssmbook.lens.register("{layer.kind}")'
