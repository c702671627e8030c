"""Step sizes Delta of the continuous-time maps: how they are drawn and kept positive."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ssmbook._checks import as_real, check_integer, check_like, check_positive, check_tensor


def draw_steps(
    *shape: int,
    low: float = 1e-3,
    high: float = 1e-1,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Step sizes drawn log-uniformly from [low, high]: a tensor of the given shape (`gu2024mamba`).

    Raises ``ValueError``/``TypeError`` for sizes that are no counts and unless 0 < low <= high. Introduced
    in *zoo*.

    >>> steps = draw_steps(1000)
    >>> bool(steps.min() >= 0.001), bool(steps.max() <= 0.1)
    (True, True)
    """
    shape = [check_integer("shape", size, low=0) for size in shape]
    low, high = check_positive("low", low), check_positive("high", high)
    if low > high:
        raise ValueError(f"high must be at least low = {low}; got {high}")
    check_like(generator=generator, dtype=dtype, device=device)
    u = torch.rand(*shape, generator=generator, dtype=dtype, device=device)
    return torch.exp(math.log(low) + u * math.log(high / low))


def inverse_softplus(a: Tensor) -> Tensor:
    """The z with softplus(z) = a, for a > 0 (same shape, dtype).

    Raises ``TypeError`` for anything but a floating-point tensor, ``ValueError`` for entries that are not
    positive and finite. Introduced in *zoo*.

    >>> torch.nn.functional.softplus(inverse_softplus(torch.tensor([0.1, 3.0])))
    tensor([0.1000, 3.0000])
    """
    check_tensor("a", a)
    if not a.is_meta:
        as_real("a", a, low=0.0)
    return a + torch.log(-torch.expm1(-a))
