"""The diagonal recurrence and the selective scan on a GPU, by Triton.

They are the loops of `loops`, one program for a block of channels; every program goes
through time step by step. Nothing waits for a result, so calls queue up on the GPU.

Of the selective scan a program holds all states of its channels, in the dtype of the
inputs, since a GPU's double precision is up to 64 times as slow. A decay close to one is
rounded to few digits of what it lacks, and a small input to few digits of a large state;
over many steps that would add up. So we add what the decay lacks, exp(z) - 1, and carry
what each addition rounds off along as a second number.

The diagonal recurrence moves more memory than it computes, and carries its state in double.
Batch and channels alone may give it too few programs to keep a GPU busy. Then time is cut
into parts as well: each part is run from zero and leaves its product of decays and its last
value, the recurrence of these gives the value before every part, and all parts are run
again from there (as `diagonal` does in PyTorch); where a part grows too much, the GPU sees
it and runs the whole once more. Its gradients are the same kernel, run the other way.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ssmbook.scans.fast.diagonal import GROWTH
from ssmbook.scans.fast.engines import BLOCK

CHANNELS = 32  # that a program runs side by side
PROGRAMS = 1024  # enough to keep a GPU busy
SHORTEST = 64  # steps of a part
TILE = 1024  # states that a program of the selective scan holds


@triton.jit
def _diagonal(
    a, b, h, start, end, product, idle, T, D, L,
    LOG: tl.constexpr, REVERSE: tl.constexpr, SUMMARY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """h_t = a_t h_{t-1} + b_t for one part of L steps, the state carried in double; nothing if ``idle``."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    c = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    spot, here = (row * tl.num_programs(1) + part) * D + c, c < D
    state, kept = tl.load(start + spot, mask=here, other=0.0), tl.full((BLOCK,), 1.0, tl.float64)
    T_end = tl.where(tl.load(idle), 0, tl.minimum(part * L + L, T))
    for step in range(part * L, T_end):
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
def _place(A, D, N, STATES: tl.constexpr, WIDTH: tl.constexpr):
    """The row, channels and states of a program, where they lie, which of them there are, and their rates."""
    row, n = tl.program_id(0).to(tl.int64), tl.arange(0, STATES)
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    tile, here = n[:, None] * D + c[None, :], (n < N)[:, None] & (c < D)[None, :]
    return row, c, n, tile, here, tl.load(A + tile, mask=here, other=0.0)


@triton.jit
def _exponentials(z):
    """exp(z), phi_1(z) = (exp(z) - 1) / z and its derivative phi_1 - phi_2, with phi_2 = (phi_1 - 1) / z.

    Near zero, where these cancel, phi_2 is a series, 1/2 (1 + z/3 (1 + z/4 ...)), and the
    others come from it.
    """
    terms: tl.constexpr = 10 if z.dtype == tl.float32 else 18
    series = tl.full(z.shape, 1.0, z.dtype)
    for k in tl.static_range(terms):
        series = 1 + series * z * (1 / (terms + 2 - k))
    near, decay = tl.abs(z) < 1, tl.exp(z)
    divisor = tl.where(near, 1.0, z)
    phi = tl.where(near, 1 + 0.5 * z * series, (decay - 1) / divisor)
    return near, decay, phi, phi - tl.where(near, 0.5 * series, (phi - 1) / divisor)


@triton.jit
def _add(total, rest, more):
    """total + rest + more, as a sum and the rest that its rounding leaves."""
    more += rest
    after = total + more
    return after, tl.where(tl.abs(after) < float("inf"), more - (after - total), 0.0)


@triton.jit
def _decayed(h, rest, z, near, decay, phi, more):
    """exp(z) (h + rest) + more, as a sum and its rest: near z = 0 by what the decay lacks of one, z phi_1."""
    near = near & (tl.abs(h) < float("inf"))
    factor = tl.where(near, z * phi, decay)
    return _add(tl.where(near, h, 0.0), tl.where(near, decay * rest, 0.0), factor * h + more)


@triton.jit
def _step(
    x, delta, B, rates, h, rest, row, t, T, D, N, c, n, EXACT: tl.constexpr,
):  # fmt: skip
    """h = exp(Delta A) h + B u for a tile of states and channels, and all that made it.

    u = Delta x, times phi_1(Delta A) if ``EXACT``.
    """
    at = (row * T + t) * D + c
    step, value = tl.load(delta + at, mask=c < D, other=0.0), tl.load(x + at, mask=c < D, other=0.0)
    into = tl.load(B + (row * T + t) * N + n, mask=n < N, other=0.0)
    z = step[None, :] * rates
    near, decay, phi, slope = _exponentials(z)
    u = into[:, None] * (step * value)[None, :]
    h, rest = _decayed(h, rest, z, near, decay, phi, u * phi if EXACT else u)
    return h, rest, z, near, decay, phi, slope, step, value, into


@triton.jit
def _selective(
    x, delta, A, B, C, start, y, end, kept, T, D, N, K,
    EXACT: tl.constexpr, STATES: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """y_t = C_t h_t, and of every ``BLOCK`` steps the states before them."""
    row, c, n, tile, here, rates = _place(A, D, N, STATES, WIDTH)
    h = tl.load(start + row * N * D + tile, mask=here, other=0.0)
    rest = tl.zeros_like(h)
    for t in range(T):
        if t % BLOCK == 0:
            tl.store(kept + (row * K + t // BLOCK) * N * D + tile, h, mask=here)
        h, rest, _, _, _, _, _, _, _, _ = _step(x, delta, B, rates, h, rest, row, t, T, D, N, c, n, EXACT)
        out_of = tl.load(C + (row * T + t) * N + n, mask=n < N, other=0.0)
        tl.store(y + (row * T + t) * D + c, tl.sum(out_of[:, None] * h, 0), mask=c < D)
    tl.store(end + row * N * D + tile, h, mask=here)


@triton.jit
def _selective_backward(
    x, delta, A, B, C, kept, d_y, g_end, d_x, d_delta, d_A, d_B, d_C, d_state, scratch, T, D, N, K,
    EXACT: tl.constexpr, STATES: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradients, block by block from the last, whose states are made again and put into ``scratch``."""
    row, c, n, tile, here, rates = _place(A, D, N, STATES, WIDTH)
    g = tl.load(g_end + row * N * D + tile, mask=here, other=0.0)
    none = tl.zeros_like(g)
    g_rest, change_A, change_rest = none, none, none
    part = (tl.program_id(1) * tl.num_programs(0) + row) * T  # sums over the channels of this program
    for back in range(tl.cdiv(T, BLOCK)):
        block = tl.cdiv(T, BLOCK) - 1 - back
        first, steps = block * BLOCK, tl.minimum(BLOCK, T - block * BLOCK)
        h, rest = tl.load(kept + (row * K + block) * N * D + tile, mask=here, other=0.0), none
        tl.debug_barrier()
        for s in range(steps):
            tl.store(scratch + (row * BLOCK + s) * N * D + tile, h, mask=here)
            h, rest, _, _, _, _, _, _, _, _ = _step(
                x, delta, B, rates, h, rest, row, first + s, T, D, N, c, n, EXACT
            )
        tl.debug_barrier()
        for s in range(steps):
            t = first + steps - 1 - s
            before = tl.load(scratch + (row * BLOCK + t - first) * N * D + tile, mask=here, other=0.0)
            h, _, z, near, decay, phi, slope, step, value, into = _step(
                x, delta, B, rates, before, none, row, t, T, D, N, c, n, EXACT
            )
            at, of = (row * T + t) * D + c, (row * T + t) * N + n
            out_of = tl.load(C + of, mask=n < N, other=0.0)
            d_out = tl.load(d_y + at, mask=c < D, other=0.0)
            g, g_rest = _add(g, g_rest, out_of[:, None] * d_out[None, :])
            held, change, u = g, decay * before, (step * value)[None, :]
            if EXACT:
                held, change = g * phi, change + slope * into[:, None] * u
            change = g * change
            tl.store(d_B + (part + t) * N + n, tl.sum(held * u, 1), mask=n < N)
            tl.store(d_C + (part + t) * N + n, tl.sum(h * d_out[None, :], 1), mask=n < N)
            d_u = tl.sum(held * into[:, None], 0)
            change_A, change_rest = _add(change_A, change_rest, change * step[None, :])
            g, g_rest = _decayed(g, g_rest, z, near, decay, phi, none)
            tl.store(d_x + at, d_u * step, mask=c < D)
            tl.store(d_delta + at, tl.sum(change * rates, 0) + d_u * value, mask=c < D)
    tl.store(d_A + row * N * D + tile, change_A, mask=here)
    tl.store(d_state + row * N * D + tile, g, mask=here)


def diagonal(a: Tensor, b: Tensor, state: Tensor | None, log: bool, reverse: bool) -> tuple[Tensor, Tensor]:
    """h (..., T, D) and the final state (..., D), real, not empty."""
    a, b = a.contiguous(), b.contiguous()
    h, end = torch.empty_like(b), b.new_empty((*b.shape[:-2], b.shape[-1]))
    first = (torch.zeros_like(end) if state is None else state).reshape(-1, b.shape[-1])
    return h, end.copy_(_launch(a, b, h, first.to(torch.float64).contiguous(), log, reverse).view_as(end))


def _launch(a: Tensor, b: Tensor, h: Tensor, first: Tensor, log: bool, reverse: bool) -> Tensor:
    """Run the kernel over all of time, from the carry ``first`` (R, D) to the last one, both in double."""
    T, (R, D) = b.shape[-2], first.shape
    blocks = triton.cdiv(D, CHANNELS)

    def run(start: Tensor, L: int, summary: bool, idle: Tensor) -> tuple[Tensor, Tensor]:
        last, product = torch.empty_like(start), torch.empty_like(start)
        flags = {"LOG": log, "REVERSE": reverse, "SUMMARY": summary, "BLOCK": CHANNELS}
        with torch.cuda.device_of(start):
            _diagonal[R, start.shape[1], blocks](a, b, h, start, last, product, idle, T, D, L, **flags)
        return last, product

    parts = min(PROGRAMS // (R * blocks), T // SHORTEST)
    no = first.new_zeros((), dtype=torch.bool)
    # Double has no wider dtype for the products: there one pass is as exact as the
    # recurrence, parts are not.
    if parts <= 1 or b.dtype != torch.float32:
        return run(first.unsqueeze(1), T, False, no)[0][:, 0]
    L = triton.cdiv(T, parts)
    last, product = run(first.new_zeros(R, triton.cdiv(T, L), D), L, True, no)
    exact = (product.abs().amax() <= GROWTH) & last.isfinite().all()
    ends, _ = diagonal(product, last, first, False, False)
    by_parts = run(torch.cat((first.unsqueeze(1), ends[:, :-1]), 1), L, False, no)[0][:, -1]
    whole = run(first.unsqueeze(1), T, False, exact)[0][:, 0]
    return torch.where(exact, by_parts, whole)


def selective(x, delta, A, B, C, state, discretization) -> tuple[Tensor, Tensor, Tensor]:
    """y (..., T, d), the final state (..., N, d), and the states before every block of steps; not empty."""
    y, (N, D), K = x.new_empty(x.shape), A.shape, x.shape[-2] // BLOCK + 2
    kept, start = x.new_zeros((*x.shape[:-2], K, N, D)), state.contiguous()
    end = torch.empty_like(start)
    _launch_tiles(_selective, (x, delta, A, B, C), discretization, (start, y, end, kept), K)
    return y, end, kept


def selective_backward(x, delta, A, B, C, discretization, kept, d_y, d_end) -> tuple[Tensor, ...]:
    """The gradients of x, delta, A, B, C and the initial state."""
    (N, D), (T, batch) = A.shape, (x.shape[-2], x.shape[:-2])
    d_x, d_delta = (x.new_empty(x.shape) for _ in range(2))
    d_A, d_state = (x.new_empty((*batch, N, D)) for _ in range(2))
    parts = triton.cdiv(D, _tile(N)[1])
    d_B, d_C = (x.new_empty((parts, *batch, T, N)) for _ in range(2))
    scratch = x.new_empty((*batch, BLOCK, N, D))
    given = kept.contiguous(), d_y.contiguous(), d_end.contiguous()
    found = d_x, d_delta, d_A, d_B, d_C, d_state
    inputs, others = (x, delta, A, B, C), (*given, *found, scratch)
    _launch_tiles(_selective_backward, inputs, discretization, others, kept.shape[-3])
    return d_x, d_delta, d_A.sum_to_size(A.shape), d_B.sum(0), d_C.sum(0), d_state


def _tile(N: int) -> tuple[int, int]:
    """How many states (a power of two) and channels a program holds."""
    states = triton.next_power_of_2(N)
    return states, max(1, min(CHANNELS, TILE // states))


def _launch_tiles(kernel, inputs, discretization: str, others, K: int) -> None:
    inputs = [t.contiguous() for t in inputs]
    x, N = inputs[0], inputs[2].shape[0]
    (states, width), (T, D) = _tile(N), x.shape[-2:]
    with torch.cuda.device_of(x):
        kernel[x.numel() // (T * D), triton.cdiv(D, width)](
            *inputs, *others, T, D, N, K,
            EXACT=discretization == "zoh", STATES=states, WIDTH=width, BLOCK=BLOCK,
        )  # fmt: skip
