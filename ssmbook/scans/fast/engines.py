"""Which engine computes a recurrence, and in what form it receives the numbers.

An engine is a module of this folder that computes the same recurrences: `loops` on a CPU,
`kernels` on a GPU. Either may be missing; then a recurrence is computed by PyTorch.
"""

import functools
import importlib.util
import itertools
import math
import os
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from ssmbook.scans._shared import wide

NUMBA = os.environ.get("SSMBOOK_NUMBA") != "0" and importlib.util.find_spec("numba") is not None
TRITON = importlib.util.find_spec("triton") is not None
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # kernels run on a CPU, by Triton's interpreter
BLOCK = 32  # steps between the states that a selective scan keeps for its backward pass
LARGE = 1 << 22  # bytes from which NumPy asks for large pages
PARALLEL = 1 << 17  # numbers that a second thread is worth starting for

# --- Which engine -------------------------------------------------------------------------------------


def loops_for(tensor: Tensor):
    """The compiled loops, or None: on another device, without Numba, or with ``SSMBOOK_NUMBA=0``.

    Inside ``torch.compile``: only whether there are any.
    """
    if not NUMBA or tensor.device.type != "cpu":
        return None
    return NUMBA if torch.compiler.is_compiling() else _module("loops")


def kernels_for(tensor: Tensor):
    """The Triton kernels, or None: not on a GPU, for complex numbers, without Triton."""
    wanted = TRITON and (tensor.is_cuda or INTERPRETED)
    usable = wanted and not tensor.is_complex() and tensor.numel()
    return _module("kernels") if usable else None


@functools.cache
def _module(name: str):
    """A module of this folder, or None, with a warning, where what it needs cannot be imported."""
    try:
        return importlib.import_module(f"ssmbook.scans.fast.{name}")
    except ImportError as error:
        warnings.warn(f"no {name}, so scans are computed by PyTorch: {error}", stacklevel=3)
        return None


# --- What a loop is given: states in double precision, and arrays whose rows are independent -----------


def wide_copy(state: Tensor | None, like: Tensor) -> Tensor:
    """A fresh copy of a state in the wide dtype, for a loop to write into; zeros if there is none."""
    carry = torch.zeros(like.shape, dtype=wide(like.dtype), device=like.device)
    return carry if state is None else carry.copy_(state)


def on_large_pages(fresh: Tensor) -> Tensor:
    """An empty tensor as ``fresh`` is; a large one from NumPy, which asks the system for large pages.

    Page faults can cost more than the scan.
    """
    return torch.from_numpy(np.empty_like(fresh.numpy())) if fresh.nbytes >= LARGE else fresh


def run(loop, *arguments) -> None:
    """Call a compiled loop; a pair (tensor, number of trailing dimensions) becomes an array of rows.

    The rows are shared among as many threads as PyTorch may use, where there is work for
    them.
    """
    arrays = [_rows(*a) if isinstance(a, tuple) else a for a in arguments]
    has_rows = [isinstance(a, tuple) for a in arguments]
    split = [a for a, rows in zip(arrays, has_rows, strict=True) if rows]
    count = len(split[0])
    n = min(torch.get_num_threads(), count, max(a.size for a in split) // PARALLEL)
    if n <= 1:
        return loop(*arrays)
    parts = [
        [a[low:high] if rows else a for a, rows in zip(arrays, has_rows, strict=True)]
        for low, high in itertools.pairwise(count * k // n for k in range(n + 1))
    ]
    with ThreadPoolExecutor(n) as threads:
        list(threads.map(lambda part: loop(*part), parts))


def _rows(tensor: Tensor, dims: int) -> np.ndarray:
    """All batch dimensions as one, in memory without gaps: a view where ``tensor`` is so already."""
    array = tensor.contiguous().numpy(force=True)
    return array.reshape(math.prod(array.shape[:-dims]), *array.shape[-dims:])
