"""All blocks kept: the operator as one tensor."""

from __future__ import annotations

import torch

from ssmbook._checks import check_shape
from ssmbook.operators.base import InteractionOperator


class DenseOperator(InteractionOperator):
    """An interaction operator given block by block.

    ``W`` (..., n, n, p, d), ``W[..., i, j, :, :]`` being W_ij; dtype and device are those of ``W``, which is
    kept, not copied. Raises ``TypeError`` for a non-floating tensor, ``ValueError`` for another shape.
    Introduced in *interaction-operator*.

    >>> W = DenseOperator(torch.ones(3, 3, 2, 2))  # every token hears the sum of all
    >>> W.apply(torch.ones(3, 2)).tolist(), W.interaction_rank()
    ([[6.0, 6.0], [6.0, 6.0], [6.0, 6.0]], 1)
    """

    def __init__(self, W: torch.Tensor) -> None:
        sizes = check_shape("W", W, "... n n p d")
        super().__init__(W, W.shape[:-4], sizes["n"], sizes["p"], sizes["d"])
        self.W = W

    def _apply(self, x):
        return torch.einsum("...ijpd,...jd->...ip", self.W, x)

    def _row(self, i):
        return self.W[..., i, :, :, :]

    def _column(self, j):
        return self.W[..., :, j, :, :]

    def to_dense(self) -> torch.Tensor:
        return self.W

    def _span_blocks(self):
        yield self.W.reshape(*self.batch_shape, self.n * self.n, self.p * self.d)

    def _scaled(self, factor):
        return DenseOperator(factor * self.W)

    def _mapped(self, change):
        return DenseOperator(change(self.W))

    def _transposed(self):
        return DenseOperator(self.W.transpose(-4, -3).mT)

    def _plus(self, other):
        return DenseOperator(self.W + other.W)

    def _after(self, other):
        return DenseOperator(torch.einsum("...ikpq,...kjqd->...ijpd", self.W, other.W))
