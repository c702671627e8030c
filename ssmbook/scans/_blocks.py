"""The recurrence h_t = a_t h_{t-1} + b_t in plain torch, for devices and machines without the compiled loop.

Time is cut into blocks of 16 steps. A *summary* pass runs all blocks at once from zero and keeps of each
only the product P of its decays and its last value H; the recurrence of the summaries, c_i = P_i c_{i-1} +
H_i, has the same form and gives the true value at the end of every block; a *restart* pass runs all blocks at
once from those values. Nothing is divided and no long cumulative product is formed.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ssmbook.scans._engine import wide

BLOCK = 16
LOG2_E = 1 / math.log(2)  # exp as a power of two: PyTorch's own is several times slower on some processors
WIDTH = 4096  # from this many channels on, one step is work enough for one call
GROWTH = 64.0  # a block that can amplify its carry by more than this is left to the plain loop


def scan_into(a: Tensor, b: Tensor, h: Tensor, carry: Tensor | None, log: bool, reverse: bool) -> None:
    """Write the recurrence with decays ``a`` (``exp(a)`` if ``log``), all (..., T, D), into ``h``.

    ``carry`` (..., D) is the value before the first step (after the last one if ``reverse``). Where a block
    amplifies or overflows the plain loop decides, so that infinity and NaN come out as in the recurrence.
    """
    decay = (a * LOG2_E).exp2_() if log else a
    L = BLOCK // 2 if log else BLOCK  # equal logarithms give decays all rounded alike, as often as L says
    n, rest = divmod(b.shape[-2], L)
    if n <= 2 or b.numel() >= WIDTH * b.shape[-2]:
        return _loop_into(decay, b, h, carry, reverse)
    body, tail = ((rest, n * L), (0, rest)) if reverse else ((0, n * L), (n * L, rest))
    whole = [t.narrow(-2, *body).unflatten(-2, (n, L)) for t in (a, decay, b, h)]
    end = _blocks(*whole, carry, log, reverse)
    if end is None:
        _loop_into(decay, b, h, carry, reverse)
    elif rest:
        _loop_into(*(t.narrow(-2, *tail) for t in (decay, b, h)), end, reverse)


def _loop_into(a: Tensor, b: Tensor, h: Tensor, carry: Tensor | None, reverse: bool) -> None:
    au, bu, hu = (_steps(t, reverse) for t in (a, b, h))
    if carry is None:
        hu[0].copy_(bu[0])
    else:
        torch.addcmul(bu[0], au[0], carry.to(b.dtype), out=hu[0])
    for t in range(1, len(hu)):
        torch.addcmul(bu[t], au[t], hu[t - 1], out=hu[t])


def _steps(t: Tensor, reverse: bool) -> tuple[Tensor, ...]:
    steps = t.unbind(-2)
    return steps[::-1] if reverse else steps


def _blocks(a, decay, b, h, carry, log: bool, reverse: bool) -> Tensor | None:
    """The three passes over (..., n, L, D): the last value, or None where the plain loop has to decide."""
    au, bu, hu = (_steps(t, reverse) for t in (decay, b, h))
    if log:
        product = a.sum(-2, dtype=wide(a.dtype)).exp_()
    else:
        product = au[0].to(wide(a.dtype), copy=True)
        for a_t in au[1:]:
            product.mul_(a_t)
    if not product.abs().max().item() <= GROWTH:
        return None
    last = _last_values(au, bu, None).to(product.dtype)
    ends = torch.empty_like(last)
    scan_into(product, last, ends, carry, False, reverse)
    if product.dtype == b.dtype:
        # Products of equal decays are rounded alike in every block, which adds up. With no wider dtype for
        # them, one more pass measures what the ends miss of the recurrence, and the same products spread it.
        miss = _last_values(au, bu, _before(ends, carry, reverse)).sub_(ends)
        scan_into(product, miss, last, None, False, reverse)
        ends += last
    end = ends.select(-2, 0 if reverse else -1)
    if not bool(end.isfinite().all()):  # every value that is not finite reaches the end
        return None
    before = _before(ends, carry, reverse).to(b.dtype)
    for a_t, b_t, h_t in zip(au, bu, hu, strict=True):
        before = torch.addcmul(b_t, a_t, before, out=h_t)
    return end


def _last_values(au, bu, before: Tensor | None) -> Tensor:
    """The last value of every block, (..., n, D), from the value before it (zero if None)."""
    last = bu[0].clone() if before is None else torch.addcmul(bu[0], au[0], before)
    for a_t, b_t in zip(au[1:], bu[1:], strict=True):
        torch.addcmul(b_t, a_t, last, out=last)
    return last


def _before(ends: Tensor, carry: Tensor | None, reverse: bool) -> Tensor:
    """The value before every block: the end of its neighbor, and ``carry`` (or zero) before the first."""
    n = ends.shape[-2]
    before = torch.empty_like(ends)
    first = before.select(-2, n - 1 if reverse else 0)
    first.zero_() if carry is None else first.copy_(carry)
    before.narrow(-2, 0 if reverse else 1, n - 1).copy_(ends.narrow(-2, 1 if reverse else 0, n - 1))
    return before


def dense(
    A: Tensor, u: Tensor, state: Tensor | None, reverse: bool, reset: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """All states h_t = A h_{t-1} + u_t, (..., T, N), and the last one, step by step and out of place."""
    h, states = torch.zeros_like(u[..., 0, :]) if state is None else state, []
    forgets = [None] * u.shape[-2] if reset is None else _steps(reset.unsqueeze(-1), reverse)
    for u_t, forget in zip(_steps(u, reverse), forgets, strict=True):
        h = u_t + (h if forget is None else torch.where(forget, 0, h)) @ A.mT
        states.append(h)
    return torch.stack(states[::-1] if reverse else states, -2), h.clone()
