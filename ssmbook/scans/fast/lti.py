"""A linear time-invariant system: its recurrence as an operation, and what powers of A do faster.

h_t = A h_{t-1} + u_t is the recurrence, with one matrix for all steps. Its gradients obey
g_t = d_t + A^H g_{t+1}, where d_t is the gradient with respect to the output h_t: the same
operation with A^H, run from the last step to the first. Then dL/du_t = g_t, and dL/dA is
the sum of all g_t h_{t-1}^H.

Squaring gives A, A^2, A^4, ... and from these all else follows by few large products: B,
AB, A^2 B, ... by doubling, the lags C A^tau B from two such lists, and chunks of the scan.
A power by squaring is rounded relative to the powers that are multiplied, a step of the
recurrence relative to A. Where powers grow before they decay the first is far larger, so
powers are only used where they stay bounded.
"""

import math

import torch
from torch import Tensor

from ssmbook.numerics import toeplitz
from ssmbook.scans._shared import is_finite, run_steps, value_before, wide
from ssmbook.scans.fast import engines
from ssmbook.scans.fast.operation import Operation, active_transform

LIMIT = 4.0  # norm of a power of A, in units of that of an orthogonal matrix, up to which it is bounded

# --- h_t = A h_{t-1} + u_t as an operation --------------------------------------------------------------


def dense(A: Tensor, u: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """All states (..., T, N), T > 0, and the last one (..., N), for one A (N, N)."""
    one = u.shape[-2] == 1
    form = _dense_by_steps if one or active_transform() == "derivative" else _dense
    return form(A, u, state)


def _dense_by_steps(A, u, state):
    """Step by step and out of place."""
    start = torch.zeros_like(u[..., 0, :]) if state is None else state
    h, end = run_steps(lambda h, u_t: u_t + h @ A.mT, start, u)
    return h, end.clone()


def _like_states(A, u, state):
    return u.new_empty(u.shape), u.new_empty((*u.shape[:-2], u.shape[-1]))


def _states(A, u, state):
    if not (loops := engines.loops_for(u)):
        return _dense_by_steps(A, u, state)
    h, end = map(engines.on_large_pages, _like_states(A, u, state))
    carry = engines.wide_copy(state, end)
    matrix = A.to(wide(A.dtype)).contiguous().numpy(force=True)
    engines.run(loops.dense, matrix, (u, 2), (carry, 1), (h, 2))
    return h, end.copy_(carry)


def _keep(ctx, inputs, output):
    A, _, state = inputs
    ctx.save_for_backward(A, output[0], state)


def _pull(ctx, d_h, d_end):
    A, h, state = ctx.saved_tensors
    d_h = torch.cat((d_h[..., :-1, :], d_h[..., -1:, :] + d_end.unsqueeze(-2)), -2)
    g = dense(A.mH, d_h.flip(-2), None)[0].flip(-2)
    d_state = None if state is None else g[..., 0, :] @ A.conj()
    d_A = g.transpose(-2, -1) @ value_before(h, state).conj()
    d_A = d_A.sum(tuple(range(d_A.dim() - 2))) if d_A.dim() > 2 else d_A
    return d_A, g, d_state


_dense = Operation(
    "dense(Tensor A, Tensor u, Tensor? state) -> (Tensor, Tensor)",
    *(_states, _like_states, _keep, _pull, (0,)),
)


# --- Powers of A --------------------------------------------------------------------------------------


def squarings(A: Tensor, L: int, T: int) -> list[Tensor] | None:
    """A, A^2, A^4, ... up to the first exponent that is at least L, each rounded once.

    None if they do not stay bounded up to A^T, in every system of a batch.
    """
    limit = LIMIT * math.sqrt(A.shape[-1])
    power, exponent, powers = A.to(wide(A.dtype)), 1, []
    while True:
        size = torch.linalg.matrix_norm(power.detach()).max().item()
        if not size <= limit:  # so that NaN is refused, too
            return None
        if exponent < 2 * L:
            powers.append(power.to(A.dtype))
        if exponent >= T or (size <= 1 and exponent >= L):  # after a norm of at most 1 none is larger
            return powers
        power, exponent = power @ power, 2 * exponent


def krylov(powers: list[Tensor], B: Tensor, count: int) -> Tensor:
    """B, AB, A^2 B, ... side by side, (..., N, count d): each product doubles how many there are."""
    columns, d = B, B.shape[-1]
    for power in powers:
        if columns.shape[-1] >= count * d:
            break
        columns = torch.cat((columns, power @ columns), -1)
    return columns[..., : count * d]


def lags_by_powers(powers: list[Tensor], B: Tensor, C: Tensor, n: int) -> Tensor:
    """The lags C A^tau B, (..., n, p, d), from A, A^2, A^4, ... up to an exponent of at least n.

    With L = 2^level near sqrt(n) and tau = i L + j, a lag is (C A^(iL)) (A^j B): one product of all rows
    C A^(iL) with all columns A^j B.
    """
    level = ((n - 1).bit_length() + 1) // 2
    L, p, d = 1 << level, C.shape[-2], B.shape[-1]
    count = -(-n // L)
    rows = krylov([power.mT for power in powers[level:]], C.mT, count).mT
    columns = krylov(powers, B, L)
    blocks = (rows @ columns).unflatten(-1, (L, d)).unflatten(-3, (count, p))
    return blocks.transpose(-3, -2).flatten(-4, -3)[..., :n, :, :]


# --- The ways to run the scan -------------------------------------------------------------------------


def by_steps(A, B, C, x, state) -> tuple[Tensor, Tensor]:
    """The scan by its recurrence."""
    h, end = dense(A, x @ B.mT, state)
    return h @ C.mT, end


def by_chunks(A, B, C, x, state) -> tuple[Tensor, Tensor]:
    """The scan by chunks of L = 2^level steps, all at once.

    A chunk is a step of the system with A^L, whose input is the whole chunk: `into` takes the inputs of a
    chunk to what they leave in the state, `within` to the outputs of the chunk, and `out_of` takes the
    state before the chunk to its outputs.
    """
    T, d, p = x.shape[-2], B.shape[1], C.shape[0]
    level = min(T, max(8, min(64, 256 // max(p, d, 1)))).bit_length() - 1
    L = 1 << level
    whole = T // L * L
    powers = squarings(A, L, T)
    if powers is None:
        return by_steps(A, B, C, x, state)
    columns = krylov(powers, B, L).unflatten(-1, (L, d))  # A^j B
    into = columns.flip(-2).flatten(-2)  # the last input of a chunk is multiplied by no A
    out_of = krylov([power.mT for power in powers], A.mT @ C.mT, L)  # C A^(j+1), transposed
    kernel = (C @ columns.flatten(-2)).unflatten(-1, (L, d))
    within = toeplitz(kernel, dim=-2).permute(2, 3, 1, 0).reshape(L * d, L * p)
    chunks = x[..., :whole, :].unflatten(-2, (-1, L)).flatten(-2)
    ends, end = dense(powers[level], chunks @ into.mT, state)
    y = chunks @ within + value_before(ends, state) @ out_of
    y = y.unflatten(-1, (L, p)).flatten(-3, -2)
    if not (is_finite(y) and is_finite(end)):  # NaN and infinity spread to earlier times of a chunk
        return by_steps(A, B, C, x, state)
    if whole == T:
        return y, end
    rest, end = by_steps(A, B, C, x[..., whole:, :], end)
    return torch.cat((y, rest), -2), end
