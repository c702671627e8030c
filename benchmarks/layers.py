"""Selective scan and SSD, forward and forward + backward, against their textbook forms."""

from __future__ import annotations

import torch

from benchmarks.diagonal import PARTS
from benchmarks.timing import interleaved, table
from ssmbook.scans import selective_scan, selective_scan_naive, ssd_scan, ssd_scan_naive

SELECTIVE = {"cpu": ((1, 2048, 64, 16), (4, 1024, 256, 16)), "cuda": ((1, 2048, 64, 16), (4, 2048, 1536, 16))}
SSD = ((1, 2048, 8, 64, 64), (2, 4096, 4, 32, 16))


def compare(title, found, cases, device, rounds, budget) -> tuple[dict, list[str]]:
    """Times in ms and a table of times over ours, for named cases of arguments."""
    results, rows = {}, {name: [] for name in found}
    for label, arguments in cases.items():
        wanted = found["ours"](*arguments)
        for name, function in found.items():
            if name.endswith("zoh"):
                continue
            assert (function(*arguments) - wanted).abs().max() <= 1e-3 * wanted.abs().max(), name
        for part, prepared in PARTS.items():
            timed = {name: prepared(function, *arguments) for name, function in found.items()}
            results[f"{label}, {part}"] = ms = interleaved(timed, device, rounds=rounds, budget=budget)
            for name in found:
                rows[name] += [ms[name], ms[name] / ms["ours"]]
    header = [""] + [
        f"{label} {part}" for label in cases for part in ("fwd, ms", "/ ours", "fwd+bwd, ms", "/ ours")
    ]
    return results, [table(title, header, [[name, *row] for name, row in rows.items()])]


def selective(device: str, rounds: int, quick: bool) -> tuple[dict, list[str]]:
    """With either discretization: the exact one should cost at most twice the mixed one."""
    cases = {}
    found = {
        "ours": lambda *args: selective_scan(*args, discretization="mixed")[0],
        "ours, zoh": lambda *args: selective_scan(*args)[0],
        "naive twin": lambda *args: selective_scan_naive(*args, discretization="mixed")[0],
    }
    for B, T, d, N in SELECTIVE[device][:1] if quick else SELECTIVE[device]:
        generator = torch.Generator().manual_seed(0)
        x, b, c = (torch.randn(B, T, m, generator=generator).to(device) for m in (d, N, N))
        delta = 0.1 * torch.rand(B, T, d, generator=generator).to(device)
        A = -torch.arange(1.0, N + 1).repeat(d, 1).to(device)
        cases[f"({B}, {T}, {d}, N={N})"] = x, delta, A, b, c
    return compare("Selective scan", found, cases, device, min(rounds, 7), 1.0 if quick else 3.0)


def ssd(device: str, rounds: int, quick: bool) -> tuple[dict, list[str]]:
    found = {"ours": lambda *args: ssd_scan(*args)[0], "naive twin": lambda *args: ssd_scan_naive(*args)[0]}
    cases = {}
    for B, T, H, P, N in SSD[1:] if quick else SSD:
        generator = torch.Generator().manual_seed(0)
        x, b, c = (torch.randn(B, T, H, m, generator=generator).to(device) for m in (P, N, N))
        log_a = -0.1 * torch.rand(B, T, H, generator=generator).to(device)
        cases[f"({B}, {T}, H={H}, P={P}, N={N})"] = x, log_a, b, c
    return compare("SSD", found, cases, device, min(rounds, 7), 1.0 if quick else 3.0)
