"""``truncate`` as a loop over tokens, compiled by Numba: of N + 1 states the one that is read least goes."""

import numpy as np

from ssmbook.scans.fast.exponential import compiled

_compiled = compiled(fastmath=("contract", "reassoc", "nsz"))


@_compiled
def carry(columns, states, found):
    """Carry causal coefficients by N states, R heads of n > 2N + 1 tokens, all in double precision.

    ``columns`` (R, n, n): at [r, j, i] what row i reads of token j. ``states`` (R, N + 1, n)
    is where the loop works: at the end, token j <= t = n - N - 2 adds states[:, :N, j] to
    the states, and row i > t reads states[:, :N, i] of them. ``found`` (R, n, n), zeros: the
    rows up to t are written.
    """
    R, n, _ = columns.shape
    N = states.shape[1] - 1
    u, w, c = np.empty(N + 1), np.empty(n), np.empty(N + 1)
    G, work = np.empty((N + 1, N + 1)), np.empty((N + 1, N + 1))
    for r in range(R):
        M, G[:], most = states[r], 0.0, 0.0
        for t in range(n - N - 1):
            m, column, out = min(t, N), columns[r, t], found[r, t]
            # row t reads the past through the states; it is none of the later rows any more,
            # so their Gram matrix G loses it
            for k in range(m):
                row, weight = M[k], M[k, t]
                c[k], row[t] = weight, 0.0
                for j in range(t):
                    out[j] += weight * row[j]
                for q in range(k + 1):
                    G[k, q] -= weight * c[q]
            out[t] = column[t]
            # token t becomes one more state, which rows read by their coefficients
            M[m, :t], M[m, t], M[m, t + 1 :] = 0.0, 1.0, column[t + 1 :]
            for k in range(m + 1):
                G[m, k] = _dot(M[k, t + 1 :], column[t + 1 :])
            trace = _trace(G)
            most = max(most, trace)
            if trace < 1e-3 * most:  # what is left of G after so much was taken away is rounding
                for k in range(m + 1):
                    for q in range(k + 1):
                        G[k, q] = _dot(M[k, t + 1 :], M[q, t + 1 :])
                most = _trace(G)
            if m < N:
                continue
            # a reflection I - u uᵀ turns the direction that later rows read least into the
            # last state, which is left out
            _least(G, work, u)
            u[N] += 1.0 if u[N] >= 0 else -1.0
            u /= np.sqrt(abs(u[N]))
            w[:] = 0.0
            for k in range(N + 1):
                row, weight = M[k], u[k]
                for i in range(n):
                    w[i] += weight * row[i]
            for k in range(N):
                row, weight = M[k], u[k]
                for i in range(n):
                    row[i] -= weight * w[i]
            _symmetric_product(G, u, c, N + 1)
            half = _dot(u, c) / 2
            for k in range(N + 1):
                c[k] -= half * u[k]
            for k in range(N):
                row, a, b = G[k], u[k], c[k]
                for q in range(k + 1):
                    row[q] -= a * c[q] + b * u[q]


@_compiled
def _dot(x, y):  # quicker than BLAS for so few numbers
    total = 0.0
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


@_compiled
def _trace(A):
    total = 0.0
    for i in range(len(A)):
        total += A[i, i]
    return total


@_compiled
def _symmetric_product(A, x, y, m):
    """y = A x for the leading m rows and columns of a symmetric A, of which the lower half is stored."""
    y[:m] = 0.0
    for i in range(m):
        row, weight = A[i], x[i]
        total = weight * row[i]
        for j in range(i):
            y[j] += weight * row[j]
            total += x[j] * row[j]
        y[i] += total


@_compiled
def _least(G, A, v):
    """v: a unit eigenvector of the smallest eigenvalue of G >= 0, of which the lower half is stored.

    By the textbook: reflections make G tridiagonal, bisection finds the eigenvalue, and
    inverse iteration the vector, which the reflections turn back.
    """
    m = len(G)
    main, side, p, trace = np.empty(m), np.zeros(m), np.empty(m), _trace(G)
    if trace < 1e-280:  # nothing is read
        v[:], v[m - 1] = 0.0, 1.0
        return
    A[:] = G / trace  # or squares of small numbers vanish
    for k in range(m - 1, 1, -1):  # I - u uᵀ; u stays in row k of A
        u = A[k, :k]
        main[k], size = A[k, k], np.sqrt(_dot(u, u))
        if size == 0.0:
            continue
        size = size if u[k - 1] >= 0 else -size
        side[k] = -size
        u[k - 1] += size
        u /= np.sqrt(size * u[k - 1])
        _symmetric_product(A, u, p, k)
        half = _dot(u, p[:k]) / 2
        for j in range(k):
            p[j] -= half * u[j]
        for i in range(k):
            row, a, b = A[i], u[i], p[i]
            for j in range(i + 1):
                row[j] -= a * p[j] + b * u[j]
    main[0], main[1], side[1] = A[0, 0], A[1, 1], A[1, 0]
    low, high = -1e-11, main.min()  # by rounding an eigenvalue may be negative
    while high - low > 1e-14:  # a pivot of T - shift is negative if an eigenvalue is below
        shift = (low + high) / 2
        k, pivot = 0, main[0] - shift
        while pivot > 0 and k < m - 1:
            k += 1
            pivot = main[k] - shift - side[k] ** 2 / pivot
        if pivot > 0:
            low = shift
        else:
            high = shift
    low -= 1e-15
    for k in range(m):  # the inverse pivots in p
        pivot = main[k] - low - (side[k] ** 2 * p[k - 1] if k else 0.0)
        p[k] = 1 / max(pivot, 1e-16)
        v[k] = 1 + k % 3  # a start that is in general position
    for _ in range(3):
        for k in range(1, m):
            v[k] -= side[k] * p[k - 1] * v[k - 1]
        v *= p
        for k in range(m - 2, -1, -1):
            v[k] -= p[k] * side[k + 1] * v[k + 1]
        v /= np.sqrt(_dot(v, v))
    for k in range(2, m):
        if side[k] != 0.0:
            turn = _dot(A[k, :k], v[:k])
            for j in range(k):
                v[j] -= turn * A[k, j]
