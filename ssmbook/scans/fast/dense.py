"""The recurrence h_t = A h_{t-1} + u_t, with one matrix for all steps, as an operation.

Its gradients obey g_t = d_t + A^H g_{t+1}, where d_t is the gradient with respect to the output h_t: the
same operation with A^H, run from the last step to the first. Then dL/du_t = g_t, and dL/dA is the sum of
all g_t h_{t-1}^H.
"""

import torch
from torch import Tensor

from ssmbook.scans._arguments import wide
from ssmbook.scans.fast import engines
from ssmbook.scans.fast.operation import Operation, active_transform
from ssmbook.scans.fast.steps import steps_of, value_before


def dense(A: Tensor, u: Tensor, state: Tensor | None, reverse: bool = False) -> tuple[Tensor, Tensor]:
    """All states (..., T, N), T > 0, and the last one (..., N), for one A (N, N)."""
    form = _by_steps if active_transform() == "derivative" else _dense
    return form(A, u, state, reverse)


def _by_steps(A, u, state, reverse):
    """Step by step and out of place."""
    h = torch.zeros_like(u[..., 0, :]) if state is None else state
    states = []
    for u_t in steps_of(u, reverse):
        h = u_t + h @ A.mT
        states.append(h)
    return torch.stack(states[::-1] if reverse else states, -2), h.clone()


def _like_states(A, u, state, reverse):
    return u.new_empty(u.shape), u.new_empty((*u.shape[:-2], u.shape[-1]))


def _states(A, u, state, reverse):
    loops = engines.loops_for(u)
    if not loops:
        return _by_steps(A, u, state, reverse)
    h, end = map(engines.on_large_pages, _like_states(A, u, state, reverse))
    carry = engines.wide_copy(state, end)
    matrix = A.to(wide(A.dtype)).contiguous().numpy(force=True)
    engines.run(loops.dense, matrix, (u, 2), reverse, (carry, 1), (h, 2))
    return h, end.copy_(carry)


def _keep(ctx, inputs, output):
    A, _, state, ctx.reverse = inputs
    ctx.save_for_backward(A, output[0], state)


def _pull(ctx, d_h, d_end):
    A, h, state = ctx.saved_tensors
    if ctx.reverse:
        h, d_h = h.flip(-2), d_h.flip(-2)
    d_h = torch.cat((d_h[..., :-1, :], d_h[..., -1:, :] + d_end.unsqueeze(-2)), -2)
    g, _ = dense(A.mH, d_h, None, reverse=True)
    d_state = None if state is None else g[..., 0, :] @ A.conj()
    d_A = g.transpose(-2, -1) @ value_before(h, state).conj()
    d_A = d_A.sum(tuple(range(d_A.dim() - 2))) if d_A.dim() > 2 else d_A
    return d_A, g.flip(-2) if ctx.reverse else g, d_state, None


_dense = Operation(
    "dense(Tensor A, Tensor u, Tensor? state, bool reverse) -> (Tensor, Tensor)",
    *(_states, _like_states, _keep, _pull, (0,)),
)
