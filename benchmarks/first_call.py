"""How long a process waits for its first scan: compiled for the first time, and found in the cache."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from benchmarks.timing import table

CODE = """
import time, torch
from ssmbook import scans
def x(*shape): return torch.rand(*shape).requires_grad_(GRADIENT)
calls = {
    "diagonal": lambda: scans.diagonal_scan(x(2, 9, 3), x(2, 9, 3)),
    "selective": lambda: scans.selective_scan(x(2, 9, 3), x(2, 9, 3), x(3, 2), x(2, 9, 2), x(2, 9, 2)),
    "ssd": lambda: scans.ssd_scan(x(2, 9, 1, 3), x(2, 9, 1), x(2, 9, 1, 2), x(2, 9, 1, 2)),
    "lti": lambda: scans.lti_scan(x(2, 2), x(2, 3), x(3, 2), x(2, 99, 3)),
}
for name, call in calls.items():
    if name == "NAME":
        start = time.perf_counter()
        y = call()[0]
        middle = time.perf_counter()
        if GRADIENT:
            y.sum().backward()
        print(middle - start, time.perf_counter() - middle)
"""
COLUMNS = "without gradient", "forward", "backward", "later forward", "later backward"


def _seconds(name: str, gradient: bool, cache: str) -> list[float]:
    code = CODE.replace("NAME", name).replace("GRADIENT", str(gradient))
    environment = os.environ | {"NUMBA_CACHE_DIR": cache}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return [float(word) for word in done.stdout.split()]


def run(device: str, rounds: int, quick: bool) -> tuple[dict, list[str]]:
    """Seconds of the first call by scan: with an empty cache, without a gradient and then (another empty one)
    with its backward pass; and with a full cache.
    """
    results = {}
    for name in ("diagonal",) if quick else ("diagonal", "selective", "ssd", "lti"):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            alone, _ = _seconds(name, False, one)
            seconds = [alone, *_seconds(name, True, other), *_seconds(name, True, other)]
        results[name] = dict(zip(COLUMNS, seconds, strict=True))
    rows = [[name, *seconds.values()] for name, seconds in results.items()]
    header = ["seconds of the first call", *COLUMNS]
    return results, [table("First call (wall clock; wanted: at most 3 s)", header, rows)]
