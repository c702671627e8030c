"""What all scans share: their check of arguments, dtypes, threads, and how PyTorch learns their rules.

The life of one call, of ``diagonal_scan(a, b)`` for example:

1. `half_in_float32` converts half precision, and the scan checks its arguments by `check_scan`.
2. `observer` looks whether a transform of PyTorch is watching. Forward mode and ``torch.func`` get a plain
   loop in torch. Otherwise the scan calls an `Operation`: by PyTorch's dispatcher if a tracer such as
   ``torch.compile`` is watching, else directly, as an autograd function if gradients are recorded.
3. The operation runs a Triton kernel (`kernels_for`), a compiled loop (`loops_for` and `run`), or the form in
   torch, with the state in double precision.
4. Its backward pass is the same recurrence the other way: a second operation, with the same three forms.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import itertools
import math
import os
import threading
import warnings

import numpy as np
import torch
from torch import Tensor
from torch._C._functorch import TransformType
from torch.autograd import forward_ad

from ssmbook._checks import check_tensors
from ssmbook.numerics import HALF, autocasts, half_to_float32, without_autocast

NUMBA = os.environ.get("SSMBOOK_NUMBA") != "0" and importlib.util.find_spec("numba") is not None
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # kernels run on a CPU, by Triton's interpreter
WIDE = {torch.complex64: torch.complex128} | dict.fromkeys((torch.float32, *HALF), torch.float64)
BLOCK = 32  # steps between the states that a selective scan keeps for its backward pass
# The derivative of phi_1 near zero, sum of z^k / (k! (k + 2)), where (exp(z) - phi_1(z)) / z cancels.
PHI_SERIES = tuple(1 / (math.factorial(k) * (k + 2)) for k in range(7, -1, -1))
PHI_RADIUS = {torch.float32: 0.25, torch.float64: 0.03}
LARGE = 1 << 22  # bytes from which NumPy asks for large pages
PARALLEL = 1 << 17  # numbers that a second thread is worth starting for

# --- Arguments and dtypes -----------------------------------------------------------------------------------


def check_scan(*, complex_ok: bool = False, **given) -> None:
    """Check the arguments of a scan, each a tensor (or None, which passes) with its pattern."""
    given = {name: pair for name, pair in given.items() if pair[0] is not None}
    check_tensors(one_batch=True, complex_ok=complex_ok, **given)


def half_in_float32(scan):
    """Compute half precision in float32: y comes back in the dtype of the first argument, the state does not.

    The same where autocast is on, with results in float32.
    """

    @functools.wraps(scan)
    def run(*args, **kwargs):
        tensors = [t for t in (*args, *kwargs.values()) if isinstance(t, Tensor)]
        device = tensors[0].device.type if tensors else "cpu"
        autocast = autocasts(device)
        if not autocast and all(t.dtype not in HALF for t in tensors):
            return scan(*args, **kwargs)
        with without_autocast(device):
            y, state = scan(
                *map(half_to_float32, args),
                **{name: half_to_float32(value) for name, value in kwargs.items()},
            )
        return y if autocast else y.to(tensors[0].dtype), state

    return run


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype that states are carried in: double precision, real or complex."""
    return WIDE.get(dtype, dtype)


def wide_copy(state: Tensor | None, like: Tensor) -> Tensor:
    """A fresh copy of a state in the wide dtype, for a loop to write into; zeros if there is none."""
    carry = torch.zeros(like.shape, dtype=wide(like.dtype), device=like.device)
    return carry if state is None else carry.copy_(state)


def wide_array(tensor: Tensor) -> np.ndarray:
    """The numbers of a tensor in double precision, without gaps: a view where they are so already."""
    return tensor.to(wide(tensor.dtype)).contiguous().numpy(force=True)


def is_finite(t: Tensor) -> bool:
    """Whether every entry is finite, in one read; also False if the sum overflows."""
    return (0 * t.detach().sum()).item() == 0


# --- Compiled loops, kernels and threads --------------------------------------------------------------------


def _module(name: str, needs: str):
    """A module of this folder, or None, with a warning, where what it needs cannot be imported."""
    try:
        return importlib.import_module(name, __package__)
    except ImportError as error:
        warnings.warn(f"{needs} cannot be used, so scans are computed by PyTorch: {error}", stacklevel=3)
        return None


@functools.cache
def _loops():
    return _module("._loops", "Numba") if NUMBA else None


@functools.cache
def _kernels():
    return _module("._triton", "Triton") if importlib.util.find_spec("triton") else None


def loops_for(tensor: Tensor):
    """The compiled loops, or None: on another device, without Numba, or with ``SSMBOOK_NUMBA=0``.

    Inside ``torch.compile``: only whether there are any.
    """
    if tensor.device.type != "cpu":
        return None
    return NUMBA if torch.compiler.is_compiling() else _loops()


def kernels_for(tensor: Tensor):
    """The Triton kernels, or None: not on a GPU, for complex numbers, without Triton."""
    if not (tensor.is_cuda or INTERPRETED) or tensor.is_complex() or not tensor.numel():
        return None
    return _kernels()


def on_large_pages(fresh: Tensor) -> Tensor:
    """An empty tensor as ``fresh`` is; a large one from NumPy, which asks the system for large pages.

    Page faults can cost more than the scan.
    """
    return torch.from_numpy(np.empty_like(fresh.numpy())) if fresh.nbytes >= LARGE else fresh


def run(loop, *arguments) -> None:
    """Call a compiled loop; a pair (tensor, number of trailing dimensions) becomes an array of rows.

    The rows are shared among as many threads as PyTorch may use, where there is work for more than one.
    """
    arrays = [_rows(*a) if isinstance(a, tuple) else a for a in arguments]
    if torch.get_num_threads() == 1:
        return loop(*arrays)
    split = [isinstance(a, tuple) for a in arguments]
    shared = [a for a, rows in zip(arrays, split, strict=True) if rows]
    n = max(1, min(torch.get_num_threads(), len(shared[0]), max(a.size for a in shared) // PARALLEL))
    parts = [
        [a[low:high] if rows else a for a, rows in zip(arrays, split, strict=True)]
        for low, high in itertools.pairwise(len(shared[0]) * k // n for k in range(n + 1))
    ]
    others = [threading.Thread(target=loop, args=part) for part in parts[1:]]
    for thread in others:
        thread.start()
    loop(*parts[0])
    for thread in others:
        thread.join()


def _rows(tensor: Tensor, dims: int) -> np.ndarray:
    """All batch dimensions as one, in memory without gaps: a view where ``tensor`` is so already."""
    rows = tensor.contiguous().numpy(force=True)
    return rows.reshape(math.prod(rows.shape[:-dims]), *rows.shape[-dims:])


# --- Operations of PyTorch ----------------------------------------------------------------------------------


def observer(*tensors: Tensor) -> str | None:
    """Report whether a transform of PyTorch is watching, so that we must call registered operations, or None.

    "derivative": forward mode or ``torch.func``, for which operations have no rule; "tracer": anything else,
    such as ``torch.compile``, ``vmap``, meta tensors. All private names of PyTorch are used here.
    """
    if torch.compiler.is_compiling():
        return "tracer"
    transforms = torch._C._functorch.get_interpreter_stack() or ()
    if forward_ad._current_level >= 0 or any(t.key() != TransformType.Vmap for t in transforms):
        return "derivative"
    if transforms or torch._C._get_tracing_state() is not None or torch._C._len_torch_dispatch_stack():
        return "tracer"
    if torch._C._dispatch_tls_is_dispatch_key_included("VmapMode"):
        return "tracer"
    plain = all(type(t) in (Tensor, torch.nn.Parameter) and not t.is_meta for t in tensors)
    return None if plain else "tracer"


_library = torch.library.Library("ssmbook", "FRAGMENT")


class Operation:
    """An operation of PyTorch, ``torch.ops.ssmbook.NAME``, with its rules for shapes, gradients and ``vmap``.

    Where nobody observes it, we skip PyTorch's dispatcher: its overhead equals a scan of 100,000 numbers.
    """

    def __init__(self, schema: str, function, like, keep=None, gradients=None, shared=()):
        """Register the operation that ``function`` computes.

        ``like`` gives results without their numbers; ``keep`` and ``gradients`` are ``setup_context`` and
        ``backward`` of an autograd function; arguments at the places ``shared`` have no batch dimensions.
        """
        name = schema.partition("(")[0]
        self.function, self.keep, self.gradients, self.shared = function, keep, gradients, shared
        _library.define(schema)
        _library.impl(name, function, "CompositeExplicitAutograd")
        self.registered = getattr(torch.ops.ssmbook, name).default
        torch.library.register_fake(self.registered, like, lib=_library)
        torch.library.register_vmap(self.registered, self._map, lib=_library)
        if gradients:
            torch.library.register_autograd(self.registered, gradients, setup_context=keep, lib=_library)

    def __call__(self, *given):
        tensors = [t for t in given if isinstance(t, Tensor)]
        if observer(*tensors):
            return self.registered(*given)
        recorded = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        return _Recorded.apply(self, *given) if recorded else self.function(*given)

    def _map(self, info, in_dims, *given):
        """The rule for ``vmap``: the mapped dimension is one more batch dimension.

        One call for each element where an argument is mapped that has no batch dimensions.
        """
        n, pairs = info.batch_size, list(zip(given, in_dims, strict=True))
        if any(in_dims[i] is not None for i in self.shared):
            each = ([t if dim is None else t.select(dim, k) for t, dim in pairs] for k in range(n))
            outputs = tuple(map(torch.stack, zip(*(self(*given) for given in each), strict=True)))
        else:
            outputs = self(
                *(t if i in self.shared else _map_first(t, dim, n) for i, (t, dim) in enumerate(pairs))
            )
        return outputs, (0,) * len(outputs)


def _map_first(t, dim: int | None, size: int):
    if not isinstance(t, Tensor):
        return t
    return t.expand(size, *t.shape) if dim is None else t.movedim(dim, 0)


class _Recorded(torch.autograd.Function):
    """An operation with its gradients, without the dispatcher."""

    @staticmethod
    def forward(ctx, operation, *given):
        ctx.gradients, output = operation.gradients, operation.function(*given)
        operation.keep(ctx, given, output)
        return output

    @staticmethod
    def backward(ctx, *changes):
        return None, *ctx.gradients(ctx, *changes)


def differentiated_again() -> bool:
    """Whether a backward pass is itself to be differentiated."""
    return torch.is_grad_enabled() or observer() == "derivative"


def value_before(h: Tensor, state: Tensor | None) -> Tensor:
    """The value that each step along dim -2 starts from: the initial state (zero if None), then ``h``."""
    first = torch.zeros_like(h[..., :1, :]) if state is None else state.unsqueeze(-2)
    return torch.cat((first, h[..., :-1, :]), -2)


def steps_of(t: Tensor, reverse: bool = False) -> tuple[Tensor, ...]:
    steps = t.unbind(-2)
    return steps[::-1] if reverse else steps
