"""Heads as an operator: W_ij = sum_h alpha^h_ij V_h, scalar coefficients times value maps."""

from __future__ import annotations

import torch
from torch import Tensor

from ssmbook._checks import check_finite, check_tensors, shared_batch
from ssmbook.numerics import norms
from ssmbook.operators.base import InteractionOperator
from ssmbook.operators.spectra import stacked_r_factor

# Heads of two layers are multiplied out at once up to so many numbers.
_FUSED = 2**22


class FactorizedOperator(InteractionOperator):
    """H heads, W_ij = sum_h alpha^h_ij V_h: as one matrix, the sum of the Kronecker products A_h ⊗ V_h.

    ``alpha`` (..., H, n, n), ``V`` (..., H, p, d), of one dtype and device; batch shapes
    equal, or one of the two unbatched. H = 0 is the zero operator. The rank is found from
    the factors.

    >>> total = FactorizedOperator(torch.ones(1, 4, 4).tril(), torch.eye(2)[None])  # the sum so far
    >>> total.apply(torch.ones(4, 2))[:, 0].tolist(), total.interaction_rank()
    ([1.0, 2.0, 3.0, 4.0], 1)
    """

    # Each alpha is compressed by itself.
    _shared_rows = False
    _stored = True

    def __init__(self, alpha: Tensor, V: Tensor) -> None:
        sizes = check_tensors(alpha=(alpha, "... H n n"), V=(V, "... H p d"))
        batch = shared_batch(alpha=alpha.shape[:-3], V=V.shape[:-3])
        super().__init__(alpha, batch, sizes["n"], sizes["p"], sizes["d"])
        self.alpha, self.V, self.H = alpha, V, sizes["H"]

    def _apply(self, x):
        values = torch.einsum("...hpd,...jd->...hjp", self.V, x)
        return torch.einsum("...hij,...hjp->...ip", self.alpha, values)

    def _row(self, i):
        return torch.einsum("...hj,...hpd->...jpd", self.alpha[..., i, :], self.V)

    def _column(self, j):
        return torch.einsum("...hi,...hpd->...ipd", self.alpha[..., :, j], self.V)

    def to_dense(self) -> Tensor:
        return torch.einsum("...hij,...hpd->...ijpd", self.alpha, self.V)

    def _coefficients(self, V):
        overlap = torch.einsum("...hpd,...gpd->...hg", self.V, V)
        return torch.einsum("...hij,...hg->...gij", self.alpha, overlap)

    def _span_blocks(self):
        check_finite("V", self.V)
        empty = torch.zeros(*self.alpha.shape[:-3], 0, self.H, dtype=torch.float64, device=self.device)
        # alpha = Q R with orthonormal columns in Q: R V has the singular values of all rows
        # vec W_ij.
        triangle = stacked_r_factor((self.alpha[..., i, :].mT for i in range(self.n)), empty, "alpha")
        V = self.V.to(torch.float64).flatten(-2)
        rows = triangle @ V
        # Heads that cancel leave rounding of the size of one head, which is no span at all.
        noise = 16 * torch.finfo(torch.float64).eps * (norms(triangle.mT) * norms(V)).sum(-1)
        yield torch.where((norms(rows.flatten(-2)) <= noise)[..., None, None], 0.0, rows)

    def _as_heads(self, most):
        return self.to(torch.float64) if self.H <= most else None

    @property
    def mixing(self) -> FactorizedOperator:
        """The coefficients of each head as a scalar operator: batch (..., H), p = d = 1."""
        return FactorizedOperator(self.alpha[..., None, :, :], self.alpha.new_ones(1, 1, 1))

    def block_norms(self) -> Tensor:
        if torch.is_grad_enabled() and (self.alpha.requires_grad or self.V.requires_grad):
            return super().block_norms()
        # With VᵀV = RᵀR by QR, ‖sum_h alpha_h V_h‖ = ‖R alpha‖: no block is built, nothing
        # is squared.
        alpha, V = self.alpha.to(torch.float64), self.V.to(torch.float64).flatten(-2)
        coordinates = torch.einsum("...gh,...hij->...gij", torch.linalg.qr(V.mT, mode="r").R, alpha)
        return norms(coordinates.movedim(-3, -1)).to(self.dtype)

    def _scaled(self, factor):
        return FactorizedOperator(self.alpha, factor * self.V)

    def _mapped(self, change):
        return FactorizedOperator(change(self.alpha), change(self.V))

    def _transposed(self):
        return FactorizedOperator(self.alpha.mT, self.V.mT)

    def _plus(self, other):
        return FactorizedOperator(side_by_side(self.alpha, other.alpha), side_by_side(self.V, other.V))

    def _after(self, other):
        # More heads than that are better kept as two factors until a rank asks for them.
        numbers = self.n**2 + self.p * other.d
        return self._product(other) if self.H * other.H * numbers <= _FUSED else None

    def _product(self, other: FactorizedOperator) -> FactorizedOperator:
        alpha = torch.einsum("...gik,...hkj->...ghij", self.alpha, other.alpha).flatten(-4, -3)
        return FactorizedOperator(
            alpha, torch.einsum("...gpq,...hqd->...ghpd", self.V, other.V).flatten(-4, -3)
        )


def side_by_side(first: Tensor, second: Tensor) -> Tensor:
    """Join tensors (..., H, a, b) of two sets of heads, whose batch shapes may differ."""
    batch = torch.broadcast_shapes(first.shape[:-3], second.shape[:-3])
    return torch.cat([part.expand(*batch, *part.shape[-3:]) for part in (first, second)], dim=-3)
