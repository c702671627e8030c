"""What runs a scan: compiled loops on a CPU with Numba, kernels on a card with Triton, else torch."""

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

from ssmbook.numerics import HALF

AVAILABLE = os.environ.get("SSMBOOK_NUMBA") != "0" and importlib.util.find_spec("numba") is not None
WIDE = {torch.complex64: torch.complex128} | dict.fromkeys((torch.float32, *HALF), torch.float64)
BLOCK = 32  # steps between the states that a selective scan keeps for its backward pass
LARGE = 1 << 22  # bytes from which NumPy asks for large pages
PARALLEL = 1 << 17  # numbers that a second thread is worth starting for


def _module(name: str, needs: str):
    """A module of this folder, or None where what it needs refuses.

    A Numba may not take the NumPy beside it; a warning tells it.
    """
    try:
        return importlib.import_module(name, __package__)
    except ImportError as error:
        warnings.warn(f"{needs} cannot be used, so scans take the block form in torch: {error}", stacklevel=3)
        return None


@functools.cache
def _loops():
    return _module("._loops", "Numba") if AVAILABLE else None


@functools.cache
def _kernels():
    return _module("._triton", "Triton") if importlib.util.find_spec("triton") else None


def loops_for(tensor: Tensor):
    """The compiled loops, or None: on another device, without Numba, or with ``SSMBOOK_NUMBA=0``.

    The latter stands in the environment. Inside ``torch.compile``: only whether there are any.
    """
    if tensor.device.type != "cpu":
        return None
    return AVAILABLE if torch.compiler.is_compiling() else _loops()


def kernels_for(tensor: Tensor):
    """The Triton kernels, or None: elsewhere than on a card, for complex numbers, without Triton."""
    if not tensor.is_cuda or tensor.is_complex() or not tensor.numel():
        return None
    return _kernels()


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype that states are carried in: double precision, real or complex."""
    return WIDE.get(dtype, dtype)


def carried(state: Tensor | None, like: Tensor) -> Tensor:
    """A fresh copy of a state in the wide dtype, for a loop to write into; zeros if there is none."""
    carry = torch.zeros(like.shape, dtype=wide(like.dtype), device=like.device)
    return carry if state is None else carry.copy_(state)


def array(tensor: Tensor) -> np.ndarray:
    """The numbers of a tensor in double precision, without gaps: a view where they are so already."""
    return tensor.to(wide(tensor.dtype)).contiguous().numpy(force=True)


def roomy(fresh: Tensor) -> Tensor:
    """An empty tensor, as ``fresh`` is; a large one in memory that NumPy gives, which asks for large pages.

    To get a page from the system may take longer than a scan of the numbers on it.
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
