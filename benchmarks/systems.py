"""Time-invariant systems by every route."""

from __future__ import annotations

import math
import statistics

import torch

from benchmarks.timing import interleaved, table
from ssmbook.scans import lti_kernel, lti_scan

N = 64


def random_system(device):
    generator = torch.Generator().manual_seed(0)
    A, B, C = (torch.randn(s, generator=generator) for s in ((N, N), (N, 1), (1, N)))
    return tuple(t.to(device) for t in (0.999 * A / torch.linalg.eigvals(A).abs().max(), B, C))


def slope(lengths, ms) -> float:
    """The exponent of a power law through the upper half of the points (least squares in logarithms)."""
    half = len(ms) // 2
    x, y = ([math.log(v) for v in values[half : len(ms)]] for values in (lengths, ms))
    return statistics.linear_regression(x, y).slope


def routes(device: str, rounds: int, quick: bool) -> tuple[dict, list[str]]:
    """Every route over T = 2^8 ... 2^16, with the exponent of its growth."""
    A, B, C = random_system(device)
    lengths = [2**k for k in range(8, 13 if quick else 17)]
    times = {name: [] for name in ("recurrence", "chunked", "kernel alone")}
    for T in lengths:
        x = torch.randn(T, 1, generator=torch.Generator().manual_seed(T)).to(device)
        timed = {m: lambda m=m, x=x: lti_scan(A, B, C, x, method=m) for m in ("recurrence", "chunked")}
        timed["kernel alone"] = lambda T=T: lti_kernel(A, B, C, T)
        for name, ms in interleaved(timed, device, rounds=min(rounds, 7), budget=3.0).items():
            times[name].append(ms)
    rows = [
        [f"{name}, ms", *ms, *[None] * (len(lengths) - len(ms)), slope(lengths, ms)]
        for name, ms in times.items()
    ]
    exponents = {name: slope(lengths, ms) for name, ms in times.items()}
    header = ["N = 64, one input, one output", *(f"T = 2^{int(math.log2(T))}" for T in lengths), "exponent"]
    return {"lengths": lengths, "ms": times, "exponents": exponents}, [table("LTI routes", header, rows)]
