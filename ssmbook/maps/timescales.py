"""Step sizes Delta of the continuous-time maps: how they are drawn and kept positive."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def draw_steps(*shape: int, low=1e-3, high=1e-1, generator=None, dtype=None, device=None) -> Tensor:
    """Step sizes drawn log-uniformly from [low, high]: a tensor of the given shape (`gu2024mamba`).

    Introduced in *zoo*.
    """
    u = torch.rand(*shape, generator=generator, dtype=dtype, device=device)
    return torch.exp(math.log(low) + u * math.log(high / low))


def inverse_softplus(a: Tensor) -> Tensor:
    """The z with softplus(z) = a, for a > 0 (same shape, dtype). Introduced in *zoo*."""
    return a + torch.log(-torch.expm1(-a))


def phi_1(z: Tensor) -> Tensor:
    """(e^z - 1) / z entry by entry, 1 at z = 0: the factor between the Euler and the zero-order-hold input.

    z: any shape, real or complex. Returns the same shape and dtype. Introduced in *zoo*.
    """
    at_zero = z == 0
    safe = torch.where(at_zero, 1.0, z)
    return torch.where(at_zero, 1.0, torch.expm1(safe) / safe)
