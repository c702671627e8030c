"""Scalar functions that maps and systems share."""

from __future__ import annotations

import torch

from ._checks import check_tensor

# Below this modulus phi_1 is summed as a series: expm1(z)/z is fine there, but its derivatives cancel.
_SERIES_RADIUS = 1.0
_SERIES_TERMS = 20


def phi_1(z: torch.Tensor) -> torch.Tensor:
    """φ₁(z) = (e^z − 1)/z entry by entry, φ₁(0) = 1: the mean of e^{sz} over 0 ≤ s ≤ 1.

    It is the factor between the Euler and the zero-order-hold input. ``z`` (...), real or complex; returns
    the same shape, dtype and device, accurate to rounding near 0 too, as are its derivatives; NaN stays NaN.
    Raises ``TypeError`` for a non-tensor or an integer dtype. Source: {cite}`gu2022efficiently`.
    Introduced in *structured-dynamics*.
    """
    check_tensor("z", z, complex_ok=True)
    near = z.abs() < _SERIES_RADIUS
    # Either branch gets an argument that it can differentiate where the other one is taken.
    small, large = torch.where(near, z, 0.0), torch.where(near, 1.0, z)
    series = torch.ones_like(z)
    for k in range(_SERIES_TERMS, 1, -1):
        series = 1 + series * small / k
    return torch.where(near, series, torch.expm1(large) / large)
