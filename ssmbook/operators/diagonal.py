"""Channels that do not talk to each other: diagonal value maps, without their zeros."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ssmbook._checks import check_integer
from ssmbook.operators.base import InteractionOperator
from ssmbook.operators.derived import check_operators
from ssmbook.operators.pointwise import PointwiseOperator
from ssmbook.operators.ranks import leading_row_directions


class DiagonalOperator(InteractionOperator):
    """A scalar operator for each channel, W_ij = diag(w¹_ij, …, w^d_ij): what S4D and Mamba's core do.

    ``channels``: an operator of any kind with p = d = 1 and batch shape (..., d), its last batch dimension
    being the channels; for given coefficients alpha (..., d, n, n) that is
    ``DenseOperator(alpha[..., None, None])``. Nothing of size d² is built unless asked for: ranks and spectra
    come from d numbers for each pair of tokens. Raises ``TypeError``/``ValueError`` for anything else.
    Introduced in *zoo*.

    >>> decay, lag = torch.tensor([0.9, 0.5]), torch.arange(6)
    >>> W = DiagonalOperator(LagOperator((decay[:, None] ** lag)[..., None, None]))
    >>> W, W.interaction_rank()  # each channel forgets at its own rate: a head for each
    (DiagonalOperator(batch_shape=(), n=6, p=2, d=2, dtype=torch.float32), 2)
    """

    def __init__(self, channels: InteractionOperator) -> None:
        check_operators(channels=channels)
        if (channels.p, channels.d) != (1, 1) or not channels.batch_shape:
            raise ValueError(
                f"channels must have p = d = 1 and batch shape (..., d); got p = {channels.p}, "
                f"d = {channels.d}, batch shape {tuple(channels.batch_shape)}"
            )
        *batch, d = channels.batch_shape
        super().__init__(channels._standard, batch, channels.n, d, d)
        self.channels, self._width = channels, d

    def _apply(self, x):
        return self.channels._apply(x.mT[..., None])[..., 0].mT

    def _values(self, blocks: torch.Tensor) -> torch.Tensor:
        """Blocks (..., d, n, 1, 1) of the channels as numbers (..., n, d)."""
        return blocks[..., 0, 0].mT

    def _row(self, i):
        return torch.diag_embed(self._values(self.channels._row(i)))

    def rows(self) -> Iterator[torch.Tensor]:
        for row in self.channels.rows():
            yield torch.diag_embed(self._values(row))

    def _column(self, j):
        return torch.diag_embed(self._values(self.channels._column(j)))

    def _grid(self, i, j):
        return torch.diag_embed(self.channels._grid(i, j)[..., 0, 0].movedim(-3, -1))

    def to_dense(self) -> torch.Tensor:
        return torch.diag_embed(self.channels.to_dense()[..., 0, 0].movedim(-3, -1))

    def block_norms(self) -> torch.Tensor:
        norms = [torch.linalg.vector_norm(self._values(row), dim=-1) for row in self.channels.rows()]
        return torch.stack(norms, dim=-2) if norms else self._zeros(0, 0)

    def _coefficients(self, V):
        diagonal = V.diagonal(0, -2, -1)
        rows = [
            torch.einsum("...jc,...hc->...hj", self._values(row), diagonal) for row in self.channels.rows()
        ]
        return torch.stack(rows, dim=-2) if rows else super()._coefficients(V)

    def _as_blocks(self, rows):
        return torch.diag_embed(rows)

    def _span_blocks(self):
        if self.channels._rows_line_up:
            for block in self.channels._span_blocks():
                yield block.expand(*self.channels.batch_shape, *block.shape[-2:])[..., 0].mT
        else:
            for row in self.channels.rows():
                yield self._values(row)

    def _row_vectors(self, i):
        return self._values(self.channels.row(i))

    def _column_vectors(self, j):
        return self._values(self.channels.column(j))

    @torch.no_grad()
    def leading_value_maps(self, H: int) -> torch.Tensor:
        H = check_integer("H", H, low=0, high=min(self.n**2, self.d**2))
        directions = leading_row_directions(self._reduced(), min(H, self.d))
        maps = torch.diag_embed(directions)
        # More value maps than channels: what is left are the unit matrices off the diagonal.
        place = torch.arange(self.d**2, device=self.device)
        place = place[place % (self.d + 1) != 0][: H - maps.shape[-3]]
        units = torch.nn.functional.one_hot(place, self.d**2).to(maps).reshape(-1, self.d, self.d)
        return torch.cat([maps, units.expand(*self.batch_shape, *units.shape)], dim=-3).to(self.dtype)

    def _cuts(self):
        # The block of a cut is block diagonal over the channels: their ranks add.
        for block in self.channels._cuts():
            yield block[..., 0, :, :]

    def _colored(self, time, channel):
        channels = self.channels if time is None else self.channels._colored(time, None)
        if channel is not None:
            # ⟨W_ij R, W_kl R⟩ sees the diagonal of R Rᵀ alone: the variance of each channel.
            deviation = torch.linalg.vector_norm(channel, dim=-1)[:, None, None, None]
            deviation = deviation.expand(*channels.batch_shape, channels.n, 1, 1)
            channels = channels @ PointwiseOperator(deviation)
        return DiagonalOperator(channels)

    def _scaled(self, factor):
        return DiagonalOperator(self.channels._scaled(factor))

    def _mapped(self, change):
        return DiagonalOperator(self.channels._mapped(change))

    def _transposed(self):
        return DiagonalOperator(self.channels.T)

    def _plus(self, other):
        alike = self.batch_shape == other.batch_shape
        return DiagonalOperator(self.channels + other.channels) if alike else None

    def _after(self, other):
        alike = self.batch_shape == other.batch_shape
        return DiagonalOperator(self.channels @ other.channels) if alike else None
