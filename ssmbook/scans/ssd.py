"""State space duality: one scalar decay a head, so a chunk of the recurrence is a masked matrix product."""

from __future__ import annotations

import torch
from torch import Tensor

from ssmbook._checks import check_alike, check_shape

from ._core import WIDE, all_finite
from ._validate import check_batch, check_state, like_state, outside_autocast, widen
from .diagonal import diagonal_scan

CHUNK = 64


@outside_autocast
def ssd_scan(
    x: Tensor, log_a: Tensor, B: Tensor, C: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Run h_t = a_t h_{t-1} + x_t B_t^T, y_t = h_t C_t for every head, with a scalar decay a_t =
    exp(log_a_t).

    x: (..., T, H, P); log_a: (..., T, H) log-decays (positive ones allowed, minus infinity forgets
    everything); B, C: (..., T, H, N); state: (..., H, P, N) initial state, zero if None. Returns y (..., T,
    H, P) and the final state (..., H, P, N). Chunks of 64 steps are matrix products in the input's dtype,
    the states between chunks a :func:`diagonal_scan`; float16 and bfloat16 are computed, and their states
    kept, in float32. Differentiable in every argument. Raises ``ValueError`` / ``TypeError`` naming the
    argument. After :cite:`dao2024transformers`. Introduced in *scans*.
    """
    _check(x, log_a, B, C, state, "T ")
    dtype, T = x.dtype, x.shape[-3]
    x, log_a, B, C, state = widen(x, log_a, B, C, state)
    if state is None:
        state = x.new_zeros((*x.shape[:-3], x.shape[-2], x.shape[-1], B.shape[-1]))
    if min(x.numel(), B.numel()) == 0:
        return torch.zeros_like(x, dtype=dtype), state.clone()
    out, end = [], state
    for start, length, Q in ((0, T // CHUNK * CHUNK, CHUNK), (T // CHUNK * CHUNK, T % CHUNK, T % CHUNK)):
        if length:
            pieces = [t.narrow(-3, start, length).transpose(-3, -2) for t in (x, B, C)]
            rates = log_a.narrow(-2, start, length).transpose(-2, -1)
            y, end = _chunks(pieces[0], rates, *pieces[1:], end, Q)
            out.append(y.transpose(-3, -2))
    y = out[0] if len(out) == 1 else torch.cat(out, -3)
    if not all_finite(y, end):
        y, end = ssd_scan_naive(x, log_a, B, C, state)
    return y.to(dtype), end


def _chunks(x, log_a, B, C, state, Q: int) -> tuple[Tensor, Tensor]:
    """The scan in chunks of Q steps that fill T exactly, heads before time: x (..., H, T, P), log_a (...,
    H, T).
    """
    x, B, C = (t.unflatten(-2, (-1, Q)) for t in (x, B, C))
    wide = WIDE.get(x.dtype, x.dtype)
    # Differences of sums lose the digits of the sum: take them wide, and nothing below exp(-1000) = 0.
    sums = log_a.to(wide).clamp(min=-1000.0).unflatten(-1, (-1, Q)).cumsum(-1)
    spread = sums.unsqueeze(-1) - sums.unsqueeze(-2)
    mask = torch.ones(Q, Q, dtype=torch.bool, device=x.device).tril()
    decay = spread.to(x.dtype).masked_fill(~mask, -torch.inf).exp()
    y = (C @ B.mT * decay) @ x
    total = sums[..., -1:]
    kept = (total - sums).to(x.dtype).exp().unsqueeze(-1)
    ends = ((x * kept).mT @ B).flatten(-2)
    h, final = diagonal_scan(total.to(x.dtype).expand(ends.shape), ends, state.flatten(-2), log=True)
    before = torch.cat((state.flatten(-2).unsqueeze(-2), h[..., :-1, :]), -2).unflatten(-1, state.shape[-2:])
    y = y + sums.to(x.dtype).exp().unsqueeze(-1) * (C @ before.mT)
    return y.flatten(-3, -2), final.unflatten(-1, state.shape[-2:])


def ssd_scan_naive(x, log_a, B, C, state=None):
    """The recurrence of :func:`ssd_scan` as it is written, one step at a time."""
    h = x.new_zeros((*x.shape[:-3], *x.shape[-2:], B.shape[-1])) if state is None else state
    y = []
    for x_t, log_a_t, B_t, C_t in zip(
        x.unbind(-3), log_a.unbind(-2), B.unbind(-3), C.unbind(-3), strict=True
    ):
        h = log_a_t.exp()[..., None, None] * h + x_t[..., None] * B_t[..., None, :]
        y.append((h * C_t[..., None, :]).sum(-1))
    return torch.stack(y, -3) if y else torch.zeros_like(x), h


@outside_autocast
def ssd_step(
    x_t: Tensor, log_a_t: Tensor, B_t: Tensor, C_t: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Take one step of :func:`ssd_scan`: from x_t (..., H, P), log_a_t (..., H), B_t, C_t (..., H, N) and
    the state.

    state: (..., H, P, N), zero if None. Returns y_t (..., H, P) and the next state. Raises as
    :func:`ssd_scan` does. Introduced in *scans*.
    """
    _check(x_t, log_a_t, B_t, C_t, state, "")
    dtype = x_t.dtype
    x_t, log_a_t, B_t, C_t, state = widen(x_t, log_a_t, B_t, C_t, state)
    b = x_t.unsqueeze(-1) * B_t.unsqueeze(-2)
    state = b if state is None else log_a_t.exp()[..., None, None] * state + b
    return (state @ C_t.unsqueeze(-1)).squeeze(-1).to(dtype), state


def _check(x, log_a, B, C, state, time: str) -> None:
    sizes = check_shape("x", x, f"... {time}H P")
    check_shape("log_a", log_a, f"... {time}H", sizes)
    sizes |= check_shape("B", B, f"... {time}H N", {k: v for k, v in sizes.items() if k != "P"})
    check_shape("C", C, f"... {time}H N", sizes)
    check_alike(x=x, log_a=log_a, B=B, C=C)
    dims = 2 + len(time.split())
    batch = x.shape[:-dims]
    check_batch(batch, log_a=(log_a, dims - 1), B=(B, dims), C=(C, dims))
    check_state(state, "H P N", {k: sizes[k] for k in "HPN"}, batch, x=like_state(x, state))
