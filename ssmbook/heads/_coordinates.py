"""The numerical row space of lag operators as flat rows: coordinates every class of heads works in."""

from __future__ import annotations

import numpy as np
import torch

from ssmbook import numerics


def numerical_rank(sigma: np.ndarray, rtol: float) -> int:
    """The one rule of tolerance, for singular values in an array."""
    return numerics.numerical_rank(torch.from_numpy(sigma), rtol)


def span_coordinates(rows: np.ndarray, rtol: float) -> tuple[np.ndarray, np.ndarray]:
    """Return an orthonormal basis (k, q) of the numerical row space of rows (m, q) and all singular values.

    k counts singular values above rtol times the largest.
    """
    scale = np.abs(rows).max(initial=0.0)
    if scale == 0:
        return np.zeros((0, rows.shape[1])), np.zeros(min(rows.shape))
    triangle = np.linalg.qr(rows / scale, mode="r") if rows.shape[0] > rows.shape[1] else rows / scale
    _, sigma, right = np.linalg.svd(triangle, full_matrices=False)
    return right[: numerical_rank(sigma, rtol)], sigma * scale


def sides(matrices: np.ndarray):
    """Columns (p, .) of the matrices (k, p, d) side by side, rows (., d) of them stacked, and their sizes."""
    k, p, d = matrices.shape
    columns, sigma, _ = np.linalg.svd(np.moveaxis(matrices, 1, 0).reshape(p, k * d), full_matrices=False)
    _, tau, rows = np.linalg.svd(matrices.reshape(k * p, d), full_matrices=False)
    return columns, sigma, rows, tau


def frames(matrices: np.ndarray, rtol: float) -> tuple[np.ndarray, np.ndarray]:
    """Orthonormal bases (p, p') and (d, d') of the joint column and row spaces of matrices (k, p, d)."""
    columns, sigma, rows, tau = sides(matrices)
    return columns[:, : numerical_rank(sigma, rtol)], rows[: numerical_rank(tau, rtol)].T
