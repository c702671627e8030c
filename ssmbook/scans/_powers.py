"""Powers of A by squaring, and whether they are good enough to stand in for the plain recurrence.

Squaring rounds each power relative to |A^m| |A^m|, a step of the recurrence relative to |A|. The two are
alike for a normal A; where powers grow before they decay, the first is larger by up to (max ||A^k||)^2,
although the terms cancel in A^2m. The ratio of both, seen from B and through C and entry by entry, does not
change with the units of the states. It decides here.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ssmbook.numerics import HALF
from ssmbook.scans._engine import wide

# Up to here (times the root of N, as for an orthogonal A) the lags by powers are as good as the recurrence.
PLAIN = 2.0
CALM = 4.0  # norms of powers, in units of that of an orthogonal matrix, that call for no look
# In the wide dtype powers may lose that much more, and this share of it is used.
ROOM = 2e-3


class Route(NamedTuple):
    """How far powers of A may be used.

    ``powers``: A, A^2, A^4, ... in the dtype to work in; ``sound``: whether they are (otherwise A stands
    alone); ``suspect``: whether its recurrence may be spoiled as well.
    """

    powers: list[Tensor]
    sound: bool
    suspect: bool


def value_of(t: Tensor) -> float | None:
    """The largest entry, over all samples of a ``vmap``; None where values cannot be looked at."""
    t = t.detach()
    while torch._C._functorch.is_functorch_wrapped_tensor(t):
        t = torch._C._functorch.get_unwrapped(t)
    try:
        value = t.amax().item()
    except RuntimeError:
        return None
    return None if isinstance(value, torch.SymFloat) else value


def is_finite(t: Tensor) -> bool | None:
    """Whether every entry is finite, found in one read; None where values cannot be looked at.

    A sum that overflows answers no.
    """
    value = value_of((0 * t.detach().sum()).abs())
    return None if value is None else value == 0


def widest(dtype: torch.dtype) -> torch.dtype:
    """The dtype that powers are formed in: twice the digits, where there is one."""
    return torch.float32 if dtype in HALF else wide(dtype)


def squarings(A: Tensor, T: int) -> list[Tensor]:
    """A, A^2, A^4, ... up to the first exponent that is at least T."""
    powers = [A]
    for _ in range((T - 1).bit_length()):
        powers.append(powers[-1] @ powers[-1])
    return powers


def krylov(powers: list[Tensor], B: Tensor, count: int) -> Tensor:
    """B, AB, A^2 B, ... side by side, (..., N, count d): each product doubles how many there are."""
    columns, d = B, B.shape[-1]
    for power in powers:
        if columns.shape[-1] >= count * d:
            break
        columns = torch.cat((columns, power @ columns), -1)
    return columns[..., : count * d]


def lags_by_powers(powers: list[Tensor], B: Tensor, C: Tensor, n: int) -> Tensor:
    """The lags C A^tau B, (..., n, p, d), from A, A^2, A^4, ..., at two levels of about sqrt(n).

    The powers go up to an exponent of at least n.
    """
    level = ((n - 1).bit_length() + 1) // 2
    inner, p, d = 1 << level, C.shape[-2], B.shape[-1]
    outer = -(-n // inner)
    rows = krylov([power.mT for power in powers[level:]], C.mT, outer).mT
    blocks = (rows @ krylov(powers, B, inner)).unflatten(-1, (inner, d)).unflatten(-3, (outer, p))
    return blocks.transpose(-3, -2).flatten(-4, -3)[..., :n, :, :]


def choose(A: Tensor, B: Tensor, C: Tensor, T: int, state: Tensor | None = None) -> Route | None:
    """Decide how lags 0 ... T - 1 of (A, B, C), from ``state`` (..., N) too, may be formed.

    None where no value can be looked at. A (..., N, N), B (..., N, d), C (..., p, N). Powers that are not
    finite are not sound.
    """
    if torch.compiler.is_compiling():
        return None
    if T <= 2 or not (A.numel() and B.numel() and C.numel()):
        return Route([A], False, False)
    dtype = widest(A.dtype)
    powers = squarings(A.to(dtype), T)
    with torch.no_grad():
        cost = value_of(cost_of_powers(powers, B.to(dtype), C.to(dtype), state))
    if cost is None:
        return None
    cost /= math.sqrt(A.shape[-1])
    if cost <= PLAIN:
        return Route([power.to(A.dtype) for power in powers], True, False)
    if cost <= ROOM * torch.finfo(A.dtype).eps / torch.finfo(dtype).eps:
        return Route(powers, True, True)
    return Route([A], False, True)


def cost_of_powers(powers: list[Tensor], B: Tensor, C: Tensor, state: Tensor | None = None) -> Tensor:
    """The largest rounding error that squaring leaves in a lag, in units of that of the recurrence.

    NaN where powers are not finite.
    """
    eye = torch.eye(B.shape[-2], dtype=B.dtype, device=B.device).expand_as(powers[0])
    P = without_growth(torch.stack([eye, *powers]))
    after, before = (C @ P).abs().amax(0), (P @ B).abs().amax(0)
    P = P.abs()
    if state is not None:
        h = state.abs().to(P.dtype).reshape(-1, P.shape[-1]).amax(0).unsqueeze(-1)
        before = torch.cat((before, (P @ h).amax(0)), -1)
    squared = after @ (P[:-1] @ (P[:-1] @ before)).amax(0)
    stepped = after @ ((P[0] + P[1]) @ before)
    return torch.where(stepped == 0, 0, squared / stepped).amax((-2, -1))


def without_growth(powers: Tensor) -> Tensor:
    """A^k g^(-k) for the powers k = 0, 1, 2, 4, ...: without what grows to no end.

    That is common to both sides (g = 1 for a stable A).
    """
    last = powers[-1].abs()
    trace = (last * last.mT).sum((-2, -1), keepdim=True).clamp(1, torch.finfo(last.dtype).max)
    exponents = torch.arange(-len(powers), 0, dtype=last.dtype, device=last.device).exp2()
    exponents[0] = 0
    return powers * trace ** -exponents.view(-1, *[1] * last.ndim)
