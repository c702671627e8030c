"""Operators made of operators: what ``+``, ``@`` and ``.T`` give where no kind of its own remains."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ssmbook.operators.base import InteractionOperator


class SumOperator(InteractionOperator):
    """The sum of operators of different kinds, made by ``+`` and kept as ``terms``: parallel branches.

    The span of a sum is not made of the spans of its terms, so ranks read it row by row.
    """

    def __init__(self, *terms: InteractionOperator) -> None:
        first = terms[0]
        batch = torch.broadcast_shapes(*(term.batch_shape for term in terms))
        super().__init__(first._like, batch, first.n, first.p, first.d)
        self.terms = terms

    def _apply(self, x):
        return sum(term._apply(x) for term in self.terms)

    def _row(self, i):
        return sum(term._row(i) for term in self.terms)

    def _rows(self) -> Iterator[Tensor]:
        for parts in zip(*(term._rows() for term in self.terms), strict=True):
            yield sum(parts)

    def _scaled(self, factor):
        return SumOperator(*(term._scaled(factor) for term in self.terms))

    def _mapped(self, change):
        return SumOperator(*(term._mapped(change) for term in self.terms))

    def _transposed(self):
        return SumOperator(*(term.T for term in self.terms))


class ComposedOperator(InteractionOperator):
    """One operator after another, W_ij = sum_k S_ik T_kj with S ``outer`` and T ``inner``; made by ``@``.

    Rows are pulled back through ``inner`` without building it.
    """

    def __init__(self, outer: InteractionOperator, inner: InteractionOperator) -> None:
        batch = torch.broadcast_shapes(outer.batch_shape, inner.batch_shape)
        super().__init__(outer._like, batch, outer.n, outer.p, inner.d)
        self.outer, self.inner = outer, inner

    def _apply(self, x):
        return self.outer._apply(self.inner._apply(x))

    def _rows(self) -> Iterator[Tensor]:
        back = self.inner.T
        for row in self.outer._rows():
            # The p entries of an output token are a batch of rows, each pulled back by
            # itself.
            pulled = [back._apply(entry) for entry in row.unbind(-2)]
            yield torch.stack(pulled, dim=-2) if pulled else self._zeros(self.n, 0, self.d)

    def to_dense(self) -> Tensor:
        return torch.einsum("...ikpq,...kjqd->...ijpd", self.outer.to_dense(), self.inner.to_dense())

    def _scaled(self, factor):
        return ComposedOperator(self.outer._scaled(factor), self.inner)

    def _mapped(self, change):
        return ComposedOperator(self.outer._mapped(change), self.inner._mapped(change))

    def _transposed(self):
        return ComposedOperator(self.inner.T, self.outer.T)


class TransposedOperator(InteractionOperator):
    """The transpose of an operator whose kind has no transpose of its own, (Wᵀ)_ij = W_jiᵀ; made by ``W.T``.

    It is applied by pulling back through its ``operand``, so it costs what that costs.
    """

    def __init__(self, operand: InteractionOperator) -> None:
        super().__init__(operand._like, operand.batch_shape, operand.n, operand.d, operand.p)
        self.operand, self._shared_rows = operand, operand._shared_rows

    def _apply(self, x):
        batch = torch.broadcast_shapes(self.batch_shape, x.shape[:-2])
        _, pull = torch.func.vjp(self.operand._apply, x.new_zeros(*batch, self.n, self.p))
        return pull(x.expand(*batch, *x.shape[-2:]))[0]

    def to_dense(self) -> Tensor:
        return self.operand.to_dense().transpose(-4, -3).mT

    def _span_blocks(self):
        for block in self.operand._span_blocks():
            yield self.operand._as_blocks(block).mT.flatten(-2)

    def _scaled(self, factor):
        return TransposedOperator(self.operand._scaled(factor))

    def _mapped(self, change):
        return TransposedOperator(self.operand._mapped(change))

    def _transposed(self):
        return self.operand
