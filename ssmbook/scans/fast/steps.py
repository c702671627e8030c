"""The steps of a sequence one by one, the value that each of them starts from, and whether all are finite."""

import torch
from torch import Tensor


def steps_of(t: Tensor, reverse: bool = False) -> tuple[Tensor, ...]:
    """The steps of t (..., T, D), the last one first if ``reverse``."""
    steps = t.unbind(-2)
    return steps[::-1] if reverse else steps


def value_before(h: Tensor, state: Tensor | None) -> Tensor:
    """The value that each step along dim -2 starts from: the initial state (zero if None), then ``h``."""
    first = torch.zeros_like(h[..., :1, :]) if state is None else state.unsqueeze(-2)
    return torch.cat((first, h[..., :-1, :]), -2)


def is_finite(t: Tensor) -> bool:
    """Whether every entry is finite, in one read; also False if the sum overflows."""
    return (0 * t.detach().sum()).item() == 0
