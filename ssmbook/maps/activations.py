"""Pointwise nonlinearities with sigma(0) = 0 and their secant slopes sigma(z) / z."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from ssmbook._checks import check_choice, check_tensor

# Below this modulus tanh(z)/z is a continued fraction in z^2, cut where the next level adds 1e-20.
_FRACTION_RADIUS = 1.0
_FRACTION_LEVELS = 11


def _tanh_slope(z: Tensor) -> Tensor:
    near = z.abs() < _FRACTION_RADIUS
    square, large = torch.where(near, z, 0.0).square(), torch.where(near, 1.0, z)
    # Lambert: tanh(z)/z = 1/(1 + z^2/(3 + z^2/(5 + ...))). All terms are positive, so nothing cancels, and
    # derivatives near 0 come from z^2 and not from a difference of nearly equal numbers.
    level = torch.full_like(z, 2 * _FRACTION_LEVELS + 1)
    for odd in range(2 * _FRACTION_LEVELS - 1, 0, -2):
        level = odd + square / level
    return torch.where(near, 1 / level, torch.tanh(large) / large)


# name -> (sigma, sigma(z)/z): the quotient is simplified, so that no value and no derivative needs a case
# z = 0. The term 0 z keeps NaN. ReLU has no derivative at 0; torch's convention is 0.
_TABLE = {
    "tanh": (torch.tanh, _tanh_slope),
    "relu": (torch.relu, lambda z: (z > 0) + 0 * z),
    "silu": (functional.silu, torch.sigmoid),
    "gelu": (functional.gelu, lambda z: 0.5 * torch.erfc(-math.sqrt(0.5) * z)),
    "identity": (lambda z: z, lambda z: 1 + 0 * z),
}


def check_activation(name: str) -> str:
    """Refuse a name outside the table of activations with a ``ValueError`` that lists them."""
    return check_choice("activation", name, _TABLE)


def activate(name: str, z: Tensor) -> Tensor:
    """sigma(z), entry by entry: "tanh", "relu", "silu", "gelu" or "identity".

    z: any shape; returns the same shape and dtype. Raises ``ValueError`` for another name, ``TypeError`` for
    anything but a floating-point tensor. Introduced in *zoo*.

    >>> activate("relu", torch.tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """
    check_tensor("z", z)
    return _TABLE[check_activation(name)][0](z)


def secant_slope(name: str, z: Tensor) -> Tensor:
    """The slope sigma(z) / z of the chord from the origin to (z, sigma(z)), sigma'(0) at z = 0.

    z: any shape; returns the same shape and dtype, finite wherever z is and as smooth as sigma: derivatives
    at and near 0 are right too. Raises as ``activate``. Introduced in *zoo*.

    >>> secant_slope("relu", torch.tensor([-1.0, 2.0])).tolist()
    [0.0, 1.0]
    """
    check_tensor("z", z)
    return _TABLE[check_activation(name)][1](z)
