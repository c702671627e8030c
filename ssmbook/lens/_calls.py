"""One forward pass of a model, and the call that each of its mixing layers received in it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ssmbook._checks import check_finite

# States of earlier calls: a layer is read on the whole text at once.
_STATE = ("past_key_values", "past_key_value", "layer_past", "cache_params")


@dataclass(frozen=True)
class Call:
    """One call of a layer inside a model: ``layer(*args, **kwargs)``.

    ``place``: which of the arguments are the hidden states ``x`` (batch, n, d); ``single``: the text came
    without a batch dimension, which ``one`` removes again.
    """

    args: tuple
    kwargs: dict
    place: int | str
    single: bool = False

    @property
    def x(self) -> Tensor:
        return self.args[self.place] if isinstance(self.place, int) else self.kwargs[self.place]

    def run(self, module: nn.Module, x: Tensor | None = None) -> Any:
        """Return the module's result for this call, or for the same call with other hidden states."""
        x = self.x if x is None else x
        if isinstance(self.place, str):
            return module(*self.args, **{**self.kwargs, self.place: x})
        return module(*self.args[: self.place], x, *self.args[self.place + 1 :], **self.kwargs)

    def to(self, dtype: torch.dtype) -> Call:
        """Return the same call with every floating-point tensor in another dtype."""

        def cast(value):
            return value.to(dtype) if value.is_floating_point() else value

        return replace(self, args=_map_tensors(self.args, cast), kwargs=_map_tensors(self.kwargs, cast))

    def one(self, tensor: Tensor) -> Tensor:
        """Drop the batch dimension where the text came without one."""
        return tensor[0] if self.single else tensor


def _map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Apply ``change`` to a tensor, or to each tensor in tuples, lists and dicts."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, (tuple, list)):
        return type(value)(_map_tensors(part, change) for part in value)
    if isinstance(value, dict):
        return {key: _map_tensors(part, change) for key, part in value.items()}
    return value


def _as_call(name: str, args: tuple, kwargs: Mapping[str, Any], single: bool) -> Call:
    kept = {key: value for key, value in kwargs.items() if key not in _STATE}
    if "use_cache" in kept:
        kept["use_cache"] = False
    for place, value in [*enumerate(args), *kept.items()]:
        if isinstance(value, Tensor) and value.is_floating_point() and value.ndim == 3:
            check_finite(f"the input of {name or 'the layer'}", value)
            return Call(args, kept, place, single)
    raise ValueError(f"{name or 'the layer'} must receive hidden states (batch, n, d); got none")


@torch.no_grad()
def capture(model: nn.Module, modules: Mapping[str, nn.Module], inputs) -> tuple[dict[str, Call], list[str]]:
    """Run the model once and return the call of every module by name, with notes on what was changed for it.

    Raises ``TypeError``/``ValueError`` for inputs that ``model_arguments`` refuses and for a module that the
    forward pass does not reach or calls twice.
    """
    kwargs, single = model_arguments(model, inputs)
    calls: dict[str, Call] = {}

    def remember(name, module, args, given):
        if name in calls:
            raise ValueError(f"{name} must be called once in a forward pass; got a second call")
        calls[name] = _as_call(name, args, given, single)

    with ExitStack() as until, eager_attention(model) as notes:
        for name, module in modules.items():
            hook = partial(remember, name)
            until.enter_context(module.register_forward_pre_hook(hook, with_kwargs=True))
        model(*kwargs.pop("", ()), **kwargs)
    missing = [name for name in modules if name not in calls]
    if missing:
        raise ValueError(f"the model must call {missing[0]}; its forward pass did not reach it")
    return calls, notes


@contextmanager
def eager_attention(model: nn.Module) -> Iterator[list[str]]:
    """Make attention return its weights while the block runs; yields notes on what was changed."""
    config = getattr(model, "config", None)
    before = getattr(config, "_attn_implementation", "eager")
    if before in ("eager", None) or not hasattr(model, "set_attn_implementation"):
        yield []
        return
    model.set_attn_implementation("eager")
    if config._attn_implementation != "eager":  # transformers only warns (Falcon)
        raise ValueError(
            f"model must compute its attention weights; {type(model).__name__} stays at {before}: load it "
            f'with attn_implementation="eager"'
        )
    try:
        yield [f"attention ran as eager instead of {before}, which returns no weights"]
    finally:
        model.set_attn_implementation(before)


def model_arguments(model: nn.Module, inputs) -> tuple[dict[str, Any], bool]:
    """Return the model's keyword arguments ('' holds positional ones) and whether a batch was added here.

    ``inputs``: token ids (n,) or (batch, n), hidden states (n, d) or (batch, n, d), or the model's keyword
    arguments. Raises ``TypeError`` for anything else, ``ValueError`` for other shapes and for a model in
    training mode.
    """
    if model.training:
        raise ValueError("model must be in evaluation mode; got training mode, with dropout (model.eval())")
    accepted = inspect.signature(model.forward).parameters
    if isinstance(inputs, Mapping):
        kwargs, single = dict(inputs), False
    elif isinstance(inputs, Tensor):
        ids = not inputs.is_floating_point()
        single = inputs.ndim == (1 if ids else 2)
        text = inputs[None] if single else inputs
        if text.ndim != (2 if ids else 3):
            wanted = "token ids (n,) or (batch, n) or hidden states (n, d) or (batch, n, d)"
            raise ValueError(f"inputs must be {wanted}; got shape {tuple(inputs.shape)}")
        name = "input_ids" if ids else "inputs_embeds"
        kwargs = {name: text} if name in accepted else {"": (text,)}
    else:
        wanted = "a tensor or the model's keyword arguments"
        raise TypeError(f"inputs must be {wanted}; got {type(inputs).__name__}")
    if "use_cache" in accepted:
        kwargs["use_cache"] = False
    return kwargs, single


def split_texts(model: nn.Module, inputs) -> list[Tensor]:
    """Return the texts of a batch one by one; ``ValueError`` for fewer than 8 tokens."""
    _, single = model_arguments(model, inputs)
    texts = [inputs] if single else list(inputs)
    if len(texts[0]) < 8:
        raise ValueError(f"inputs must have at least 8 tokens to be measured; got {len(texts[0])}")
    return texts


@contextmanager
def watch(*modules: nn.Module) -> Iterator[dict[nn.Module, tuple[tuple, Any]]]:
    """Collect (positional arguments, result) of each module while the block runs."""
    seen: dict[nn.Module, tuple[tuple, Any]] = {}

    def hook(module, args, result):
        seen[module] = (args, result)

    with ExitStack() as until:
        for module in modules:
            until.enter_context(module.register_forward_hook(hook))
        yield seen
