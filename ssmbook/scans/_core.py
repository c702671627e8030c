"""The first-order recurrence h_t = a_t h_{t-1} + b_t on raw tensors: a plain loop and the blocked scan
built on it.

The blocked scan cuts time into blocks of ``L`` steps. A *summary* pass runs all blocks at once from zero
and keeps of each only its product of decays P and its last value H; the recurrence of the summaries, c_i =
P_i c_{i-1} + H_i, has the same form and gives the true value at the end of every block; a *restart* pass
runs all blocks at once from those values. Nothing is divided and no long cumulative product is formed.
"""

from __future__ import annotations

import contextlib
import math

import torch
from torch import Tensor

# Products of decays are kept wider than the data: their rounding error is systematic and grows with the
# memory 1/(1-a) of the recurrence, whereas the error inside one block does not.
WIDE = {torch.float32: torch.float64, torch.complex64: torch.complex128}
GROWTH = 64.0  # a block that can amplify its carry by more than this is left to the plain loop
LOG2_E = 1 / math.log(2)
MEMORY = 0.5  # above this largest product, its rounding error is worth removing
SEGMENT = 1 << 20  # elements handled at once on a CPU: what its caches hold
WIDTH = 4096  # from this many channels on, one step is work enough for one call on a CPU
SMALL = 1 << 18  # up to here a call costs more than its work, and short blocks need fewer calls


def known(condition: Tensor, otherwise: bool = True) -> bool:
    """The truth of a one-element tensor; ``otherwise`` where values cannot be looked at (``torch.compile``,
    ``vmap``).
    """
    if torch.compiler.is_compiling():
        return otherwise
    try:
        return bool(condition)
    except RuntimeError:
        return otherwise


def light_calls():
    """A context in which the many small calls of a scan cost less; no tensor made in it may leave it."""
    return contextlib.nullcontext() if torch.compiler.is_compiling() else torch.inference_mode()


def is_batched(t: Tensor) -> bool:
    """Whether a gradient comes batched (``is_grads_batched``), where PyTorch skips a Function's own vmap
    rule.
    """
    return not torch.compiler.is_compiling() and torch._C._functorch.is_legacy_batchedtensor(t)


def all_finite(*tensors: Tensor) -> bool:
    """Whether every entry of every tensor is finite, found in one read (a sum that overflows answers no)."""
    return all(known(t.detach().sum().isfinite()) for t in tensors)


def decays_of(a: Tensor, log: bool) -> Tensor:
    """The decays themselves: ``exp(a)`` if ``log``."""
    # As a power of two: PyTorch hands exp to a library that is several times slower on some processors.
    return (a * LOG2_E).exp2_() if log else a


def loop_into(a: Tensor, b: Tensor, h: Tensor, carry: Tensor | None, reverse: bool = False) -> None:
    """Write the recurrence into ``h`` step by step over dim -2 (downwards in time if ``reverse``)."""
    au, bu, hu = (_steps(t.unbind(-2), reverse) for t in (a, b, h))
    if carry is None:
        hu[0].copy_(bu[0])
    else:
        torch.addcmul(bu[0], au[0], carry.to(b.dtype), out=hu[0])
    for t in range(1, len(hu)):
        torch.addcmul(bu[t], au[t], hu[t - 1], out=hu[t])


def scan_into(a: Tensor, b: Tensor, h: Tensor, carry: Tensor | None, *, reverse=False, log=False) -> None:
    """Write the recurrence with decays ``a`` (``exp(a)`` if ``log``) and inputs ``b``, all (..., T, D),
    into ``h``.

    ``carry`` (..., D) is the value before the first step (after the last one if ``reverse``). Segments
    whose blocks could amplify their carry, or which meet a non-finite value, are redone by the plain loop,
    so that overflow, NaN and infinity come out as in the recurrence itself.
    """
    with light_calls():
        _segments(a, b, h, carry, reverse, log)


def _segments(a: Tensor, b: Tensor, h: Tensor, carry: Tensor | None, reverse: bool, log: bool) -> None:
    T = b.shape[-2]
    width = max(1, b.numel() // T)
    on_cpu = b.device.type == "cpu"
    size = max(64, SEGMENT // width // 16 * 16) if on_cpu else T
    by_loop = on_cpu and width >= WIDTH
    starts = range(0, T, size)
    for start in reversed(starts) if reverse else starts:
        a_s, b_s, h_s = (t.narrow(-2, start, min(size, T - start)) for t in (a, b, h))
        end = None if by_loop else _blocks(a_s, b_s, h_s, carry, reverse, log)
        # Every non-finite value of a segment reaches its end.
        if end is None or not known((end * 0).sum() == 0):
            loop_into(decays_of(a_s, log), b_s, h_s, carry, reverse)
            end = h_s.select(-2, 0 if reverse else -1)
        carry = end


def _steps(slices: tuple[Tensor, ...], reverse: bool) -> tuple[Tensor, ...]:
    return slices[::-1] if reverse else slices


def _blocks(
    a, b, h, carry, reverse: bool, log=False, defect: Tensor | None = None, guard=True
) -> Tensor | None:
    """The blocked scan of one segment: the last value, or None where a block amplifies its carry too much.

    ``defect``, if given, is 1 - a to more digits than ``a`` itself tells. Without ``guard`` the products of
    the blocks are known to be harmless and exact enough.
    """
    T = b.shape[-2]
    L = 8 if b.numel() <= SMALL else 16
    if T <= 2 * L:
        loop_into(decays_of(a, log), b, h, carry, reverse)
        return h.select(-2, 0 if reverse else -1)
    n, rest = divmod(T, L)
    if rest:
        return _uneven(a, b, h, carry, reverse, log, defect, guard, rest)
    shape = (*b.shape[:-2], n, L, b.shape[-1])
    a, b, h = (t.view(shape) for t in (a, b, h))
    total, a = (a.sum(-2) if log else None), decays_of(a, log)
    au, bu, hu = (_steps(t.unbind(-2), reverse) for t in (a, b, h))
    product, last = _summaries(au, bu, total)
    if guard:
        growth = product.abs().amax()
        if not known(growth <= GROWTH):
            return None
        guard = False
        if known(growth > MEMORY):
            defect = None if defect is None else defect.view(shape).unbind(-2)
            product, defect = _sharpen(product, a.unbind(-2), defect, total)
            last = last.to(product.dtype)
            # Twice the digits need no more care; the digits of the data do, block by block.
            guard = product.dtype == a.dtype
    ends = torch.empty_like(last)
    end = _blocks(product, last, ends, carry, reverse, False, defect if guard else None, guard)
    if end is not None:
        _restart(au, bu, hu, ends, carry, reverse)
    return end


def _uneven(a, b, h, carry, reverse: bool, log: bool, defect, guard: bool, rest: int) -> Tensor | None:
    """A segment that is no whole number of blocks: the blocks first, then the ``rest`` by the plain loop."""
    T = b.shape[-2]
    body, tail = ((rest, T - rest), (0, rest)) if reverse else ((0, T - rest), (T - rest, rest))
    defect = None if defect is None else defect.narrow(-2, *body)
    end = _blocks(*(t.narrow(-2, *body) for t in (a, b, h)), carry, reverse, log, defect, guard)
    if end is None:
        return None
    a, b, h = (t.narrow(-2, *tail) for t in (a, b, h))
    loop_into(decays_of(a, log), b, h, end, reverse)
    return h.select(-2, 0 if reverse else -1)


def _summaries(au, bu, total: Tensor | None) -> tuple[Tensor, Tensor]:
    """Product of the decays (from the sum of their logarithms, if given) and last value from zero of every
    block, both (..., n, D).
    """
    product = total.exp() if total is not None else au[0] * au[1]
    last = torch.addcmul(bu[1], au[1], bu[0])
    for t in range(2, len(bu)):
        if total is None:
            product.mul_(au[t])
        torch.addcmul(bu[t], au[t], last, out=last)
    return product, last


def _sharpen(product: Tensor, au, eu, total: Tensor | None) -> tuple[Tensor, Tensor]:
    """The products again, in the wide dtype, and 1 - P to its own last digit where P is close to one.

    There 1 - P follows the recurrence E_t = (1 - a_t) + a_t E_{t-1} without cancellation; ``eu`` are the
    1 - a_t where they are known better than the a_t, ``total`` the logarithms of the products.
    """
    wide = WIDE.get(product.dtype, product.dtype)
    if total is not None:
        total = total.to(wide)
        return total.exp(), total.expm1().neg_()
    if eu is None:
        one = product.new_ones(())
        defect = one - au[0]
        for a_t in au[1:]:  # lerp keeps E + (1 - a)(1 - E) where a > 1/2
            torch.lerp(one, defect, a_t, out=defect)
    else:
        defect = torch.addcmul(eu[1], au[1], eu[0])
        for t in range(2, len(au)):
            torch.addcmul(eu[t], au[t], defect, out=defect)
    size, product, defect = defect.abs(), product.to(wide), defect.to(wide)
    if known(size.amax() < 0.5, otherwise=False):
        return 1 - defect, defect
    close = size < 0.5
    return torch.where(close, 1 - defect, product), torch.where(close, defect, 1 - product)


def _restart(au, bu, hu, ends: Tensor, carry: Tensor | None, reverse: bool) -> None:
    """Run every block from the end of the one before it; the block ends themselves are taken as they are
    known.
    """
    n = ends.shape[-2]
    before = torch.empty_like(ends, dtype=bu[0].dtype)
    first = before.select(-2, n - 1 if reverse else 0)
    first.zero_() if carry is None else first.copy_(carry)
    before.narrow(-2, 0 if reverse else 1, n - 1).copy_(ends.narrow(-2, 1 if reverse else 0, n - 1))
    torch.addcmul(bu[0], au[0], before, out=hu[0])
    for t in range(1, len(hu) - 1):
        torch.addcmul(bu[t], au[t], hu[t - 1], out=hu[t])
    hu[-1].copy_(ends)
