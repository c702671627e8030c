"""The recurrences as the plain loops that a textbook writes down, compiled by Numba.

Arrays are contiguous, with all batch dimensions flattened into a first one, R. States, sums and everything
else that is carried from step to step is kept in double precision, whatever the data. A loop gives the
interpreter's lock back and touches only its own rows, so several may run at once.
"""

from __future__ import annotations

import functools
import math

import numba
import numpy as np
import torch
from numba.extending import overload

from ssmbook.scans._engine import BLOCK, PHI_RADIUS, PHI_SERIES


def compiled(function=None, *, fastmath=("contract",)):
    """Compile when first called, and keep the machine code for later processes where a folder allows it.

    "contract" makes one rounding of ``a * b + c``; "reassoc" and "nsz" let a sum run in several lanes. None
    of them assumes that numbers are finite.
    """
    if function is None:
        return functools.partial(compiled, fastmath=fastmath)
    options = {"nogil": True, "error_model": "numpy", "fastmath": set(fastmath)}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # neither the package's folder nor the user's may be written
        return numba.njit(**options)(function)


def exponential(z):
    """exp(z) as a power of two and the rest, together to more digits than the dtype of ``z`` has."""
    raise NotImplementedError


@overload(exponential, jit_options={"fastmath": {"contract"}})
def _exponential(z):
    """A Taylor series after z = k log 2 + r, in arithmetic that a processor does in many lanes at once.

    The library's own exponential is called for one number after the other.
    """
    if isinstance(z, numba.types.Complex):
        return lambda z: (np.exp(z), 0 * z)
    single = z == numba.float32
    real, whole, digits, degree = (np.float32, np.int32, 23, 7) if single else (np.float64, np.int64, 52, 13)
    low, high, beyond = map(real, (-104, 88.37, 89) if single else (-746, 709.4, 710))  # 0, ..., infinity
    # log 2 as a number with trailing zeros, whose multiples are exact, and the rest of it
    log2, tail = (0.693359375, -2.12194440e-4) if single else (0.69314718036912382, 1.9082149292705877e-10)
    log2, tail, per_log2 = real(log2), real(tail), real(1 / math.log(2))
    first, *others = (real(1 / math.factorial(k)) for k in range(degree, 0, -1))
    others, bias, shift, one = tuple(others), whole(127 if single else 1023), whole(digits), whole(1)

    def implementation(z):
        z = low if z < low else z
        z = beyond if z > high else z
        k = np.rint(z * per_log2)
        r = (z - k * log2) - k * tail
        series = first
        for coefficient in others:
            series = series * r + coefficient
        # 2^k in two halves, for it may be subnormal; powers are written into the bits of a float
        half = whole(k) >> one
        rest = whole(k) - half
        power = whole((half + bias) << shift).view(real) * whole((rest + bias) << shift).view(real)
        return power, series * r * power

    return implementation


def decayed(power, rest, h):
    """exp(z) h for a number ``h`` in double precision, from the two parts of exp(z)."""
    raise NotImplementedError


@overload(decayed, jit_options={"fastmath": {"contract"}})
def _decayed(power, rest, h):
    """Where ``h`` is infinite one product decides: the sign of the other may differ."""
    if power == numba.float32:
        return lambda power, rest, h: (np.float64(power) + rest) * h
    return lambda power, rest, h: power * h + rest * (h if abs(h) < np.inf else 0)


def phi(z, power, rest):
    """phi_1(z) = (exp(z) - 1) / z and its derivative, from the two parts of exp(z)."""
    raise NotImplementedError


@overload(phi, jit_options={"fastmath": {"contract"}})
def _phi(z, power, rest):
    """Near zero ``power`` is one and ``rest`` is exp(z) - 1 to all its digits.

    The formula of the derivative cancels there, so it is a Taylor series.
    """
    real, kind = (np.float32, torch.float32) if z == numba.float32 else (np.float64, torch.float64)
    first, *others = map(real, PHI_SERIES)
    others, radius, one = tuple(others), real(PHI_RADIUS[kind]), real(1)

    def implementation(z, power, rest):
        value = ((power - one) + rest) / z if z != 0 else one
        series = first
        for coefficient in others:
            series = series * z + coefficient
        return value, series if abs(z) < radius else ((power + rest) - value) / z

    return implementation


@functools.cache
def diagonal(log, reverse, turn):
    """The loop of h_t = a_t h_{t-1} + b_t on (R, T, D), with exp(a_t) for a_t if ``log``.

    ``state`` (R, D), in double precision, comes in as h_0 and goes out as h_T. ``turn`` runs through channels
    from the last to the first.
    """

    @compiled
    def loop(a, b, state, h):
        R, T, D = b.shape
        power, rest = np.empty(D, a.dtype), np.empty(D, a.dtype)
        for i in range(R):
            for step in range(T):
                t = T - 1 - step if reverse else step
                if log:
                    for k in range(D):
                        c = np.uintp(D - 1 - k if turn else k)
                        power[k], rest[k] = exponential(a[i, t, c])
                for k in range(D):
                    c = np.uintp(D - 1 - k if turn else k)
                    kept = decayed(power[k], rest[k], state[i, c]) if log else a[i, t, c] * state[i, c]
                    state[i, c] = kept + b[i, t, c]
                    h[i, t, c] = state[i, c]

    return loop


@functools.cache
def diagonal_backward(log, reverse, turn):
    """The loop of g_t = d_t + a_{t+1} g_{t+1}: the gradients of :func:`diagonal`, the other way.

    ``g`` (R, D), in double precision, comes in as the gradient of h_T and goes out as that of h_0.
    """

    @compiled
    def loop(a, h, state, d_h, g, d_a, d_b):
        R, T, D = h.shape
        power, rest = np.empty(D, a.dtype), np.empty(D, a.dtype)
        for i in range(R):
            for step in range(T):
                t = step if reverse else T - 1 - step
                before = h[i, t + 1 if reverse else t - 1] if step < T - 1 else state[i]
                if log:
                    for k in range(D):
                        c = np.uintp(D - 1 - k if turn else k)
                        power[k], rest[k] = exponential(a[i, t, c])
                for k in range(D):
                    c = np.uintp(D - 1 - k if turn else k)
                    total = g[i, c] + d_h[i, t, c]
                    d_b[i, t, c] = total
                    g[i, c] = decayed(power[k], rest[k], total) if log else total * np.conj(a[i, t, c])
                    d_a[i, t, c] = (g[i, c] if log else total) * np.conj(before[c])

    return loop


@compiled
def selective(x, delta, A, B, C, weighted, exact, state, y, kept):
    """h_t = exp(Delta_t A) h_{t-1} + B_t u_t, y_t = C_t h_t on (R, T, d), states (R, N, d).

    u is Delta x if ``weighted``, else x, times phi_1(Delta A) if ``exact``. ``A`` is (N, d), or (1, d) for
    rates that all states share. ``state``, in double precision, comes in as h_0 and goes out as h_T; ``kept``
    (R, blocks, N, d) takes the state before every block of steps. Where ``exact`` is None, what it asks for
    is not even compiled.
    """
    R, T, d = x.shape
    u, held, out, power, rest = (
        np.empty(d),
        np.empty(d),
        np.empty(d),
        np.empty(d, x.dtype),
        np.empty(d, x.dtype),
    )
    entered = u if exact is None else held
    for i in range(R):
        for t in range(T):
            if t % BLOCK == 0:
                _copy(state[i], kept[i, t // BLOCK])
            for c in range(d):
                u[c] = np.float64(delta[i, t, c]) * x[i, t, c] if weighted else np.float64(x[i, t, c])
                out[c] = 0.0
            for n in range(B.shape[2]):
                if n < len(A):
                    for c in range(d):
                        power[c], rest[c] = exponential(delta[i, t, c] * A[n, c])
                    if exact is not None:
                        for c in range(d):
                            held[c] = u[c] * phi(delta[i, t, c] * A[n, c], power[c], rest[c])[0]
                B_n, C_n = np.float64(B[i, t, n]), np.float64(C[i, t, n])
                for c in range(d):
                    state[i, n, c] = decayed(power[c], rest[c], state[i, n, c]) + entered[c] * B_n
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

    That is what enters, the two parts of exp(Delta A), and phi_1(Delta A) with its derivative if ``exact``.
    """
    for c in range(x.size):
        u[c] = np.float64(delta[c]) * x[c] if weighted else np.float64(x[c])
    for n in range(B.size):
        m, B_n = n if n < len(A) else 0, np.float64(B[n])
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
                after[n, c] = decayed(decay[0, m, c], decay[1, m, c], before[n, c]) + entered
        else:
            for c in range(x.size):
                after[n, c] = decayed(decay[0, m, c], decay[1, m, c], before[n, c]) + u[c] * B_n


@compiled(fastmath=("contract", "reassoc", "nsz"))
def selective_backward(x, delta, A, B, C, weighted, exact, kept, d_y, g, d_x, d_delta, d_A, d_B, d_C):
    """The gradients of :func:`selective`, block by block from the last, whose states are made again.

    ``g`` (R, N, d) comes in as the gradient of h_T and goes out as that of h_0; that of A is added to
    ``d_A`` (R, N or 1, d); both in double precision.
    """
    R, T, d = x.shape
    h, decay = np.empty((BLOCK + 1, B.shape[2], d)), np.empty((BLOCK, 2, *A.shape), x.dtype)
    hold = np.empty_like(decay)
    u, d_u, step, out, clock = np.empty((BLOCK, d)), np.empty(d), np.empty(d), np.empty(d), np.empty(d)
    for i in range(R):
        for t in range(T - 1, -1, -1):
            s = t % BLOCK
            if s == BLOCK - 1 or t == T - 1:
                _copy(kept[i, t // BLOCK], h[0])
                for r in range(s + 1):
                    k = t - s + r
                    given, made = (
                        (x[i, k], delta[i, k], A, B[i, k]),
                        (h[r], h[r + 1], u[r], decay[r], hold[r]),
                    )
                    _advance(*given, weighted, exact, *made)
            for c in range(d):
                step[c], out[c], d_u[c], clock[c] = delta[i, t, c], d_y[i, t, c], 0.0, 0.0
            for n in range(B.shape[2]):
                m, B_n, C_n = n if n < len(A) else 0, np.float64(B[i, t, n]), np.float64(C[i, t, n])
                sum_B, sum_C = 0.0, 0.0
                for c in range(d):
                    g[i, n, c] += out[c] * C_n
                    sum_C += out[c] * h[s + 1, n, c]
                if exact is not None:
                    for c in range(d):
                        held = g[i, n, c] * hold[s, 0, m, c]
                        sum_B += held * u[s, c]
                        d_u[c] += held * B_n
                        change = g[i, n, c] * hold[s, 1, m, c] * u[s, c] * B_n
                        clock[c] += change * A[m, c]
                        d_A[i, m, c] += change * step[c]
                else:
                    for c in range(d):
                        sum_B += g[i, n, c] * u[s, c]
                        d_u[c] += g[i, n, c] * B_n
                d_B[i, t, n], d_C[i, t, n] = sum_B, sum_C
                for c in range(d):
                    g[i, n, c] = decayed(decay[s, 0, m, c], decay[s, 1, m, c], g[i, n, c])
                    change = g[i, n, c] * h[s, n, c]  # the gradient of Delta_t A
                    clock[c] += change * A[m, c]
                    d_A[i, m, c] += change * step[c]
            for c in range(d):
                d_x[i, t, c] = d_u[c] * step[c] if weighted else d_u[c]
                d_delta[i, t, c] = clock[c] + d_u[c] * x[i, t, c] if weighted else clock[c]


@compiled(fastmath=("contract", "reassoc", "nsz"))
def dense(A, u, reverse, state, h):
    """h_t = A h_{t-1} + u_t on (R, T, N) for one matrix A (N, N), in double precision.

    ``state`` (R, N), in double precision, comes in as h_0 and goes out as h_T.
    """
    R, T, N = u.shape
    moved = np.empty(N, state.dtype)
    for i in range(R):
        for step in range(T):
            t = T - 1 - step if reverse else step
            for k in range(N):
                moved[k] = u[i, t, k]
                for j in range(N):
                    moved[k] += A[k, j] * state[i, j]
            for k in range(N):
                state[i, k] = moved[k]
                h[i, t, k] = moved[k]
