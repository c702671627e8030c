"""Certified bounds on a spectrum too wide to compute: energies in some directions, and what they leave."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ssmbook._checks import check_eps, check_integer, check_rtol
from ssmbook._count import Count
from ssmbook.numerics import default_rtol, plain
from ssmbook.operators.sketch import RowSketch, ScaledRows, capture

# Up to this width the energies are taken in all directions; beyond it, by default, in this many.
_COMPLETE_WIDTH = 2048
_DIRECTIONS = 256
_EPS = torch.finfo(torch.float64).eps


@dataclass(frozen=True, eq=False)
class SpectrumBounds:
    """Certified bounds on the rank, floor and ε-heads of an operator, from matrix products with its rows.

    Let R have the rows vec W_ij, singular values σ_1 ≥ σ_2 ≥ … and energy E = ‖R‖² = Σ σ_k².

    - From below: σ_k ≥ σ_k(SR) ≥ … for any S with orthonormal rows (here: rows of R are added up with random
      signs in random groups), and σ_k² ≥ λ_k, the eigenvalues of (RQ)ᵀ(RQ), for any orthonormal columns Q.
    - From above: Σ_{k>r} σ_k² ≤ ‖R − RQQᵀ‖² for any Q of r columns (Eckart–Young: no matrix of rank r is
      nearer to R than its best one), so that at most that over τ² of these σ_k exceed τ.

    So Σ_{H<k≤r} λ_k ≤ E · floor(H) ≤ E − Σ_{k≤H} λ_k, and with Q in all directions the two agree. Nothing is
    a matter of chance: an unlucky draw makes the bounds wide, not wrong. Rounding is counted at its worst.

    In units of E, float64: ``energies`` (..., r), the λ_k descending; ``lowest`` (..., m), lower bounds on
    the σ_k²; ``tails`` (..., t + 1): upper bounds on Σ_{j>k} σ_j² for k = 0 … t; ``rounding`` (...), of an
    energy; ``missing``: whether Q leaves directions out; ``limit``: the rank is at most this; ``rtol``: the
    default of ``rank``. ``rank`` and ``epsilon_heads`` return a `Count` with these bounds as evidence, and
    ``floor`` a pair of numbers; when batched, each returns a pair of tensors (...). Introduced in *zoo*.

    >>> W = DenseOperator(torch.randn(6, 6, 3, 3, dtype=torch.float64))
    >>> low, high = W.spectrum_bounds().floor(2)
    >>> bool(low <= W.floor(2) <= high)
    True
    """

    energies: torch.Tensor
    lowest: torch.Tensor
    tails: torch.Tensor
    rounding: torch.Tensor
    missing: bool
    limit: int
    rtol: float

    def floor(self, H: int) -> tuple[float, float] | tuple[torch.Tensor, torch.Tensor]:
        """Return bounds on ``W.floor(H)``, the relative squared error of the best H heads."""
        H = check_integer("H", H, low=0)
        low, high = self._floors()
        H = min(H, low.shape[-1] - 1)
        return plain(low[..., H]), plain(high[..., H])

    def epsilon_heads(self, eps: float) -> Count | tuple[torch.Tensor, torch.Tensor]:
        """Return ``W.epsilon_heads(eps)``, the fewest heads that miss at most ``eps``, as far as certain."""
        check_eps(eps)
        low, high = ((curve > eps).sum(-1) for curve in self._floors())
        high = high.masked_fill(high == self.energies.shape[-1] + 1, self.limit)
        return self._count(low.clamp(max=self.limit), high.clamp(max=self.limit))

    def rank(self, rtol: float | None = None) -> Count | tuple[torch.Tensor, torch.Tensor]:
        """Return ``W.interaction_rank(rtol)``, as far as it is certain."""
        return self._count(*self._ranks(self.rtol if rtol is None else check_rtol(rtol)))

    def _ranks(self, rtol):
        low, high = self._floors()
        # What is not certainly below σ_1 may be in it.
        largest = 1 - _padded(low, 2)[..., 1:2]
        certain = (self.lowest > rtol**2 * largest).sum(-1)
        threshold = rtol**2 * _padded(self.lowest, 1)[..., :1]
        # One by one: σ_k² ≤ λ_k + what Q misses, for as many k as Q has columns.
        ceiling = self.energies + (high[..., -1:] if self.missing else 0.0) + self.rounding[..., None]
        above = (ceiling > threshold).sum(-1)
        possible = above.masked_fill(above == ceiling.shape[-1], self.limit).clamp(max=self.limit)
        # Together: of what is left beyond k, no more than left/τ² can exceed τ.
        for tails in (high, self.tails):
            k = torch.arange(tails.shape[-1], dtype=torch.float64, device=tails.device)
            most = k + torch.where(tails > 0, tails / threshold, 0.0).floor()
            possible = torch.minimum(possible, most.amin(-1).clamp(max=self.limit).to(torch.int64))
        return certain, possible

    def _count(self, low, high):
        return (low, high) if low.dim() else Count(int(low), int(high), "certified bounds", self)

    def _floors(self):
        """Bounds on floor(H) for H = 0 … r, each (..., r + 1)."""
        below = torch.nn.functional.pad(self.energies, (0, 1)).flip(-1).cumsum(-1).flip(-1)
        above = 1 - torch.nn.functional.pad(self.energies, (1, 0)).cumsum(-1)
        slack = self.rounding[..., None] * below.shape[-1]
        above = torch.where(self.rounding[..., None] > 0, above + slack, 0.0)
        return (below - slack).clamp(0, 1), above.clamp(0, 1)


def spectrum_bounds(W, size: int | None, seed: int) -> SpectrumBounds:
    """Return the ``SpectrumBounds`` of an operator from energies in ``size`` directions."""
    width = W._width
    if size is None:
        size = width if width <= _COMPLETE_WIDTH else _DIRECTIONS
    else:
        size = check_integer("size", size, low=1)
    seed = check_integer("seed", seed, low=0)
    size, complete = min(size, width), size >= width
    rows, buckets = ScaledRows(W), 0 if complete else 2 * size
    sketch = RowSketch(rows, buckets, complete, seed)
    if not bool(torch.isfinite(sketch.energy).all()):
        # The first entries are smaller than others by a hundred orders: no square of a ratio to the largest
        # overflows.
        rows.unit = rows.largest
        sketch = RowSketch(rows, buckets, complete, seed)
    gram = sketch.gram
    if complete:
        bounds = _assembled(W, sketch, gram, None)
        if _settled(bounds):
            return bounds
        # Small singular values drown in the rounding of a Gram matrix: sums of rows hold them from below, and
        # what the large ones leave is measured.
        sketch = RowSketch(rows, 2 * size, False, seed)
        bounds = _assembled(W, sketch, gram, None)
        if _settled(bounds):
            return bounds
        low, _ = bounds._ranks(bounds.rtol)
        size = min(size, 2 * int(low.max()) + 10) if low.numel() else 0
    kept, left = capture(rows, sketch.directions(size))
    return _assembled(W, sketch, kept if gram is None else gram, (kept, left))


def _settled(bounds: SpectrumBounds) -> bool:
    """Whether the bounds on the rank are one."""
    low, high = bounds._ranks(bounds.rtol)
    return bool((low == high).all())


def _assembled(W, sketch: RowSketch, gram: torch.Tensor, captured) -> SpectrumBounds:
    """The bounds from sums of rows, a Gram matrix and what a second pass captured and left."""
    width, alive = W._width, (sketch.energy > 0).to(torch.float64)[..., None]
    energy = torch.where(sketch.energy > 0, sketch.energy, 1.0)[..., None]
    sigma = torch.linalg.svdvals(sketch.sums) / energy.sqrt() - 2 * _EPS * (10 * width + sketch.crowd**1.5)
    values = torch.linalg.eigvalsh(gram)
    energies = values.flip(-1).clamp_min(0) / energy
    rounding = alive * 2 * _EPS * (sketch.tallest + sketch.blocks + 10 * width)
    pad = max(sigma.shape[-1], energies.shape[-1])
    lowest = torch.maximum(_padded(sigma.clamp_min(0).square(), pad), _padded(energies - rounding, pad))
    tails = alive
    if captured is not None:
        parts = torch.cat([captured[0].diagonal(0, -2, -1), captured[1][..., None]], dim=-1) / energy
        slack = _EPS * (8 * width + captured[0].shape[-1] ** 1.5) * alive
        tails = (parts.flip(-1).cumsum(-1).flip(-1).sqrt() + slack).square()
    missing = energies.shape[-1] < width
    limit = min(width, sketch.rows)
    return SpectrumBounds(energies, lowest, tails, rounding[..., 0], missing, limit, default_rtol(W.dtype))


def _padded(values: torch.Tensor, size: int) -> torch.Tensor:
    """Values (..., m) with zeros behind them, at least ``size`` in all."""
    return torch.nn.functional.pad(values, (0, max(0, size - values.shape[-1])))
