"""The states h_t = A h_{t-1} + u_t: one step at a time, by blocks, and as one opaque step for tracers."""

from __future__ import annotations

import torch
from torch import Tensor

from ._powers import choose, is_finite
from ._transients import STEPS, warn_of_transient

SCALE = 0.7  # of a second run: no power of two, so that other numbers are rounded


def states_by_recurrence(A: Tensor, u: Tensor, state: Tensor) -> Tensor:
    """All states (..., T, N) for inputs u (..., T, N) from ``state`` (..., N), one step at a time."""
    out = []
    for u_t in u.unbind(-2):
        state = u_t + state @ A.mT
        out.append(state)
    return torch.stack(out, -2)


def states_by_blocks(powers: list[Tensor], u: Tensor, state: Tensor) -> Tensor:
    """The states of :func:`states_by_recurrence` from A, A^2, A^4, ...: run every block of 16 steps from
    zero, scan the block ends with A^16, run every block again.
    """
    A, T, L = powers[0], u.shape[-2], 16
    if T <= 2 * L:
        return states_by_recurrence(A, u, state)
    n = T // L
    blocked = u[..., : n * L, :].unflatten(-2, (n, L))
    last = blocked.select(-2, 0)
    for t in range(1, L):
        last = blocked.select(-2, t) + last @ A.mT
    ends = states_by_blocks(powers[4:], last, state)
    before = torch.cat((state.unsqueeze(-2), ends[..., :-1, :]), -2)
    h = states_by_recurrence(A, blocked, before).flatten(-3, -2)
    if n * L == T:
        return h
    return torch.cat((h, states_by_recurrence(A, u[..., n * L :, :], ends.select(-2, -1))), -2)


def warn_of_states(A: Tensor, C: Tensor, u: Tensor, state: Tensor, y: Tensor) -> None:
    """Warn where the outputs C h of the first sequence are off: against those of 0.7 u, rounded elsewhere."""
    with torch.no_grad():
        u, state, y = (t.detach().flatten(0, -3)[0] if t.ndim > 2 else t.detach() for t in (u, state, y))
        u, y = u[:STEPS], y[:STEPS]
        state = state.reshape(-1, state.shape[-1])[0]
        again = states_by_recurrence(A.detach(), SCALE * u, SCALE * state) @ C.detach().mT / SCALE
    warn_of_transient(A, len(u), y, again)


@torch.library.custom_op("ssmbook::lti_states", mutates_args=())
def traced_states(A: Tensor, C: Tensor, u: Tensor, state: Tensor) -> Tensor:
    """The states for A (N, N), u (..., T, N), state (..., N), T > 0, as one step of a traced program: the way
    is chosen when it runs, for while it is traced A cannot be looked at. C (p, N) says what of them is read.
    """
    T = u.shape[-2]
    route = choose(A, torch.eye(len(A), dtype=A.dtype, device=A.device), C, T, state)
    dtype = route.powers[0].dtype
    if route.sound and is_finite(u):
        h = states_by_blocks(route.powers, u.to(dtype), state.to(dtype))
    else:
        h = states_by_recurrence(A, u, state)
    if route.suspect and u.numel():
        warn_of_states(A, C, u, state, h @ C.mT.to(h.dtype))
    return h.to(A.dtype).contiguous()


@traced_states.register_fake
def _(A, C, u, state):
    return u.new_empty(u.shape)


@traced_states.register_vmap
def _(info, in_dims, A, C, u, state):
    """Samples of u and of the state are one more batch dimension; samples of A are run one by one."""
    many = [
        t.expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0)
        for t, dim in zip((A, C, u, state), in_dims, strict=True)
    ]
    if in_dims[0] is None and in_dims[1] is None:
        return traced_states(A, C, *(t.contiguous() for t in many[2:])), 0
    return torch.stack([traced_states(*(t.contiguous() for t in one)) for one in zip(*many, strict=True)]), 0


def _keep(ctx, inputs, output):
    A, C, _, state = inputs
    ctx.save_for_backward(A, state, output)


def _backward(ctx, grad):
    """The same recurrence with A^H, backwards in time."""
    A, state, h = ctx.saved_tensors
    eye = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    back = traced_states(A.mH.contiguous(), eye, grad.flip(-2), torch.zeros_like(state)).flip(-2)
    before = torch.cat((state.unsqueeze(-2), h[..., :-1, :]), -2)
    grad_A = torch.einsum("...ti,...tj->ij", back, before.conj())
    return grad_A, None, back, back.select(-2, 0) @ A.conj()


traced_states.register_autograd(_backward, setup_context=_keep)
