"""The lag operators that heads have to equal, as they are given, and bases of what they span."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ssmbook import numerics
from ssmbook._checks import check_finite, check_integer, check_tensors
from ssmbook.numerics import tolerance
from ssmbook.systems.system import System, check_system


def lags_of(system: System | Tensor, n: int | None = None) -> Tensor:
    """The lag operators (n, p, d) of one real `System` for n tokens, or those given, M, without n."""
    if isinstance(system, Tensor):
        check_tensors(M=(system, "n p d"), finite=True)
        if n is not None:
            raise TypeError(f"n must be left out beside lag operators M (n, p, d); got {n}")
        return system
    check_real_system(system)
    if n is None:
        raise TypeError("n must be given beside a System: the number of tokens; got None")
    return system.lags(n)


def check_real_system(system: System) -> System:
    """Refuse anything but one real `System` with values, because heads have real coefficients."""
    check_system(system, batched=False, complex_ok=False)
    check_finite("system", system.A)
    return system


def check_width(value_rank: int | None, p: int, d: int) -> int:
    """The largest rank of a value map (p, d): ``value_rank``, or min(p, d) where None is given."""
    return min(p, d) if value_rank is None else check_integer("value_rank", value_rank, low=1, high=min(p, d))


def system_arrays(system: System) -> tuple[np.ndarray | None, ...]:
    """A, B, C and D (or None) of a `System` as float64 arrays."""
    return tuple(None if part is None else part.detach().double().cpu().numpy() for part in system)


def lag_span(M: Tensor, rtol: float | None) -> tuple[np.ndarray, np.ndarray, float]:
    """Lags (n, p, d) and an orthonormal basis (k, p, d) of their span as arrays, and the tolerance in use."""
    rtol, lags = tolerance(rtol, M.dtype), M.detach().double().cpu().numpy()
    n, p, d = lags.shape
    basis = row_space(lags.reshape(n, p * d), rtol)
    return lags, basis.reshape(len(basis), p, d), rtol


def array_rank(sigma: np.ndarray, rtol: float) -> int:
    """How many singular values in an array are above rtol times the largest."""
    return numerics.numerical_rank(torch.from_numpy(sigma), rtol)


def row_space(rows: np.ndarray, rtol: float) -> np.ndarray:
    """An orthonormal basis (k, q) of what rows (m, q) span, without directions below rtol of the largest."""
    triangle = np.linalg.qr(rows, mode="r") if rows.shape[0] > rows.shape[1] else rows
    _, sigma, right = np.linalg.svd(triangle, full_matrices=False)
    return right[: array_rank(sigma, rtol)]


def column_and_row_svd(matrices: np.ndarray):
    """Singular vectors and values of the matrices (k, p, d) side by side and of the matrices stacked.

    Columns (p, .) and their singular values, then rows (., d) and theirs.
    """
    k, p, d = matrices.shape
    columns, sigma, _ = np.linalg.svd(np.moveaxis(matrices, 1, 0).reshape(p, k * d), full_matrices=False)
    _, tau, rows = np.linalg.svd(matrices.reshape(k * p, d), full_matrices=False)
    return columns, sigma, rows, tau


def column_and_row_bases(matrices: np.ndarray, rtol: float) -> tuple[np.ndarray, np.ndarray]:
    """Orthonormal bases (p, p') and (d, d') of the joint column and row spaces of matrices (k, p, d)."""
    columns, sigma, rows, tau = column_and_row_svd(matrices)
    return columns[:, : array_rank(sigma, rtol)], rows[: array_rank(tau, rtol)].T
