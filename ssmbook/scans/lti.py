"""A linear time-invariant system run along a sequence: two routes to one answer."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from ssmbook._checks import check_choice
from ssmbook.numerics import HALF, single, toeplitz
from ssmbook.scans._engine import array, carried, loops_for, roomy, run
from ssmbook.scans._ops import dense, watched
from ssmbook.scans._powers import CALM, choose, is_finite, krylov, lags_by_powers
from ssmbook.scans._transients import warn_of_states
from ssmbook.scans._validate import check_arguments, check_options, one_step, outside_autocast

SHAPES = "A: N N, B: N d, C: p N, x: ... T d, state: ... N"
METHODS = ("auto", "recurrence", "chunked")
QUICK = 8e6  # rows times steps times (N + 4)^2: up to here the compiled recurrence is ahead of products
SMALL = 64  # up to so many states the compiled loops are ahead of PyTorch's products
STEPS = 16  # fewest steps that are taken as one matrix; as many as states where these are more


@outside_autocast
def lti_scan(
    A: Tensor,
    B: Tensor,
    C: Tensor,
    x: Tensor,
    state: Tensor | None = None,
    method: str = "auto",
    *,
    reverse: bool = False,
    reset: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Run h_t = A h_{t-1} + B x_t, y_t = C h_t along dim -2 of x, by the route asked for.

    A: (N, N), B: (N, d), C: (p, N); x: (..., T, d); state: (..., N) initial state h_0, zero if None; all of
    one dtype (real or complex) and device. Returns y (..., T, p) and the final state (..., N),
    differentiable in everything. ``reverse`` runs from the last step to the first; ``reset`` (..., T),
    boolean, is true at the steps that forget the state before them (by the recurrence, then).

    method: "recurrence" one step at a time, compiled on a CPU with Numba; "chunked" a kernel inside each
    chunk and the state between chunks: all matrix products, so on a card too; "auto" picks by sizes, and on
    a CPU with Numba takes few states in blocks of steps, by a compiled loop, where no gradient is wanted.
    Chunks and blocks take powers of A. Where these grow before they decay and would be less exact than the
    recurrence, float32 is worked in float64 or it is the recurrence, whatever ``method`` says;
    ``TransientPeakWarning`` where the recurrence is off as well. Input or powers of A that are not finite go
    by the recurrence too, which keeps NaN and infinity out of earlier times. Under ``torch.compile`` and
    ``torch.export`` it is always the recurrence. float16 and bfloat16 are
    computed, and their states kept, in float32.

    Raises ``ValueError`` / ``TypeError`` naming the argument. After `dao2024transformers` (chunked).
    Introduced in *scans*.

    >>> A, B, C = torch.tensor([[0.5]]), torch.ones(1, 1), torch.ones(1, 1)
    >>> y, state = lti_scan(A, B, C, torch.ones(3, 1))
    >>> y.flatten().tolist(), lti_scan(A, B, C, torch.ones(1, 1), state)[0].item()  # and on from there
    ([1.0, 1.5, 1.75], 1.875)
    """
    check_arguments(SHAPES, A, B, C, x, state, single=("state",), complex_ok=True)
    check_choice("method", method, METHODS)
    check_options(reset, x, 1, reverse=reverse)
    if x.dtype in HALF:
        y, state = lti_scan(*map(single, (A, B, C, x, state)), method, reverse=reverse, reset=reset)
        return y.to(x.dtype), state
    if reverse:
        reset = None if reset is None else reset.flip(-1)
        y, state = lti_scan(A, B, C, x.flip(-2), state, method, reset=reset)
        return y.flip(-2), state
    T = x.shape[-2]
    state = x.new_zeros((*x.shape[:-2], A.shape[0])) if state is None else state
    if T == 0:
        return (x @ B.mT) @ C.mT, state.clone()
    traced = torch.compiler.is_compiling()  # values cannot be looked at
    if traced or not state.numel():
        return _recurrence([A], B, C, x, state, reset)
    if method == "auto" and (found := _compiled(A, B, C, x, state, reset)):
        return found
    route = choose(A, B, C, T, state)
    powers = [A] if route is None else route.powers
    given = powers, *(t.to(powers[0].dtype) for t in (B, C, x, state))
    stepwise = method == "recurrence" or method == "auto" and T < 64 or len(powers) == 1 or not is_finite(x)
    y, h = _recurrence(*given, reset) if stepwise or reset is not None else _chunked(*given)
    if route is not None and route.suspect:
        warn_of_states(A, C, x @ B.mT, state, reset, y)
    return y.to(x.dtype), h.to(x.dtype)


@np.errstate(over="ignore", invalid="ignore")  # PyTorch does not warn of what is not finite
def _compiled(A, B, C, x, state, reset=None) -> tuple[Tensor, Tensor] | None:
    """The scan by a compiled loop, in blocks of steps where these pay and no gradient is wanted.

    None where another route is faster or A calls for a closer look.
    """
    (p, N), (T, d) = C.shape, x.shape[-2:]
    rows, loops = math.prod(x.shape[:-2]), loops_for(x)
    in_blocks = 0 < p * d <= N <= SMALL and rows * T >= 16 * N and reset is None
    quick = rows * T * (N + 4) ** 2 <= QUICK
    if not loops or not (in_blocks or quick) or watched(A, B, C, x, state):
        return None
    given = [array(t) for t in (A, B, C)]
    if not _calm(given[0], T):
        return None
    wanted = torch.is_grad_enabled() and any(t.requires_grad for t in (A, B, C, x, state))
    if in_blocks and not wanted:
        y, end = roomy(x.new_empty((*x.shape[:-1], p))), carried(state, state)
        matrices = _step_matrices(*given, max(STEPS, 1 << (N - 1).bit_length()))
        run(loops.blocks, *matrices, T, (x.flatten(-2), 1), (end, 1), (y.flatten(-2), 1))
        if np.isfinite(end.numpy().sum() + given[2].sum()):  # what is not finite reaches the end, but for C
            return y, end.to(x.dtype)
    return _recurrence([A], B, C, x, state, reset) if quick else None


def _calm(A: np.ndarray, T: int) -> bool:
    """Whether A, A^2, A^4, ... up to A^T have norms of at most ``CALM``: all have, after one of at most 1."""
    limit, steps = CALM**2 * len(A), 1
    while True:
        size = np.vdot(A, A).real
        if steps >= T or size <= 1 or not size <= limit:
            return size <= limit
        A, steps = A @ A, 2 * steps


def _step_matrices(A: np.ndarray, B: np.ndarray, C: np.ndarray, steps: int) -> list[np.ndarray]:
    """The matrices of ``steps`` steps (a power of two) and of one.

    Each takes a state and the inputs, side by side, to the state after them and the outputs; zero rows fill
    it up to a multiple of four.
    """
    (N, d), p, start = B.shape, len(C), np.concatenate((A.T, B.T))
    heights = (N + steps * d, steps * p), (N + d, p)
    M, one = matrices = [np.zeros((rows + -rows % 4, N + columns), A.dtype) for rows, columns in heights]
    one[: N + d, :N], one[: N + d, N:] = start, start @ C.T
    M[: N + d, : N + p] = one[: N + d]
    while N + p < M.shape[1]:  # twice as many steps: the second half, and what reaches it through the state
        M[N + d : N + 2 * d, :N] = M[N : N + d, :N]
        M[N + d : N + 2 * d, N + p : N + 2 * p] = M[N : N + d, N : N + p]
        later = M[: N + d, :N] @ M[:N, : N + p]
        M[: N + d, :N], M[: N + d, N + p : N + 2 * p] = later[:, :N], later[:, N:]
        d, p = 2 * d, 2 * p
    return matrices


def lti_scan_naive(
    A: Tensor, B: Tensor, C: Tensor, x: Tensor, state: Tensor | None = None, method: str = "auto"
) -> tuple[Tensor, Tensor]:
    """The recurrence of :func:`lti_scan` as it is written, one step at a time, whatever ``method``."""
    check_choice("method", method, METHODS)
    check_arguments(SHAPES, A, B, C, x, state, single=("state",), complex_ok=True)
    h = x.new_zeros((*x.shape[:-2], A.shape[0])) if state is None else state
    A, B, C, x = (t.to(h.dtype) for t in (A, B, C, x))  # the state may be float32 beside half precision
    y = []
    for x_t in x.unbind(-2):
        h = h @ A.mT + x_t @ B.mT
        y.append(h @ C.mT)
    return torch.stack(y, -2) if y else x.new_zeros((*x.shape[:-1], C.shape[0])), h


def lti_step(
    A: Tensor, B: Tensor, C: Tensor, x_t: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Take one step of :func:`lti_scan`: from x_t (..., d) and state (..., N) to y_t (..., p) and the next.

    A: (N, N), B: (N, d), C: (p, N). Raises as :func:`lti_scan` does. Introduced in *scans*.

    >>> A, B, C = torch.tensor([[0.5]]), torch.ones(1, 1), torch.ones(1, 1)
    >>> y, state = lti_step(A, B, C, torch.ones(1))
    >>> lti_step(A, B, C, torch.ones(1), state)[0].item()
    1.5
    """
    y, state = lti_scan(A, B, C, *one_step(-2, x=x_t), state, method="recurrence")
    return y.squeeze(-2), state


def _recurrence(powers, B, C, x, state, reset=None):
    h, end = dense(powers[0], x @ B.mT, state, False, reset)
    return h @ C.mT, end


def _chunked(powers, B, C, x, state):
    """Chunks of L = 2^level steps, all at once, the recurrence of their ends, and what is left over."""
    T, d, p = x.shape[-2], B.shape[1], C.shape[0]
    level = min(T, max(8, min(128, 1024 // max(p, d)))).bit_length() - 1
    L = 1 << level
    whole = T // L * L
    chunks = x[..., :whole, :].unflatten(-2, (-1, L)).flatten(-2)
    into = krylov(powers, B, L).unflatten(-1, (L, d)).flip(-2).flatten(-2)
    out_of = krylov([power.mT for power in powers], powers[0].mT @ C.mT, L)
    ends, end = dense(powers[level], chunks @ into.mT, state)
    before = torch.cat((state.unsqueeze(-2), ends[..., :-1, :]), -2)
    within = toeplitz(lags_by_powers(powers, B, C, L), dim=-3).permute(1, 3, 0, 2).reshape(L * d, L * p)
    y = chunks @ within + before @ out_of
    y = y.unflatten(-1, (L, p)).flatten(-3, -2)
    if whole == T:
        return y, end
    rest, end = _recurrence(powers, B, C, x[..., whole:, :], end)
    return torch.cat((y, rest), -2), end
