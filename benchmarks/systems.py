"""Time-invariant systems by every route, and the matrix a selective system is."""

from __future__ import annotations

import math
import statistics

import torch

from benchmarks.timing import interleaved, table
from ssmbook.maps import SelectiveSSM
from ssmbook.scans import lti_kernel, lti_scan, lti_scan_naive, selective_scan

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


def materialized(A, B, C, x):
    """The (T, T) matrix of a scalar system, times the input."""
    T = x.shape[0]
    lag = torch.arange(T, device=x.device)[:, None] - torch.arange(T, device=x.device)
    return torch.where(lag >= 0, lti_kernel(A, B, C, T)[:, 0, 0][lag.clamp(min=0)], 0) @ x


def routes(device: str, rounds: int, quick: bool) -> tuple[dict, list[str]]:
    """Every route over T = 2^8 ... 2^16 (materialized matrix to 2^12), with the exponent of its growth."""
    A, B, C = random_system(device)
    lengths = [2**k for k in range(8, 13 if quick else 17)]
    times = {name: [] for name in ("recurrence", "chunked", "kernel alone", "materialized")}
    for T in lengths:
        x = torch.randn(T, 1, generator=torch.Generator().manual_seed(T)).to(device)
        timed = {m: lambda m=m, x=x: lti_scan(A, B, C, x, method=m) for m in ("recurrence", "chunked")}
        timed["kernel alone"] = lambda T=T: lti_kernel(A, B, C, T)
        if T <= 4096:
            timed["materialized"] = lambda x=x: materialized(A, B, C, x)
        for name, ms in interleaved(timed, device, rounds=min(rounds, 7), budget=3.0).items():
            times[name].append(ms)
    rows = [
        [f"{name}, ms", *ms, *[None] * (len(lengths) - len(ms)), slope(lengths, ms)]
        for name, ms in times.items()
    ]
    exponents = {name: slope(lengths, ms) for name, ms in times.items()}
    header = ["N = 64, one input, one output", *(f"T = 2^{int(math.log2(T))}" for T in lengths), "exponent"]
    return {"lengths": lengths, "ms": times, "exponents": exponents}, [table("LTI routes", header, rows)]


def small(device: str, rounds: int, quick: bool) -> tuple[dict, list[str]]:
    """Systems of few states by every route and by the plain loop, float32 and float64."""
    results, rows = {}, []
    for states, T in ((4, 4096),) if quick else ((4, 4096), (16, 4096), (16, 65536), (64, 4096), (64, 65536)):
        for dtype in (torch.float32, torch.float64):
            generator = torch.Generator().manual_seed(0)
            A, B, C, x = (
                torch.randn(shape, generator=generator, dtype=torch.float64)
                for shape in ((states, states), (states, 1), (1, states), (T, 1))
            )
            A = 0.999 * torch.linalg.qr(A)[0]
            given = [t.to(device, dtype) for t in (A, B, C, x)]
            routes = ("auto", "recurrence", "chunked")
            timed = {m: lambda m=m, given=given: lti_scan(*given, method=m) for m in routes}
            if T <= 4096:
                timed["plain loop"] = lambda given=given: lti_scan_naive(*given)
            ms = interleaved(timed, device, rounds=min(rounds, 7), budget=3.0)
            label = f"N = {states}, T = {T}, {str(dtype).removeprefix('torch.')}"
            results[label] = ms
            rows.append([label, *(ms.get(name) for name in (*routes, "plain loop"))])
    header = ["ms", "auto", "recurrence", "chunked", "plain loop"]
    return results, [table("LTI systems, one input, one output", header, rows)]


def triple_loop(x, delta, A, B, C):
    """W_ij of a selective system, entry by entry, as the public materializers do it."""
    T, d = x.shape
    W = torch.zeros(T, T, d, device=x.device)
    for channel in range(d):
        for i in range(T):
            for j in range(i + 1):
                decay = torch.exp(A[channel] * delta[j + 1 : i + 1, channel].sum())
                W[i, j, channel] = (C[i] * decay * B[j]).sum() * delta[j, channel]
    return W


def closed_form(x, delta, A, B, C):
    """All of W at once from the sums of the step sizes."""
    sums = delta.cumsum(0)
    decay = torch.exp(A * (sums[:, None] - sums[None])[..., None].clamp(min=0))
    W = torch.einsum("in,ijdn,jn,jd->ijd", C, decay, B, delta)
    return W * torch.ones(len(x), len(x), device=x.device).tril()[..., None]


def matrices(device: str, rounds: int, quick: bool) -> tuple[dict, list[str]]:
    """W_ij of a selective system at L = 64: closed form, triple loop, and jacrev of the frozen recurrence."""
    T, d, states = (16, 4, 16) if quick else (64, 4, 16)
    generator = torch.Generator().manual_seed(0)
    x, B, C = (torch.randn(T, m, generator=generator).to(device) for m in (d, states, states))
    delta = torch.rand(T, d, generator=generator).to(device)
    A = -torch.rand(d, states, generator=generator).to(device)
    layer = SelectiveSSM(d, N=states, discretization="euler").to(device).requires_grad_(False)
    jacrev = torch.func.jacrev(lambda x: selective_scan(x, delta, A, B, C)[0])
    want = triple_loop(x, delta, A, B, C)
    assert torch.allclose(closed_form(x, delta, A, B, C), want, atol=1e-4)
    assert torch.allclose(jacrev(x).diagonal(dim1=1, dim2=3), want, atol=1e-4)
    timed = {
        "triple loop": lambda: triple_loop(x, delta, A, B, C),
        "jacrev of the frozen recurrence": lambda: jacrev(x),
        "closed form, the library's map with its parameters": lambda: layer.interaction(x).to_dense(),
        "closed form alone": lambda: closed_form(x, delta, A, B, C),
    }
    ms = interleaved(timed, device, rounds=min(rounds, 5), budget=6.0)
    rows = [[name, value, ms["triple loop"] / value] for name, value in ms.items()]
    title = f"W_ij of a selective system, L = {T}, d = {d}, N = {states}"
    return ms | {"L": T}, [table(title, ["", "ms", "triple loop / this"], rows)]
