"""Certified bounds on a spectrum too wide to compute: energies in some directions, and what they leave."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .._checks import check_integer
from .ranks import check_eps, check_rtol, plain
from .sketch import RowSketch, capture

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
    energy; ``limit``: the rank is at most this; ``rtol``: the default of ``rank``. Each method returns (low,
    high), two Python numbers, or tensors (...) when batched. Introduced in *zoo*.
    """

    energies: torch.Tensor
    lowest: torch.Tensor
    tails: torch.Tensor
    rounding: torch.Tensor
    limit: int
    rtol: float

    def floor(self, H: int):
        """Return bounds on ``W.floor(H)``, the relative squared error of the best H heads."""
        check_integer("H", H, low=0)
        low, high = self._floors()
        H = min(H, low.shape[-1] - 1)
        return plain(low[..., H]), plain(high[..., H])

    def epsilon_heads(self, eps: float):
        """Return bounds on ``W.epsilon_heads(eps)``, the fewest heads that miss at most ``eps``."""
        check_eps(eps)
        low, high = ((curve > eps).sum(-1) for curve in self._floors())
        unknown = high == self.energies.shape[-1] + 1
        return plain(low.clamp(max=self.limit)), plain(
            high.masked_fill(unknown, self.limit).clamp(max=self.limit)
        )

    def rank(self, rtol: float | None = None):
        """Return bounds on ``W.interaction_rank(rtol)``."""
        rtol = self.rtol if rtol is None else rtol
        check_rtol(rtol)
        low, high = self._floors()
        none = torch.zeros_like(self.rounding)[..., None]
        # What is not certainly below σ_1 may be in it.
        largest = 1 - torch.cat([low, none], dim=-1)[..., 1:2]
        certain = (self.lowest > rtol**2 * largest).sum(-1)
        threshold = rtol**2 * torch.cat([self.lowest, none], dim=-1)[..., :1]
        possible = torch.full_like(certain, self.limit)
        for tails in (high, self.tails):
            k = torch.arange(tails.shape[-1], dtype=torch.float64, device=tails.device)
            most = k + torch.where(tails > 0, tails / threshold, 0.0).floor()
            possible = torch.minimum(possible, most.amin(-1).clamp(max=self.limit).to(torch.int64))
        return plain(certain), plain(possible)

    def _floors(self):
        """Bounds on floor(H) for H = 0 … r, each (..., r + 1)."""
        none = torch.zeros_like(self.rounding)[..., None]
        below = torch.cat([self.energies, none], dim=-1).flip(-1).cumsum(-1).flip(-1)
        above = 1 - torch.cat([none, self.energies], dim=-1).cumsum(-1)
        slack = self.rounding[..., None] * below.shape[-1]
        above = torch.where(self.rounding[..., None] > 0, above + slack, 0.0)
        return (below - slack).clamp(0, 1), above.clamp(0, 1)


def spectrum_bounds(W, size: int | None, seed: int) -> SpectrumBounds:
    """Return the ``SpectrumBounds`` of an operator from energies in ``size`` directions."""
    width = W._width
    if size is None:
        size = width if width <= _COMPLETE_WIDTH else _DIRECTIONS
    check_integer("size", size, low=1)
    check_integer("seed", seed, low=0)
    size, complete = min(size, width), size >= width
    sketch = RowSketch(W, 2 * size, complete, seed)
    energy, alive = sketch.energy[..., None], (sketch.energy > 0).to(torch.float64)
    energy = torch.where(energy > 0, energy, 1.0)
    sigma = (
        sketch.singular_values() / energy.sqrt() - 2 * _EPS * (10 * width + sketch.crowd**1.5)
    ).clamp_min(0)
    found = int((sigma > 0).sum(-1).max()) if sigma.numel() else 0
    limit, gram, tails = min(width, sketch.rows), sketch.gram, alive[..., None]
    if not complete or found < limit:
        kept, left = capture(W, sketch.directions(min(found, size)))
        parts = torch.cat([kept.diagonal(0, -2, -1), left[..., None]], dim=-1) / energy
        slack = 4 * _EPS * (width + size) * alive[..., None]
        tails = (parts.flip(-1).cumsum(-1).flip(-1).sqrt() + slack).square()
        gram = sketch.gram if complete else kept
    energies = torch.linalg.eigvalsh(gram).flip(-1).clamp_min(0) / energy if gram.numel() else gram[..., 0]
    rounding = alive * 2 * _EPS * (sketch.tallest + sketch.blocks + 10 * width)
    certain = (energies - rounding[..., None]).clamp_min(0)
    shared = min(sigma.shape[-1], energies.shape[-1])
    lowest = torch.cat(
        [torch.maximum(sigma[..., :shared].square(), certain[..., :shared]), sigma[..., shared:].square()],
        dim=-1,
    )
    return SpectrumBounds(energies, lowest, tails, rounding, limit, W._cut(None))
