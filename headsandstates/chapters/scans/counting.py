"""A counting machine: it runs a recurrence by several algorithms and counts exactly what each of them does.

Arrays live in slow memory. An algorithm loads pieces of them into fast memory, computes there, and stores
results. Every entry carries the length of the longest chain of operations that it waited for.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from headsandstates.experiments.results import FOLDER


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


class Slow:
    """An array in slow memory: ``load(index)`` and ``store(index, fast)`` are all that touches it."""

    def __init__(self, machine: Machine, value: Tensor):
        self.machine, self.value, self.depth = machine, value, _zeros(value)

    def empty(self, *shape: int) -> Slow:
        """Room for another array, filled with NaN so that nothing unwritten is read unnoticed."""
        return Slow(self.machine, self.value.new_full(shape, torch.nan))

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


class Fast:
    """An array in fast memory with the depth of every entry; ``*``, ``+``, ``-`` and ``@`` are counted.

    Without ``depth`` it is a constant of the program, free but for the room it takes.
    """

    def __init__(self, machine: Machine, value: Tensor, depth: Tensor | None = None):
        self.machine, self.value, self.depth = machine, value, _zeros(value) if depth is None else depth
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


def _zeros(value: Tensor) -> Tensor:
    return torch.zeros(value.shape, dtype=torch.int64)


def count(algorithm: Callable, a: Tensor, b: Tensor, **options: Any) -> tuple[Tensor, Machine]:
    """Run h_t = a_t h_{t-1} + b_t (h_{-1} = 0) by an algorithm of ``ALGORITHMS`` and count.

    a: (T,) decays; b: (T, D) inputs, T >= 1, real, on the CPU. Returns h (T, D) and the ``Machine``.
    """
    machine = Machine()
    inputs = Slow(machine, b.clone())
    h = inputs.empty(*b.shape)
    algorithm(Slow(machine, a.clone()), inputs, h, **options)
    return h.value, machine


class Traffic(TorchDispatchMode):
    """Counts the numbers that PyTorch's operations write inside the ``with`` block, and their ``calls``.

    Views write nothing. With ``names``, such as "mul", only these operations are counted.
    """

    def __init__(self, *names: str):
        super().__init__()
        self.names, self.written, self.calls = names, 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__.removesuffix("_")
        if name in self.names if self.names else not func.is_view and name != "detach":
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

    ``memory_kept``: of the run in which malloc kept what was freed.
    """
    name = "cpu-1core-x86_64-memory-kept.json" if memory_kept else "cpu-1core-x86_64.json"
    found = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    return found["machine"], found["results"]


def measured_ratios(results: dict, passes: tuple[str, ...]) -> list[list]:
    """Rows of times over ours: [pass, plain loop, mamba.py, torch, indexed loop], None where one did not run.

    ``passes``: keys of the benchmark's suite "diagonal". Of mamba.py the better of two layouts counts.
    """
    rows = []
    for key in passes:
        times = results["diagonal"][key]
        ratio = {name: ms / times["ours"] for name, ms in times.items()}
        mamba = min((ratio[name] for name in ratio if name.startswith("mambapy")), default=None)
        others = ratio.get("torch associative_scan"), ratio.get("indexed loop")
        rows.append([key, ratio.get("naive twin"), mamba, *others])
    return rows
