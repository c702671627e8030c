"""One scan over the slices of all processes: run, exchange summaries, run again; and the way back."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from ssmbook.scans._engine import wide
from ssmbook.scans.distributed._factor import Factor
from ssmbook.scans.distributed._wire import agree, exchange


class Slices(NamedTuple):
    """What a backward pass has to know of the call: the scan, where this slice lies, and all factors."""

    name: str
    run: object
    group: object
    rank: int
    factors: list[Factor]
    autocast: bool


def scan_slices(name: str, run, factor, inputs: tuple, state: Tensor | None, group):
    """The outputs of this slice, and the state after the last one.

    ``run(*inputs, state)`` is the scan of one process, ``factor(*inputs)`` what a slice multiplies a state
    with. The first slice starts from ``state``, so what it ends with is true; the others start from zero,
    learn where those before them end, and start again from there.
    """
    rank = _rank(name, group)
    given = [t for t in (*inputs, state) if isinstance(t, Tensor)]
    asks = any(t.requires_grad for t in given) if torch.is_grad_enabled() else None
    device = given[0].device if given else torch.device("cpu")
    y = end = own = problem = None
    with torch.no_grad():
        try:
            y, end = run(*inputs, state if rank == 0 else None)
            own = factor(*inputs)
        except Exception as error:  # whatever it is, the others must not wait for this process
            problem = error
        what = "" if problem else f"{name} of {y.dtype} with states {end.dtype} {tuple(end.shape)}"
        record = agree(name, what, problem, asks, device, group)
        factors, states = _after_slices(name, own, end, group)
        carry, final = state, states[-1].to(end.dtype)
        if rank > 0:
            carry = states[rank - 1].to(end.dtype)
            del y  # before there is another of its size
            y, _ = run(*inputs, carry)
    if not record:
        return y, final
    call = Slices(name, run, group, rank, factors, torch.is_autocast_enabled(device.type))
    anchor = torch.zeros((), device=device, requires_grad=True)  # this process may have nothing that asks
    return _Recorded.apply(call, (y, final), anchor, carry, *inputs)


def _after_slices(name: str, own: Factor, end: Tensor, group) -> tuple[list[Factor], list[Tensor]]:
    """The factor of every slice and the state after it, c = factor * (c before) + end: the one exchange."""
    summaries = exchange(name, [*own, end.to(wide(end.dtype))], group)
    factors, states = [Factor(*s[:2]) for s in summaries], [summaries[0][2]]
    for further, (_, _, last) in zip(factors[1:], summaries[1:], strict=True):
        states.append(further.times(states[-1]) + last)
    return factors, states


def _rank(name: str, group) -> int:
    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError(f"{name} needs torch.distributed.init_process_group(...) to be called before")
    rank = dist.get_rank(group)
    if rank < 0:
        raise ValueError(f"group must be one that this process, number {dist.get_rank()} of all, belongs to")
    return rank


class _Recorded(torch.autograd.Function):
    """Outputs that are known already, with the gradients of all slices behind them.

    With c the state that a slice starts from and g the gradient at its end, the gradient at c is
    e + conj(P) g: e from the slice's own outputs, P its factor. So the backward pass is the same scan over
    summaries, the other way; P itself is never differentiated, as g enters where the slice ends.
    """

    @staticmethod
    def forward(ctx, call, results, anchor, carry, *inputs):
        ctx.call = call
        ctx.save_for_backward(carry, *inputs)
        return results

    @staticmethod
    @once_differentiable
    def backward(ctx, d_y, d_final):
        call, first = ctx.call, ctx.call.rank == 0
        needs = [need or (i == 0 and not first) for i, need in enumerate(ctx.needs_input_grad[3:])]
        leaves = [
            None if t is None else t.detach().requires_grad_(need)
            for t, need in zip(ctx.saved_tensors, needs, strict=True)
        ]
        with torch.enable_grad(), torch.autocast(d_y.device.type, enabled=call.autocast):
            y, end = call.run(*leaves[1:], leaves[0])
        early = torch.zeros_like(end) if first else _pull([y], leaves[:1], [d_y], again=True)[0]
        later = _gradient_at_end(call, early, d_final)
        asked = [leaf for leaf, need in zip(leaves, needs, strict=True) if need]
        found = iter(_pull([y, end], asked, [d_y, later.to(end.dtype)]))
        return None, None, None, *(next(found) if need else None for need in needs)


def _pull(outputs, leaves, gradients, again=False) -> list[Tensor]:
    """The gradients of the leaves, zero where an output does not depend on them (an empty slice)."""
    pairs = [(y, g) for y, g in zip(outputs, gradients, strict=True) if y.requires_grad]
    if not (pairs and leaves):
        return [torch.zeros_like(leaf) for leaf in leaves]
    outputs, gradients = zip(*pairs, strict=True)
    return torch.autograd.grad(
        outputs, leaves, gradients, retain_graph=again, allow_unused=True, materialize_grads=True
    )


def _gradient_at_end(call: Slices, early: Tensor, d_final: Tensor) -> Tensor:
    """The gradient of the sum of all losses at the state after this slice, in the wide dtype."""
    message = [t.to(wide(t.dtype)) for t in (early, d_final)]
    found = exchange(f"the backward pass of {call.name}", message, call.group)
    later = torch.stack([d_final for _, d_final in found]).sum(0)
    for factor, (early, _) in zip(call.factors[: call.rank : -1], found[: call.rank : -1], strict=True):
        later = early + factor.conj().times(later)
    return later
