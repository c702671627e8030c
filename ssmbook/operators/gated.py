"""Heads whose outputs each token gates channel by channel: W_ij = sum_h alpha^h_ij diag(g^h_i) V_h.

As plain heads they are H·p, one for each head and channel, and a QR of so many columns costs
more than all else. But row a of every block is a combination of row a of the V_h, and within
a row of tokens the alpha^h_ij alone depend on j. With QR per channel and per token,

    V_h[a, :] = sum_s L_a[s, h] Q_a[s, :],    alpha^h_ij = sum_q U_i[j, q] R_i[q, h],

the numbers sum_h R_i[q, h] g^h_i[a] L_a[s, h], rows (i, q) and columns (a, s), have the
singular values of all vec W_ij, and the Q_a lead back to blocks.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ssmbook._checks import check_finite
from ssmbook.numerics import norms
from ssmbook.operators.base import InteractionOperator
from ssmbook.operators.factorized import FactorizedOperator, side_by_side


class GatedHeads(InteractionOperator):
    """``heads`` whose outputs are multiplied by gates ``g`` (..., H, n, p): a gated layer, for its ranks."""

    _shared_rows = False
    _stored = True

    def __init__(self, heads: FactorizedOperator, g: Tensor) -> None:
        batch = torch.broadcast_shapes(heads.batch_shape, g.shape[:-3])
        super().__init__(heads.alpha, batch, heads.n, heads.p, heads.d)
        self.heads, self.g = heads, g
        self._width = self.p * (min(heads.H, self.d) if heads.V.dim() == 3 else self.d)

    def _apply(self, x):
        values = torch.einsum("...hpd,...jd->...hjp", self.heads.V, x)
        return torch.einsum("...hij,...hip,...hjp->...ip", self.heads.alpha, self.g, values)

    def _coefficients(self, V):
        overlap = torch.einsum("...hpd,...mpd->...phm", self.heads.V, V)
        gated = torch.einsum("...hip,...phm->...ihm", self.g, overlap)
        return torch.einsum("...hij,...ihm->...mij", self.heads.alpha, gated)

    def _by_channel(self) -> tuple[Tensor, Tensor]:
        """The rows V_h[a, :] in one basis per channel for the whole batch: Q (p, d, s), L (..., p, s, H)."""
        V = self.heads.V.movedim(-3, -1)
        return torch.linalg.qr(V) if V.dim() == 3 else (torch.eye(self.d).to(V).expand(self.p, -1, -1), V)

    def _as_blocks(self, rows):
        Q = self._by_channel()[0]
        return torch.einsum("...mps,...pds->...mpd", rows.unflatten(-1, (self.p, -1)), Q)

    def _span_blocks(self):
        for name, values in (("alpha", self.heads.alpha), ("V", self.heads.V), ("g", self.g)):
            check_finite(name, values)
        R = torch.linalg.qr(self.heads.alpha.movedim(-3, -1), mode="r").R
        L = self._by_channel()[1]
        rows = torch.einsum("...iqh,...hia,...ash->...iqas", R, self.g, L).flatten(-4, -3).flatten(-2)
        # As for plain heads, what is left where they cancel is no span.
        gated = norms(self.g * norms(L.mT).mT[..., None, :])
        noise = 16 * torch.finfo(torch.float64).eps * norms((norms(R.mT) * gated.mT).mT).sum(-1)
        rows = torch.where((norms(rows.flatten(-2)) <= noise)[..., None, None], 0.0, rows)
        # The first tokens of causal heads have fewer rows than heads; the others are zero.
        kept = (rows != 0).any(-1).reshape(self.batch_shape.numel(), rows.shape[-2]).any(0)
        yield rows[..., kept, :]

    def _plus(self, other):
        return GatedHeads(self.heads + other.heads, side_by_side(self.g, other.g))

    def _scaled(self, factor):
        return GatedHeads(self.heads._scaled(factor), self.g)

    def _mapped(self, change):
        return GatedHeads(self.heads._mapped(change), change(self.g))
