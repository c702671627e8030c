"""The lag operators of a system as rows that neither underflow nor overflow: numbers and exponents apart."""

from __future__ import annotations

import numpy as np
import torch


def lag_rows(M: torch.Tensor, system=None) -> tuple[np.ndarray, np.ndarray]:
    """Return float64 rows (n, p d) and integer exponents (n,) with rows * 2^exponents = vec M_tau.

    M (n, p, d). Where ``system``, the (A, B, C, D) or (A, B, C) behind M, is given and some lag is zero or
    close to the least number of M's dtype, all rows are taken from the system instead, by a recurrence that
    keeps the state at order one: a fading lag is then no zero lag. Introduced in *how-many-heads-really*.
    """
    rows = M.detach().double().cpu().flatten(1).numpy()
    faint = np.abs(rows).max(1, initial=0.0) < torch.finfo(M.dtype).tiny / torch.finfo(M.dtype).eps ** 2
    if system is None or not faint.any():
        return rows, np.zeros(len(rows), dtype=int)
    return _recurrence(len(rows), *(None if m is None else m.detach().double().cpu() for m in system))


def _recurrence(n, A, B, C, D=None):
    """Rows C X_tau with X_(tau+1) = A X_tau, both freed of powers of two at every step."""
    A, B, C = (m.numpy() for m in (A, B, C))
    rows, exponents = np.zeros((n, C.shape[0] * B.shape[1])), np.zeros(n, dtype=int)
    state, exponent = B, 0
    for tau in range(n):
        lag = C @ state
        if tau == 0 and D is not None:
            lag = lag + D.numpy()
        size = _exponent(lag)
        rows[tau], exponents[tau] = np.ldexp(lag, -size).ravel(), exponent + size
        state = A @ state
        shift = _exponent(state)
        state, exponent = np.ldexp(state, -shift), exponent + shift
    nonzero = rows.any(axis=1)
    exponents[~nonzero] = exponents[nonzero].min(initial=0)
    return rows, exponents


def _exponent(matrix) -> int:
    """The power of two just above the largest entry; 0 for a zero matrix."""
    return int(np.frexp(np.abs(matrix).max(initial=0.0))[1])
