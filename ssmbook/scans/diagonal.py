"""The diagonal recurrence h_t = a_t h_{t-1} + b_t, the one scan every other one here reduces to."""

from __future__ import annotations

import functools
import inspect

import torch
from torch import Tensor

from ssmbook._checks import check_alike, check_shape

from ._core import decays_of, is_batched, is_plain, scan_into
from ._traced import traced_scan
from ._validate import check_batch, check_state, like_state, outside_autocast, widen


class Scan(torch.autograd.Function):
    """h_t = a_t h_{t-1} + b_t over dim -2 (h_t = a_t h_{t+1} + b_t if ``reverse``), differentiable any
    number of times.
    """

    @staticmethod
    def forward(a, b, state, log, reverse):
        return _scan(a, b, state, log, reverse)

    @staticmethod
    def setup_context(ctx, inputs, h):
        a, _, state, ctx.log, ctx.reverse = inputs
        ctx.save_for_backward(a, h, state)
        ctx.save_for_forward(a, h, state)

    @staticmethod
    def backward(ctx, d):
        if is_batched(d):
            adjoint = functools.partial(_adjoint, scan=_plain)
        else:
            adjoint = _adjoint if torch.is_grad_enabled() else Adjoint.apply
        grad_a, g = adjoint(*ctx.saved_tensors, d, ctx.log, ctx.reverse)
        if ctx.saved_tensors[2] is None:
            return grad_a, g, None, None, None
        first = g.shape[-2] - 1 if ctx.reverse else 0
        decay = ctx.saved_tensors[0].select(-2, first).conj()
        return grad_a, g, (decay.exp() if ctx.log else decay) * g.select(-2, first), None, None

    @staticmethod
    def jvp(ctx, tangent_a, tangent_b, tangent_state, *_):
        a, h, state = ctx.saved_tensors
        moved = tangent_a * _before(h, state, ctx.reverse)
        moved = tangent_b + (moved * decays_of(a, True) if ctx.log else moved)
        return Scan.apply(a, moved, tangent_state, ctx.log, ctx.reverse)

    @staticmethod
    def vmap(info, in_dims, *args):
        return Scan.apply(*_batch_first(info, in_dims, args)), 0


class Adjoint(torch.autograd.Function):
    """What :func:`_adjoint` computes, without its copies and without a derivative of its own."""

    @staticmethod
    def forward(a, h, state, d, log, reverse):
        T, later, earlier = h.shape[-2], *((0, 1) if reverse else (1, 0))
        first, last = (T - 1, 0) if reverse else (0, T - 1)
        turned = a.conj().resolve_conj()
        g, grad_a = (torch.empty(h.shape, dtype=h.dtype, device=h.device) for _ in range(2))
        end = g.select(-2, last).copy_(d.select(-2, last))
        if T > 1:
            steps = (t.narrow(-2, start, T - 1) for t, start in ((turned, later), (d, earlier), (g, earlier)))
            scan_into(*steps, end, log=log, reverse=not reverse)
            before = h.narrow(-2, earlier, T - 1).conj()
            torch.mul(g.narrow(-2, later, T - 1), before, out=grad_a.narrow(-2, later, T - 1))
        edge = grad_a.select(-2, first)
        edge.zero_() if state is None else edge.copy_(g.select(-2, first) * state.conj())
        return grad_a.mul_(decays_of(turned, log)) if log else grad_a, g

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def vmap(info, in_dims, *args):
        return Adjoint.apply(*_batch_first(info, in_dims, args)), (0, 0)


# Function.apply asks for this signature at every call, which costs as much as ten small operations.
Scan.forward.__signature__ = inspect.signature(Scan.forward)
Adjoint.forward.__signature__ = inspect.signature(Adjoint.forward)


def _scan(a: Tensor, b: Tensor, state: Tensor | None, log: bool, reverse: bool) -> Tensor:
    h = torch.empty(b.shape, dtype=b.dtype, device=b.device)
    scan_into(a, b, h, state, log=log, reverse=reverse)
    return h


def _adjoint(a, h, state, d, log: bool, reverse: bool, scan=Scan.apply) -> tuple[Tensor, Tensor]:
    """The gradients of a and b: g_t = d_t + a_{t+1} g_{t+1} is the same recurrence run the other way, from
    g at the end.
    """
    T, later, earlier = h.shape[-2], *((0, 1) if reverse else (1, 0))
    order = slice(None, None, -1 if reverse else 1)
    turned = a.conj().resolve_conj()
    g = end = d.narrow(-2, 0 if reverse else T - 1, 1)
    if T > 1:
        steps = turned.narrow(-2, later, T - 1), d.narrow(-2, earlier, T - 1)
        g = torch.cat((scan(*steps, end.squeeze(-2), log, not reverse), end)[order], -2)
    grad_a = g * _before(h, state, reverse).conj()
    return grad_a * turned.exp() if log else grad_a, g


def _before(h: Tensor, state: Tensor | None, reverse: bool) -> Tensor:
    """The value each step starts from: ``h`` one step earlier (one later if ``reverse``)."""
    T = h.shape[-2]
    first = torch.zeros_like(h.narrow(-2, 0, 1)) if state is None else state.unsqueeze(-2)
    rest = h.narrow(-2, 1 if reverse else 0, T - 1)
    return torch.cat((rest, first) if reverse else (first, rest), -2)


def _plain(a, b, state, log: bool, reverse: bool) -> Tensor:
    """What :class:`Scan` computes, one step at a time and out of place, for gradients that come batched."""
    a, b = (t.flip(-2) if reverse else t for t in (a, b))
    h, _ = diagonal_scan_naive(a, b, state, log=log)
    return h.flip(-2) if reverse else h


def _batch_first(info, in_dims, args) -> list:
    """A vmapped call's arguments with the mapped dimension in front, where every scan takes its batch."""
    mapped = []
    for t, dim in zip(args, in_dims, strict=True):
        if isinstance(t, Tensor):
            t = t.expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0)
        mapped.append(t)
    return mapped


def _check(a, b, state, log: bool, pattern: str) -> None:
    sizes = check_shape("a", a, f"... {pattern}", complex_ok=True)
    if log and a.is_complex():
        raise ValueError(f"log=True needs real log-decays a; got dtype {a.dtype}")
    check_shape("b", b, f"... {pattern}", sizes, complex_ok=True)
    dims = len(pattern.split())
    check_batch(a.shape[:-dims], b=(b, dims))
    check_alike(a=a, b=b)
    check_state(state, "D", {"D": sizes["D"]}, b.shape[:-dims], a=like_state(a, state))


@outside_autocast
def diagonal_scan(
    a: Tensor, b: Tensor, state: Tensor | None = None, *, log: bool = False
) -> tuple[Tensor, Tensor]:
    """Run the diagonal recurrence h_t = a_t h_{t-1} + b_t along dim -2, for every channel at once.

    a: (..., T, D) decays, or their logarithms if ``log`` (more accurate near one; positive ones are
    allowed); b: (..., T, D) inputs; state: (..., D) initial state h_0, zero if None. Returns h (..., T, D)
    and the final state (..., D). Real or complex, in the dtype and on the device of the inputs; float16 and
    bfloat16 are computed, and their states kept, in float32. Differentiable in a, b and state, any number
    of times.

    A decay of modulus above one may overflow to infinity as the recurrence itself does; NaN stays in its
    channel and in later times. Inside ``torch.compile`` (one graph, made for one T) the guard that ensures
    this for strongly growing decays is off. Raises ``ValueError`` for shapes that differ, other devices and
    complex ``a`` with ``log``; ``TypeError`` for other or mixed dtypes. After :cite:`blelloch1990prefix`
    and :cite:`martin2018parallelizing`. Introduced in *scans*.
    """
    _check(a, b, state, log, "T D")
    dtype = b.dtype
    a, b, state = widen(a, b, state)
    if b.numel() == 0:
        end = b.new_zeros((*b.shape[:-2], b.shape[-1])) if state is None else state.clone()
        return (b * a).to(dtype), end
    if torch.compiler.is_compiling():
        h = traced_scan(a, b, state, log)
    elif is_plain(a, b, state):
        h = _scan(a, b, state, log, False)
    else:
        h = Scan.apply(a, b, state, log, False)
    return h.to(dtype), h.select(-2, -1)


def diagonal_scan_naive(a, b, state=None, *, log=False):
    """The recurrence of :func:`diagonal_scan` as it is written, one step at a time."""
    h = b.new_zeros((*b.shape[:-2], b.shape[-1])) if state is None else state
    out = []
    for a_t, b_t in zip((a.exp() if log else a).unbind(-2), b.unbind(-2), strict=True):
        h = a_t * h + b_t
        out.append(h)
    return torch.stack(out, -2) if out else b, h


@outside_autocast
def diagonal_step(
    a_t: Tensor, b_t: Tensor, state: Tensor | None = None, *, log: bool = False
) -> tuple[Tensor, Tensor]:
    """Take one step of :func:`diagonal_scan`: the output and the next state, which are the same tensor
    here.

    a_t, b_t: (..., D) decay (its logarithm if ``log``) and input; state: (..., D), zero if None. Returns
    h_t and the new state, both (..., D). Raises as :func:`diagonal_scan` does. Introduced in *scans*.
    """
    _check(a_t, b_t, state, log, "D")
    dtype = b_t.dtype
    a_t, b_t, state = widen(a_t, b_t, state)
    h = b_t if state is None else (a_t.exp() if log else a_t) * state + b_t
    return h.to(dtype), h
