"""The recurrences as the plain loops that a textbook writes down, compiled by Numba.

Arrays are contiguous, with all batch dimensions flattened into a first one, R; then come T
steps. A loop runs over rows, within a row over time, and within a step over channels:
neighbors in memory, of which a processor takes several at once. So a product over channels
is written as a loop of its own.

States, sums and everything else that is carried from step to step is kept in double
precision, whatever the data. A loop gives the interpreter's lock back and touches only its
own rows, so several may run at once.
"""

import functools

import numpy as np

from ssmbook.scans.fast.engines import BLOCK
from ssmbook.scans.fast.exponential import compiled, exponential, phi, times_exp

# --- h_t = a_t h_{t-1} + b_t --------------------------------------------------------------------------


@functools.cache
def diagonal(log, reverse, channels_backward):
    """The loop of h_t = a_t h_{t-1} + b_t on (R, T, D), with exp(a_t) for a_t if ``log``.

    ``state`` (R, D), in double precision, comes in as h_0 and goes out as h_T.
    ``channels_backward`` runs through channels from the last to the first.
    """

    @compiled
    def loop(a, b, state, h):
        R, T, D = b.shape
        decay = np.empty((2, D), a.dtype)
        for i in range(R):
            for step in range(T):
                t = T - 1 - step if reverse else step
                if log:
                    for k in range(D):
                        c = np.uintp(D - 1 - k if channels_backward else k)
                        decay[0, k], decay[1, k] = exponential(a[i, t, c])
                for k in range(D):
                    c = np.uintp(D - 1 - k if channels_backward else k)
                    old = state[i, c]
                    kept = times_exp(decay[0, k], decay[1, k], old) if log else a[i, t, c] * old
                    state[i, c] = kept + b[i, t, c]
                    h[i, t, c] = state[i, c]

    return loop


@functools.cache
def diagonal_backward(log, reverse, channels_backward):
    """The loop of g_t = d_t + conj(a_{t+1}) g_{t+1}: the gradients of :func:`diagonal`, the other way.

    ``g`` (R, D), in double precision, comes in as the gradient of h_T and goes out as that
    of h_0. Between two steps it is conj(a_{t+1}) g_{t+1}, what all later steps contribute.
    """

    @compiled
    def loop(a, h, state, d_h, g, d_a, d_b):
        R, T, D = h.shape
        decay = np.empty((2, D), a.dtype)
        for i in range(R):
            for step in range(T):
                t = step if reverse else T - 1 - step
                before = h[i, t + 1 if reverse else t - 1] if step < T - 1 else state[i]
                if log:
                    for k in range(D):
                        c = np.uintp(D - 1 - k if channels_backward else k)
                        decay[0, k], decay[1, k] = exponential(a[i, t, c])
                for k in range(D):
                    c = np.uintp(D - 1 - k if channels_backward else k)
                    total = g[i, c] + d_h[i, t, c]
                    d_b[i, t, c] = total
                    if log:  # the gradient of a logarithm is that of the decay, times the decay
                        g[i, c] = times_exp(decay[0, k], decay[1, k], total)
                        d_a[i, t, c] = g[i, c] * np.conj(before[c])
                    else:
                        g[i, c] = total * np.conj(a[i, t, c])
                        d_a[i, t, c] = total * np.conj(before[c])

    return loop


# --- The selective scan -------------------------------------------------------------------------------
#
# u_t = Delta_t x_t if `weighted`, else x_t, is what enters, times phi_1(Delta_t A) if
# `exact`. `exact` is True or None rather than False: Numba knows None when it compiles, so
# what `exact` asks for is not even compiled then. A is (N, d), or (1, d) for rates that all
# states share.


@compiled
def selective(x, delta, A, B, C, weighted, exact, state, y, kept):
    """h_t = exp(Delta_t A) h_{t-1} + B_t u_t, y_t = C_t h_t on (R, T, d), states (R, N, d).

    ``state``, in double precision, comes in as h_0 and goes out as h_T; ``kept`` (R,
    blocks, N, d) takes the state before every block of steps.
    """
    R, T, d = x.shape
    u = np.empty(d)
    held = np.empty(d)
    out = np.empty(d)
    decay = np.empty((2, d), x.dtype)
    entered = u if exact is None else held
    for i in range(R):
        for t in range(T):
            if t % BLOCK == 0:
                _copy(state[i], kept[i, t // BLOCK])
            for c in range(d):
                u[c] = np.float64(delta[i, t, c]) * x[i, t, c] if weighted else np.float64(x[i, t, c])
                out[c] = 0.0
            for n in range(B.shape[2]):
                if n < len(A):  # else the rates are those of the state before
                    for c in range(d):
                        decay[0, c], decay[1, c] = exponential(delta[i, t, c] * A[n, c])
                    if exact is not None:
                        for c in range(d):
                            z = delta[i, t, c] * A[n, c]
                            held[c] = u[c] * phi(z, decay[0, c], decay[1, c])[0]
                B_n = np.float64(B[i, t, n])
                C_n = np.float64(C[i, t, n])
                for c in range(d):
                    stays = times_exp(decay[0, c], decay[1, c], state[i, n, c])
                    state[i, n, c] = stays + entered[c] * B_n
                    out[c] += state[i, n, c] * C_n
            for c in range(d):
                y[i, t, c] = out[c]


@compiled
def _copy(source, target):
    """Copy number by number: ``target[:] = source`` would take Numba ten seconds more to compile."""
    for n in range(len(source)):
        for c in range(source.shape[1]):
            target[n, c] = source[n, c]


@compiled
def _advance(x, delta, A, B, weighted, exact, before, after, u, decay, hold):
    """All states ``after`` a step, from those ``before`` it, and the rest of what the gradients need.

    That is what enters, ``u``; the two parts of exp(Delta A), ``decay``; and phi_1(Delta A) with its
    derivative, ``hold``, if ``exact``.
    """
    for c in range(x.size):
        u[c] = np.float64(delta[c]) * x[c] if weighted else np.float64(x[c])
    for n in range(B.size):
        m = n if n < len(A) else 0
        B_n = np.float64(B[n])
        if n == m:
            for c in range(x.size):
                decay[0, m, c], decay[1, m, c] = exponential(delta[c] * A[m, c])
            if exact is not None:
                for c in range(x.size):
                    z = delta[c] * A[m, c]
                    hold[0, m, c], hold[1, m, c] = phi(z, decay[0, m, c], decay[1, m, c])
        if exact is not None:
            for c in range(x.size):
                entered = u[c] * hold[0, m, c] * B_n
                after[n, c] = times_exp(decay[0, m, c], decay[1, m, c], before[n, c]) + entered
        else:
            for c in range(x.size):
                after[n, c] = times_exp(decay[0, m, c], decay[1, m, c], before[n, c]) + u[c] * B_n


@compiled(fastmath=("contract", "reassoc", "nsz"))
def selective_backward(x, delta, A, B, C, weighted, exact, kept, d_y, g, d_x, d_delta, d_A, d_B, d_C):
    """The gradients of :func:`selective`, block by block from the last, whose states are made again.

    ``g`` (R, N, d) comes in as the gradient of h_T and goes out as that of h_0; that of A
    is added to ``d_A`` (R, N or 1, d); both in double precision.
    """
    R, T, d = x.shape
    h = np.empty((BLOCK + 1, B.shape[2], d))
    decay = np.empty((BLOCK, 2, *A.shape), x.dtype)
    hold = np.empty_like(decay)
    u = np.empty((BLOCK, d))
    d_u = np.empty(d)
    step = np.empty(d)
    out = np.empty(d)
    clock = np.empty(d)  # the gradient of Delta_t through Delta_t A
    for i in range(R):
        for t in range(T - 1, -1, -1):
            s = t % BLOCK
            if s == BLOCK - 1 or t == T - 1:  # the last step of a block: make its states again
                _copy(kept[i, t // BLOCK], h[0])
                for r in range(s + 1):
                    k = t - s + r
                    given = x[i, k], delta[i, k], A, B[i, k]
                    made = h[r], h[r + 1], u[r], decay[r], hold[r]
                    _advance(*given, weighted, exact, *made)
            for c in range(d):
                step[c] = delta[i, t, c]
                out[c] = d_y[i, t, c]
                d_u[c] = clock[c] = 0.0
            for n in range(B.shape[2]):
                m = n if n < len(A) else 0
                B_n = np.float64(B[i, t, n])
                C_n = np.float64(C[i, t, n])
                sum_B = sum_C = 0.0
                for c in range(d):  # y_t = C_t h_t
                    g[i, n, c] += out[c] * C_n
                    sum_C += out[c] * h[s + 1, n, c]
                if exact is not None:  # what enters is phi_1(Delta_t A) u_t B_t
                    for c in range(d):
                        held = g[i, n, c] * hold[s, 0, m, c]
                        sum_B += held * u[s, c]
                        d_u[c] += held * B_n
                        change = g[i, n, c] * hold[s, 1, m, c] * u[s, c] * B_n
                        clock[c] += change * A[m, c]
                        d_A[i, m, c] += change * step[c]
                else:  # what enters is u_t B_t
                    for c in range(d):
                        sum_B += g[i, n, c] * u[s, c]
                        d_u[c] += g[i, n, c] * B_n
                d_B[i, t, n] = sum_B
                d_C[i, t, n] = sum_C
                for c in range(d):  # what stays is exp(Delta_t A) h_{t-1}
                    g[i, n, c] = times_exp(decay[s, 0, m, c], decay[s, 1, m, c], g[i, n, c])
                    change = g[i, n, c] * h[s, n, c]  # the gradient of Delta_t A
                    clock[c] += change * A[m, c]
                    d_A[i, m, c] += change * step[c]
            for c in range(d):
                d_x[i, t, c] = d_u[c] * step[c] if weighted else d_u[c]
                d_delta[i, t, c] = clock[c] + d_u[c] * x[i, t, c] if weighted else clock[c]


# --- h_t = A h_{t-1} + u_t ----------------------------------------------------------------------------


@compiled(fastmath=("contract", "reassoc", "nsz"))
def dense(A, u, state, h):
    """h_t = A h_{t-1} + u_t on (R, T, N) for one matrix A (N, N), in double precision.

    ``state`` (R, N), in double precision, comes in as h_0 and goes out as h_T.
    """
    R, T, N = u.shape
    moved = np.empty(N, state.dtype)
    for i in range(R):
        for t in range(T):
            for k in range(N):
                moved[k] = u[i, t, k]
                for j in range(N):
                    moved[k] += A[k, j] * state[i, j]
            for k in range(N):
                state[i, k] = moved[k]
                h[i, t, k] = moved[k]
