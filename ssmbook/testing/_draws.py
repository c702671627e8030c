"""Random numbers that a seed repeats, whatever else is drawn."""

from __future__ import annotations

from typing import TypedDict

import torch


class Draws(TypedDict):
    """The options of what draws."""

    generator: torch.Generator
    dtype: torch.dtype


def draws(seed: int = 0) -> Draws:
    """Return ``generator`` and ``dtype`` for what draws: a generator of its own on the CPU, in float64.

    Each call begins the sequence of its seed anew; keep the result to draw on.

    >>> new = draws(3)
    >>> first, second = torch.randn(2, **new), torch.randn(2, **new)
    >>> torch.equal(first, torch.randn(2, **draws(3))), torch.equal(first, second)
    (True, False)
    """
    return {"generator": torch.Generator().manual_seed(seed), "dtype": torch.float64}
