"""Run a model with some layers replaced, and leave it as it was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn

from ssmbook.lens._calls import _STATE, Call, as_call, eager_attention
from ssmbook.lens._layers import MixingLayer, layers, mixers, read_call
from ssmbook.lens._reading import Reading, check_read
from ssmbook.lens.changes._change import Change, outcome

# What a reading is checked by: the heads of the layer itself.
_UNCHANGED = Change("unchanged", lambda alpha: alpha)


@contextmanager
def replace(
    model: nn.Module, changes: Mapping[MixingLayer | str | int, Change | nn.Module]
) -> Iterator[nn.Module]:
    """Run the model with the heads of some layers changed, inside a ``with`` block.

    ``changes``: a layer of ``layers(model)``, its name or its place from 0 -> a `Change`,
    or a module of ``Observed.share`` or ``convert``, whose parameters then receive gradients.
    In every forward pass each of these layers is read on the tokens that it receives, in
    the model's own dtype, and y' = W' x + offset takes the place of what its heads made.
    Gates, norms and output projections after the core stay. A block inside another changes
    what the outer one made of the same layer. There is no cache of earlier
    tokens inside. After the block, and after an exception, the model is as it was, bit for
    bit. Raises ``ValueError`` for a model in training mode, for a layer that it does not
    have, for one that is named twice and for an inner change that would leave out the outer
    one, ``TypeError`` for what is no `Change`.

    >>> from ssmbook import lens
    >>> from ssmbook.maps import Attention
    >>> model, x = torch.nn.Sequential(Attention(6, 6, H=2, head_width=3)).eval(), torch.randn(1, 10, 6)
    >>> y, frozen = model(x), lens.freeze(lens.layers(model)[0], x[0])
    >>> first = lens.only(lens.window(4, sink=1), [1])
    >>> for change in (lens.truncate(10), frozen, first, first & lens.fade(0.5)):
    ...     with lens.replace(model, {0: change}):
    ...         print(change.name, torch.allclose(model(x), y, atol=1e-5))
    10 states True
    frozen coefficients True
    a window of 4 in heads [1] False
    a window of 4 in heads [1], then scores times 0.5 False
    >>> torch.equal(model(x), y)
    True
    """
    if model.training:
        raise ValueError("model must be in evaluation mode; got training mode, with dropout (model.eval())")
    found, strange, chosen = layers(model, unknown="skip"), mixers(model)[1], []
    for key, change in changes.items():
        change = getattr(change, "change", change)
        if not isinstance(change, Change):
            raise TypeError(f"a change must be a lens.Change; got {type(change).__name__}")
        layer = _find(found, key, strange)
        if any(layer is other for other, _ in chosen):
            raise ValueError(f"changes must name each layer once; got {layer.title} twice")
        chosen.append((layer, change))
    with ExitStack() as until:
        until.enter_context(eager_attention(model))
        until.enter_context(_without_cache(model))
        for layer, change in chosen:
            until.enter_context(_other_heads(layer, change))
        yield model


def _find(found: list[MixingLayer], key: object, unknown: Mapping[str, str]) -> MixingLayer:
    for place, layer in enumerate(found):
        if key in (layer.name, place) or getattr(key, "module", None) is layer.module:
            return layer
    strange = f", which no reader knows ({unknown[key]})" if isinstance(key, str) and key in unknown else ""
    raise ValueError(
        f"changes must be for layers of lens.layers(model), their names or places 0 to {len(found) - 1}; got "
        f"{key!r}{strange}"
    )


@contextmanager
def _without_cache(model: nn.Module) -> Iterator[None]:
    """Without ``use_cache``: what a changed layer kept of earlier tokens would be that of its own heads."""
    holders = [getattr(model, name, None) for name in ("config", "generation_config")]
    holders += [part.get_text_config() for part in holders if hasattr(part, "get_text_config")]
    kept = [(part, part.use_cache) for part in holders if hasattr(part, "use_cache")]
    try:
        for part, _ in kept:
            part.use_cache = False
        yield
    finally:
        for part, value in reversed(kept):
            part.use_cache = value


@contextmanager
def _other_heads(layer: MixingLayer, change: Change) -> Iterator[None]:
    """Put a function in the place of a layer's forward: one run to read it, one with other heads."""
    module, original = layer.module, layer.module.forward
    outer = getattr(original, "changes", None)
    if outer is not None:  # inside another block: a change of what that one made
        outer.append(outer[-1] & change)
        try:
            yield
        finally:
            outer.pop()
        return
    inside, known, shadowed = False, False, "forward" in vars(layer.module)

    @wraps(original)  # readers look at its signature
    def forward(*args, **kwargs):
        nonlocal inside, known
        if inside:
            return original(*args, **kwargs)
        if any(kwargs.get(key) is not None for key in _STATE):
            raise ValueError(
                f"{layer.name} must run without a cache of earlier tokens under lens.replace: pass "
                "use_cache=False"
            )
        inside = True
        try:
            call = as_call(layer.name, args, kwargs, single=False)
            reading = read_call(layer, module, call)
            if not known:  # once, in the model's own dtype
                tolerance = 1e-3 if call.x.dtype.itemsize > 2 else 0.1
                check_read(layer.title, reading.core, tolerance, outcome(reading, _UNCHANGED))
                known = True
            return _run_with(module, call, reading, outcome(reading, forward.changes[-1]))
        finally:
            inside = False

    forward.changes = [change]
    # a hook that does nothing, so that torch's encoder does not run its layers past their
    # modules
    until = module.register_forward_hook(lambda *_: None)
    module.forward = forward
    try:
        yield
    finally:
        if shadowed:
            module.forward = original
        else:
            del module.forward
        until.remove()


def _run_with(module: nn.Module, call: Call, reading: Reading, y: Tensor) -> Any:
    """Run a module again with y in the place of what its core made."""
    if reading.enter is not None:
        with reading.enter(y):
            return call.run(module)
    put = y if reading.put is None else reading.put(y)

    def enter(_, args):
        return (put.reshape(args[0].shape).to(args[0]), *args[1:])

    def leave(_, args, result):
        first, *rest = result if isinstance(result, tuple) else (result,)
        if reading.site is None and not _same(first, reading.core.y):
            raise ValueError(
                f"{type(module).__name__} must return what its reader calls y, or the reader must name the "
                "module where y enters (site)"
            )
        first = put.reshape(first.shape).to(first)
        return (first, *rest) if isinstance(result, tuple) else first

    site = module if reading.site is None else reading.site
    hook = site.register_forward_pre_hook(enter) if reading.enters else site.register_forward_hook(leave)
    try:
        return call.run(module)
    finally:
        hook.remove()


def _same(got: Tensor, wanted: Tensor) -> bool:
    return got.shape == wanted.shape and torch.allclose(got, wanted, rtol=1e-4, atol=1e-4)
