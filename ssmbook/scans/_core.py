"""The first-order recurrence h_t = a_t h_{t-1} + b_t on raw tensors: a plain loop and the blocked scan
built on it.

The blocked scan cuts time into blocks of ``L`` steps. A *summary* pass runs all blocks at once from zero
and keeps of each only its product of decays P and its last value H; the recurrence of the summaries, c_i =
P_i c_{i-1} + H_i, has the same form and gives the true value at the end of every block; a *restart* pass
runs all blocks at once from those values. Nothing is divided and no long cumulative product is formed.
"""

from __future__ import annotations

import cmath
import contextlib
import math

import torch
from torch import Tensor
from torch.autograd import forward_ad

# Products of decays are kept wider than the data: their rounding error is systematic and grows with the
# memory 1/(1-a) of the recurrence, whereas the error inside one block does not.
WIDE = {torch.float32: torch.float64, torch.complex64: torch.complex128}
GROWTH = 64.0  # a block that can amplify its carry by more than this is left to the plain loop
LOG2_E = 1 / math.log(2)
MEMORY = 0.5  # above this largest product, its rounding error is worth removing
SEGMENT = 1 << 20  # elements handled at once on a CPU: what its caches hold
WIDTH = 4096  # from this many channels on, one step is work enough for one call on a CPU
SMALL = 1 << 18  # up to here a call costs more than its work, and short blocks need fewer calls
# Steps in a block: the number that leaves the fewest over. Long blocks are odd, for one call reads the same
# step of every block, and at a distance that is a power of two all of those share a few places of a cache.
SHORT, LONG = (13, 14, 15, 16, 17), (27, 29, 31)
# The exponential of a logarithm is rounded, by up to 3e-8 in float32, and for equal gates in one direction: a
# block repeats that as often as it has steps.
FROM_LOGARITHMS = (7, 8, 9)
ROW = 128  # bytes from which on a row is long enough for torch.prod to be quick across rows


def light_calls():
    """A context in which the many small calls of a scan cost less; no tensor made in it may leave it."""
    return contextlib.nullcontext() if torch.compiler.is_compiling() else torch.inference_mode()


def is_batched(t: Tensor) -> bool:
    """Whether a gradient comes batched (``is_grads_batched``), where PyTorch skips a Function's own vmap
    rule.
    """
    return not torch.compiler.is_compiling() and torch._C._functorch.is_legacy_batchedtensor(t)


def is_plain(*tensors: Tensor | None) -> bool:
    """Whether no derivative and no batch rule can be asked for: then the way through ``autograd.Function``,
    which costs as much as forty small operations, is left out.
    """
    if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        return False
    return not (torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors))


def all_finite(*tensors: Tensor) -> bool:
    """Whether every entry of every tensor is finite, found in one read (a sum that overflows answers no);
    yes where values cannot be looked at (``torch.compile``, ``vmap``).
    """
    if torch.compiler.is_compiling():
        return True
    try:
        return all(cmath.isfinite(t.detach().sum().item()) for t in tensors)
    except RuntimeError:
        return True


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
    size = max(64, SEGMENT // width) if on_cpu else T
    by_loop = on_cpu and width >= WIDTH
    starts = range(0, T, size)
    for start in reversed(starts) if reverse else starts:
        a_s, b_s, h_s = (t.narrow(-2, start, min(size, T - start)) for t in (a, b, h))
        end = None if by_loop else _blocks(a_s, b_s, h_s, carry, reverse, log)
        # Every non-finite value of a segment reaches its end.
        if end is None or not all_finite(end):
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
    lengths = FROM_LOGARITHMS if log else SHORT if b.numel() <= SMALL else LONG
    L = min(lengths, key=lambda L: T % L)
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
    if guard:
        eu = None if defect is None else _steps(defect.view(shape).unbind(-2), reverse)
        product, defect = _sharp_products(a, au, eu, total)
        if product is None:
            return None
        # Twice the digits need no more care; the digits of the data do, block by block.
        guard = defect is not None and product.dtype == a.dtype
    else:
        product = _products(a, au)
    last = _last_values(au, bu).to(product.dtype)
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


def _last_values(au, bu) -> Tensor:
    """Last value of every block that starts from zero, (..., n, D)."""
    last = torch.addcmul(bu[1], au[1], bu[0])
    for t in range(2, len(bu)):
        torch.addcmul(bu[t], au[t], last, out=last)
    return last


def _products(a: Tensor, au) -> Tensor:
    """Product of the decays of every block, (..., n, D)."""
    if a.shape[-1] * a.element_size() >= ROW:
        return a.prod(-2)
    product = au[0] * au[1]
    for a_t in au[2:]:
        product.mul_(a_t)
    return product


def _sharp_products(a: Tensor, au, eu, total: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """The products of the blocks, and 1 - P to its own last digit where some P is large enough for its
    rounding error to matter (else None); None twice where a block amplifies too much.

    ``eu`` are the 1 - a_t where they are known better than the a_t, ``total`` the logarithms of the products.
    Products that need care come in the wide dtype.
    """
    wide = WIDE.get(a.dtype, a.dtype)
    # Where the first gates of all are near one, all products may be, and then this is all there is to do.
    if total is None and not a.is_complex() and au[0].select(-2, 0).amin().item() > MEMORY ** (1 / len(au)):
        defect = _defects(au, eu)
        least, most = _range_of(defect)
        if -0.5 < least and most < 0.5:
            defect = defect.to(wide)
            return 1 - defect, defect
    product = _products(a, au) if total is None else total.exp()
    least, most = _range_of(product)
    if not max(most, -least) <= GROWTH:
        return None, None
    if max(most, -least) <= MEMORY:
        return product, None
    if total is not None:
        total = total.to(wide)
        return total.exp(), total.expm1().neg_()
    defect, product = _defects(au, eu).to(wide), product.to(wide)
    close = defect.abs() < 0.5
    return torch.where(close, 1 - defect, product), torch.where(close, defect, 1 - product)


def _range_of(t: Tensor) -> tuple[float, float]:
    """Least and greatest entry (of the moduli, if complex), NaN if there is one."""
    least, most = (t.abs() if t.is_complex() else t).aminmax()
    return least.item(), most.item()


def _defects(au, eu) -> Tensor:
    """1 - P of every block without cancellation, by the recurrence E_t = (1 - a_t) + a_t E_{t-1}."""
    if eu is None:
        one = au[0].new_ones(())
        defect = one - au[0]
        for a_t in au[1:]:  # lerp keeps E + (1 - a)(1 - E) where a > 1/2
            torch.lerp(one, defect, a_t, out=defect)
        return defect
    defect = torch.addcmul(eu[1], au[1], eu[0])
    for t in range(2, len(au)):
        torch.addcmul(eu[t], au[t], defect, out=defect)
    return defect


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
