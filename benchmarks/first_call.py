"""How long a process waits for its first scan: compiled for the first time, and found in the cache."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from benchmarks.timing import table

START = (
    "import time, torch; from ssmbook import scans; x = lambda *shape: torch.rand(*shape).requires_grad_()"
)
CALLS = {
    "diagonal": "scans.diagonal_scan(x(2, 9, 3), x(2, 9, 3))",
    "selective": "scans.selective_scan(x(2, 9, 3), x(2, 9, 3), x(3, 2), x(2, 9, 2), x(2, 9, 2),"
    " discretization='mixed')",
    "ssd": "scans.ssd_scan(x(2, 9, 1, 3), x(2, 9, 1), x(2, 9, 1, 2), x(2, 9, 1, 2))",
    "lti": "scans.lti_scan(x(2, 2), x(2, 3), x(3, 2), x(2, 99, 3))",
}
CLOCK = "t = time.perf_counter(); y = {}[0]; m = time.perf_counter(); y.sum().backward()"
SAY = "print(m - t, time.perf_counter() - m)"


def run(device: str, rounds: int, quick: bool) -> tuple[dict, list[str]]:
    """Seconds of the first call by scan, forward and backward: with an empty cache, then with a full one."""
    results, columns = {}, ("forward", "backward", "later forward", "later backward")
    for name, call in list(CALLS.items())[: 1 if quick else None]:
        seconds, code = [], "\n".join((START, CLOCK.format(call), SAY))
        with tempfile.TemporaryDirectory() as cache:
            for _ in range(2):
                done = subprocess.run(
                    [sys.executable, "-c", code], env=os.environ | {"NUMBA_CACHE_DIR": cache},
                    capture_output=True, text=True, check=True,
                )  # fmt: skip
                seconds += map(float, done.stdout.split())
        results[name] = dict(zip(columns, seconds, strict=True))
    rows = [[name, *found.values()] for name, found in results.items()]
    header = ["seconds of the first call", *columns]
    return results, [table("First call (wall clock; wanted: at most 3 s)", header, rows)]
