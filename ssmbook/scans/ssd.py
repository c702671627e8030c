"""State space duality: one scalar decay a head, so a chunk of the recurrence is a masked matrix product."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from ssmbook.scans._engine import check_scan, half_in_float32, is_finite, loops_for, observer, wide
from ssmbook.scans.diagonal import diagonal
from ssmbook.scans.selective import selective

CHUNK = 64


@half_in_float32
def ssd_scan_naive(
    x: Tensor, log_a: Tensor, B: Tensor, C: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The recurrence of :func:`ssd_scan` as it is written, one step at a time."""
    _check(x, log_a, B, C, state)
    h = x.new_zeros((*x.shape[:-3], *x.shape[-2:], B.shape[-1])) if state is None else state
    y = []
    for x_t, log_a_t, B_t, C_t in zip(
        x.unbind(-3), log_a.unbind(-2), B.unbind(-3), C.unbind(-3), strict=True
    ):
        h = log_a_t.exp()[..., None, None] * h + x_t[..., None] * B_t[..., None, :]
        y.append((h * C_t[..., None, :]).sum(-1))
    return torch.stack(y, -3) if y else torch.zeros_like(x), h


@half_in_float32
def ssd_scan(
    x: Tensor,
    log_a: Tensor,
    B: Tensor,
    C: Tensor,
    state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Run h_t = a_t h_{t-1} + x_t B_t^T, y_t = h_t C_t for every head, with a scalar decay a_t.

    a_t = exp(log_a_t). x: (..., T, H, P); log_a: (..., T, H) log-decays (positive ones allowed, minus
    infinity forgets the state before it); B, C: (..., T, H, N); state: (..., H, P, N) initial state, zero if
    None. Returns y (..., T, H, P) and the final state (..., H, P, N), differentiable any number of times.

    On a CPU with Numba this is one loop; elsewhere chunks of 64 steps are matrix products, the states between
    chunks a :func:`diagonal_scan`. float16 and bfloat16 are computed, and their states kept, in float32.
    Raises ``ValueError`` / ``TypeError`` naming the argument. After `dao2024transformers`.

    >>> x, log_a = torch.ones(4, 1, 1), torch.full((4, 1), 0.5).log()
    >>> B = C = torch.ones(4, 1, 1)
    >>> y, state = ssd_scan(x, log_a, B, C)
    >>> [round(value, 4) for value in y.flatten().tolist()]
    [1.0, 1.5, 1.75, 1.875]
    """
    _check(x, log_a, B, C, state)
    if state is None:
        state = x.new_zeros((*x.shape[:-3], x.shape[-2], x.shape[-1], B.shape[-1]))
    if min(x.numel(), B.numel()) == 0:
        return torch.zeros_like(x), state.clone()
    traced = torch.compiler.is_compiling() and x.device.type == "cpu"
    return (_by_loop if loops_for(x) or traced or x.is_meta else _by_chunks)(x, log_a, B, C, state)


def _check(x, log_a, B, C, state) -> None:
    given = {"x": (x, "... T H P"), "log_a": (log_a, "... T H"), "B": (B, "... T H N")}
    check_scan(**given, C=(C, "... T H N"), state=(state, "... H P N"))


def _by_loop(x, log_a, B, C, state) -> tuple[Tensor, Tensor]:
    """Every head as a selective scan whose states share one decay."""
    x, B, C = (t.transpose(-3, -2) for t in (x, B, C))
    rates = log_a.transpose(-2, -1).unsqueeze(-1).expand(x.shape)
    y, end = selective(x, rates, x.new_ones(1, x.shape[-1]), B, C, state.mT, "none")
    return y.transpose(-3, -2), end.mT


def _by_chunks(x, log_a, B, C, state) -> tuple[Tensor, Tensor]:
    """The scan by chunks of Q steps, the last one filled up with steps that change nothing."""
    given, T, Q = (x, log_a, B, C, state), x.shape[-3], min(CHUNK, x.shape[-3])
    x, B, C = (
        functional.pad(t.transpose(-3, -2), (0, 0, 0, -T % Q)).unflatten(-2, (-1, Q)) for t in (x, B, C)
    )
    # Differences of sums lose the digits of the sum: take them wide, and nothing below exp(-1000) = 0.
    rates = log_a.transpose(-2, -1).to(wide(x.dtype)).clamp(min=-1000.0)
    sums = functional.pad(rates, (0, -T % Q)).unflatten(-1, (-1, Q)).cumsum(-1)
    spread = sums.unsqueeze(-1) - sums.unsqueeze(-2)
    mask = torch.ones(Q, Q, dtype=torch.bool, device=x.device).tril()
    decay = spread.to(x.dtype).masked_fill(~mask, -torch.inf).exp()
    y = (C @ B.mT * decay) @ x
    total = sums[..., -1:]
    kept = (total - sums).to(x.dtype).exp().unsqueeze(-1)
    ends = ((x * kept).mT @ B).flatten(-2)
    h, end = diagonal(total.to(x.dtype).expand(ends.shape), ends, state.flatten(-2), True, False)
    before = torch.cat((state.flatten(-2).unsqueeze(-2), h[..., :-1, :]), -2).unflatten(-1, state.shape[-2:])
    y = y + sums.to(x.dtype).exp().unsqueeze(-1) * (C @ before.mT)
    y, end = y.flatten(-3, -2)[..., :T, :].transpose(-3, -2), end.unflatten(-1, state.shape[-2:])
    # NaN, infinity and overflow spread within a chunk to earlier times: then the recurrence decides.
    spoiled = observer(y) is None and not (is_finite(y) and is_finite(end))
    return ssd_scan_naive(*given) if spoiled else (y, end)
