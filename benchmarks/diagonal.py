"""The diagonal scan against its own memory traffic and its peers, forward and forward + backward."""

from __future__ import annotations

import math

import torch

from benchmarks.timing import interleaved, table
from ssmbook.scans import diagonal_scan, diagonal_scan_naive

SHAPES = {"cpu": ((1, 4096, 64), (8, 1024, 256), (1, 65536, 16), (4, 2048, 1024))}
SHAPES["cuda"] = *SHAPES["cpu"][:3], (8, 4096, 1024)
DECAYS = "uniform", "near one"
# How many floors a pass takes at least: backward, eight streams of memory against the three of one product.
FLOORS = {"forward": 1, "forward+backward": 8 / 3}


def indexed_loop(a, b):
    """The loop of the reference codes: a[:, t] makes its backward pass O(T^2)."""
    h, out = torch.zeros_like(b[:, 0]), []
    for t in range(b.shape[1]):
        h = a[:, t] * h + b[:, t]
        out.append(h)
    return torch.stack(out, 1)


def contestants(quick: bool) -> dict:
    """Functions of (a, b), both (B, T, D), by name; those whose package is missing are left out."""
    found = {
        "ours": lambda a, b: diagonal_scan(a, b)[0],
        "ours, log": lambda a, b: diagonal_scan(a, b, log=True)[0],
        "naive twin": lambda a, b: diagonal_scan_naive(a, b)[0],
    }
    try:
        from mambapy.pscan import pscan

        found["mambapy (B,T,D,1)"] = lambda a, b: pscan(a.unsqueeze(-1), b.unsqueeze(-1)).squeeze(-1)
        found["mambapy (B,T,1,D)"] = lambda a, b: pscan(a.unsqueeze(-2), b.unsqueeze(-2)).squeeze(-2)
    except ImportError:
        pass
    try:
        from torch._higher_order_ops.associative_scan import associative_scan

        def combine(x, y):
            return x[0] * y[0], x[1] * y[0] + y[1]

        found["torch associative_scan"] = lambda a, b: associative_scan(
            combine, (a, b), dim=1, combine_mode="generic"
        )[1]
    except ImportError:
        pass
    if not quick:
        found["indexed loop"] = indexed_loop
    return found


def inputs(shape, device, decay: str):
    generator = torch.Generator().manual_seed(0)
    u = torch.rand(shape, generator=generator)
    a = {"uniform": u, "near one": 1 - 1e-2 * u}[decay].clamp(min=1e-6)
    return a.to(device), torch.randn(shape, generator=generator).to(device)


def forward(function, *arguments):
    return lambda: function(*arguments)


def forward_backward(function, *arguments):
    arguments = [t.detach().clone().requires_grad_() for t in arguments]

    weight = torch.ones_like(function(*arguments))
    return lambda: torch.autograd.grad(function(*arguments), arguments, weight)


PARTS = {"forward": forward, "forward+backward": forward_backward}


def label(shape, decay: str, part: str) -> str:
    """The name of one measurement among the results."""
    return f"{'x'.join(map(str, shape))}, {decay}, {part}"


def check(found: dict, a, b) -> None:
    """No contestant is timed that does not compute the recurrence."""
    wanted = found["naive twin"](a, b)
    for name, function in found.items():
        got = function(a.log() if name.endswith("log") else a, b)
        assert (got - wanted).abs().max() <= 1e-3 * wanted.abs().max(), name


def run(device: str, rounds: int, quick: bool) -> tuple[dict, list[str]]:
    """Times in ms by shape, decay, pass and contestant, and the tables of times over the floor."""
    found, results, tables = contestants(quick), {}, []
    for decay in DECAYS:
        for part in PARTS:
            rows = {name: [] for name in ("floor, us", *found)}
            for shape in SHAPES[device]:
                ms = _one(found, shape, device, decay, part, rounds, quick)
                floor = ms["floor"] * FLOORS[part]
                results[label(shape, decay, part)] = ms | {"elements": math.prod(shape)}
                rows["floor, us"].append(floor * 1e3)
                for name in found:
                    rows[name].append(ms[name] / floor if name in ms else None)
            title = f"Diagonal scan, {decay}, {part.replace('+', ' + ')}: time / floor"
            header = ["", *(str(s) for s in SHAPES[device])]
            tables.append(table(title, header, [[name, *row] for name, row in rows.items()]))
    return results, tables


def _one(found, shape, device, decay, part, rounds, quick) -> dict[str, float]:
    a, b = inputs(shape, device, decay)
    check(found, a, b)
    h, log_a = torch.empty_like(b), a.log()
    timed = {"floor": lambda: torch.mul(a, b, out=h), "floor, fresh output": lambda: torch.mul(a, b)}
    for name, function in found.items():
        # The indexed loop's backward pass takes minutes and proves nothing more at every shape.
        if part != "forward" and name == "indexed loop" and shape[1] > 1024:
            continue
        timed[name] = PARTS[part](function, log_a if name.endswith("log") else a, b)
    return interleaved(timed, device, rounds=rounds, budget=1.0 if quick else 3.0)
