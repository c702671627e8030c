"""What the scans share at their door: batch shapes, states, resets, and the dtype the work is done in."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from ssmbook._checks import check_alike, check_shape, check_tensor

HALF = (torch.float16, torch.bfloat16)


def check_batch(shape: tuple[int, ...], **trailing: tuple[Tensor, int]) -> None:
    """Hold tensors to one batch shape: ``name=(tensor, number of trailing dimensions)``."""
    for name, (tensor, dims) in trailing.items():
        got = tuple(tensor.shape[: tensor.dim() - dims])
        if got != tuple(shape):
            raise ValueError(f"{name} must have batch shape {tuple(shape)}; got {got}")


def check_state(state: Tensor | None, pattern: str, sizes: dict[str, int], batch, **like: Tensor) -> None:
    """Hold an initial state, if there is one, to ``pattern`` after the batch shape and to the dtype of
    ``like``.
    """
    if state is not None:
        check_shape("state", state, f"... {pattern}", sizes, complex_ok=True)
        check_batch(batch, state=(state, len(pattern.split())))
        check_alike(**like, state=state)


def like_state(x: Tensor, state: Tensor | None) -> Tensor:
    """``x`` in the dtype its state may have: float32 as well where ``x`` is in half precision."""
    if x.dtype in HALF and isinstance(state, Tensor) and state.dtype == torch.float32:
        return x[:0].float()
    return x


def one_step(dim: int, **tensors: Tensor) -> list[Tensor]:
    """The tensors of one step as a sequence of length one, time being ``dim``."""
    for name, tensor in tensors.items():
        check_tensor(name, tensor, complex_ok=True)
        if tensor.dim() < -dim - 1:
            raise ValueError(
                f"{name} must have {-dim - 1} or more dimensions; got shape {tuple(tensor.shape)}"
            )
    return [t.unsqueeze(dim) for t in tensors.values()]


def check_flags(**flags: bool) -> None:
    """Refuse anything but True and False."""
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise TypeError(f"{name} must be True or False; got {flag!r}")


def check_reset(reset: Tensor | None, shape: tuple[int, ...], device: torch.device) -> None:
    """Hold a reset mask, if there is one, to booleans of the shape of time and everything before it."""
    if reset is None:
        return
    if not isinstance(reset, Tensor) or reset.dtype != torch.bool:
        raise TypeError(
            f"reset must be a boolean torch.Tensor; got {getattr(reset, 'dtype', type(reset).__name__)}"
        )
    if tuple(reset.shape) != tuple(shape):
        raise ValueError(f"reset must have shape {tuple(shape)}; got {tuple(reset.shape)}")
    if reset.device != device:
        raise ValueError(f"reset must be on the device of the inputs, {device}; got {reset.device}")


def widen(*tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    """Half-precision tensors in float32, others as they are: states are never kept in half precision."""
    return tuple(t.float() if t is not None and t.dtype in HALF else t for t in tensors)


def outside_autocast(function):
    """Run a scan in float32 where autocast is on: half-precision tensors are brought to float32, nothing is
    cast down.
    """

    @functools.wraps(function)
    def scan(*args, **kwargs):
        devices = [t.device.type for t in (*args, *kwargs.values()) if isinstance(t, Tensor)]
        device = devices[0] if devices else "cpu"
        known = torch.compiler.is_compiling() or torch.amp.is_autocast_available(device)
        if not (known and torch.is_autocast_enabled(device)):
            return function(*args, **kwargs)
        args = [t.float() if isinstance(t, Tensor) and t.dtype in HALF else t for t in args]
        kwargs = {k: t.float() if isinstance(t, Tensor) and t.dtype in HALF else t for k, t in kwargs.items()}
        with torch.autocast(device, enabled=False):
            return function(*args, **kwargs)

    return scan
