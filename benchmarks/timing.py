"""Interleaved timing: every contestant once per round, the medians over the rounds, so that drift hits all
alike.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import platform
import re
import statistics
import time

import torch


def steady_memory() -> bool:
    """Let glibc keep freed memory for all contestants: else fresh pages cost more than most scans
    themselves.
    """
    try:
        libc = ctypes.CDLL(None)
        trim, mmap = -1, -3
        return bool(libc.mallopt(mmap, 1 << 30) and libc.mallopt(trim, (1 << 31) - 1))
    except (OSError, AttributeError):
        return False


def machine(device: str) -> dict:
    """What the numbers depend on and nothing that names the machine."""
    cores = len(__import__("os").sched_getaffinity(0)) if platform.system() == "Linux" else 0
    about = {
        "name": f"{device}-{cores}core-{platform.machine()}",
        "processor": _processor(),
        "cores": cores,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "mambapy": _version("mambapy"),
        "python": platform.python_version(),
        "system": platform.system(),
    }
    if device == "cuda":
        card = torch.cuda.get_device_name()
        about |= {"card": card, "name": re.sub(r"[^a-z0-9]+", "-", card.lower()).strip("-")}
    return about


def measured(device: str) -> str:
    """What a number in the results is."""
    clock = "CPU time of the process" if device == "cpu" else "time on the card between two events"
    return f"milliseconds, {clock}, float32; medians over interleaved rounds, after one warm call a round"


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def once(function, device: str) -> float:
    """Milliseconds of one call: this process's own CPU time, or the card's time between two events."""
    if device == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        function()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end)
    start = time.process_time_ns()
    function()
    return (time.process_time_ns() - start) / 1e6


def interleaved(contestants: dict, device: str, *, rounds: int, budget: float = 20.0) -> dict[str, float]:
    """Median milliseconds of each contestant; one that takes long gets fewer rounds, never fewer than
    three.
    """
    times = {name: [] for name in contestants}
    first = {name: once(function, device) for name, function in contestants.items()}
    for name, ms in first.items():
        if 300 <= ms < 10_000:  # it may have been compiled in that call
            first[name] = once(contestants[name], device)
    share = {name: max(3, min(rounds, int(budget * 1e3 / max(ms, 1e-3)))) for name, ms in first.items()}
    for i in range(rounds):
        for name, function in contestants.items():
            if i < share[name]:
                if first[name] < 300:
                    function()
                times[name].append(once(function, device))
    return {name: statistics.median(ms) for name, ms in times.items()}


def table(title: str, header: list[str], rows: list[list]) -> str:
    """A Markdown table with its title."""
    lines = [f"\n**{title}**\n", "| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    lines += ["| " + " | ".join(_cell(c) for c in row) + " |" for row in rows]
    return "\n".join(lines)


def _cell(value) -> str:
    if value is None:
        return "–"
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
