"""What all scans share: the check of their arguments, precision, and the steps of a sequence."""

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec

import torch
from torch import Tensor

from ssmbook._checks import check_same_dtype_device, check_tensors
from ssmbook.numerics import HALF, autocasts, half_to_float32, without_autocast

Given = ParamSpec("Given")
Scan = Callable[Given, tuple[Tensor, Tensor]]

# --- Arguments and dtypes -----------------------------------------------------------------------------


def check_scan(*, complex_ok: bool = False, **given: tuple[Tensor | None, str]) -> None:
    """Check the arguments of a scan, each a tensor (or None, which passes) with its pattern."""
    tensors = {name: (t, pattern) for name, (t, pattern) in given.items() if t is not None}
    check_tensors(one_batch=True, complex_ok=complex_ok, **tensors)


def half_in_float32(scan: Scan[Given]) -> Scan[Given]:
    """Compute half precision in float32: y comes back in the dtype of the first argument, the state does not.

    The same where autocast is on, with results in float32; otherwise half precision is mixed with nothing
    but a state.
    """
    signature = inspect.signature(scan)

    @functools.wraps(scan)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> tuple[Tensor, Tensor]:
        tensors = [t for t in (*args, *kwargs.values()) if isinstance(t, Tensor)]
        device = tensors[0].device.type if tensors else "cpu"
        autocast = autocasts(device)
        if not autocast and all(t.dtype not in HALF for t in tensors):
            return scan(*args, **kwargs)
        if not autocast:
            named = signature.bind(*args, **kwargs).arguments.items()
            check_same_dtype_device(**{n: t for n, t in named if isinstance(t, Tensor) and n != "state"})
        args = tuple(map(half_to_float32, args))
        kwargs = {name: half_to_float32(value) for name, value in kwargs.items()}
        with without_autocast(device):
            y, state = scan(*args, **kwargs)
        return y if autocast else y.to(tensors[0].dtype), state

    return run


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype that states are carried in: double precision, real or complex."""
    return torch.promote_types(dtype, torch.float64)


# --- Steps, along dimension -2 ------------------------------------------------------------------------


def run_steps(step, state: Tensor, *inputs: Tensor, reverse: bool = False) -> tuple[Tensor, Tensor]:
    """All states (..., T, D) of state = step(state, *inputs of this step), and the last one."""
    states = []
    for given in zip(*(steps_of(t, reverse) for t in inputs), strict=True):
        state = step(state, *given)
        states.append(state)
    return torch.stack(states[::-1] if reverse else states, -2), state


def steps_of(t: Tensor, reverse: bool = False) -> tuple[Tensor, ...]:
    """The steps of t (..., T, D), the last one first if ``reverse``."""
    steps = t.unbind(-2)
    return steps[::-1] if reverse else steps


def value_before(h: Tensor, state: Tensor | None) -> Tensor:
    """The value that each step starts from: the initial state (zero if None), then ``h``."""
    first = torch.zeros_like(h[..., :1, :]) if state is None else state.unsqueeze(-2)
    return torch.cat((first, h[..., :-1, :]), -2)


def is_finite(t: Tensor) -> bool:
    """Whether every entry is finite, in one read; also False if the sum overflows."""
    return (0 * t.detach().sum()).item() == 0
