"""Units of states, inputs, outputs and time in which the numbers of a system can be compared at all.

A rank is decided by comparing numbers, and a system brings no units of its own: x -> S x with a diagonal S
changes A, B and C and none of the lag operators. Sizes that keep are those of whole paths, from an input to
an output. So each state gets the unit in which it is as far from the inputs as from the outputs; far means
the largest product of entries along a path, the longest path of (max, +) algebra once logarithms are taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ssmbook.numerics import default_rtol

_NOWHERE = -np.inf
# Units of states within this many powers of two of each other compare, and stay as they are given.
_ALIKE = 8


@dataclass(frozen=True)
class StandardForm:
    """A system in units of its own: its lag operators are C A^tau B times step^tau rows columns^T.

    A (r, r) of 2-norm one, B (r, d) with columns and C (p, r) with rows of norm one (zero ones stay zero), on
    the r states that some path joins to an input and to an output. Units are pairs (numbers, exponents of
    two): ``step`` a float and an int, ``columns`` (1, d) and ``rows`` (p, 1) a tensor and an array.
    """

    A: torch.Tensor
    B: torch.Tensor
    C: torch.Tensor
    step: tuple[torch.Tensor, np.ndarray]
    columns: tuple[torch.Tensor, np.ndarray]
    rows: tuple[torch.Tensor, np.ndarray]

    @property
    def scale(self) -> torch.Tensor:
        """The unit (p, d) of each entry of a lag operator."""
        return ldexp(self.rows[0] * self.columns[0], self.rows[1] + self.columns[1])

    def restore(self, A, B, C):
        """A system in these units back in those of the inputs, outputs and steps it came from."""
        return tuple(
            ldexp(tensor * unit, exponent)
            for tensor, (unit, exponent) in ((A, self.step), (B, self.columns), (C, self.rows))
        )


def standard_form(A, B, C, D=None, *, dtype=None, literal=False) -> StandardForm:
    """Choose units for states, inputs, outputs and steps in which numbers of the system can be compared.

    A (N, N), B (N, d), C (p, N), D (p, d) or None, finite, float64 or complex128. Up to a power of two an
    entry, at most 2^8, the result does not depend on the units, however far apart, of the system given.
    Powers of two are exact; only the last division, by norms, rounds. Entries that may be rounding errors of
    ``dtype`` (default: that of A) in place of zeros are set to zero, unless the lag operators feel it or
    ``literal`` forbids it (see `rounding_cleared`).
    """
    dtype = A.dtype if dtype is None else dtype
    cleared = None if literal else rounding_cleared(A, B, C, dtype)
    if cleared is not None and _same_lags((A, B, C), cleared, D, default_rtol(dtype.to_real())):
        A, B, C = cleared
    kept, states, step, columns, rows = unit_exponents(*(_logarithms(tensor) for tensor in (A, B, C)))
    index = torch.from_numpy(kept).to(A.device)
    A = ldexp(A[index][:, index], states - states[:, None] - step)
    B = ldexp(B[index], -states[:, None] - columns)
    C = ldexp(C[:, index], states - rows)
    size = torch.linalg.matrix_norm(A, 2) if len(A) else A.new_ones(()).abs()
    units = (torch.where(size > 0, size, 1), sizes(B, 0), sizes(C, 1))
    return StandardForm(
        *(tensor / unit for tensor, unit in zip((A, B, C), units, strict=True)),
        *zip(units, (step, columns, rows), strict=True),
    )


def rounding_cleared(A, B, C, dtype):
    """The system with entries of the size of rounding errors set to zero, or None where it has none.

    That size is up to 100 N rounding units of ``dtype``, and down to the square of one, beside the largest
    entry of A, of the column of B, of the row of C. In other units of the states it may be as good as any
    other, so it counts only if it is as small along paths too, see `_faint`, or nothing is smaller.
    """
    parts, eps = (A, B, C), torch.finfo(dtype).eps
    sizes = relative_sizes(parts)
    masks = [(size > eps**2) & (size < _limit(parts, dtype)) for size in sizes]
    if not any(bool(mask.any()) for mask in masks):
        return None
    faint, seldom = (_faint(parts, dtype, alone=alone) for alone in (True, False))
    evident = any(bool((m & (f | s)).any()) for m, f, s in zip(masks, faint, seldom, strict=True))
    if not evident and any(bool(((s > 0) & (s < eps / 1000)).any()) for s in sizes):
        return None  # rounding errors are not of every size: these are units that differ
    return _without(parts, masks)


def rounding_elsewhere(A, B, C, dtype):
    """The system without the entries of rounding size in the units in which its states compare, or None.

    None also where those are explained by entries of rounding size in the units given, which the lags do not
    feel, and where no entry is so small that those units may differ (the product of a signal and a rounding
    error leaves one of the two below its root). Otherwise rounding happened in units that nobody knows.
    """
    parts = (A, B, C)
    if not any(bool(((s > 0) & (s < _limit(parts, dtype) ** 0.5)).any()) for s in relative_sizes(parts)):
        return None
    cleared = rounding_cleared(*parts, dtype)
    if cleared is not None and _same_lags(parts, cleared, None, default_rtol(dtype.to_real())):
        parts = cleared
    faint = _faint(parts, dtype, alone=True)
    return _without(parts, faint) if any(bool(mask.any()) for mask in faint) else None


def relative_sizes(parts):
    """Entries beside the largest of A, of their column of B, of their row of C."""
    return [
        tensor.abs() / tensor.abs().amax(dims, keepdim=True) if tensor.numel() else tensor.abs()
        for tensor, dims in zip(parts, ((0, 1), (0,), (1,)), strict=True)
    ]


def _without(parts, masks):
    return tuple(torch.where(m, torch.zeros_like(t), t) for m, t in zip(masks, parts, strict=True))


def _limit(parts, dtype) -> float:
    return 100 * len(parts[0]) * torch.finfo(dtype).eps


def _faint(parts, dtype, *, alone: bool):
    """Which entries only paths from input to output go through whose product is of rounding size.

    Beside the largest of that input and that output, or, not ``alone``, beside the largest of all: numbers
    that no change of units of the states alters.
    """
    a, b, c = (_logarithms(tensor) for tensor in parts)
    kept, _, step, columns, rows = unit_exponents(a, b, c)
    joined = np.isin(np.arange(len(a)), kept)
    a = np.where(joined & joined[:, None], a - step, _NOWHERE)
    if alone:
        b, c = b - columns, c - rows
    reach, seen = _longest(a, b), _longest(a.T, c.T)
    through = (seen[:, None] + a + reach, seen[:, None] + b, c + reach)
    best = through[1].max(initial=_NOWHERE)
    low, high = 4 * np.log2(torch.finfo(dtype).eps), np.log2(_limit(parts, dtype))
    masks = ((size > best + low) & (size < best + high) for size in through)
    return [torch.from_numpy(m).to(t.device) for m, t in zip(masks, parts, strict=True)]


def _same_lags(one, other, D, rtol: float) -> bool:
    """Whether the 2 N first lag operators of two systems, hence all, agree to rtol of the largest or of D."""
    (A, B, C), (a, b, c) = one, other
    form = standard_form(torch.block_diag(A, a), torch.cat([B, b]), torch.block_diag(C, c), literal=True)
    exponent = form.rows[1] + form.columns[1]
    highest = exponent.max(initial=-4000)
    scale = ldexp(form.rows[0] * form.columns[0], exponent - highest)
    largest = 0.0 if D is None else float(ldexp(D, -highest).abs().max())
    state, difference = form.B, 0.0
    for _ in range(2 * len(A)):
        first, second = (form.C @ state * scale).split(len(C))
        difference = max(difference, float((first - second).abs().max()))
        largest = max(largest, float(first.abs().max()))
        state = form.A @ state
    return difference <= rtol * largest


def unit_exponents(a, b, c):
    """Indices of the states that matter, and exponents of the units of a system.

    Units of states, step, columns (1, d) and rows (p, 1), from the logarithms (base 2) of its entries.
    """
    kept = np.flatnonzero(np.isfinite(_longest(_ones(a), _ones(b)) + _longest(_ones(a.T), _ones(c.T))))
    a, b, c = a[np.ix_(kept, kept)], b[kept], c[:, kept]
    step = _step_unit(a, b, c)
    a = a - step
    columns = _whole(b.T + _longest(a.T, c.T)).T
    rows = _whole(c + _longest(a, b - columns))
    states = ((_longest(a, b - columns) - _longest(a.T, (c - rows).T)) / 2).round().astype(int)
    if len(states) and np.ptp(states) <= _ALIKE:
        states = np.full_like(states, states.mean())
    return kept, states, step, columns, rows


def ldexp(tensor, exponent) -> torch.Tensor:
    """The tensor times 2^exponent, exact wherever the result is a normal number."""
    exponent = np.clip(exponent, -4000, 4000)
    for part in range(4):  # 2^exponent itself may overflow where the product does not
        power = np.ldexp(1.0, (exponent + part) // 4)
        tensor = tensor * torch.as_tensor(power, device=tensor.device)
    return tensor


def sizes(tensor, dim) -> torch.Tensor:
    """Norms along ``dim``, one where they are zero: safe to divide by, free of overflow and underflow."""
    if tensor.numel() == 0:
        return torch.ones_like(torch.linalg.vector_norm(tensor, dim=dim, keepdim=True))
    largest = tensor.abs().amax(dim, keepdim=True)
    largest = torch.where(largest > 0, largest, torch.ones_like(largest))
    norm = torch.linalg.vector_norm(tensor / largest, dim=dim, keepdim=True)
    return torch.where(norm > 0, norm, torch.ones_like(norm)) * largest


def _logarithms(tensor):
    with np.errstate(divide="ignore"):
        return np.log2(tensor.detach().abs().cpu().numpy())


def _ones(a):
    return np.where(np.isfinite(a), 0.0, _NOWHERE)


def _whole(paths):
    """The longest of each row as a column (m, 1) of integers; 0 for one that no path touches."""
    longest = paths.max(1, initial=_NOWHERE, keepdims=True)
    return np.where(np.isfinite(longest), longest, 0).round().astype(int)


def _longest(a, b):
    """For every state the longest path to it.

    An entry of its row of b, or one at another state and edges of ``a``, which has no cycle of positive
    length.
    """
    best = b.max(1, initial=_NOWHERE)
    for _ in range(len(a)):
        more = np.maximum(best, (a + best).max(1, initial=_NOWHERE))
        if (more == best).all():
            break
        best = more
    return best


def _step_unit(a, b, c) -> int:
    """Exponent of the unit of one step of time, at least the best cycle's mean edge.

    In units of that mean late lags neither grow nor fade; in units of the growth of the longest path through
    the lags early ones do not grow. Halfway between the two no rounding error in place of a zero, which may
    decide either alone, is taken for a signal.
    """
    cycle, paths = _cycle_mean(a), []
    state, end = b.max(1, initial=_NOWHERE), c.max(0, initial=_NOWHERE)
    for _ in range(len(a)):
        paths.append((end + state).max(initial=_NOWHERE))
        state = (a + state).max(1, initial=_NOWHERE)
    seen = np.flatnonzero(np.isfinite(paths))
    growth = max(((paths[lag] - paths[seen[0]]) / (lag - seen[0]) for lag in seen[1:]), default=_NOWHERE)
    if not np.isfinite(cycle):
        return int(np.ceil(growth)) if np.isfinite(growth) else 0
    return int(np.ceil((cycle + max(cycle, growth)) / 2))


def _cycle_mean(a) -> float:
    """Largest mean edge over the cycles of ``a``, by Karp's theorem; -inf where there is no cycle."""
    size = len(a)
    walks = [np.zeros(size)]
    for _ in range(size):
        walks.append((a + walks[-1]).max(1, initial=_NOWHERE))
    alive = np.isfinite(walks[size])
    if not alive.any():
        return _NOWHERE
    longest = np.array(walks)[:, alive]
    return float(((longest[size] - longest[:size]) / (size - np.arange(size))[:, None]).min(0).max())
