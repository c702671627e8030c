"""The span of a wide operator by a randomized search, with bounds from what the search missed.

Random combinations of the blocks W_ij lie in their span, and a few more of them than heads
that matter nearly span what these span (`halko2011finding`). Let Q be orthonormal rows that
span the combinations, M the matrix of all rows vec W_ij, and

    M = B Q + E,    B = M Q^T,    E Q^T = 0,    r = ‖E‖.

B is small, and r is computed from E itself, so the answer carries its own proof, whatever
was drawn: M Mᵀ = B Bᵀ + E Eᵀ, and therefore

    σ_i(B)² ≤ σ_i(M)² ≤ σ_i(B)² + r²,    sum_{i ≤ H} σ_i(M)² ≤ sum_{i ≤ H} σ_i(B)² + r².
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ssmbook._checks import check_finite, check_integer
from ssmbook.operators.base import InteractionOperator
from ssmbook.operators.ranks import decided_tolerance
from ssmbook.operators.spectra import r_factor

# Random combinations beyond the heads that are asked for.
_SPARE = 10


@dataclass(frozen=True, eq=False)
class Sketch:
    """What a randomized search found of the span of W, and bounds that hold whatever was drawn.

    Parameters
    ----------
    V : Tensor (m, p, d)
        Orthonormal value maps, the best ones first; ``FactorizedOperator(W.coefficients(V),
        V)`` is their operator.
    spectrum : Tensor (m,)
        Their singular values, float64: each is at most that of W.
    missed : float
        r², the energy of W outside their span.
    rank_low, rank_high : int
        The interaction rank lies between them, both included.

    Examples
    --------
    >>> W = FactorizedOperator(torch.randn(3, 8, 8), torch.randn(3, 20, 20))
    >>> found = sketch(W, 5)
    >>> found.rank_low, found.rank_high, found.floor(3)[1] < 1e-9
    (3, 3, True)
    """

    V: Tensor
    spectrum: Tensor
    missed: float
    rank_low: int
    rank_high: int

    def floor(self, H: int) -> tuple[float, float]:
        """Return bounds of ``W.floor(H)``; the upper one is what the first H of these maps miss.

        >>> W = FactorizedOperator(torch.randn(30, 8, 8), torch.randn(30, 20, 20))
        >>> low, high = sketch(W, 4).floor(4)
        >>> low <= W.floor(4) <= high
        True
        """
        H = check_integer("H", H, low=0)
        energies = self.spectrum.square()
        total = float(energies.sum()) + self.missed
        rest = float(energies[H:].sum())
        return (rest / total, (rest + self.missed) / total) if total else (0.0, 0.0)


@torch.no_grad()
def sketch(W: InteractionOperator, heads: int, *, seed: int = 0) -> Sketch:
    """Return the best value maps of W, at least so many, by two passes over its blocks, with bounds.

    For layers so wide that ``W.floor`` and ``W.interaction_rank`` take too long: the cost
    grows with p·d, and not with its square. One span over the whole batch. Raises
    ``ValueError`` for ``heads`` below 1 or a block that is not finite.

    >>> sketch(DenseOperator(torch.randn(6, 6, 5, 5)), 4).V.shape  # ten to spare
    torch.Size([14, 5, 5])
    """
    exact, generator = W._exact()._reduced(), torch.Generator(W.device).manual_seed(seed)
    m = min(check_integer("heads", heads, low=1) + _SPARE, W.n**2 * W.batch_shape.numel(), exact._width)
    mixed = torch.zeros(m, exact._width, dtype=torch.float64, device=W.device)
    for block in exact._span_blocks():
        block = block.to(torch.float64).flatten(0, -2)
        check_finite("W", block)
        mixed += torch.randn(m, len(block), generator=generator, dtype=torch.float64, device=W.device) @ block
    Q = torch.linalg.qr(mixed.mT).Q.mT

    B, missed = mixed.new_zeros(0, m), 0.0
    for block in exact._span_blocks():
        block = block.to(torch.float64).flatten(0, -2)
        part = block @ Q.mT
        missed += float((block - part @ Q).square().sum())
        B = r_factor(torch.cat([B, part]))
    _, spectrum, rotation = torch.linalg.svd(B)
    V = exact._as_blocks(rotation @ Q)[: len(spectrum)].to(W.dtype)

    rtol, limit = decided_tolerance(W, None), min(W.n**2 * W.batch_shape.numel(), W._width)
    high = (spectrum.square() + missed).sqrt()
    low_rank = int((spectrum > rtol * high[:1]).sum())
    settled = missed**0.5 <= rtol * float(spectrum[:1].sum())  # then nothing outside of Q counts
    high_rank = int((high > rtol * spectrum[:1]).sum()) if settled else limit
    return Sketch(V, spectrum, missed, low_rank, high_rank)
