"""Pointwise nonlinearities with sigma(0) = 0 and their secant slopes sigma(z) / z."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

# name -> (sigma, sigma'(0)); ReLU has no derivative at 0, torch's convention is 0
_TABLE = {
    "tanh": (torch.tanh, 1.0),
    "relu": (torch.relu, 0.0),
    "silu": (functional.silu, 0.5),
    "gelu": (functional.gelu, 0.5),
    "identity": (lambda z: z, 1.0),
}


def check_activation(name: str) -> str:
    """Refuse a name outside the table of activations with a ``ValueError`` that lists them."""
    if name not in _TABLE:
        raise ValueError(f"activation must be one of {', '.join(_TABLE)}; got {name!r}")
    return name


def activate(name: str, z: Tensor) -> Tensor:
    """sigma(z), entry by entry: "tanh", "relu", "silu", "gelu" or "identity".

    z: any shape; returns the same shape and dtype. Introduced in *zoo*.
    """
    return _TABLE[name][0](z)


def secant_slope(name: str, z: Tensor) -> Tensor:
    """The slope sigma(z) / z of the chord from the origin to (z, sigma(z)), sigma'(0) at z = 0.

    z: any shape; returns the same shape and dtype, finite wherever z is. Introduced in *zoo*.
    """
    sigma, slope_at_zero = _TABLE[name]
    at_zero = z == 0
    safe = torch.where(at_zero, 1.0, z)
    return torch.where(at_zero, slope_at_zero, sigma(safe) / safe)
