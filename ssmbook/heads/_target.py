"""What a count or a construction of heads is asked of: a `System` and a length, or its lag operators."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from ssmbook._checks import check_tensors, check_values, check_wide
from ssmbook.heads._coordinates import span_coordinates
from ssmbook.numerics import tolerance
from ssmbook.systems.system import System, check_system


def lags_of(system: System | Tensor, n: int | None = None) -> Tensor:
    """The lag operators (n, p, d) to be met: those of one real `System` for n tokens, or given ones M.

    Raises ``TypeError`` for what is neither, for a System without n and for lag operators with one, and as
    `System.lags`; ``ValueError`` for the shape of M and for entries that are not finite.
    """
    if isinstance(system, Tensor):
        check_tensors(M=(system, "n p d"), finite=True)
        check_wide("M", system)
        if n is not None:
            raise TypeError(f"n must be left out beside lag operators M (n, p, d); got {n}")
        return system
    check_real(system)
    if n is None:
        raise TypeError("n must be given beside a System: the number of tokens; got None")
    return system.lags(n)


def check_real(system: System) -> System:
    """One real `System`: heads have real coefficients."""
    check_system(system, batched=False, complex_ok=False)
    check_values("system", system.A)
    check_wide("system", system)
    return system


def arrays(system: System) -> tuple[np.ndarray | None, ...]:
    """A, B, C and D (or None) of a `System` as float64 arrays."""
    return tuple(None if part is None else part.detach().double().cpu().numpy() for part in system)


def lag_span(M: Tensor, rtol: float | None) -> tuple[np.ndarray, np.ndarray, float]:
    """Lags (n, p, d) and an orthonormal basis (k, p, d) of their span as arrays, and the tolerance in use."""
    rtol, lags = tolerance(rtol, M.dtype), M.detach().double().cpu().numpy()
    n, p, d = lags.shape
    basis, _ = span_coordinates(lags.reshape(n, p * d), rtol)
    return lags, basis.reshape(len(basis), p, d), rtol
