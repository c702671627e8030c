"""The recurrence h_t = a_t h_{t-1} + b_t as an operation, and its gradients.

Its gradients obey a recurrence of the same kind. Let d_t be the gradient of the loss with
respect to the output h_t, and g_t that with respect to the state h_t, which also acts
through all later steps:

    g_t = d_t + conj(a_{t+1}) g_{t+1},   dL/db_t = g_t,   dL/da_t = g_t conj(h_{t-1}).

So the backward pass is the same scan, run from the last step to the first.
"""

import math

import torch
from torch import Tensor

from ssmbook.scans._shared import run_steps, steps_of, value_before, wide
from ssmbook.scans.fast import engines
from ssmbook.scans.fast.operation import Operation, active_transform, differentiated_again


def diagonal(
    a: Tensor, b: Tensor, state: Tensor | None, log: bool, reverse: bool = False
) -> tuple[Tensor, Tensor]:
    """h (..., T, D), T > 0, and the final state (..., D); ``reverse``: from the last step to the first."""
    one = b.shape[-2] == 1
    form = _by_steps if one or active_transform() == "derivative" else _diagonal
    return form(a, b, state, log, reverse)


def _by_steps(a, b, state, log: bool, reverse: bool) -> tuple[Tensor, Tensor]:
    """Step by step, out of place: one step, forward mode, ``torch.func``, which differentiates each one."""
    start = b.new_zeros(()) if state is None else state
    decay = a.exp() if log else a
    return run_steps(lambda h, a_t, b_t: a_t * h + b_t, start, decay, b, reverse=reverse)


# --- The operation ------------------------------------------------------------------------------------


def _channels_backward(h: Tensor, backward: bool) -> bool:
    """Whether the loop should run through the channels backward, as it does through time.

    Where many numbers lie between one step and the next, memory is up to four times as fast
    that way.
    """
    return backward and h.shape[-1] > 64


def _like_h(a, b, state, log, reverse):
    return b.new_empty(b.shape), b.new_empty((*b.shape[:-2], b.shape[-1]))


def _h(a, b, state, log, reverse):
    """The states and the last of them."""
    if kernels := engines.kernels_for(b):
        return kernels.diagonal(a, b, state, log, reverse)
    h, end = _like_h(a, b, state, log, reverse)
    if loops := engines.loops_for(b):
        h = engines.on_large_pages(h)
        carry = engines.wide_copy(state, end)
        loop = loops.diagonal(log, reverse, _channels_backward(b, reverse))
        engines.run(loop, (a, 2), (b, 2), (carry, 1), (h, 2))
        return h, carry.to(b.dtype)
    if b.numel():
        scan_into(a, b, h, state, log, reverse)
        end.copy_(h.select(-2, 0 if reverse else -1))
    return h, end


def _keep(ctx, inputs, output):
    a, _, state, ctx.log, ctx.reverse = inputs
    ctx.save_for_backward(a, output[0], state)


def _pull(ctx, d_h, d_end):
    a, h, state = ctx.saved_tensors
    formula = _adjoint if differentiated_again() else _diagonal_backward
    d_a, d_b, d_state = formula(a, h, state, d_h, d_end, ctx.log, ctx.reverse)
    return d_a, d_b, None if state is None else d_state, None, None


_diagonal = Operation(
    "diagonal(Tensor a, Tensor b, Tensor? state, bool log, bool reverse) -> (Tensor, Tensor)",
    *(_h, _like_h, _keep, _pull),
)

# --- Its gradients, as a second operation ---------------------------------------------------------------


def _like_gradients(a, h, state, d_h, d_end, log, reverse):
    return h.new_empty(h.shape), h.new_empty(h.shape), d_end.new_empty(d_end.shape)


def _gradients(a, h, state, d_h, d_end, log, reverse):
    """The gradients of a, b and the initial state, from those of all states and of the last."""
    if not (loops := engines.loops_for(h)):
        return _adjoint(a, h, state, d_h, d_end, log, reverse)
    d_a, d_b = (engines.on_large_pages(h.new_empty(h.shape)) for _ in range(2))
    g = engines.wide_copy(d_end, d_end)
    state = torch.zeros_like(d_end) if state is None else state
    loop = loops.diagonal_backward(log, reverse, _channels_backward(h, not reverse))
    engines.run(loop, (a, 2), (h, 2), (state, 1), (d_h, 2), (g, 1), (d_a, 2), (d_b, 2))
    return d_a, d_b, g.to(d_end.dtype)


def _adjoint(a, h, state, d_h, d_end, log, reverse):
    """The same by the recurrence itself, run the other way."""
    if reverse:
        a, h, d_h = a.flip(-2), h.flip(-2), d_h.flip(-2)
    one = torch.full_like(a[..., :1, :], 0 if log else 1)  # nothing decays after the last step
    later = torch.cat((a[..., 1:, :], one), -2).conj()
    g, _ = diagonal(later, d_h, d_end, log, reverse=True)
    decay = (a.exp() if log else a).conj()
    d_a = g * value_before(h, state).conj()
    d_a = d_a * decay if log else d_a
    d_state = decay[..., 0, :] * g[..., 0, :]
    return (d_a.flip(-2), g.flip(-2), d_state) if reverse else (d_a, g, d_state)


_diagonal_backward = Operation(
    "diagonal_backward(Tensor a, Tensor h, Tensor? state, Tensor d_h, Tensor d_end, bool log, bool reverse)"
    " -> (Tensor, Tensor, Tensor)",
    *(_gradients, _like_gradients),
)


# --- The form in PyTorch, without Numba and Triton: time in blocks, all of them at once -----------------
#
# 1. Run every block of 16 steps from zero. Of each keep the product P of its decays and its last value H.
# 2. The true value at the end of block i is c_i = P_i c_{i-1} + H_i: the same recurrence, 16 times shorter,
#    so we run it in the same way.
# 3. Run every block again, now from the true value before it.
#
# Nothing is divided, and no long cumulative product is formed (`prop-chunked`).

STEPS = 16
LOG2_E = 1 / math.log(2)  # exp as a power of two: PyTorch's own is several times slower on some processors
WIDTH = 4096  # from this many channels on, one step is work enough for one call
GROWTH = 64.0  # a block that can amplify its carry by more than this is left to the plain loop


def scan_into(a: Tensor, b: Tensor, h: Tensor, carry: Tensor | None, log: bool, reverse: bool) -> None:
    """Write the recurrence with decays ``a`` (``exp(a)`` if ``log``), all (..., T, D), into ``h``.

    ``carry`` (..., D) is the value before the first step (after the last one if ``reverse``). Where a
    block amplifies or overflows the plain loop decides, so that infinity and NaN come out as in the
    recurrence.
    """
    decay = (a * LOG2_E).exp2_() if log else a
    L = STEPS // 2 if log else STEPS  # equal logarithms share one rounding error, which grows with L
    n, rest = divmod(b.shape[-2], L)
    if n <= 2 or b.numel() >= WIDTH * b.shape[-2]:
        return _loop_into(decay, b, h, carry, reverse)
    # the steps that do not fill a block are the last to be run
    body, tail = ((rest, n * L), (0, rest)) if reverse else ((0, n * L), (n * L, rest))
    whole = [t.narrow(-2, *body).unflatten(-2, (n, L)) for t in (a, decay, b, h)]
    end = _blocks_into(*whole, carry, log, reverse)
    if end is None:
        _loop_into(decay, b, h, carry, reverse)
    elif rest:
        _loop_into(*(t.narrow(-2, *tail) for t in (decay, b, h)), end, reverse)


def _loop_into(a: Tensor, b: Tensor, h: Tensor, carry: Tensor | None, reverse: bool) -> None:
    """Write h_t = b_t + a_t h_{t-1} step by step."""
    au, bu, hu = (steps_of(t, reverse) for t in (a, b, h))
    if carry is None:
        hu[0].copy_(bu[0])
    else:
        torch.addcmul(bu[0], au[0], carry.to(b.dtype), out=hu[0])
    for t in range(1, len(hu)):
        torch.addcmul(bu[t], au[t], hu[t - 1], out=hu[t])


def _blocks_into(a, decay, b, h, carry, log: bool, reverse: bool) -> Tensor | None:
    """The three passes over (..., n, L, D): the last value, or None where the plain loop has to decide."""
    au, bu, hu = (steps_of(t, reverse) for t in (decay, b, h))
    if log:
        product = a.sum(-2, dtype=wide(a.dtype)).exp_()
    else:
        product = au[0].to(wide(a.dtype), copy=True)
        for a_t in au[1:]:
            product.mul_(a_t)
    if not product.abs().max().item() <= GROWTH:  # so that NaN is refused, too
        return None
    last = _last_values(au, bu, None).to(product.dtype)
    ends = torch.empty_like(last)
    scan_into(product, last, ends, carry, False, reverse)
    if product.dtype == b.dtype:
        # Products of equal decays are rounded alike in every block, which adds up. With no
        # wider dtype for them, one more pass measures what the ends miss of the recurrence,
        # and the same products spread it.
        miss = _last_values(au, bu, _before(ends, carry, reverse)).sub_(ends)
        scan_into(product, miss, last, None, False, reverse)
        ends += last
    end = ends.select(-2, 0 if reverse else -1)
    if not bool(end.isfinite().all()):  # every value that is not finite reaches the end
        return None
    before = _before(ends, carry, reverse).to(b.dtype)
    for a_t, b_t, h_t in zip(au, bu, hu, strict=True):
        before = torch.addcmul(b_t, a_t, before, out=h_t)
    return end


def _last_values(au, bu, before: Tensor | None) -> Tensor:
    """The last value of every block, (..., n, D), from the value before it (zero if None)."""
    last = bu[0].clone() if before is None else torch.addcmul(bu[0], au[0], before)
    for a_t, b_t in zip(au[1:], bu[1:], strict=True):
        torch.addcmul(b_t, a_t, last, out=last)
    return last


def _before(ends: Tensor, carry: Tensor | None, reverse: bool) -> Tensor:
    """The value before every block: the end of its neighbor, and ``carry`` (or zero) before the first."""
    n, before = ends.shape[-2], torch.empty_like(ends)
    first = before.select(-2, n - 1 if reverse else 0)
    first.zero_() if carry is None else first.copy_(carry)
    before.narrow(-2, 0 if reverse else 1, n - 1).copy_(ends.narrow(-2, 1 if reverse else 0, n - 1))
    return before
