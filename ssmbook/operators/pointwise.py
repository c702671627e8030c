"""Operators that do not mix tokens."""

from __future__ import annotations

import torch

from ssmbook._checks import check_shape
from ssmbook.operators.base import InteractionOperator


class PointwiseOperator(InteractionOperator):
    """A block-diagonal operator, W_ii = W_i and zero elsewhere: what a feed-forward layer does.

    ``W`` (..., n, p, d); dtype and device are those of ``W``. Raises ``TypeError`` for a non-floating tensor,
    ``ValueError`` for another shape. Introduced in *interaction-operator*.

    >>> W = PointwiseOperator(torch.arange(3.0).reshape(3, 1, 1))  # y_i = i x_i
    >>> W.apply(torch.ones(3, 1)).flatten().tolist(), W.past_future_rank()
    ([0.0, 1.0, 2.0], 0)
    """

    def __init__(self, W: torch.Tensor) -> None:
        sizes = check_shape("W", W, "... n p d")
        super().__init__(W, W.shape[:-3], sizes["n"], sizes["p"], sizes["d"])
        self.W = W

    def _apply(self, x):
        return torch.einsum("...ipd,...id->...ip", self.W, x)

    def _row(self, i):
        return torch.nn.functional.pad(self.W[..., i : i + 1, :, :], (0, 0, 0, 0, i, self.n - 1 - i))

    def _column(self, j):
        return self._row(j)

    def to_dense(self) -> torch.Tensor:
        return torch.diag_embed(self.W.movedim(-3, -1)).movedim((-2, -1), (-4, -3))

    def block_norms(self) -> torch.Tensor:
        return torch.diag_embed(torch.linalg.matrix_norm(self.W))

    def _span_blocks(self):
        yield self.W.reshape(*self.batch_shape, self.n, self.p * self.d)

    def _scaled(self, factor):
        return PointwiseOperator(factor * self.W)

    def _mapped(self, change):
        return PointwiseOperator(change(self.W))

    def _transposed(self):
        return PointwiseOperator(self.W.mT)

    def _plus(self, other):
        return PointwiseOperator(self.W + other.W)

    def _after(self, other):
        return PointwiseOperator(self.W @ other.W)
