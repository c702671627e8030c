"""The diagonal recurrence in PyTorch, without Numba and Triton: time in blocks, all of them at once.

1. Run every block of 16 steps from zero. Of each keep the product P of its decays and its last value H.
2. The true value at the end of block i is c_i = P_i c_{i-1} + H_i: the same recurrence, 16 times shorter,
   so we run it in the same way.
3. Run every block again, now from the true value before it.

Nothing is divided, and no long cumulative product is formed (`prop-chunked`).
"""

import math

import torch
from torch import Tensor

from ssmbook.scans._arguments import wide
from ssmbook.scans.fast.steps import steps_of

STEPS = 16
LOG2_E = 1 / math.log(2)  # exp as a power of two: PyTorch's own is several times slower on some processors
WIDTH = 4096  # from this many channels on, one step is work enough for one call
GROWTH = 64.0  # a block that can amplify its carry by more than this is left to the plain loop


def scan_into(a: Tensor, b: Tensor, h: Tensor, carry: Tensor | None, log: bool, reverse: bool) -> None:
    """Write the recurrence with decays ``a`` (``exp(a)`` if ``log``), all (..., T, D), into ``h``.

    ``carry`` (..., D) is the value before the first step (after the last one if ``reverse``). Where a
    block amplifies or overflows the plain loop decides, so that infinity and NaN come out as in the
    recurrence.
    """
    decay = (a * LOG2_E).exp2_() if log else a
    L = STEPS // 2 if log else STEPS  # equal logarithms share one rounding error, which grows with L
    n, rest = divmod(b.shape[-2], L)
    if n <= 2 or b.numel() >= WIDTH * b.shape[-2]:
        return _loop_into(decay, b, h, carry, reverse)
    # the steps that do not fill a block are the last to be run
    body, tail = ((rest, n * L), (0, rest)) if reverse else ((0, n * L), (n * L, rest))
    whole = [t.narrow(-2, *body).unflatten(-2, (n, L)) for t in (a, decay, b, h)]
    end = _blocks_into(*whole, carry, log, reverse)
    if end is None:
        _loop_into(decay, b, h, carry, reverse)
    elif rest:
        _loop_into(*(t.narrow(-2, *tail) for t in (decay, b, h)), end, reverse)


def _loop_into(a: Tensor, b: Tensor, h: Tensor, carry: Tensor | None, reverse: bool) -> None:
    """Write h_t = b_t + a_t h_{t-1} step by step."""
    au, bu, hu = (steps_of(t, reverse) for t in (a, b, h))
    if carry is None:
        hu[0].copy_(bu[0])
    else:
        torch.addcmul(bu[0], au[0], carry.to(b.dtype), out=hu[0])
    for t in range(1, len(hu)):
        torch.addcmul(bu[t], au[t], hu[t - 1], out=hu[t])


def _blocks_into(a, decay, b, h, carry, log: bool, reverse: bool) -> Tensor | None:
    """The three passes over (..., n, L, D): the last value, or None where the plain loop has to decide."""
    au, bu, hu = (steps_of(t, reverse) for t in (decay, b, h))
    if log:
        product = a.sum(-2, dtype=wide(a.dtype)).exp_()
    else:
        product = au[0].to(wide(a.dtype), copy=True)
        for a_t in au[1:]:
            product.mul_(a_t)
    if not product.abs().max().item() <= GROWTH:  # so that NaN is refused, too
        return None
    last = _last_values(au, bu, None).to(product.dtype)
    ends = torch.empty_like(last)
    scan_into(product, last, ends, carry, False, reverse)
    if product.dtype == b.dtype:
        # Products of equal decays are rounded alike in every block, which adds up. With no wider dtype
        # for them, one more pass measures what the ends miss of the recurrence, and the same products
        # spread it.
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
    n, before = ends.shape[-2], torch.empty_like(ends)
    first = before.select(-2, n - 1 if reverse else 0)
    first.zero_() if carry is None else first.copy_(carry)
    before.narrow(-2, 0 if reverse else 1, n - 1).copy_(ends.narrow(-2, 1 if reverse else 0, n - 1))
    return before
