"""State space duality (Mamba-2): one scalar decay a head, so a chunk of the recurrence is a matrix product.

A head keeps a matrix h (P, N). The token writes the product of its value x_t and its key
B_t, and its query C_t reads:

    h_t = a_t h_{t-1} + x_t B_t^T,    y_t = h_t C_t.

Since the decay is one number, everything that one token contributes to another one is a
number, too: y_i = sum over j <= i of (a_{j+1} ... a_i) (C_i . B_j) x_j. This is attention
without softmax, with products of decays in place of its mask. The recurrence and this sum
are two forms of one map (the duality), and between them there are all the forms in chunks
(`prop-ssd-block`).
"""

import torch
from torch import Tensor
from torch.nn import functional

from ssmbook.scans._shared import check_scan, half_in_float32, is_finite, value_before, wide
from ssmbook.scans.fast import engines
from ssmbook.scans.fast.diagonal import diagonal
from ssmbook.scans.fast.operation import active_transform
from ssmbook.scans.fast.selective import selective

CHUNK = 64
# From this many states a head on, chunks train faster than the loop in float32. Time of forward and backward
# by the loop over that by chunks (one thread, 2 x 1,024 steps, 4 heads): P = N = 16: 0.45, 32: 0.8, 64: 1.2;
# P = 64, N = 128: 1.6. Forward alone it is 0.25 to 0.8, in float64 at P = N = 64 it is 0.7.
WIDE_HEAD = 64 * 64


@half_in_float32
def ssd_scan_naive(
    x: Tensor, log_a: Tensor, B: Tensor, C: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The recurrence of :func:`ssd_scan` as it is written, one step at a time.

    Parameters
    ----------
    x : Tensor (..., T, H, P)
        Values.
    log_a : Tensor (..., T, H)
        Logarithms of the decays.
    B, C : Tensor (..., T, H, N)
        Keys and queries.
    state : Tensor (..., H, P, N), optional
        The initial state, zero if None.

    Returns
    -------
    y : Tensor (..., T, H, P)
        The outputs.
    end : Tensor (..., H, P, N)
        The last state.

    Raises
    ------
    ValueError, TypeError
        For shapes that differ, and for mixed dtypes.
    """
    _check(x, log_a, B, C, state)
    return _by_steps(x, log_a, B, C, _start(x, B) if state is None else state)


def _start(x, B) -> Tensor:
    return x.new_zeros((*x.shape[:-3], *x.shape[-2:], B.shape[-1]))


def _by_steps(x, log_a, B, C, h) -> tuple[Tensor, Tensor]:
    y = []
    steps = zip(x.unbind(-3), log_a.unbind(-2), B.unbind(-3), C.unbind(-3), strict=True)
    for x_t, log_a_t, B_t, C_t in steps:
        h = log_a_t.exp()[..., None, None] * h + x_t[..., None] * B_t[..., None, :]
        y.append((h * C_t[..., None, :]).sum(-1))
    return torch.stack(y, -3) if y else torch.zeros_like(x), h


@half_in_float32
def ssd_scan(
    x: Tensor, log_a: Tensor, B: Tensor, C: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Run h_t = a_t h_{t-1} + x_t B_t^T, y_t = h_t C_t for every head, with a scalar decay a_t.

    On a CPU with Numba this is one loop; elsewhere, and for the gradients of wide heads in float32, chunks
    of 64 steps are matrix products, the states between chunks a :func:`diagonal_scan`. After
    `dao2024transformers`. On a GPU nothing waits for a result: what follows infinity is NaN there, and so
    may be what follows a growth by more than the dtype holds within 64 steps.

    Parameters
    ----------
    x : Tensor (..., T, H, P)
        Values. All arguments have one real dtype; float16 and bfloat16 are computed, and their states
        kept, in float32.
    log_a : Tensor (..., T, H)
        Log-decays, a_t = exp(log_a_t): positive ones are allowed, minus infinity forgets the state
        before it.
    B, C : Tensor (..., T, H, N)
        Keys and queries.
    state : Tensor (..., H, P, N), optional
        The initial state h_0, zero if None.

    Returns
    -------
    y : Tensor (..., T, H, P)
        The outputs, differentiable any number of times.
    end : Tensor (..., H, P, N)
        The last state.

    Raises
    ------
    ValueError
        For shapes that differ.
    TypeError
        For mixed dtypes.

    Examples
    --------
    >>> x, log_a = torch.ones(4, 1, 1), torch.full((4, 1), 0.5).log()
    >>> B = C = torch.ones(4, 1, 1)
    >>> y, state = ssd_scan(x, log_a, B, C)
    >>> [round(value, 4) for value in y.flatten().tolist()]
    [1.0, 1.5, 1.75, 1.875]
    """
    _check(x, log_a, B, C, state)
    state = _start(x, B) if state is None else state
    if min(x.numel(), B.numel()) == 0:
        return torch.zeros_like(x), state.clone()
    traced = torch.compiler.is_compiling() and x.device.type == "cpu"
    given = x, log_a, B, C, state
    if x.shape[-3] == 1:
        return _by_steps(*given)
    trains = torch.is_grad_enabled() and any(t.requires_grad for t in given)
    wide_head = trains and x.dtype == torch.float32 and x.shape[-1] * B.shape[-1] >= WIDE_HEAD
    if traced or x.is_meta or (engines.loops_for(x) and not wide_head):
        return _by_loop(*given)
    if x.device.type != "cpu" or engines.INTERPRETED:
        return _without_a_look(*given)
    y, end = _by_chunks(*given)
    # NaN, infinity and overflow spread within a chunk to earlier times: then the recurrence
    # decides.
    spoiled = active_transform(y) is None and not (is_finite(y) and is_finite(end))
    return _by_steps(*given) if spoiled else (y, end)


def _check(x, log_a, B, C, state) -> None:
    given = {"x": (x, "... T H P"), "log_a": (log_a, "... T H"), "B": (B, "... T H N")}
    check_scan(**given, C=(C, "... T H N"), state=(state, "... H P N"))


def _by_loop(x, log_a, B, C, state) -> tuple[Tensor, Tensor]:
    """Every head as a selective scan whose states share one decay."""
    x, B, C = (t.transpose(-3, -2) for t in (x, B, C))
    rates = log_a.transpose(-2, -1).unsqueeze(-1).expand(x.shape)
    one = x.new_ones(1, x.shape[-1])
    y, end = selective(x, rates, one, B, C, state.mT, "none")
    return y.transpose(-3, -2), end.mT


def _by_chunks(x, log_a, B, C, state) -> tuple[Tensor, Tensor]:
    """The scan by chunks of Q steps, the last one filled up with steps that change nothing.

    With s_i = log a_1 + ... + log a_i from the start of a chunk, the product of the decays from j to i is
    exp(s_i - s_j). An output is what its own chunk contributes, the sum above, and what the state
    before the chunk does.
    """
    T, Q = x.shape[-3], min(CHUNK, x.shape[-3])

    def chunks(t: Tensor) -> Tensor:
        filled = functional.pad(t.transpose(-3, -2), (0, 0, 0, -T % Q))
        return filled.unflatten(-2, (-1, Q))  # (..., H, chunks, Q, size)

    x, B, C = map(chunks, (x, B, C))
    # Differences of sums lose the digits of the sum: take them wide, and nothing below
    # exp(-1000) = 0.
    rates = log_a.transpose(-2, -1).to(wide(x.dtype)).clamp(min=-1000.0)
    sums = functional.pad(rates, (0, -T % Q)).unflatten(-1, (-1, Q)).cumsum(-1)
    spread = sums.unsqueeze(-1) - sums.unsqueeze(-2)
    causal = torch.ones(Q, Q, dtype=torch.bool, device=x.device).tril()
    decay = spread.to(x.dtype).masked_fill(~causal, -torch.inf).exp()
    within = (C @ B.mT * decay) @ x
    # the state that each chunk leaves, from zero: a token decays from its own step to the
    # chunk's end
    total = sums[..., -1:]
    to_end = (total - sums).to(x.dtype).exp().unsqueeze(-1)
    left = ((x * to_end).mT @ B).flatten(-2)
    start = state.flatten(-2)
    h, end = diagonal(total.to(x.dtype).expand(left.shape), left, start, log=True)
    before = value_before(h, start).unflatten(-1, state.shape[-2:])
    y = within + sums.to(x.dtype).exp().unsqueeze(-1) * (C @ before.mT)
    return y.flatten(-3, -2)[..., :T, :].transpose(-3, -2), end.unflatten(-1, state.shape[-2:])


def _without_a_look(x, log_a, B, C, state) -> tuple[Tensor, Tensor]:
    """The scan by chunks on a GPU, which would have to wait if we looked whether the results are finite.

    The chunks get zeros in place of what is not finite, which then turns into NaN what the recurrence
    takes it to.
    """
    rates = log_a.nan_to_num(0.0, 0.0, -1000.0)
    numbers = [t.nan_to_num(0.0, 0.0, 0.0) for t in (x, B, C, state)]
    y, end = _by_chunks(numbers[0], rates, *numbers[1:])
    of_x, of_a, of_B, of_C, of_state = (0 * t.detach() for t in (x, log_a.clamp(min=-1000.0), B, C, state))
    since = (of_x + of_a.unsqueeze(-1)).cumsum(-3)
    y = y + since + (of_B.sum(-1).cumsum(-2) + of_C.sum(-1)).unsqueeze(-1) + of_state.sum(-1).unsqueeze(-3)
    return y, end + since.select(-3, -1).unsqueeze(-1) + of_B.sum(-3).unsqueeze(-2) + of_state
