"""The scans for a sequence longer than one machine: every process holds a slice of time.

The processes are those of a ``torch.distributed`` group (gloo on CPUs, nccl on cards), in the order of time;
slices may be of any lengths, also empty. Each runs its slice, all of them exchange *one* summary each (the
product of the slice's decays and its last state), and each runs its slice again from the state that it then
knows. What crosses the wire does not depend on the length, forward or backward: for each number of a state a
process sends at most three, in double precision, and receives as many from every other process.

Every process makes every call, and every backward pass: both wait for all. Gradients are those of the *sum*
of all losses. A process finds the gradients of its own slice whole, and its own part of those of parameters
that all share (A and D, and whatever made the inputs): their sum over the processes is yours to make,
``torch.distributed.all_reduce(parameter.grad)``. (A wrapper that averages divides it by their number.) The
backward pass runs the slice once more instead of keeping its states, and can itself not be differentiated.

A process whose arguments are wrong, or do not fit those of the others, raises and makes all raise. One that
has died or stays away makes the others raise ``RuntimeError`` at the latest after the group's timeout
(``torch.distributed.init_process_group(timeout=...)``).

``torchrun --nproc-per-node 2 -m ssmbook.scans.distributed`` compares all three with the scans of one process.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from torch import Tensor

from ssmbook import scans
from ssmbook.scans.distributed._factor import factor_of_logarithms, factor_of_product, summed
from ssmbook.scans.distributed._slices import scan_slices

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

__all__ = ["diagonal_scan", "selective_scan", "ssd_scan"]


def diagonal_scan(
    a: Tensor, b: Tensor, state: Tensor | None = None, *, log: bool = False, group: ProcessGroup | None = None
) -> tuple[Tensor, Tensor]:
    """Run :func:`ssmbook.scans.diagonal_scan` over the slices of all processes, one after the other.

    a, b: (..., T, D) this process's slice, T its own; state: (..., D) the state before the first slice, read
    in the first process alone (others may pass it or None), where its gradient arrives. Returns h
    (..., T, D) of this slice and the state after the last slice, the same in every process. ``group`` is a
    group of ``torch.distributed``, None for all processes.

    Decays may have any sign, be complex, or grow: their product is carried as a fraction and a power of two,
    so it neither vanishes nor overflows. Dtypes and errors as there; ``ValueError`` in all processes if
    dtypes or shapes differ between them, ``RuntimeError`` if one fails.
    """

    def factor(a, b):
        return factor_of_logarithms(summed(a)) if log else factor_of_product(a)

    run = functools.partial(scans.diagonal_scan, log=log)
    return scan_slices("diagonal_scan", run, factor, (a, b), state, group)


def selective_scan(
    x: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    state: Tensor | None = None,
    *,
    group: ProcessGroup | None = None,
) -> tuple[Tensor, Tensor]:
    """Run :func:`ssmbook.scans.selective_scan` over the slices of all processes, one after the other.

    x, delta: (..., T, d) and B, C: (..., T, N) this process's slice, T its own; A: (d, N) and D: (d,) or
    None, the same in every process, which finds its part of their gradients; state: (..., d, N) before the
    first slice, read in the first process alone, where its gradient arrives. Returns y (..., T, d) of this
    slice and the state after the last slice, the same in every process. ``group`` and errors as for
    :func:`diagonal_scan`.
    """

    def factor(x, delta, A, *_):
        return factor_of_logarithms(summed(delta).unsqueeze(-1) * A)

    return scan_slices("selective_scan", scans.selective_scan, factor, (x, delta, A, B, C, D), state, group)


def ssd_scan(
    x: Tensor,
    log_a: Tensor,
    B: Tensor,
    C: Tensor,
    state: Tensor | None = None,
    *,
    group: ProcessGroup | None = None,
) -> tuple[Tensor, Tensor]:
    """Run :func:`ssmbook.scans.ssd_scan` over the slices of all processes, one after the other.

    x: (..., T, H, P), log_a: (..., T, H) and B, C: (..., T, H, N) this process's slice, T its own; state:
    (..., H, P, N) before the first slice, read in the first process alone, where its gradient arrives.
    Returns y (..., T, H, P) of this slice and the state after the last slice, the same in every process.
    ``group`` and errors as for :func:`diagonal_scan`.
    """

    def factor(x, log_a, *_):
        return factor_of_logarithms(summed(log_a)[..., None, None])

    return scan_slices("ssd_scan", scans.ssd_scan, factor, (x, log_a, B, C), state, group)
