"""One process of a group that ``test_scans_distributed.py`` starts: what it finds goes into a file as JSON.

It draws whole sequences as all others do, takes its own slice of them, and compares with the naive scan of
the whole, whose loss is the sum of the losses of all slices.
"""

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from ssmbook import scans

IMPORTED = "ssmbook.scans.distributed" in sys.modules

from ssmbook.scans import distributed  # noqa: E402

REAL, COMPLEX = torch.float64, torch.complex128
CUTS = {
    2: [(0, 40, 97), (0, 96, 97), (0, 0, 97), (0, 97, 97), (0, 0, 0)],
    3: [(0, 13, 13, 97), (0, 1, 96, 97)],
}
TIME = {
    "diagonal_scan": (-2, -2, None),
    "selective_scan": (-2, -2, None, -2, -2, None, None),
    "ssd_scan": (-3, -2, -3, -3, None),
}
SHARED = {"selective_scan": (2, 5)}  # parameters: every process finds a part of their gradient


def draw(*shape, dtype=REAL, seed=0):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed + sum(shape)))


def cases(T):
    """(name of the scan, case, arguments for a whole sequence of T steps, options)."""
    a, b, state = draw(2, T, 3), draw(2, T, 3, seed=1), draw(2, 3)
    z = draw(3, T, 3, dtype=COMPLEX)  # an odd number of channels: 9
    of_z = draw(3, T, 3, dtype=COMPLEX, seed=1), draw(3, 3, dtype=COMPLEX)
    yield "diagonal_scan", "signed", (2 * a.sigmoid() - 1, b, state), {}
    yield "diagonal_scan", "zeros", (a.sigmoid() * (a < 1), b, None), {}
    yield "diagonal_scan", "complex", (z.sgn() * 0.99, *of_z), {}
    yield "diagonal_scan", "logarithms", (-0.1 * a.abs() + 0.01, b, state), {"log": True}
    mask = (a > 1).double() * -torch.inf
    yield "diagonal_scan", "minus infinity", (torch.where(a > 1, mask, -a.abs()), b, state), {"log": True}
    x, B, C, A = draw(2, T, 3), draw(2, T, 4), draw(2, T, 4, seed=1), -draw(3, 4).abs()
    inputs = x, a.abs(), A, B, C
    yield "selective_scan", "with D", (*inputs, draw(3), draw(2, 3, 4)), {}
    yield "selective_scan", "bare", (*inputs, None, None), {}
    heads = draw(2, T, 2, 3), -0.3 * a[..., :2].abs() + 0.05, draw(2, T, 2, 4), draw(2, T, 2, 4, seed=1)
    yield "ssd_scan", "from a state", (*heads, draw(2, 2, 3, 4)), {}
    yield "ssd_scan", "from zero", (*heads, None), {}


def weights(y, end, size):
    """What the losses weigh outputs and the last state with; every process counts that state once."""
    last = [draw(*end.shape, dtype=end.dtype, seed=20 + rank) for rank in range(size)]
    return draw(*y.shape, dtype=y.dtype, seed=10), last


def pull(pairs, leaves):
    if not pairs:
        return [torch.zeros_like(leaf) for leaf in leaves]
    outputs, given = zip(*pairs, strict=True)
    return torch.autograd.grad(outputs, leaves, given, materialize_grads=True)


def compare(name, arguments, options, cuts, rank):
    """The largest error of this slice, relative to the largest number: outputs, state, every gradient."""
    size, dims, (low, high) = len(cuts) - 1, TIME[name], cuts[rank : rank + 2]
    whole = [None if t is None else t.clone().requires_grad_() for t in arguments]
    y, end = getattr(scans, f"{name}_naive")(*whole, **options)
    of_y, of_end = weights(y, end, size)
    leaves = [t for t in whole if t is not None]
    pairs = [(out, of) for out, of in ((y, of_y), (end, sum(of_end))) if out.requires_grad]
    found = iter(pull(pairs, leaves))
    wanted = [None if t is None else next(found) for t in whole]

    def cut(t, dim):
        return t if dim is None else t.narrow(dim, low, high - low)

    parts = [
        None if t is None else cut(t.detach(), dim).clone().requires_grad_()
        for t, dim in zip(whole, dims, strict=True)
    ]
    got, last = getattr(distributed, name)(*parts, **options)
    torch.autograd.backward((got, last), (cut(of_y, dims[0]), of_end[rank]))
    pairs = [(got, cut(y, dims[0]), y), (last, end, end)]
    for i, (part, gradient, dim) in enumerate(zip(parts, wanted, dims, strict=True)):
        if part is None:
            continue
        own = torch.zeros_like(part) if part.grad is None else part.grad
        if i in SHARED.get(name, ()):
            dist.all_reduce(own)
        elif dim is None and rank > 0:  # the initial state
            assert not own.any()
            continue
        pairs.append((own, cut(gradient, dim), gradient))
    return max(error(*pair) for pair in pairs)


def error(got, wanted, scale):
    assert got.shape == wanted.shape and got.dtype == wanted.dtype
    if not got.numel():
        return 0.0
    return ((got - wanted).abs().max() / scale.abs().max().clamp(min=1e-3)).item()


def extremes(rank, size):
    """A factor of 2**1026 meets a tiny state and a zero; one of 2**-1026 meets infinity."""
    bits = torch.cat((torch.zeros(40), torch.full((57,), 18.0))).to(REAL)[:, None]
    found = {}
    for sign, start in ((1, [1e-300, 0.0]), (-1, [torch.inf, 1e300])):
        a, b = torch.exp2(sign * bits).expand(97, 2), torch.zeros(97, 2, dtype=REAL)
        state = torch.tensor(start, dtype=REAL)
        wanted = scans.diagonal_scan_naive(a, b, state)
        cuts = [0, 40, *[97] * (size - 1)]
        own = slice(cuts[rank], cuts[rank + 1])
        for log, decays in ((False, a), (True, a.log()))[: 2 if sign == 1 else 1]:
            got = distributed.diagonal_scan(decays[own], b[own], state, log=log)
            same = [
                torch.allclose(x, y, rtol=1e-11, atol=0)
                for x, y in zip(got, (wanted[0][own], wanted[1]), strict=True)
            ]
            found[f"{sign}, {log}"] = all(same)
    return found


def traffic(T):
    """The bytes of every message of a forward and a backward pass; no other collective is called."""
    sizes, genuine = {}, dist.all_gather
    others = [
        n for n in dir(dist) if n.startswith(("all_", "broadcast", "send", "isend", "reduce", "gather"))
    ]
    kept = {n: getattr(dist, n) for n in (*others, "scatter", "barrier", "batch_isend_irecv")}

    def counted(name):
        def all_gather(found, message, group=None):
            sizes.setdefault(name, []).append(message.numel() * message.element_size())
            return genuine(found, message, group=group)

        return all_gather

    for other in kept:
        setattr(dist, other, None)
    try:
        for name, case, arguments, options in cases(T):
            dist.all_gather = counted(f"{name}, {case}")
            parts = [None if t is None else t.requires_grad_() for t in arguments]
            y, end = getattr(distributed, name)(*parts, **options)
            torch.autograd.backward((y, end), (y.detach(), end.detach()))
    finally:
        for other, function in kept.items():
            setattr(dist, other, function)
    return sizes


def raised(function, *arguments, **options):
    try:
        function(*arguments, **options)
    except Exception as error:
        return type(error).__name__, str(error)
    return "nothing", ""


def misfits(rank):
    """What is raised here where the second process calls otherwise."""
    odd, scan = rank == 1, distributed.diagonal_scan
    a = draw(5, 3).sigmoid()
    x, log_a, keys = draw(5, 2, 3), -draw(5, 2).abs(), draw(5, 2, 4)
    found = {"shape": raised(scan, *[draw(5, 4 if odd else 3)] * 2)}
    found["dtype"] = raised(scan, *[a.float() if odd else a] * 2)
    other = (distributed.ssd_scan, x, log_a, keys, keys)
    found["scan"] = raised(*other) if odd else raised(scan, a, a)
    found["argument"] = raised(scan, a, a[:, :2] if odd else a)
    with torch.set_grad_enabled(not odd):
        found["recording"] = raised(scan, a.clone().requires_grad_(), a)
    return found


def one_asks(rank, size):
    """Only the last process asks for gradients; all of them make the backward pass."""
    a, b = draw(4, 3).sigmoid(), draw(4, 3, seed=rank).requires_grad_(rank == size - 1)
    h, end = distributed.diagonal_scan(a, b)
    (h.sum() + end.sum()).backward()
    if rank < size - 1:
        return bool(h.requires_grad and b.grad is None)
    h, end = scans.diagonal_scan_naive(a, whole := b.detach().requires_grad_())
    (wanted,) = torch.autograd.grad(
        (h.sum(), end.sum()), whole, (torch.tensor(1.0), torch.tensor(float(size)))
    )
    return torch.allclose(b.grad, wanted)


def under_autocast(rank, size):
    """bfloat16 inputs under autocast: as in one process."""
    a, b = (t.to(torch.bfloat16) for t in (draw(size * 9, 3).sigmoid(), draw(size * 9, 3, seed=1)))
    whole = [t.clone().requires_grad_() for t in (a, b)]
    parts = [t[rank * 9 : rank * 9 + 9].clone().requires_grad_() for t in (a, b)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wanted, got = scans.diagonal_scan(*whole)[0], distributed.diagonal_scan(*parts)[0]
    wanted.square().sum().backward()
    got.square().sum().backward()
    own = slice(rank * 9, rank * 9 + 9)
    pairs = [(got, wanted[own]), *((part.grad, t.grad[own]) for part, t in zip(parts, whole, strict=True))]
    return all(x.dtype == y.dtype and torch.allclose(x, y, rtol=1e-2) for x, y in pairs)


def in_a_group(rank, size):
    """The first and the last process alone; then the last one stays away beyond their timeout."""
    group = dist.new_group([0, size - 1], timeout=timedelta(seconds=2))
    a, b = draw(8, 3).sigmoid(), draw(8, 3, seed=1)
    if rank not in (0, size - 1):
        return raised(distributed.diagonal_scan, a, b, group=group)
    own = slice(0, 5) if rank == 0 else slice(5, 8)
    h, end = distributed.diagonal_scan(a[own], b[own], group=group)
    wanted = scans.diagonal_scan_naive(a, b)
    same = torch.allclose(h, wanted[0][own]) and torch.allclose(end, wanted[1])
    if rank == 0:
        return same, *raised(distributed.diagonal_scan, a, b, group=group)
    time.sleep(3)
    return same, "", ""


def main(rank, size, folder):
    torch.set_num_threads(1)
    found = {"imported": IMPORTED, "before": raised(distributed.diagonal_scan, draw(2, 3), draw(2, 3))}
    store = f"file://{folder / 'store'}"
    dist.init_process_group(
        "gloo", init_method=store, rank=rank, world_size=size, timeout=timedelta(seconds=60)
    )
    found["errors"] = {
        f"{name}, {case}, {cuts}": compare(name, arguments, options, cuts, rank)
        for cuts in CUTS[size]
        for name, case, arguments, options in cases(cuts[-1])
    }
    found["misfits"] = misfits(rank)  # and all goes on after them:
    found["extremes"] = extremes(rank, size)
    found["bytes"] = [traffic(10), traffic(500)]
    found["one asks"] = one_asks(rank, size)
    found["autocast"] = under_autocast(rank, size)
    found["group"] = in_a_group(rank, size)
    if rank == size - 1:
        write(folder, rank, found)
        os._exit(3)  # dies
    found["death"] = raised(distributed.ssd_scan, *next(c[2] for c in cases(9) if c[0] == "ssd_scan"))
    write(folder, rank, found)
    os._exit(0)  # the group cannot be left in order


def write(folder, rank, found):
    (folder / f"{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
