"""One forward pass of a model, and what each of its mixing layers was called with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ssmbook._checks import check_finite, check_tensor

# States of earlier calls: a layer is read on the whole text at once.
_STATE = ("past_key_values", "past_key_value", "layer_past", "cache_params")


@dataclass(frozen=True)
class Call:
    """One call of a layer inside a model: ``layer(*args, **kwargs)``, its hidden states among them.

    ``x``: the hidden states (batch, n, d); ``single``: the text came without a batch dimension.
    Introduced in *trained-layers*.
    """

    args: tuple
    kwargs: dict
    place: int | str
    single: bool = False

    @property
    def x(self) -> Tensor:
        return self.args[self.place] if isinstance(self.place, int) else self.kwargs[self.place]

    def run(self, module: nn.Module, x: Tensor | None = None) -> Any:
        """What a module returns for this call, or for the same one with other hidden states."""
        x = self.x if x is None else x
        if isinstance(self.place, str):
            return module(*self.args, **{**self.kwargs, self.place: x})
        return module(*self.args[: self.place], x, *self.args[self.place + 1 :], **self.kwargs)

    def to(self, dtype: torch.dtype) -> Call:
        """The same call with every floating-point tensor in another dtype."""

        def cast(value):
            return value.to(dtype) if value.is_floating_point() else value

        return replace(self, args=_changed(self.args, cast), kwargs=_changed(self.kwargs, cast))

    def one(self, tensor: Tensor) -> Tensor:
        """Drop the batch dimension where the text came without one."""
        return tensor[0] if self.single else tensor


def _changed(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A tensor, or tuples, lists and dicts of them, with each tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, (tuple, list)):
        return type(value)(_changed(part, change) for part in value)
    return {key: _changed(part, change) for key, part in value.items()} if isinstance(value, dict) else value


def _as_call(name: str, args: tuple, kwargs: Mapping[str, Any], single: bool) -> Call:
    kept = {key: value for key, value in kwargs.items() if key not in _STATE}
    if "use_cache" in kept:
        kept["use_cache"] = False
    places = [*enumerate(args), *kept.items()]
    for place, value in places:
        if isinstance(value, Tensor) and value.is_floating_point() and value.ndim == 3:
            check_finite(f"inputs, the input of {name or 'the layer'},", value)
            args, kept = _changed(tuple(args), Tensor.detach), _changed(kept, Tensor.detach)
            return Call(args, kept, place, single)
    where = f"inputs must reach {name or 'the layer'} as hidden states (batch, n, d)"
    raise ValueError(f"{where}; got the arguments {[k for k, _ in places]}")


@torch.no_grad()
def capture(model: nn.Module, modules: Mapping[str, nn.Module], inputs) -> tuple[dict[str, Call], list[str]]:
    """Run the model once and return the call of every module by name, with what had to be changed for it.

    Raises ``TypeError``/``ValueError`` for inputs that the lens cannot read (see ``check_inputs``), a module
    that is not reached or that is called twice.
    """
    kwargs, single = check_inputs(model, inputs)
    calls: dict[str, Call] = {}

    def remember(name, module, args, given):
        if name in calls:
            raise ValueError(f"{name} must be called once in a forward pass; got a second call")
        calls[name] = _as_call(name, args, given, single)

    try:
        with ExitStack() as until, eager_attention(model) as notes:
            for name, module in modules.items():
                hook = partial(remember, name)
                until.enter_context(module.register_forward_pre_hook(hook, with_kwargs=True))
            model(*kwargs.pop("", ()), **kwargs)
    except (IndexError, RuntimeError, TypeError) as error:
        said = f"{type(error).__name__}: {error}"
        raise ValueError(f"inputs must suit {type(model).__name__}; its forward pass said {said}") from error
    missing = [name for name in modules if name not in calls]
    if missing:
        raise ValueError(f"the model must call {missing[0]}; its forward pass did not reach it")
    return calls, notes


@contextmanager
def eager_attention(model: nn.Module) -> Iterator[list[str]]:
    """Let attention compute its weights openly, and undo that afterwards; yields what was changed."""
    config = getattr(model, "config", None)
    before = getattr(config, "_attn_implementation", "eager")
    if before in ("eager", None) or not hasattr(model, "set_attn_implementation"):
        yield []
        return
    model.set_attn_implementation("eager")
    if config._attn_implementation != "eager":  # transformers only warns (Falcon)
        kind = type(model).__name__
        raise ValueError(
            f"model must compute its attention openly; {kind} stays at {before}: load it with "
            f'attn_implementation="eager"'
        )
    try:
        yield [f"attention ran as eager instead of {before}, which returns no weights"]
    finally:
        model.set_attn_implementation(before)


def check_inputs(model: nn.Module, inputs) -> tuple[dict[str, Any], bool]:
    """Return the model's keyword arguments ('' holds positional ones) and whether the batch was added here.

    ``inputs``: token ids (n,) or (batch, n), hidden states (n, d) or (batch, n, d), or the model's keyword
    arguments. Refused: a model in training mode, float16 on a CPU, another device, padding, more tokens than
    the model allows.
    """
    check_model(model)
    if isinstance(inputs, Mapping):
        kwargs, single = dict(inputs), False
    elif isinstance(inputs, Tensor):
        kwargs, single = _from_tensor(model, inputs)
    else:
        wanted = "a tensor or the model's keyword arguments"
        raise TypeError(f"inputs must be {wanted}; got {type(inputs).__name__}")
    texts = [value for value in (*kwargs.get("", ()), *kwargs.values()) if isinstance(value, Tensor)]
    home = next((p.device for p in model.parameters()), None)
    for text in texts:
        if home is not None and text.device != home:
            raise ValueError(f"inputs must be on the model's device, {home}; got {text.device}")
    mask = kwargs.get("attention_mask")
    if isinstance(mask, Tensor) and mask.ndim == 2 and not bool(mask.bool().all()):
        hidden = int((~mask.bool()).sum())
        raise ValueError(
            f"inputs must be without padding; got {hidden} padded tokens (give texts of one length)"
        )
    longest = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    if texts and isinstance(longest, int) and texts[0].shape[1] > longest:
        n = texts[0].shape[1]
        raise ValueError(f"inputs must have at most {longest} tokens, what the model allows; got {n}")
    if "use_cache" in inspect.signature(model.forward).parameters:
        kwargs["use_cache"] = False
    return kwargs, single


def _from_tensor(model: nn.Module, inputs: Tensor) -> tuple[dict[str, Any], bool]:
    ids = not (inputs.is_floating_point() or inputs.is_complex())
    if not ids:
        check_tensor("inputs", inputs)
    single = inputs.ndim == (1 if ids else 2)
    text = inputs[None] if single else inputs
    if text.ndim != (2 if ids else 3) or text.numel() == 0:
        wanted = "token ids (n,) or (batch, n) or hidden states (n, d) or (batch, n, d)"
        raise ValueError(f"inputs must be {wanted}, not empty; got shape {tuple(inputs.shape)}")
    accepted = inspect.signature(model.forward).parameters
    name = "input_ids" if ids else "inputs_embeds"
    return ({name: text} if name in accepted else {"": (text,)}), single


def check_model(model: nn.Module) -> None:
    """Refuse a non-module, a model in training mode, and float16 on a CPU."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module; got {type(model).__name__}")
    if model.training:
        raise ValueError("model must be in evaluation mode; got training mode, with dropout (model.eval())")
    for p in model.parameters():
        if p.dtype == torch.float16 and p.device.type == "cpu":
            raise ValueError("model must be float32 or float64 on a CPU; got float16 (call model.float())")


@contextmanager
def watched(*modules: nn.Module) -> Iterator[dict[nn.Module, tuple[tuple, Any]]]:
    """Collect (positional arguments, result) of each module while the block runs."""
    seen: dict[nn.Module, tuple[tuple, Any]] = {}

    def hook(module, args, result):
        seen[module] = (args, result)

    with ExitStack() as until:
        for module in modules:
            until.enter_context(module.register_forward_hook(hook))
        yield seen
