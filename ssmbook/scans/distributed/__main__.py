"""Compare the scans of all processes with those of one.

    torchrun --nproc-per-node 2 -m ssmbook.scans.distributed --length 1000000

Every process draws the same sequences, runs its own slice among the others, runs the whole alone, and
compares outputs, the last state and every gradient. The slices are uneven, and of three or more processes
the second has an empty one.
"""

from __future__ import annotations

import argparse
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

from ssmbook import scans
from ssmbook.scans import distributed

LIMITS = {torch.float64: 1e-12, torch.float32: 1e-5}
CHANNELS, STATES, HEADS = 4, 4, 2


def main(arguments: list[str] | None = None) -> int:
    """0 if everything agrees, 1 if not or if a process failed."""
    options = _options(arguments)
    rank = int(os.environ["RANK"])
    try:
        device = _join(options)
        errors = {}
        for name in options.scan:
            _say(f"{name}: {options.length:,} steps, {dist.get_world_size()} processes ...")
            errors |= _compare(name, options, device)
        worst = _worst_of_all(errors, device)
    except Exception as error:
        print(f"FAILED in process {rank}: {error}", file=sys.stderr, flush=True)
        return 1
    (largest, where), limit = max(worst), LIMITS[options.dtype]
    good = largest <= limit
    if rank == 0:
        print(
            f"{'OK' if good else 'FAILED'}: {', '.join(options.scan)} of {options.length:,} steps, "
            f"{dist.get_world_size()} processes, {device.type}, {options.dtype}: largest difference from one "
            f"process {largest:.1e} ({where}), limit {limit:.0e}",
            flush=True,
        )
    dist.destroy_process_group()
    return 0 if good else 1


def _options(arguments):
    parser = argparse.ArgumentParser(
        prog="torchrun --nproc-per-node 2 -m ssmbook.scans.distributed", description=__doc__.split(":")[0]
    )
    parser.add_argument("--length", type=int, default=100_000, help="steps of the whole sequence")
    names = list(distributed.__all__)
    parser.add_argument("--scan", nargs="+", choices=names, default=names)
    parser.add_argument("--dtype", choices=["float64", "float32"], default="float64")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--timeout", type=float, default=120, help="seconds to wait for another process")
    options = parser.parse_args(arguments)
    if options.length < 1 or not options.timeout > 0:
        parser.error("--length and --timeout must be positive")
    if "RANK" not in os.environ:
        parser.error("start it with torchrun, which tells every process its place")
    options.dtype = getattr(torch, options.dtype)
    return options


def _join(options) -> torch.device:
    timeout = timedelta(seconds=options.timeout)
    if options.device == "cpu":
        dist.init_process_group("gloo", timeout=timeout)
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", timeout=timeout, device_id=device)
    return device


def _say(text: str) -> None:
    if dist.get_rank() == 0:
        print(text, file=sys.stderr, flush=True)


def _drawn(name: str, T: int, dtype, device) -> tuple[list, tuple]:
    """Arguments for the whole sequence, and the dimension of time of each (None: it has none)."""
    generator = torch.Generator().manual_seed(T)

    def normal(*shape):
        return torch.randn(*shape, dtype=dtype, generator=generator).to(device)

    fade = 3 / T  # so that the beginning is still felt at the end
    if name == "diagonal_scan":
        a = (1 - fade * normal(T, CHANNELS).abs()) * normal(1, CHANNELS).sign()
        return [a, normal(T, CHANNELS), normal(CHANNELS)], (-2, -2, None)
    if name == "selective_scan":
        x, delta = normal(T, CHANNELS), fade * normal(T, CHANNELS).abs()
        A, B, C = -normal(CHANNELS, STATES).abs(), normal(T, STATES), normal(T, STATES)
        shared = normal(CHANNELS), normal(CHANNELS, STATES)
        return [x, delta, A, B, C, *shared], (-2, -2, None, -2, -2, None, None)
    x, log_a = normal(T, HEADS, CHANNELS), -fade * normal(T, HEADS).abs()
    keys = normal(T, HEADS, STATES), normal(T, HEADS, STATES)
    return [x, log_a, *keys, normal(HEADS, CHANNELS, STATES)], (-3, -2, -3, -3, None)


def _slice(T: int) -> tuple[int, int]:
    """Where this process's slice begins and ends: 1, 0, 3, 4, ... parts of the length."""
    parts = [0 if k == 1 and dist.get_world_size() > 2 else k + 1 for k in range(dist.get_world_size())]
    cuts = [T * sum(parts[:k]) // sum(parts) for k in range(len(parts) + 1)]
    return cuts[dist.get_rank()], cuts[dist.get_rank() + 1]


def _compare(name: str, options, device) -> dict[str, float]:
    """The largest differences, each in units of the largest number that it is compared with."""
    drawn, times = _drawn(name, options.length, options.dtype, device)
    low, high = _slice(options.length)

    def own(t, dim):
        return t if dim is None else t.narrow(dim, low, high - low)

    weights = torch.linspace(-1, 1, options.length, dtype=options.dtype, device=device)
    weights = weights.view(-1, *[1] * (-times[0] - 1))
    parts = [own(t, dim).clone().requires_grad_() for t, dim in zip(drawn, times, strict=True)]
    got = getattr(distributed, name)(*parts)
    ((got[0] * own(weights, times[0])).sum() + got[1].sum() / dist.get_world_size()).backward()
    _say(f"{name}: gradients are there, now the whole in one process ...")
    whole = [t.requires_grad_() for t in drawn]
    wanted = getattr(scans, name)(*whole)
    ((wanted[0] * weights).sum() + wanted[1].sum()).backward()

    found = {"outputs": _difference(got[0], own(wanted[0], times[0]), wanted[0])}
    found["last state"] = _difference(got[1], wanted[1], wanted[1])
    for i, (part, t, dim) in enumerate(zip(parts, whole, times, strict=True)):
        gradient = part.grad if part.grad is not None else torch.zeros_like(part)
        if dim is None:
            dist.all_reduce(gradient)
        found[f"gradient of argument {i + 1}"] = _difference(gradient, own(t.grad, dim), t.grad)
    return {f"{name}, {what}": value for what, value in found.items()}


def _difference(got, wanted, scale) -> float:
    if got.shape != wanted.shape or not bool(got.isfinite().all()):
        return float("inf")
    if not got.numel():
        return 0.0
    return ((got - wanted).abs().max() / scale.abs().max()).item()


def _worst_of_all(errors: dict[str, float], device) -> list[tuple[float, str]]:
    """The largest difference in any process, for each thing compared."""
    largest = torch.tensor(list(errors.values()), dtype=torch.float64, device=device)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return list(zip(largest.tolist(), errors, strict=True))


if __name__ == "__main__":
    sys.exit(main())
