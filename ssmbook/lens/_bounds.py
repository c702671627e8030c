"""Certified bounds on a spectrum too wide to compute, from matrix products with the rows vec W_ij alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ssmbook._count import Count
from ssmbook.numerics import default_rtol
from ssmbook.operators import InteractionOperator

# Up to the first width the energies are taken in all directions; beyond it, by default, in the second.
_COMPLETE_WIDTH, _DIRECTIONS = 2048, 256
_PANEL = 256  # columns of a Gram matrix computed at a time: only its lower half is needed
_NEGLIGIBLE = 1e-150  # the squares of smaller entries are subnormal numbers, which are slow
_EPS = torch.finfo(torch.float64).eps


@dataclass(frozen=True, eq=False)
class SpectrumBounds:
    """Certified bounds on the rank and the ε-heads of an operator.

    Let R have the rows vec W_ij, singular values σ_1 ≥ σ_2 ≥ … and energy E = ‖R‖² = Σ σ_k².
    - From below: σ_k ≥ σ_k(SR) for any S with orthonormal rows (here random sums of rows), and σ_k² ≥ λ_k,
      the eigenvalues of (RQ)ᵀ(RQ), for any orthonormal columns Q.
    - From above: Σ_{k>r} σ_k² ≤ ‖R − RQQᵀ‖² for any Q of r columns, by Eckart–Young, so that at most that
      over τ² of these σ_k exceed τ.

    So Σ_{H<k≤r} λ_k ≤ E · floor(H) ≤ E − Σ_{k≤H} λ_k, and with Q in all directions the two agree. An unlucky
    draw makes the bounds wide, not wrong; rounding is counted at its worst. In units of E: ``energies`` (r,),
    the λ_k descending; ``lowest`` (m,) ≤ σ_k²; ``tails`` (t + 1,) ≥ Σ_{j>k} σ_j²; ``rounding`` of an energy.
    ``missing``: whether Q leaves directions out; ``limit``: the most that the rank can be.
    """

    energies: Tensor
    lowest: Tensor
    tails: Tensor
    rounding: float
    missing: bool
    limit: int
    rtol: float

    def epsilon_heads(self, eps: float) -> Count:
        """Return ``W.epsilon_heads(eps)``, the fewest heads that miss at most ``eps``, as far as certain."""
        low, high = (int((curve > eps).sum()) for curve in self._floors())
        return self._count(low, self.limit if high > len(self.energies) else high)

    def rank(self) -> Count:
        """Return ``W.interaction_rank()``, as far as it is certain."""
        below, above = self._floors()
        # Energy that is not proved to lie outside σ_1 is counted as σ_1's.
        largest = 1 - _padded(below, 2)[1]
        low = int((self.lowest > self.rtol**2 * largest).sum())
        threshold = self.rtol**2 * _padded(self.lowest, 1)[0]
        # σ_k² ≤ λ_k + what Q misses, for as many k as Q has columns;
        ceiling = self.energies + (above[-1] if self.missing else 0.0) + self.rounding
        high = int((ceiling > threshold).sum())
        high = self.limit if high == len(ceiling) else high
        # and of what is left beyond k, no more than left/τ² can exceed τ.
        for tails in (above, self.tails):
            k = torch.arange(len(tails), dtype=torch.float64, device=tails.device)
            most = k + torch.where(tails > 0, tails / threshold, 0.0).floor()
            high = min(high, int(most.min().clamp(max=self.limit)))
        return self._count(low, high)

    def _floors(self) -> tuple[Tensor, Tensor]:
        """Return lower and upper bounds on ``W.floor(H)`` for H = 0 … r, (r + 1,) each."""
        below = torch.nn.functional.pad(self.energies, (0, 1)).flip(0).cumsum(0).flip(0)
        above = 1 - torch.nn.functional.pad(self.energies, (1, 0)).cumsum(0)
        slack = self.rounding * len(below)
        above = above + slack if self.rounding > 0 else 0 * above  # the zero operator misses nothing
        return (below - slack).clamp(0, 1), above.clamp(0, 1)

    def _count(self, low: int, high: int) -> Count:
        return Count(min(low, self.limit), min(high, self.limit), "certified bounds", self)


@torch.no_grad()
def spectrum_bounds(W: InteractionOperator, size: int | None = None, seed: int = 0) -> SpectrumBounds:
    """Bound the spectrum of an unbatched operator from energies in ``size`` directions.

    By default all of them up to a width of 2,048, and 256 random ones beyond. Raises ``ValueError`` when a
    block of W is not finite.
    """
    width = W._width
    size = min(width, size or (width if width <= _COMPLETE_WIDTH else _DIRECTIONS))
    sketch = _Sketch(W, 0 if size == width else 2 * size, size == width, seed)
    gram = sketch.gram
    if gram is not None:
        bounds = _from_sketch(W, sketch, gram)
        if bounds.rank().settled:
            return bounds
        # Small singular values drown in the rounding of a Gram matrix, but not in sums of rows.
        sketch = _Sketch(W, 2 * size, False, seed)
        bounds = _from_sketch(W, sketch, gram)
        if bounds.rank().settled:
            return bounds
        size = min(size, 2 * bounds.rank().low + 10)
    # The leading right singular vectors of the random sums as columns.
    Q = torch.linalg.svd(sketch.sums, full_matrices=False).Vh[:size].mT
    captured = Q.new_zeros(Q.shape[1], Q.shape[1])
    left = Q.new_zeros(())
    for block in _rows(W):
        inside = block @ Q
        captured += inside.mT @ inside
        left += _energy(block - inside @ Q.mT)
    return _from_sketch(W, sketch, captured if gram is None else gram, (captured, left))


class _Sketch:
    """One pass over the rows R of an operator.

    ``energy``: ‖R‖²; ``gram``: the lower half of RᵀR, or None; ``sums`` (m, width): SR with orthonormal rows
    of S, as each row of R goes, with a random sign, into one of ``buckets`` buckets, each divided by the root
    of its size. ``tallest`` and ``fullest``: the most rows in one block and in one bucket.
    """

    def __init__(self, W: InteractionOperator, buckets: int, with_gram: bool, seed: int) -> None:
        generator, width = torch.Generator().manual_seed(seed), W._width
        self.energy = torch.zeros((), dtype=torch.float64, device=W.device)
        self.gram = self.energy.new_zeros(width, width) if with_gram else None
        self.sums = self.energy.new_zeros(buckets, width)
        sizes, order = torch.zeros(buckets, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
        self.rows = self.blocks = self.tallest = 0
        for block in _rows(W):
            self.rows, self.blocks = self.rows + len(block), self.blocks + 1
            self.tallest = max(self.tallest, len(block))
            self.energy += _energy(block)
            for left in range(0, width if with_gram else 0, _PANEL):
                panel = slice(left, left + _PANEL)
                self.gram[left:, panel] += block[:, left:].mT @ block[:, panel]
            if buckets:
                # Buckets fill in turn, each round of them in another order.
                while len(order) < len(block):
                    order = torch.cat([order, torch.randperm(buckets, generator=generator)])
                where, order = order[: len(block)], order[len(block) :]
                signs = torch.randint(2, (len(block), 1), generator=generator).to(block) * 2 - 1
                self.sums.index_add_(0, where.to(block.device), block * signs)
                sizes += torch.bincount(where, minlength=buckets)
        if not bool(torch.isfinite(self.energy)):
            raise ValueError("W must be finite; its energy is not")
        self.fullest = int(sizes.max()) if buckets else 0
        self.sums = self.sums[sizes > 0] / sizes[sizes > 0, None].to(self.sums).sqrt()


def _rows(W: InteractionOperator) -> Iterator[Tensor]:
    """The rows vec W_ij in blocks (r, width), float64, without what is negligible."""
    for block in W._span_blocks():
        yield torch.nn.functional.hardshrink(block.to(torch.float64), _NEGLIGIBLE)


def _energy(block: Tensor) -> Tensor:
    """‖block‖² by rows: errors grow with the sides of a block and not with its area."""
    return torch.linalg.vector_norm(block, dim=-1).square().sum()


def _from_sketch(W, sketch: _Sketch, gram: Tensor, captured: tuple[Tensor, Tensor] | None = None):
    """The bounds from sums of rows, a Gram matrix and what a second pass captured and left."""
    width, alive = W._width, float(sketch.energy > 0)
    energy = sketch.energy.clamp_min(torch.finfo(torch.float64).tiny)
    sigma = torch.linalg.svdvals(sketch.sums) / energy.sqrt()
    sigma = sigma - 2 * _EPS * (10 * width + sketch.fullest**1.5)
    energies = torch.linalg.eigvalsh(gram).flip(0).clamp_min(0) / energy
    rounding = alive * 2 * _EPS * (sketch.tallest + sketch.blocks + 10 * width)
    size = max(len(sigma), len(energies))
    lowest = torch.maximum(_padded(sigma.clamp_min(0).square(), size), _padded(energies - rounding, size))
    tails = energy.new_full((1,), alive)
    if captured is not None:
        parts = torch.cat([captured[0].diagonal(), captured[1][None]]) / energy
        slack = alive * _EPS * (8 * width + len(captured[0]) ** 1.5)
        tails = (parts.flip(0).cumsum(0).flip(0).sqrt() + slack).square()
    missing, limit, rtol = len(energies) < width, min(width, sketch.rows), default_rtol(W.dtype)
    return SpectrumBounds(energies, lowest, tails, rounding, missing, limit, rtol)


def _padded(values: Tensor, size: int) -> Tensor:
    return torch.nn.functional.pad(values, (0, max(0, size - len(values))))
