"""Scans over the slices of two processes equal the naive scan of the whole, with every gradient.

Run as a program this file is one of the processes, and ends well if all it compares agrees.
"""

import os
import sys
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from headsandstates.chapters.past_one_machine.processes import run_together

SIZE, SHARED = 2, {"selective": (2, 5), "zero-order hold": (2, 5)}  # parameters, the same in every process


def compare(name, rank, cut, T=97):
    """Outputs, the last state and all gradients of this slice; losses of both slices add up."""
    from scan_examples import assert_same, examples

    from ssmbook.scans import distributed

    _, naive, arguments, time = examples(T)[name]
    options = {"selective": {"discretization": "mixed"}, "logarithms": {"log": True}}.get(name, {})
    scan = {"selective": "selective", "zero-order hold": "selective", "ssd": "ssd"}.get(name, "diagonal")
    low, high = ((0, cut), (cut, T))[rank]

    def own(t, dim):
        return t if dim is None else t.narrow(dim, low, high - low)

    whole = [t.clone().requires_grad_() for t in arguments]
    y, end = naive(*whole)
    (y.abs().square().sum() + SIZE * end.abs().square().sum()).backward()
    parts = [own(t, dim).clone().requires_grad_() for t, dim in zip(arguments, time, strict=True)]
    found, last = getattr(distributed, f"{scan}_scan")(*parts, **options)
    (found.abs().square().sum() + last.abs().square().sum()).backward()
    pairs = [(found, own(y, time[0])), (last, end)]
    for i, (part, t, dim) in enumerate(zip(parts, whole, time, strict=True)):
        gradient = torch.zeros_like(part) if part.grad is None else part.grad
        if i in SHARED.get(name, ()):
            dist.all_reduce(gradient)
        if dim is not None or rank == 0 or i in SHARED.get(name, ()):  # that of the state is in the first
            pairs.append((gradient, own(t.grad, dim)))
    assert_same(*zip(*pairs, strict=True), 1e-11)


def refusals(rank):
    """What does not fit together raises in both processes, and all goes on after it."""
    from ssmbook.scans import distributed

    a = torch.rand(5, 3)
    for mine, error, text in (
        (torch.rand(5, 4) if rank else a, ValueError, "called alike"),
        (a.double() if rank else a, ValueError, "called alike"),
        (a.int() if rank else a, TypeError if rank else RuntimeError, "a must|process 1 failed"),
    ):
        with pytest.raises(error, match=text):
            distributed.diagonal_scan(mine, mine)


def only_one_asks(rank):
    """Only the last process asks for gradients; both make the backward pass."""
    from ssmbook.scans import diagonal_scan_naive, distributed

    a, b = torch.full((4, 3), 0.5), torch.ones(4, 3, requires_grad=rank == 1)
    h, end = distributed.diagonal_scan(a, b)
    (h.sum() + end.sum()).backward()
    if rank == 1:
        whole = torch.ones(8, 3, requires_grad=True)
        h, end = diagonal_scan_naive(torch.full((8, 3), 0.5), whole)
        (h.sum() + 2 * end.sum()).backward()
        torch.testing.assert_close(b.grad, whole.grad[4:])


def process(rank: int, store: str) -> None:
    """All that one process does."""
    from ssmbook.scans import diagonal_scan, distributed

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=SIZE, timeout=timedelta(seconds=60)
    )
    for cut in (40, 97, 0):
        for name in ("diagonal", "complex", "logarithms", "selective", "zero-order hold", "ssd"):
            compare(name, rank, cut)
    growing, nothing = torch.full((1100, 1), 2.0), torch.zeros(1100, 1)
    h, end = distributed.diagonal_scan(growing, nothing)  # 2^1100 is no number, and 2^1100 times zero is zero
    assert not h.any() and not end.any()
    refusals(rank)
    only_one_asks(rank)
    half = torch.rand(10, 3, generator=torch.Generator().manual_seed(0)).bfloat16()
    own = half[5 * rank : 5 * rank + 5]
    got, wanted = distributed.diagonal_scan(own, own)[0], diagonal_scan(half, half)[0]
    torch.testing.assert_close(got, wanted[5 * rank : 5 * rank + 5])
    dist.barrier()  # with torch 2.6 the first to leave would wait for the other forever
    dist.destroy_process_group()


pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="this PyTorch has no gloo"
)


def test_two_processes_are_one(tmp_path):
    run_together([[__file__, rank, tmp_path / "store"] for rank in range(SIZE)])


if __name__ == "__main__":
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
    process(int(sys.argv[1]), sys.argv[2])
