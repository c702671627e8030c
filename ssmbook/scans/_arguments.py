"""What every scan does with its arguments first: check them, and leave half precision for a wider one."""

import functools
from collections.abc import Callable
from typing import ParamSpec

import torch
from torch import Tensor

from ssmbook._checks import check_tensors
from ssmbook.numerics import HALF, autocasts, half_to_float32, without_autocast

Given = ParamSpec("Given")
WIDE = {torch.complex64: torch.complex128} | dict.fromkeys((torch.float32, *HALF), torch.float64)


def check_scan(*, complex_ok: bool = False, **given: tuple[Tensor | None, str]) -> None:
    """Check the arguments of a scan, each a tensor (or None, which passes) with its pattern."""
    tensors = {name: (t, pattern) for name, (t, pattern) in given.items() if t is not None}
    check_tensors(one_batch=True, complex_ok=complex_ok, **tensors)


def half_in_float32(
    scan: Callable[Given, tuple[Tensor, Tensor]],
) -> Callable[Given, tuple[Tensor, Tensor]]:
    """Compute half precision in float32: y comes back in the dtype of the first argument, the state does not.

    The same where autocast is on, with results in float32.
    """

    @functools.wraps(scan)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> tuple[Tensor, Tensor]:
        tensors = [t for t in (*args, *kwargs.values()) if isinstance(t, Tensor)]
        device = tensors[0].device.type if tensors else "cpu"
        autocast = autocasts(device)
        if not autocast and all(t.dtype not in HALF for t in tensors):
            return scan(*args, **kwargs)
        args = tuple(map(half_to_float32, args))
        kwargs = {name: half_to_float32(value) for name, value in kwargs.items()}
        with without_autocast(device):
            y, state = scan(*args, **kwargs)
        return y if autocast else y.to(tensors[0].dtype), state

    return run


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype that states are carried in: double precision, real or complex."""
    return WIDE.get(dtype, dtype)
