"""The operators of real layers: one of attention, exact; one of a selective recurrence, certified.

Each layer is measured once, in a fresh process of one thread, so that its peak of memory is its own.
"""

from __future__ import annotations

import multiprocessing
import platform
import resource
import time

import torch

from benchmarks.timing import table
from ssmbook.lens._measure import count_heads, span_rows
from ssmbook.maps import SelectiveSSM
from ssmbook.operators import FactorizedOperator


def attention(quick: bool) -> dict:
    """12 heads of width 64 at 1,024 tokens (d = p = 768), random weights, causal softmax."""
    H, width, n = (3, 16, 128) if quick else (12, 64, 1024)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, H * width, generator=generator)
    queries, keys, values, out = (
        torch.randn(H, H * width, width, generator=generator) / (H * width) ** 0.5 for _ in range(4)
    )
    future = torch.ones(n, n, dtype=torch.bool).triu(1)

    def operator():
        scores = (x @ queries) @ (x @ keys).mT / width**0.5
        alpha = scores.masked_fill(future, -torch.inf).softmax(-1)
        return FactorizedOperator(alpha, out @ values.mT)

    clock = Clock()
    W = clock("the operator", operator, lambda W: f"H = {W.H}, n = {W.n}, p = d = {W.d}")
    clock("interaction_rank()", W.interaction_rank)
    clock("spectrum()", W.spectrum, lambda sigma: f"{float(sigma[0]):.4g} … {float(sigma[-1]):.4g}")
    clock(f"floor({H // 2})", lambda: W.floor(H // 2), lambda floor: f"{floor:.4f}")
    for eps in (0.1, 0.01):
        clock(f"epsilon_heads({eps})", lambda eps=eps: W.epsilon_heads(eps))
    clock("block_norms()", W.block_norms, lambda norms: f"{tuple(norms.shape)}, exact")
    return clock.record()


def selective(quick: bool) -> dict:
    """A selective layer of a model of 130 million parameters: 1,536 channels, N = 16, 512 tokens."""
    d, N, n = (96, 4, 64) if quick else (1536, 16, 512)
    generator = torch.Generator().manual_seed(0)
    layer = SelectiveSSM(d, N=N, generator=generator).requires_grad_(False)
    x = torch.randn(n, d, generator=generator)
    clock = Clock()
    W = clock("the operator", lambda: layer.interaction(x), lambda W: f"N = {N}, n = {W.n}, p = d = {W.d}")
    rows = clock("span_rows(W)", lambda: span_rows(W), lambda rows: f"{tuple(rows.shape)}")
    clock("heads that leave a share", lambda: count_heads(torch.linalg.svdvals(rows)))
    return clock.record()


class Clock:
    """Calls what it is given and keeps, for each name, the seconds and the answer in words."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.lines: dict[str, list] = {}

    def __call__(self, name: str, function, words=str):
        wall, used = time.perf_counter(), time.process_time()
        answer = function()
        self.lines[name] = [time.perf_counter() - wall, time.process_time() - used, words(answer)]
        return answer

    def record(self) -> dict:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        unit = 2**20 if platform.system() == "Linux" else 2**30
        return {"lines": self.lines, "peak, GB": peak / unit}


LAYERS = {
    "A layer of attention, from its factors": attention,
    "A selective layer, certified": selective,
}


def run(device: str, rounds: int, quick: bool) -> tuple[dict, list[str]]:
    """Both layers, on the CPU whatever the device; ``rounds`` does not matter."""
    results, tables = {}, []
    for title, layer in LAYERS.items():
        with multiprocessing.get_context("spawn").Pool(1) as fresh:
            results[title] = found = fresh.apply(layer, (quick,))
        rows = [[name, *line] for name, line in found["lines"].items()]
        rows.append(
            ["total", *(sum(row[k] for row in rows) for k in (1, 2)), f"{found['peak, GB']:.2f} GB at most"]
        )
        small = ", small sizes" if quick else ""
        tables.append(table(title + small, ["", "seconds", "of CPU", "answer"], rows))
    return results, tables
