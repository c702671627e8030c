"""A linear time-invariant system along a sequence, and its lags C A^tau B: the recurrence, or powers of A.

A^m by squaring is rounded relative to the powers that are multiplied, a step of the recurrence relative to A.
Where powers grow before they decay the first is far larger, so powers are only used where they stay bounded.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ssmbook._checks import check_choice, check_integer, check_tensors
from ssmbook.numerics import toeplitz
from ssmbook.scans._engine import (
    Operation,
    check_scan,
    half_in_float32,
    is_finite,
    loops_for,
    observer,
    on_large_pages,
    run,
    steps_of,
    value_before,
    wide,
    wide_array,
    wide_copy,
)

METHODS = ("auto", "recurrence", "chunked")
LIMIT = 4.0  # norm of a power of A, in units of that of an orthogonal matrix, up to which it is bounded
QUICK = 8e6  # rows times steps times (N + 4)^2: up to here the compiled recurrence is ahead of products


@half_in_float32
def lti_scan_naive(
    A: Tensor, B: Tensor, C: Tensor, x: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The recurrence of :func:`lti_scan` as it is written, one step at a time."""
    _check(A, B, C, x, state)
    h = x.new_zeros((*x.shape[:-2], A.shape[0])) if state is None else state
    y = []
    for x_t in x.unbind(-2):
        h = h @ A.mT + x_t @ B.mT
        y.append(h @ C.mT)
    return torch.stack(y, -2) if y else x.new_zeros((*x.shape[:-1], C.shape[0])), h


@half_in_float32
def lti_scan(
    A: Tensor,
    B: Tensor,
    C: Tensor,
    x: Tensor,
    state: Tensor | None = None,
    method: str = "auto",
) -> tuple[Tensor, Tensor]:
    """Run h_t = A h_{t-1} + B x_t, y_t = C h_t along dim -2 of x.

    A: (N, N), B: (N, d), C: (p, N); x: (..., T, d); state: (..., N) initial state h_0, zero if None; one
    dtype (real or complex). Returns y (..., T, p) and the final state (..., N), differentiable in everything.

    method: "recurrence" one step at a time; "chunked" a kernel inside each chunk and the state between
    chunks, all matrix products; "auto" picks by sizes. Chunks take powers of A: where these grow, where
    numbers are not finite, and inside ``torch.compile``, ``torch.func`` and ``vmap`` it is the
    recurrence, whatever ``method``. float16 and bfloat16 are computed, and their states kept, in float32.
    Raises ``ValueError`` / ``TypeError`` naming the argument. After `dao2024transformers` (chunked).

    >>> A, B, C = torch.tensor([[0.5]]), torch.ones(1, 1), torch.ones(1, 1)
    >>> y, state = lti_scan(A, B, C, torch.ones(3, 1))
    >>> y.flatten().tolist(), lti_scan(A, B, C, torch.ones(1, 1), state)[0].item()  # and on from there
    ([1.0, 1.5, 1.75], 1.875)
    """
    _check(A, B, C, x, state)
    check_choice("method", method, METHODS)
    T = x.shape[-2]
    state = x.new_zeros((*x.shape[:-2], A.shape[0])) if state is None else state
    if T == 0:
        return (x @ B.mT) @ C.mT, state.clone()
    given = A, B, C, x, state
    if method == "recurrence" or observer(*given) or T < 3 or not state.numel():
        return _by_steps(*given)
    if method == "auto":
        work = state[..., 0].numel() * T * (A.shape[0] + 4) ** 2
        chunked = work > QUICK if loops_for(x) else T >= 64
    return _by_chunks(*given) if method == "chunked" or chunked else _by_steps(*given)


def _check(A, B, C, x, state) -> None:
    matrices = {"A": (A, "N N"), "B": (B, "N d"), "C": (C, "p N")}
    check_scan(complex_ok=True, **matrices, x=(x, "... T d"), state=(state, "... N"))


# --- Lags ---------------------------------------------------------------------------------------------------


def lti_kernel_naive(A: Tensor, B: Tensor, C: Tensor, n: int) -> Tensor:
    """The kernel of :func:`lti_kernel` as it is written, one power of A at a time."""
    n = _check_kernel(A, B, C, n)
    column, kernel = B, []
    for _ in range(n):
        kernel.append(C @ column)
        column = A @ column
    return torch.stack(kernel, -3) if kernel else A.new_zeros((*A.shape[:-2], 0, C.shape[-2], B.shape[-1]))


def lti_kernel(A: Tensor, B: Tensor, C: Tensor, n: int) -> Tensor:
    """Compute the kernel K_tau = C A^tau B of a linear time-invariant system for tau = 0 ... n - 1.

    A: (..., N, N), B: (..., N, d), C: (..., p, N), of one dtype (real or complex). Returns (..., n, p, d) in
    that dtype, differentiable in A, B and C. From powers of A at two levels, A^(iL+j) = A^(iL) A^j with L
    near sqrt(n), where these stay bounded, else one step at a time: never less exact than that. A power that
    overflows gives lags that are not finite. Raises ``ValueError`` / ``TypeError`` naming the argument.

    >>> turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    >>> lti_kernel(turn, torch.eye(2), torch.eye(2), 4)[:, 0].tolist()  # first rows of I, the turn, …
    [[1.0, 0.0], [0.0, -1.0], [-1.0, 0.0], [0.0, 1.0]]
    """
    return lags(A, B, C, _check_kernel(A, B, C, n))


def _check_kernel(A, B, C, n) -> int:
    check_tensors(one_batch=True, complex_ok=True, A=(A, "... N N"), B=(B, "... N d"), C=(C, "... p N"))
    return check_integer("n", n, low=0)


def lags(A: Tensor, B: Tensor, C: Tensor, n: int) -> Tensor:
    """:func:`lti_kernel`, unchecked."""
    if n > 2 and observer(A, B, C) is None and A.numel():
        powers = squarings(A, n, n)
        if powers:
            return lags_by_powers(powers, B, C, n)
    if n < 2 or A.dim() > 2:
        return lti_kernel_naive(A, B, C, n)
    states, _ = dense(A, B.new_zeros(B.shape[-1], n - 1, B.shape[-2]), B.mT)  # from each column of B
    return torch.cat(((C @ B).unsqueeze(0), (states @ C.mT).permute(1, 2, 0)))


def squarings(A: Tensor, L: int, T: int) -> list[Tensor] | None:
    """A, A^2, A^4, ... up to the first exponent that is at least L, each rounded once.

    None if they do not stay bounded up to A^T, in every system of a batch.
    """
    power, powers, steps, limit = A.to(wide(A.dtype)), [], 1, LIMIT * math.sqrt(A.shape[-1])
    while True:
        size = torch.linalg.matrix_norm(power.detach()).max().item()
        if not size <= limit:
            return None
        if steps < 2 * L:
            powers.append(power.to(A.dtype))
        if steps >= T or (size <= 1 and steps >= L):  # after a norm of at most 1 none is larger
            return powers
        power, steps = power @ power, 2 * steps


def krylov(powers: list[Tensor], B: Tensor, count: int) -> Tensor:
    """B, AB, A^2 B, ... side by side, (..., N, count d): each product doubles how many there are."""
    columns, d = B, B.shape[-1]
    for power in powers:
        if columns.shape[-1] >= count * d:
            break
        columns = torch.cat((columns, power @ columns), -1)
    return columns[..., : count * d]


def lags_by_powers(powers: list[Tensor], B: Tensor, C: Tensor, n: int) -> Tensor:
    """The lags C A^tau B, (..., n, p, d), from A, A^2, A^4, ... up to an exponent of at least n."""
    level = ((n - 1).bit_length() + 1) // 2
    inner, p, d = 1 << level, C.shape[-2], B.shape[-1]
    outer = -(-n // inner)
    rows = krylov([power.mT for power in powers[level:]], C.mT, outer).mT
    blocks = (rows @ krylov(powers, B, inner)).unflatten(-1, (inner, d)).unflatten(-3, (outer, p))
    return blocks.transpose(-3, -2).flatten(-4, -3)[..., :n, :, :]


# --- The ways to run the scan -------------------------------------------------------------------------------


def _by_steps(A, B, C, x, state) -> tuple[Tensor, Tensor]:
    h, end = dense(A, x @ B.mT, state)
    return h @ C.mT, end


def _by_chunks(A, B, C, x, state) -> tuple[Tensor, Tensor]:
    """Chunks of L = 2^level steps, all at once, the recurrence of their ends, and what is left over."""
    T, d, p = x.shape[-2], B.shape[1], C.shape[0]
    level = min(T, max(8, min(64, 256 // max(p, d, 1)))).bit_length() - 1
    L = 1 << level
    whole = T // L * L
    powers = squarings(A, L, T)
    if powers is None:
        return _by_steps(A, B, C, x, state)
    columns = krylov(powers, B, L).unflatten(-1, (L, d))
    into = columns.flip(-2).flatten(-2)
    out_of = krylov([power.mT for power in powers], A.mT @ C.mT, L)
    kernel = (C @ columns.flatten(-2)).unflatten(-1, (L, d))
    within = toeplitz(kernel, dim=-2).permute(2, 3, 1, 0).reshape(L * d, L * p)
    chunks = x[..., :whole, :].unflatten(-2, (-1, L)).flatten(-2)
    ends, end = dense(powers[level], chunks @ into.mT, state)
    y = chunks @ within + value_before(ends, state) @ out_of
    y = y.unflatten(-1, (L, p)).flatten(-3, -2)
    if not (is_finite(y) and is_finite(end)):  # NaN and infinity spread to earlier times of a chunk
        return _by_steps(A, B, C, x, state)
    if whole == T:
        return y, end
    rest, end = _by_steps(A, B, C, x[..., whole:, :], end)
    return torch.cat((y, rest), -2), end


# --- h_t = A h_{t-1} + u_t as an operation, and its gradients -----------------------------------------------


def dense(A, u, state) -> tuple[Tensor, Tensor]:
    """All states (..., T, N), T > 0, and the last one (..., N), for one A (N, N)."""
    if observer() == "derivative":
        return _dense_in_torch(A, u, state, False)
    return _dense(A, u, state, False)


def _dense_in_torch(A, u, state, reverse):
    """Step by step and out of place."""
    h, states = torch.zeros_like(u[..., 0, :]) if state is None else state, []
    for u_t in steps_of(u, reverse):
        h = u_t + h @ A.mT
        states.append(h)
    return torch.stack(states[::-1] if reverse else states, -2), h.clone()


def _like_states(A, u, state, reverse):
    return u.new_empty(u.shape), u.new_empty((*u.shape[:-2], u.shape[-1]))


def _states(A, u, state, reverse):
    loops = loops_for(u)
    if not loops:
        return _dense_in_torch(A, u, state, reverse)
    h, end = map(on_large_pages, _like_states(A, u, state, reverse))
    carry = wide_copy(state, end)
    run(loops.dense, wide_array(A), (u, 2), reverse, (carry, 1), (h, 2))
    return h, end.copy_(carry)


def _keep(ctx, inputs, output):
    A, _, state, ctx.reverse = inputs
    ctx.save_for_backward(A, output[0], state)


def _pull(ctx, d_h, d_end):
    """g_t = d_t + A^H g_{t+1}: the same operation, run the other way."""
    A, h, state = ctx.saved_tensors
    if ctx.reverse:
        h, d_h = h.flip(-2), d_h.flip(-2)
    d_h = torch.cat((d_h[..., :-1, :], d_h[..., -1:, :] + d_end.unsqueeze(-2)), -2)
    again = _dense_in_torch if observer() == "derivative" else _dense
    g, _ = again(A.mH, d_h, None, True)
    before = value_before(h, state)
    d_state = None if state is None else g[..., 0, :] @ A.conj()
    d_A = g.transpose(-2, -1) @ before.conj()
    d_A = d_A.sum(tuple(range(d_A.dim() - 2))) if d_A.dim() > 2 else d_A
    return d_A, g.flip(-2) if ctx.reverse else g, d_state, None


_dense = Operation(
    "dense(Tensor A, Tensor u, Tensor? state, bool reverse) -> (Tensor, Tensor)",
    *(_states, _like_states, _keep, _pull, (0,)),
)
