"""One forward pass of a model, and the call that each of its mixing layers received in it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from ssmbook._checks import check_finite

# What code that meets a layer or an input it was not made for may raise.
UNFORESEEN = (AttributeError, KeyError, IndexError, RuntimeError)
# Texts of one length, or with what their mask says is padding.
Texts = Tensor | Mapping[str, Tensor]
# A score this low is masked, in every dtype.
_MASKED = -1e4
# States of earlier calls: a layer is read on the whole text at once.
_STATE = ("past_key_values", "past_key_value", "layer_past", "cache_params", "cache")


@dataclass(frozen=True)
class Call:
    """One call of a layer inside a model: ``layer(*args, **kwargs)``.

    Parameters
    ----------
    args : tuple
        The positional arguments.
    kwargs : dict
        The keyword arguments.
    place : int or str
        Which of them are the hidden states ``x`` (batch, n, d).
    single : bool, default False
        Whether the text came without a batch dimension, which ``one`` removes again.
    """

    args: tuple
    kwargs: dict
    place: int | str
    single: bool = False

    @property
    def x(self) -> Tensor:
        """The hidden states that the layer received, (batch, n, d)."""
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


def padding(call: Call) -> Tensor | None:
    """Which tokens (batch, n) of a call are padding, from the mask that the layer received; ``None``: none.

    A mask that is added to scores (batch, 1, n, n) keeps a padded token from itself; a
    recurrence gets one of tokens, (batch, n), as ``attention_mask``. One of truth values
    says nothing: some mark with it what is seen, others what is not.
    """
    size, gone = call.x.shape[:2], None
    for name, value in (*enumerate(call.args), *call.kwargs.items()):
        shape = value.shape if isinstance(value, Tensor) else ()
        if shape[1:] == (1, size[1], size[1]) and value.is_floating_point():
            gone = value[:, 0].diagonal(dim1=-2, dim2=-1) < _MASKED
        elif name == "attention_mask" and shape == size:
            gone = value == 0
    return gone.expand(size) if gone is not None and bool(gone.any()) else None


def without_padding(call: Call, part: Tensor) -> Tensor:
    """Return what stands at the tokens (..., n, c) of a call, with zeros at its padding."""
    gone = padding(call)
    return part if gone is None else part.masked_fill(gone[..., None], 0)


def _map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Apply ``change`` to a tensor, or to each tensor in tuples, lists and dicts."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, (tuple, list)):
        return type(value)(_map_tensors(part, change) for part in value)
    if isinstance(value, dict):
        return {key: _map_tensors(part, change) for key, part in value.items()}
    return value


def as_call(name: str, args: tuple, kwargs: Mapping[str, Any], single: bool) -> Call:
    kept = {key: value for key, value in kwargs.items() if key not in _STATE}
    if "use_cache" in kept:
        kept["use_cache"] = False
    for place, value in [*enumerate(args), *kept.items()]:
        if isinstance(value, Tensor) and value.is_floating_point() and value.ndim == 3:
            check_finite(f"the input of {name or 'the layer'}", value)
            return Call(args, kept, place, single)
    raise ValueError(f"{name or 'the layer'} must receive hidden states (batch, n, d); got none")


class Pass(NamedTuple):
    """One forward pass: the calls of each module by name, why some have none, and what was changed for it."""

    calls: dict[str, list[Call]]
    failed: dict[str, ValueError]
    notes: list[str]


@torch.no_grad()
def collect(model: nn.Module, modules: Mapping[str, nn.Module], inputs: Tensor | Mapping[str, Any]) -> Pass:
    """Run the model once and keep the calls of every module.

    Raises ``TypeError``/``ValueError`` for inputs that ``model_arguments`` refuses or the
    model cannot take.
    """
    kwargs, single = model_arguments(model, inputs)
    calls, failed = {name: [] for name in modules}, {}

    def remember(name, module, args, given):
        try:
            calls[name].append(as_call(name, args, given, single))
        except ValueError as error:
            failed[name] = error

    with ExitStack() as until, eager_attention(model) as notes:
        for name, module in modules.items():
            hook = partial(remember, name)
            until.enter_context(module.register_forward_pre_hook(hook, with_kwargs=True))
        positional = kwargs.pop("", ())
        try:
            model(*positional, **kwargs)
        except (*UNFORESEEN, TypeError) as error:
            reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            raise ValueError(f"{type(model).__name__} must run on these inputs; got {reason}") from error
    for name in modules:
        if not calls[name] and name not in failed:
            failed[name] = ValueError(f"the model must call {name}; its forward pass did not reach it")
    return Pass(calls, failed, notes)


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


def model_arguments(model: nn.Module, inputs: object) -> tuple[dict[str, Any], bool]:
    """Return the model's keyword arguments ('' holds positional ones) and whether a batch was added here.

    ``inputs``: token ids (n,) or (batch, n), hidden states (n, d) or (batch, n, d), or the
    model's keyword arguments. Raises ``TypeError`` for anything else, ``ValueError`` for
    other shapes and for a model in training mode.
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
    homes = {str(parameter.device) for parameter in model.parameters()}
    for value in (*kwargs.get("", ()), *kwargs.values()):
        if isinstance(value, Tensor) and homes and str(value.device) not in homes:
            where = " and ".join(sorted(homes))
            raise ValueError(f"inputs must be on the device of the model, {where}; got {value.device}")
    if "use_cache" in accepted:
        kwargs["use_cache"] = False
    return kwargs, single


def split_texts(model: nn.Module, inputs: Texts) -> list[Tensor]:
    """Return the texts of a batch one by one, without padding; ``ValueError`` for fewer than 8 tokens.

    ``inputs``: a tensor of texts, or what a tokenizer returns: ``input_ids`` (or
    ``inputs_embeds``) and the ``attention_mask`` (texts, n) that says what is padding.
    """
    mask = None
    if isinstance(inputs, Mapping):
        others = dict(inputs)
        mask = others.pop("attention_mask", None)
        inputs = others.pop("input_ids", others.pop("inputs_embeds", None))
        if mask is None or inputs is None or others:
            raise TypeError(
                "inputs must be a tensor of texts, or input_ids or inputs_embeds and their attention_mask; "
                f"got {', '.join(others) or 'one of the two'}"
            )
    _, single = model_arguments(model, inputs)
    texts = [inputs] if single else list(inputs)
    if mask is not None:
        edges = functional.pad(mask.bool().int(), (1, 1)).diff(dim=-1).abs().sum(-1)
        if mask.shape != inputs.shape[:2] or not bool((edges == 2).all()):
            raise ValueError(
                "attention_mask must be 1 on one run of tokens in each text (texts, n) and 0 before and "
                f"after it; got shape {tuple(mask.shape)} with {edges.tolist()} edges"
            )
        texts = [text[kept.bool()] for text, kept in zip(texts, mask, strict=True)]
    short = min(map(len, texts))
    if short < 8:
        raise ValueError(f"inputs must have at least 8 tokens to be measured; got {short}")
    return texts


def main_result(result: Any) -> Any:
    """What a module returns, or the first of several things."""
    return result[0] if isinstance(result, (tuple, list)) else result


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
