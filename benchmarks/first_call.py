"""How long a process waits for its first scan: compiled for the first time, and found in the cache."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from .timing import table

CODE = """
import time, torch
from ssmbook import scans
def x(*shape): return torch.rand(*shape).requires_grad_()
calls = {
    "diagonal": lambda: scans.diagonal_scan(x(2, 9, 3), x(2, 9, 3)),
    "selective": lambda: scans.selective_scan(x(2, 9, 3), x(2, 9, 3), x(3, 2), x(2, 9, 2), x(2, 9, 2)),
    "ssd": lambda: scans.ssd_scan(x(2, 9, 1, 3), x(2, 9, 1), x(2, 9, 1, 2), x(2, 9, 1, 2)),
    "lti": lambda: scans.lti_scan(x(2, 2), x(2, 3), x(3, 2), x(2, 9, 3)),
}
for name, call in calls.items():
    if name == "NAME":
        start = time.perf_counter()
        y = call()[0]
        middle = time.perf_counter()
        y.sum().backward()
        print(middle - start, time.perf_counter() - middle)
"""


def run(device: str, rounds: int, quick: bool) -> tuple[dict, list[str]]:
    """Seconds of the first forward and first backward pass, by scan, with an empty and with a full cache."""
    results, rows = {}, []
    for name in ("diagonal",) if quick else ("diagonal", "selective", "ssd", "lti"):
        with tempfile.TemporaryDirectory() as cache:
            seconds = []
            for _ in range(2):
                environment = os.environ | {"NUMBA_CACHE_DIR": cache}
                command = [sys.executable, "-c", CODE.replace("NAME", name)]
                done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
                seconds += map(float, done.stdout.split())
        results[name] = dict(
            zip(("forward", "backward", "later forward", "later backward"), seconds, strict=True)
        )
        rows.append([name, *seconds])
    header = ["seconds of the first call", "forward", "backward", "later process: forward", "backward"]
    return results, [table("First call (wall clock; wanted: at most 3 s)", header, rows)]
