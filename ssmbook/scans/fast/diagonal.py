"""The recurrence h_t = a_t h_{t-1} + b_t as an operation, and its gradients.

Its gradients obey a recurrence of the same kind. Let d_t be the gradient of the loss with respect to
the output h_t, and g_t that with respect to the state h_t, which also acts through all later steps:

    g_t = d_t + conj(a_{t+1}) g_{t+1},   dL/db_t = g_t,   dL/da_t = g_t conj(h_{t-1}).

So the backward pass is the same scan, run from the last step to the first.
"""

import torch
from torch import Tensor

from ssmbook.scans.fast import blocks, engines
from ssmbook.scans.fast.operation import Operation, active_transform, differentiated_again
from ssmbook.scans.fast.steps import steps_of, value_before


def diagonal(
    a: Tensor, b: Tensor, state: Tensor | None, log: bool, reverse: bool = False
) -> tuple[Tensor, Tensor]:
    """h (..., T, D), T > 0, and the final state (..., D); ``reverse``: from the last step to the first."""
    form = _by_steps if active_transform() == "derivative" else _diagonal
    return form(a, b, state, log, reverse)


def _by_steps(a, b, state, log: bool, reverse: bool) -> tuple[Tensor, Tensor]:
    """Step by step and out of place, for forward mode and ``torch.func``, which differentiate every step."""
    h = b.new_zeros(()) if state is None else state
    decay = a.exp() if log else a
    states = []
    for a_t, b_t in zip(steps_of(decay, reverse), steps_of(b, reverse), strict=True):
        h = a_t * h + b_t
        states.append(h)
    return torch.stack(states[::-1] if reverse else states, -2), h


# --- The operation ------------------------------------------------------------------------------------


def _channels_backward(h: Tensor, backward: bool) -> bool:
    """Whether the loop should run through the channels backward, as it does through time.

    Where many numbers lie between one step and the next, memory is up to four times as fast that way.
    """
    return backward and h.shape[-1] > 64


def _like_h(a, b, state, log, reverse):
    return b.new_empty(b.shape), b.new_empty((*b.shape[:-2], b.shape[-1]))


def _h(a, b, state, log, reverse):
    """The states and the last of them."""
    kernels = engines.kernels_for(b)
    if kernels:
        return kernels.diagonal(a, b, state, log, reverse)
    h, end = _like_h(a, b, state, log, reverse)
    loops = engines.loops_for(b)
    if loops:
        h = engines.on_large_pages(h)
        carry = engines.wide_copy(state, end)
        loop = loops.diagonal(log, reverse, _channels_backward(b, reverse))
        engines.run(loop, (a, 2), (b, 2), (carry, 1), (h, 2))
        return h, carry.to(b.dtype)
    if b.numel():
        blocks.scan_into(a, b, h, state, log, reverse)
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
    loops = engines.loops_for(h)
    if not loops:
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
