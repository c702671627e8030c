"""The lag operators of a system as rows that neither underflow nor overflow: numbers and exponents apart."""

from __future__ import annotations

import numpy as np
import torch

from ssmbook.heads._coordinates import largest_exponent
from ssmbook.heads._target import arrays
from ssmbook.scans import lti_kernel
from ssmbook.systems.system import System

# One step that loses this much of its terms' size has cancelled: what is left of it is rounding.
_CANCELLED = 1e-12


def lag_rows(M: torch.Tensor, system: System | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return float64 rows (n, p d) and integer exponents (n,) with rows * 2^exponents = vec M_tau.

    M (n, p, d), of ``system`` where that is known. A lag all of which cancels in C times the state is zero
    then, and where no input reaches an output through a state all are: what is left of them is rounding. Lags
    at the end that are zero or close to the least number of M's dtype may have faded: they are taken from the
    system, by a recurrence that keeps the state at order one. A zero lag before others that are not stays
    zero.
    """
    rows = M.detach().double().cpu().flatten(1).numpy()
    exponents = np.zeros(len(rows), dtype=int)
    if system is None:
        return rows, exponents
    matrices = arrays(system)
    if system.minimal().N == 0:
        rows = np.zeros_like(rows)
        rows[:1] = 0 if system.D is None else matrices[3].ravel()
        return rows, exponents
    rows = np.where(_all_cancelled(rows, *matrices[:3])[:, None], 0.0, rows)
    faint = np.abs(rows).max(1, initial=0.0) < torch.finfo(M.dtype).tiny / torch.finfo(M.dtype).eps ** 2
    strong = np.flatnonzero(~faint)
    first = int(strong[-1]) + 1 if len(strong) else 0
    if first == len(rows):
        return rows, exponents
    found, powers = _recurrence(len(rows), *matrices)
    rows[first:], exponents[first:] = found[first:], powers[first:]
    nonzero = rows.any(axis=1)
    exponents[~nonzero] = exponents[nonzero].min(initial=0)
    return rows, exponents


def _all_cancelled(rows, A, B, C):
    """Which lags are no larger than what rounding leaves of products of the size of C A^tau B."""
    states = lti_kernel(*map(torch.from_numpy, (A, B, np.eye(len(A)))), len(rows)).numpy()
    terms = (np.abs(C) @ np.abs(states)).reshape(rows.shape)
    return np.abs(rows).max(1, initial=0.0) <= _CANCELLED * terms.max(1, initial=0.0)


def _recurrence(n, A, B, C, D):
    """Rows C X_tau with X_(tau+1) = A X_tau, both freed of powers of two at every step."""
    rows, exponents = np.zeros((n, C.shape[0] * B.shape[1])), np.zeros(n, dtype=int)
    state, exponent = B, 0
    for tau in range(n):
        lag = _product(C, state)
        if tau == 0 and D is not None:
            lag = lag + D
        size = largest_exponent(lag)
        rows[tau], exponents[tau] = np.ldexp(lag, -size).ravel(), exponent + size
        state = _product(A, state)
        shift = largest_exponent(state)
        state, exponent = np.ldexp(state, -shift), exponent + shift
    return rows, exponents


def _product(left, right):
    """The product; zero where all of it has cancelled."""
    product, terms = left @ right, np.abs(left) @ np.abs(right)
    cancelled = np.abs(product).max(initial=0.0) <= _CANCELLED * terms.max(initial=0.0)
    return np.zeros_like(product) if cancelled else product
