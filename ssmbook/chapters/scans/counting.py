"""A counting machine: it runs a recurrence by several algorithms and counts exactly what each of them does.

Arrays live in slow memory. An algorithm loads pieces of them into fast memory, computes there, and stores
results. Every entry carries the length of the longest chain of operations that it waited for.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Machine:
    """Counters of one run: ``multiplications``, ``additions``, ``loaded``, ``stored``, ``peak``, ``depth``.

    ``loaded`` and ``stored`` are words moved from and to slow memory, ``peak`` the most words of fast memory
    in use at once, ``depth`` the longest chain of dependent additions and multiplications behind anything
    stored. A complex number is two words and its product four multiplications and two additions.
    """

    def __init__(self):
        self.multiplications = self.additions = self.loaded = self.stored = self.peak = self.depth = 0
        self._live = 0

    @property
    def words(self) -> int:
        """Words moved between slow and fast memory, either way."""
        return self.loaded + self.stored

    def slow(self, value: Tensor) -> Slow:
        """Put an input into slow memory, free of charge."""
        return Slow(self, value.clone(), torch.zeros(value.shape, dtype=torch.int64))

    def empty(self, *shape: int, like: Slow) -> Slow:
        """Room in slow memory, filled with NaN so that nothing unwritten is read unnoticed."""
        return self.slow(torch.full(shape, torch.nan, dtype=like.value.dtype))

    def constant(self, value: Tensor) -> Fast:
        """A constant of the program in fast memory, free but for the room it takes."""
        return Fast(self, value, torch.zeros(value.shape, dtype=torch.int64))


class Slow:
    """An array in slow memory: ``load(index)`` and ``store(index, fast)`` are all that touches it."""

    def __init__(self, machine: Machine, value: Tensor, depth: Tensor):
        self.machine, self.value, self.depth = machine, value, depth

    def load(self, index: Any) -> Fast:
        """Bring a piece into fast memory."""
        value = self.value[index]
        self.machine.loaded += _words(value)
        return Fast(self.machine, value.clone(), self.depth[index].clone())

    def store(self, index: Any, fast: Fast) -> None:
        """Write a piece back."""
        self.value[index], self.depth[index] = fast.value, fast.depth
        self.machine.stored += _words(fast.value)
        self.machine.depth = max(self.machine.depth, int(fast.depth.max()))

    def blocks(self, n: int, L: int) -> Slow:
        """The first n L rows as n blocks of L: the same memory, seen differently."""
        return Slow(self.machine, *(t[: n * L].unflatten(0, (n, L)) for t in (self.value, self.depth)))


class Fast:
    """An array in fast memory with the depth of every entry; ``*``, ``+``, ``-`` and ``@`` are counted."""

    def __init__(self, machine: Machine, value: Tensor, depth: Tensor):
        self.machine, self.value, self.depth = machine, value, depth
        self._size = _words(value)
        machine._live += self._size
        machine.peak = max(machine.peak, machine._live)

    def __del__(self):
        self.machine._live -= self._size

    def _entrywise(self, other: Fast, value: Tensor, multiply: bool) -> Fast:
        count, cost = value.numel(), (4, 2) if value.is_complex() else (1, 0)
        self.machine.multiplications += count * cost[0] * multiply
        self.machine.additions += count * (cost[1] if multiply else 1 + value.is_complex())
        steps = 1 + (multiply and value.is_complex())
        return Fast(self.machine, value, torch.maximum(self.depth, other.depth) + steps)

    def __mul__(self, other: Fast) -> Fast:
        return self._entrywise(other, self.value * other.value, True)

    def __add__(self, other: Fast) -> Fast:
        return self._entrywise(other, self.value + other.value, False)

    def __sub__(self, other: Fast) -> Fast:
        return self._entrywise(other, self.value - other.value, False)

    def __matmul__(self, other: Fast) -> Fast:
        (m, k), n = self.value.shape, other.value.shape[1]
        self.machine.multiplications += m * k * n
        self.machine.additions += m * (k - 1) * n
        waited = torch.maximum(self.depth.amax(1)[:, None], other.depth.amax(0)[None])
        return Fast(self.machine, self.value @ other.value, waited + 1 + (k - 1).bit_length())

    def __getitem__(self, index) -> Fast:
        return Fast(self.machine, self.value[index], self.depth[index])

    def real(self) -> Fast:
        """The real part."""
        return Fast(self.machine, self.value.real, self.depth)


def join(pieces: list[Fast], dim: int = 0) -> Fast:
    """Fast arrays one after the other."""
    values, depths = [f.value for f in pieces], [f.depth for f in pieces]
    return Fast(pieces[0].machine, torch.cat(values, dim), torch.cat(depths, dim))


def _words(value: Tensor) -> int:
    return value.numel() * (2 if value.is_complex() else 1)


def count(algorithm: Callable, a: Tensor, b: Tensor, **options: Any) -> tuple[Tensor, Machine]:
    """Run h_t = a_t h_{t-1} + b_t (h_{-1} = 0) by an algorithm of ``ALGORITHMS`` and count.

    a: (T,) decays; b: (T, D) inputs, T >= 1, one real dtype, on the CPU. Returns h (T, D) and the
    ``Machine``.
    """
    machine = Machine()
    slow_a, slow_b = machine.slow(a), machine.slow(b)
    h = machine.empty(*b.shape, like=slow_b)
    algorithm(slow_a, slow_b, h, **options)
    return h.value, machine


class Traffic(TorchDispatchMode):
    """Counts the numbers that PyTorch's operations write inside the ``with`` block; views write nothing.

    ``written`` is that count, ``calls`` the number of operations that wrote something.
    """

    def __init__(self):
        super().__init__()
        self.written = self.calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if not func.is_view and func is not torch.ops.aten.detach.default:
            tensors = [t for t in (out if isinstance(out, (tuple, list)) else (out,)) if torch.is_tensor(t)]
            self.written += sum(t.numel() for t in tensors)
            self.calls += bool(tensors)
        return out


def written_backward(function: Callable, *inputs: Tensor) -> int:
    """Numbers that PyTorch writes in the backward pass of the sum of ``function(*inputs)``."""
    leaves = [t.detach().clone().requires_grad_() for t in inputs]
    loss = function(*leaves).sum()
    with Traffic() as traffic:
        torch.autograd.grad(loss, leaves)
    return traffic.written


def kept_for_backward(function: Callable, *inputs: Tensor) -> int:
    """Numbers that ``function(*inputs)`` keeps for its backward pass, counted as often as they are kept."""
    kept = []
    leaves = [t.detach().clone().requires_grad_() for t in inputs]
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t)
    with hooks:
        function(*leaves)
    return sum(kept)


def measured(memory_kept: bool = False) -> tuple[dict, dict]:
    """The benchmark of ``ssmbook.scans`` that came with the book: the machine it ran on, and its times in ms.

    ``memory_kept``: of the run in which malloc kept what was freed. Returns two dicts as the benchmark writes
    them.
    """
    name = "cpu-1core-x86_64-memory-kept.json" if memory_kept else "cpu-1core-x86_64.json"
    path = resources.files("ssmbook.experiments") / "measured" / name
    found = json.loads(path.read_text(encoding="utf-8"))
    return found["machine"], found["results"]


_CONTESTANTS = (
    ("naive twin",),
    ("mambapy (B,T,D,1)", "mambapy (B,T,1,D)"),
    ("torch associative_scan",),
    ("indexed loop",),
)


def measured_ratios(results: dict, passes: tuple[str, ...]) -> list[list]:
    """Rows of times over ours, float32, of the benchmark's suite "diagonal".

    A row is [pass, plain loop, mamba.py, torch, indexed loop]. ``passes``: keys of the suite; None where a
    contestant did not run. Of mamba.py the better of two layouts. Raises ``KeyError`` for an unknown pass.
    """
    rows = []
    for key in passes:
        times = results["diagonal"][key]
        best = [min((times[name] for name in names if name in times), default=None) for names in _CONTESTANTS]
        rows.append([key, *(None if ms is None else ms / times["ours"] for ms in best)])
    return rows
