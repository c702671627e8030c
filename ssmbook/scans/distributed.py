"""The scans for a sequence longer than one machine: every process holds a slice of time.

The processes are those of ``torch.distributed`` (gloo on CPUs, nccl on GPUs), in the order
of time; slices may be of any lengths, also empty. To the state before it a slice does one
thing: c becomes P c + H, with the product P of its decays and its last state H from zero.
So each runs its slice, all of them exchange *one* pair (P, H) each, and each runs its slice
again from the state that it then knows. What crosses the wire does not depend on the
length, forward or backward.

Every process makes every call, and every backward pass: both wait for all. Gradients are
those of the *sum* of all losses. A process finds the gradients of its own slice whole, and
its own part of those of parameters that all share (A and D, and whatever made the inputs):
add them up by ``torch.distributed.all_reduce``. The backward pass runs the slice once more
instead of keeping its states, and cannot itself be differentiated. A process whose
arguments are wrong, or do not fit those of the others, makes all raise.
"""

import functools

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from ssmbook import scans
from ssmbook.scans._shared import wide
from ssmbook.scans.selective import ExactDecay

__all__ = ["diagonal_scan", "selective_scan", "ssd_scan"]


def diagonal_scan(
    a: Tensor, b: Tensor, state: Tensor | None = None, *, log: bool = False
) -> tuple[Tensor, Tensor]:
    """Run :func:`ssmbook.scans.diagonal_scan` over the slices of all processes, one after the other.

    Parameters
    ----------
    a, b : Tensor (..., T, D)
        Decays and inputs of this process's slice, T its own.
    state : Tensor (..., D), optional
        The state before the first slice, read in the first process alone, where its
        gradient arrives.
    log : bool, default False
        Whether ``a`` holds logarithms of decays.

    Returns
    -------
    h : Tensor (..., T, D)
        The states of this slice.
    end : Tensor (..., D)
        The state after the last slice, the same in every process.

    Raises
    ------
    ValueError, TypeError
        As :func:`ssmbook.scans.diagonal_scan`; in all processes, ``ValueError`` if dtypes or shapes
        differ between them.
    RuntimeError
        In all other processes, if one fails.
    """
    run = functools.partial(scans.diagonal_scan, log=log)
    return _scan_slices("diagonal_scan", run, lambda a, b: _product(a, log), (a, b), state)


def selective_scan(
    x: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    state: Tensor | None = None,
    *,
    discretization: ExactDecay = "zoh",
) -> tuple[Tensor, Tensor]:
    """Run :func:`ssmbook.scans.selective_scan` over the slices of all processes, one after the other.

    Parameters
    ----------
    x, delta : Tensor (..., T, d)
        Inputs and step sizes of this process's slice, T its own.
    A : Tensor (d, N)
        Rates, the same in every process, which finds its part of their gradients.
    B, C : Tensor (..., T, N)
        What writes into the states and what reads them, in this slice.
    D : Tensor (d,), optional
        The skip, with A's rule.
    state : Tensor (..., d, N), optional
        The state before the first slice, read in the first process alone, where its
        gradient arrives.
    discretization : {"zoh", "mixed"}, default "zoh"
        How the input enters.

    Returns
    -------
    y : Tensor (..., T, d)
        The outputs of this slice.
    end : Tensor (..., d, N)
        The state after the last slice, the same in every process.

    Raises
    ------
    ValueError, TypeError, RuntimeError
        As :func:`diagonal_scan`.
    """

    def factor(x, delta, A, *_):
        return torch.ones(()), delta.sum(-2, dtype=wide(delta.dtype)).unsqueeze(-1) * A

    run = functools.partial(scans.selective_scan, discretization=discretization)
    return _scan_slices("selective_scan", run, factor, (x, delta, A, B, C, D), state)


def ssd_scan(
    x: Tensor, log_a: Tensor, B: Tensor, C: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Run :func:`ssmbook.scans.ssd_scan` over the slices of all processes, one after the other.

    Parameters
    ----------
    x : Tensor (..., T, H, P)
        Values of this process's slice, T its own.
    log_a : Tensor (..., T, H)
        Log-decays of this slice.
    B, C : Tensor (..., T, H, N)
        Keys and queries of this slice.
    state : Tensor (..., H, P, N), optional
        The state before the first slice, read in the first process alone, where its
        gradient arrives.

    Returns
    -------
    y : Tensor (..., T, H, P)
        The outputs of this slice.
    end : Tensor (..., H, P, N)
        The state after the last slice, the same in every process.

    Raises
    ------
    ValueError, TypeError, RuntimeError
        As :func:`diagonal_scan`.
    """

    def factor(x, log_a, *_):
        phase, logarithm = _product(log_a, True)
        return phase, logarithm[..., None, None]

    return _scan_slices("ssd_scan", scans.ssd_scan, factor, (x, log_a, B, C), state)


def _product(a: Tensor, log: bool) -> tuple[Tensor, Tensor]:
    """The product of all decays of a slice, in double precision: its phase, and the logarithm of its size.

    That product leaves the range of floating point long before the state does.
    """
    a = a.to(wide(a.dtype))
    return (torch.ones(()), a.sum(-2)) if log else (a.sgn().prod(-2).sgn(), a.abs().log().sum(-2))


def _times(phase: Tensor, logarithm: Tensor, state: Tensor) -> Tensor:
    """The product of such a factor and a state."""
    return phase * state.sgn() * (logarithm + state.abs().log()).exp()


def _gather(message) -> list:
    """The messages of all processes, in their order."""
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, message)
    return found


def _scan_slices(name: str, run, factor, inputs: tuple, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """The outputs of this slice, and the state after the last one.

    ``run(*inputs, state=...)`` is the scan of one process, ``factor(*inputs)`` the P of a slice. The
    first slice starts from ``state``, so what it ends with is true; the others start from zero, learn
    where those before them end, and start again from there.
    """
    rank = dist.get_rank()
    asks = any(isinstance(t, Tensor) and t.requires_grad for t in (*inputs, state))
    recording = torch.is_grad_enabled()
    kind = problem = None
    with torch.no_grad():
        try:
            y, end = run(*inputs, state=state if rank == 0 else None)
            kind = f"{name} of {y.dtype} with states {end.dtype} {tuple(end.shape)}"
            kind += ", recording gradients" if recording else ""
            summary = [t.cpu() for t in factor(*inputs)], end.to(wide(end.dtype)).cpu()
        except Exception as error:  # whatever it is, the others must not wait for this process
            problem, summary = error, str(error)
        found = _gather((kind, asks, summary))
        if problem is not None:
            raise problem
        for other, (what, _, text) in enumerate(found):
            if what is None:
                raise RuntimeError(f"{name} ended because process {other} failed: {text}")
            if what != found[0][0]:
                raise ValueError(
                    f"{name} must be called alike in all processes; process 0 has {found[0][0]}, "
                    f"process {other} has {what}"
                )
        factors, ends = zip(*(pair for *_, pair in found), strict=True)
        states = [ends[0]]  # after each slice
        for product, last in zip(factors[1:], ends[1:], strict=True):
            states.append(_times(*product, states[-1]) + last)
        final = states[-1].to(end)
        if rank > 0:
            state = states[rank - 1].to(end)
            del y  # before there is another of its size
            y, _ = run(*inputs, state=state)
    if not (recording and any(asked for _, asked, _ in found)):
        return y, final
    anchor = torch.zeros((), device=end.device, requires_grad=True)  # this process may have nothing that asks
    return _Recorded.apply(run, rank, factors, (y, final), anchor, state, *inputs)


class _Recorded(torch.autograd.Function):
    """Outputs that are known already, with the gradients of all slices.

    With c the state that a slice starts from and g the gradient at its end, the gradient at c is
    e + conj(P) g: e from the slice's own outputs, P its factor. So the backward pass is the same scan
    over summaries, the other way; P itself is never differentiated, as g enters where the slice ends.
    """

    @staticmethod
    def forward(ctx, run, rank, factors, results, anchor, state, *inputs):
        ctx.run, ctx.rank, ctx.factors = run, rank, factors
        ctx.autocast = torch.is_autocast_enabled(anchor.device.type)
        ctx.save_for_backward(state, *inputs)
        return results

    @staticmethod
    @once_differentiable
    def backward(ctx, d_y, d_final):
        first = ctx.rank == 0
        needs = list(ctx.needs_input_grad[5:])
        needs[0] = needs[0] or not first  # the state, of which the slices before want to know
        state, *inputs = (
            None if t is None else t.detach().requires_grad_(need)
            for t, need in zip(ctx.saved_tensors, needs, strict=True)
        )
        with torch.enable_grad(), torch.autocast(d_y.device.type, enabled=ctx.autocast):
            y, end = ctx.run(*inputs, state=state)
        early = torch.zeros_like(end) if first else _pull([y], [state], [d_y], again=True)[0]
        found = _gather([t.to(wide(t.dtype)).cpu() for t in (early, d_final)])
        later = sum(d_final for _, d_final in found)
        after = slice(None, ctx.rank, -1)  # the slices after this one, from the last
        for (phase, logarithm), (early, _) in zip(ctx.factors[after], found[after], strict=True):
            later = early + _times(phase.conj(), logarithm, later)
        asked = [leaf for leaf, need in zip((state, *inputs), needs, strict=True) if need]
        gradients = iter(_pull([y, end], asked, [d_y, later.to(end)]))
        return *[None] * 5, *(next(gradients) if need else None for need in needs)


def _pull(outputs, leaves, gradients, again=False) -> list[Tensor]:
    """The gradients of the leaves, zero where an output does not depend on them (an empty slice)."""
    pairs = [(y, g) for y, g in zip(outputs, gradients, strict=True) if y.requires_grad]
    if not (pairs and leaves):
        return [torch.zeros_like(leaf) for leaf in leaves]
    outputs, gradients = zip(*pairs, strict=True)
    return torch.autograd.grad(
        outputs, leaves, gradients, retain_graph=again, allow_unused=True, materialize_grads=True
    )
