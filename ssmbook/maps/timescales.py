"""Step sizes Delta of the continuous-time maps: how they are drawn and kept positive."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def draw_steps(
    *shape: int,
    low: float = 1e-3,
    high: float = 1e-1,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Step sizes drawn log-uniformly from [low, high]: a tensor of the given shape (`gu2024mamba`).

    Introduced in *zoo*.

    >>> steps = draw_steps(1000)
    >>> bool(steps.min() >= 0.001), bool(steps.max() <= 0.1)
    (True, True)
    """
    u = torch.rand(*shape, generator=generator, dtype=dtype, device=device)
    return torch.exp(math.log(low) + u * math.log(high / low))


def inverse_softplus(a: Tensor) -> Tensor:
    """The z with softplus(z) = a, for a > 0 (same shape, dtype). Introduced in *zoo*.

    >>> torch.nn.functional.softplus(inverse_softplus(torch.tensor([0.1, 3.0])))
    tensor([0.1000, 3.0000])
    """
    return a + torch.log(-torch.expm1(-a))
