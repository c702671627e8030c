"""The diagonal recurrence on a card, by Triton: the loop of :mod:`ssmbook.scans._loops`, one program for a
block of channels.

Where batch and channels alone give too few programs, time is cut into parts as well: each part is run from
zero and leaves its product of decays and its last value, the recurrence of these gives the value before every
part, and all parts are run again from there.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ._blocks import GROWTH

CHANNELS = 32  # that a program runs side by side
PROGRAMS = 1024  # enough to keep a card busy
SHORTEST = 64  # steps of a part


@triton.jit
def _forward(
    a, b, h, start, end, product, T, D, L,
    LOG: tl.constexpr, REVERSE: tl.constexpr, SUMMARY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """h_t = a_t h_{t-1} + b_t for one part of L steps, the state carried in double."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    c = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    spot, here = (row * tl.num_programs(1) + part) * D + c, c < D
    state, kept = tl.load(start + spot, mask=here, other=0.0), tl.full((BLOCK,), 1.0, tl.float64)
    for step in range(part * L, tl.minimum(part * L + L, T)):
        t = T - 1 - step if REVERSE else step
        at = (row * T + t) * D + c
        decay = tl.load(a + at, mask=here, other=0.0).to(tl.float64)
        decay = tl.exp(decay) if LOG else decay
        state = decay * state + tl.load(b + at, mask=here, other=0.0).to(tl.float64)
        if SUMMARY:
            kept = kept * decay
        else:
            tl.store(h + at, state.to(h.dtype.element_ty), mask=here)
    tl.store(end + spot, state, mask=here)
    tl.store(product + spot, kept, mask=here)


@triton.jit
def _backward(
    a, h, state, d_h, d_a, d_b, start, end, product, T, D, L,
    LOG: tl.constexpr, REVERSE: tl.constexpr, SUMMARY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """g_t = d_t + a_{t+1} g_{t+1} for one part, the same loop run the other way."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    c = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    spot, here = (row * tl.num_programs(1) + part) * D + c, c < D
    g, kept = tl.load(start + spot, mask=here, other=0.0), tl.full((BLOCK,), 1.0, tl.float64)
    for step in range(part * L, tl.minimum(part * L + L, T)):
        t = step if REVERSE else T - 1 - step
        at = (row * T + t) * D + c
        decay = tl.load(a + at, mask=here, other=0.0).to(tl.float64)
        decay = tl.exp(decay) if LOG else decay
        g = g + tl.load(d_h + at, mask=here, other=0.0).to(tl.float64)
        carry = decay * g
        if SUMMARY:
            kept = kept * decay
        else:
            earlier = at + D if REVERSE else at - D
            within = tl.where(step < T - 1, D, 0)  # channels whose earlier value is in h: all, or none
            before = tl.load(h + earlier, mask=c < within, other=0.0)
            before += tl.load(state + row * D + c, mask=here & (c >= within), other=0.0)
            change = (carry if LOG else g) * before.to(tl.float64)
            tl.store(d_a + at, change.to(d_a.dtype.element_ty), mask=here)
            tl.store(d_b + at, g.to(d_b.dtype.element_ty), mask=here)
        g = carry
    tl.store(end + spot, g, mask=here)
    tl.store(product + spot, kept, mask=here)


def diagonal(a: Tensor, b: Tensor, state: Tensor | None, log: bool, reverse: bool) -> tuple[Tensor, Tensor]:
    """h (..., T, D) and the final state (..., D), real, not empty."""
    a, b = a.contiguous(), b.contiguous()
    h, end = torch.empty_like(b), b.new_empty((*b.shape[:-2], b.shape[-1]))
    last = _launch(_forward, (a, b, h), _rows(state, end), b, LOG=log, REVERSE=reverse)
    return h, end.copy_(last.view_as(end))


def diagonal_backward(a, h, state, d_h, d_end, log: bool, reverse: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of a, b and the initial state."""
    a, h, d_h = a.contiguous(), h.contiguous(), d_h.contiguous()
    d_a, d_b, state = torch.empty_like(h), torch.empty_like(h), _rows(state, d_end).to(h.dtype)
    g = _launch(_backward, (a, h, state, d_h, d_a, d_b), _rows(d_end, d_end), h, LOG=log, REVERSE=reverse)
    return d_a, d_b, g.view_as(d_end).to(d_end.dtype)


def _rows(state: Tensor | None, like: Tensor) -> Tensor:
    """A state in double, (R, D), all batch dimensions as one; zeros if there is none."""
    state = torch.zeros_like(like) if state is None else state
    return state.reshape(-1, like.shape[-1]).to(torch.float64).contiguous()


def _launch(kernel, data: tuple[Tensor, ...], first: Tensor, like: Tensor, **flags) -> Tensor:
    """Run a kernel over all of time, from the carry ``first`` (R, D) to the last one, both in double."""
    T, (R, D) = like.shape[-2], first.shape
    blocks = triton.cdiv(D, CHANNELS)

    def run(start: Tensor, L: int, summary: bool) -> tuple[Tensor, Tensor]:
        end, product = torch.empty_like(start), torch.empty_like(start)
        with torch.cuda.device_of(start):
            kernel[R, start.shape[1], blocks](
                *data, start, end, product, T, D, L, SUMMARY=summary, BLOCK=CHANNELS, **flags
            )
        return end, product

    parts = min(PROGRAMS // (R * blocks), T // SHORTEST)
    # Double has no wider dtype for the products: there one pass is as exact as the recurrence, parts are not.
    if parts > 1 and like.dtype == torch.float32:
        L = triton.cdiv(T, parts)
        last, product = run(first.new_zeros(R, triton.cdiv(T, L), D), L, True)
        if bool((product.abs().amax() <= GROWTH) & last.isfinite().all()):
            ends, _ = diagonal(product, last, first, False, False)
            return run(torch.cat((first.unsqueeze(1), ends[:, :-1]), 1), L, False)[0][:, -1]
    return run(first.unsqueeze(1), T, False)[0][:, 0]
