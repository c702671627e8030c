"""What the scans share at their door: batch shapes, states, resets, and the dtype the work is done in."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from ssmbook._checks import check_alike, check_flags, check_shape, check_tensor
from ssmbook.numerics import HALF, single


def check_arguments(patterns: str, *tensors: Tensor | None, single=(), complex_ok: bool = False) -> None:
    """Hold the arguments of a scan to their patterns and to one batch shape, dtype and device.

    Patterns are as in ``"x: ... T d, A: d N"``. D and state may be None. The names in ``single`` may be
    float32 beside arguments in half precision.
    """
    sizes, batch, (first, *_), (x, *_) = {}, None, patterns.split(":"), tensors
    for entry, tensor in zip(patterns.split(", "), tensors, strict=True):
        name, pattern = entry.split(": ")
        if tensor is None and name in ("D", "state"):
            continue
        sizes.update(check_shape(name, tensor, pattern, sizes, complex_ok=complex_ok))
        if pattern.startswith("..."):
            got = tuple(tensor.shape[: tensor.dim() - len(pattern.split()) + 1])
            batch = got if batch is None else batch
            if got != batch:
                raise ValueError(f"{name} must have batch shape {batch}; got {got}")
        if tensor.dtype != x.dtype or tensor.device != x.device:
            mixed = name in single and x.dtype in HALF and tensor.dtype == torch.float32
            check_alike(**{first: x[:0].float() if mixed else x, name: tensor})


def one_step(dim: int, **tensors: Tensor) -> list[Tensor]:
    """The tensors of one step as a sequence of length one, time being ``dim``."""
    for name, tensor in tensors.items():
        check_tensor(name, tensor, complex_ok=True)
        if tensor.dim() < -dim - 1:
            raise ValueError(
                f"{name} must have {-dim - 1} or more dimensions; got shape {tuple(tensor.shape)}"
            )
    return [t.unsqueeze(dim) for t in tensors.values()]


def check_options(reset: Tensor | None, x: Tensor, dims: int, **flags: bool) -> None:
    """Refuse flags but True and False, and reset masks but booleans of the right shape.

    That is the shape of time and everything before it: of ``x`` without its ``dims`` last dimensions.
    """
    check_flags(**flags)
    if reset is None:
        return
    if not isinstance(reset, Tensor) or reset.dtype != torch.bool:
        got = getattr(reset, "dtype", type(reset).__name__)
        raise TypeError(f"reset must be a boolean torch.Tensor; got {got}")
    if reset.shape != x.shape[: x.dim() - dims]:
        wanted = tuple(x.shape[: x.dim() - dims])
        raise ValueError(f"reset must have shape {wanted}; got {tuple(reset.shape)}")
    if reset.device != x.device:
        raise ValueError(f"reset must be on the device of the inputs, {x.device}; got {reset.device}")


def outside_autocast(function):
    """Run a scan in float32 where autocast is on.

    Half-precision tensors are brought to float32, nothing is cast down.
    """

    @functools.wraps(function)
    def scan(*args, **kwargs):
        devices = [t.device.type for t in (*args, *kwargs.values()) if isinstance(t, Tensor)]
        device = devices[0] if devices else "cpu"
        known = torch.compiler.is_compiling() or torch.amp.is_autocast_available(device)
        if not (known and torch.is_autocast_enabled(device)):
            return function(*args, **kwargs)
        with torch.autocast(device, enabled=False):
            return function(*map(single, args), **{name: single(value) for name, value in kwargs.items()})

    return scan
