"""The Triton kernels, run by Triton's interpreter on a CPU: ``TRITON_INTERPRET=1 python interpreted.py``.

Every scan that stands on the diagonal one is held to its naive twin in double, with all gradients.
"""

import functools

import torch

from ssmbook import scans
from ssmbook.scans import _engine, _ops, _triton

draw = torch.Generator().manual_seed(0)
new = {"generator": draw, "dtype": torch.float64}


def compare(scan, twin, arguments, dtype) -> None:
    """Outputs, final state and the gradients of every argument."""
    found = []
    for function, kind in ((scan, dtype), (twin, torch.float64)):
        leaves = [t.detach().to(dtype).to(kind).requires_grad_() for t in arguments]
        outputs = function(*leaves)
        weights = [torch.linspace(-1, 1, out.numel(), dtype=kind).view_as(out) for out in outputs]
        found.append([*outputs, *torch.autograd.grad(outputs, leaves, weights)])
    for got, wanted in zip(*found, strict=True):
        assert got.dtype == dtype and got.shape == wanted.shape
        room = (1e-6 if dtype == torch.float32 else 1e-13) * wanted.abs().max().clamp(min=1)
        assert (got.double() - wanted).abs().max() <= room, (got.double() - wanted).abs().max() / room


def decays(kind, T, D):
    u = torch.rand(2, T, D, **new)
    kinds = {"uniform": u, "signed": 2 * u - 1, "near one": 1 - 1e-4 * u, "zeros": u.round()}
    kinds["in turn"] = torch.where(torch.arange(T)[:, None] % 2 == 0, 1e3, 1e-3) * (0.5 + 0.5 * u)
    kinds["growing"] = 1 + 0.02 * u
    return kinds[kind]


def backwards_twin(a, b, state):
    h, end = scans.diagonal_scan_naive(a.flip(-2), b.flip(-2), state)
    return h.flip(-2), end


def diagonal(T, D, dtype) -> None:
    for kind in ("uniform", "signed", "near one", "zeros", "in turn", "growing"):
        a, b, state = decays(kind, T, D), torch.randn(2, T, D, **new), torch.randn(2, D, **new)
        compare(scans.diagonal_scan, scans.diagonal_scan_naive, (a, b, state), dtype)
    compare(functools.partial(scans.diagonal_scan, reverse=True), backwards_twin, (a, b, state), dtype)
    compare(scans.diagonal_scan, scans.diagonal_scan_naive, (a, b), dtype)
    log = functools.partial(scans.diagonal_scan, log=True)
    naive = functools.partial(scans.diagonal_scan_naive, log=True)
    compare(log, naive, (-torch.rand(2, T, D, **new), b, state), dtype)


def others(dtype) -> None:
    T, x = 20, torch.randn(2, 20, 3, **new)
    delta, A, keys = x.abs(), -torch.rand(3, 4, **new), torch.randn(2, T, 4, **new)
    arguments = x, delta, A, keys, keys.flip(1), x[0, 0], torch.randn(2, 3, 4, **new)
    compare(scans.selective_scan, scans.selective_scan_naive, arguments, dtype)
    compare(scans.selective_scan, scans.selective_scan_naive, arguments[:5], dtype)
    long = [torch.cat([t] * 2, 1) if t.dim() == 3 and t.shape[1] == T else t for t in arguments[:5]]
    compare(scans.selective_scan, scans.selective_scan_naive, long, dtype)  # more than a block of steps
    heads, keys = torch.randn(2, T, 2, 3, **new), torch.randn(2, T, 2, 4, **new)
    arguments = heads, -torch.rand(2, T, 2, **new), keys, keys.flip(1)
    compare(scans.ssd_scan, scans.ssd_scan_naive, arguments, dtype)


def what_is_not_finite_stays_where_it_is(dtype) -> None:
    a, b = torch.full((1, 60, 3), 0.5, dtype=dtype), torch.zeros(1, 60, 3, dtype=dtype)
    b[0, 40, 1], b[0, 50, 2], a[0, 55] = torch.nan, torch.inf, 0.9
    for reverse in (False, True):
        h, _ = scans.diagonal_scan(a, b, reverse=reverse)
        wanted = backwards_twin(a, b, None)[0] if reverse else scans.diagonal_scan_naive(a, b)[0]
        torch.testing.assert_close(h, wanted, equal_nan=True)


def resets(dtype) -> None:
    a, b = torch.rand(2, 40, 3, **new).to(dtype), torch.randn(2, 40, 3, **new).to(dtype)
    mask = torch.zeros(2, 40).bool()
    mask[:, 33] = True
    h, _ = scans.diagonal_scan(a, b, reset=mask)
    torch.testing.assert_close(h[:, 33:], scans.diagonal_scan_naive(a[:, 33:], b[:, 33:], 0 * b[:, 0])[0])
    A = -torch.rand(3, 5, **new).to(dtype)
    keys = torch.randn(2, 40, 5, **new).to(dtype)
    leaves = [t.clone().requires_grad_() for t in (b, a, A, keys, keys)]
    y, _ = scans.selective_scan(*leaves, reset=mask)
    parts = [[t[:, of] if t.dim() == 3 else t for t in leaves] for of in (slice(33), slice(33, None))]
    wanted = torch.cat([scans.selective_scan_naive(*part)[0] for part in parts], 1)
    torch.testing.assert_close(y, wanted)
    got, wanted = (torch.autograd.grad((out * b).sum(), leaves) for out in (y, wanted))
    torch.testing.assert_close(got, wanted)


def watched() -> list[int]:
    """The number of parts of every launch from here on, and no other engine."""
    seen, plain = [], {True: _triton._forward, False: _triton._backward}

    class Watched:
        def __init__(self, kernel):
            self.kernel = kernel

        def __getitem__(self, grid):
            seen.append(grid[1])
            return self.kernel[grid]

    _triton._forward, _triton._backward = Watched(plain[True]), Watched(plain[False])
    _ops.kernels_for = lambda t: _triton if t.numel() and not t.is_complex() else None
    _engine._loops = lambda: None
    return seen


def main() -> None:
    parts = watched()
    _triton.PROGRAMS, _triton.SHORTEST, _triton.CHANNELS = 16, 8, 8
    _triton.TILE = 8  # two channels beside four states: the last program is not full
    for dtype in (torch.float64, torch.float32):
        for T, D in ((1, 3), (33, 9)):
            diagonal(T, D, dtype)
        others(dtype)
        what_is_not_finite_stays_where_it_is(dtype)
        resets(dtype)
        print(f"{dtype}: {len(parts)} launches in at most {max(parts)} parts")
        parts.clear()


if __name__ == "__main__":
    main()
