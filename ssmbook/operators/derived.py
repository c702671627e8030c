"""Operators made of operators: sums, compositions and transposes that no kind of their own can hold."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ssmbook._checks import shared_batch
from ssmbook.operators.base import InteractionOperator, check_addable, check_composable


class SumOperator(InteractionOperator):
    """The sum of operators of different kinds, kept as terms: what parallel branches (a hybrid) do.

    ``terms``: operators of equal n, p, d, dtype and device, batch shapes equal or absent; made by ``+``. The
    span of a sum is not made of the spans of its terms, so ranks read it row by row. Introduced in
    *interaction-operator*.

    >>> W = LagOperator(torch.ones(3, 1, 1)) + PointwiseOperator(torch.ones(3, 1, 1))
    >>> type(W).__name__, W.apply(torch.ones(3, 1)).flatten().tolist()
    ('SumOperator', [2.0, 3.0, 4.0])
    """

    def __init__(self, *terms: InteractionOperator) -> None:
        check_operators(**{f"term {t}": term for t, term in enumerate(terms)})
        if not terms:
            raise ValueError("terms must hold at least one operator; got none")
        first, *others = terms
        for other in others:
            check_addable(first, other)
        batch = shared_batch(**{f"term {t}": term.batch_shape for t, term in enumerate(terms)})
        super().__init__(first._standard, batch, first.n, first.p, first.d)
        self.terms = terms

    def _apply(self, x):
        return sum(term._apply(x) for term in self.terms)

    def _row(self, i):
        return sum(term._row(i) for term in self.terms)

    def _grid(self, i, j):
        return sum(term._grid(i, j) for term in self.terms)

    def rows(self) -> Iterator[torch.Tensor]:
        for parts in zip(*(term.rows() for term in self.terms), strict=True):
            yield sum(parts)

    def _column(self, j):
        return sum(term._column(j) for term in self.terms)

    def to_dense(self) -> torch.Tensor:
        return sum(term.to_dense() for term in self.terms)

    def _scaled(self, factor):
        return SumOperator(*(term._scaled(factor) for term in self.terms))

    def _mapped(self, change):
        return SumOperator(*(term._mapped(change) for term in self.terms))

    def _transposed(self):
        return SumOperator(*(term.T for term in self.terms))


class ComposedOperator(InteractionOperator):
    """One operator after another, W_ij = sum_k S_ik T_kj: what stacked layers do once frozen.

    ``outer`` S has blocks (p, q), ``inner`` T blocks (q, d); equal n, dtype and device, batch shapes equal or
    absent; made by ``@``. Rows are pulled back through ``inner`` without building it. Introduced in
    *interaction-operator*.

    >>> total, double = LagOperator(torch.ones(3, 1, 1)), PointwiseOperator(2 * torch.ones(3, 1, 1))
    >>> W = double @ total  # total first
    >>> type(W).__name__, W.apply(torch.ones(3, 1)).flatten().tolist()
    ('ComposedOperator', [2.0, 4.0, 6.0])
    """

    def __init__(self, outer: InteractionOperator, inner: InteractionOperator) -> None:
        check_operators(outer=outer, inner=inner)
        batch = check_composable(outer, inner)
        super().__init__(outer._standard, batch, outer.n, outer.p, inner.d)
        self.outer, self.inner = outer, inner

    def _apply(self, x):
        return self.outer._apply(self.inner._apply(x))

    def rows(self) -> Iterator[torch.Tensor]:
        W = self._in_single()
        back = W.inner.T
        for row in W.outer.rows():
            # The p entries of an output token are a batch of rows, each pulled back by itself.
            pulled = [back._apply(entry) for entry in row.unbind(-2)]
            yield (torch.stack(pulled, dim=-2) if pulled else W._zeros(W.n, 0, W.d)).to(self.dtype)

    def to_dense(self) -> torch.Tensor:
        return torch.einsum("...ikpq,...kjqd->...ijpd", self.outer.to_dense(), self.inner.to_dense())

    def _scaled(self, factor):
        return ComposedOperator(self.outer._scaled(factor), self.inner)

    def _mapped(self, change):
        return ComposedOperator(self.outer._mapped(change), self.inner._mapped(change))

    def _transposed(self):
        return ComposedOperator(self.inner.T, self.outer.T)


class TransposedOperator(InteractionOperator):
    """The transpose of an operator whose kind has no transpose of its own, (Wᵀ)_ij = W_jiᵀ; made by ``W.T``.

    ``operand`` W: it is applied by pulling back through W, so it costs what W costs. Introduced in
    *interaction-operator*.

    >>> back = LagOperator(torch.ones(3, 1, 1)).T  # the sum of what is to come
    >>> type(back).__name__, back.apply(torch.ones(3, 1)).flatten().tolist()
    ('TransposedOperator', [3.0, 2.0, 1.0])
    """

    def __init__(self, operand: InteractionOperator) -> None:
        check_operators(operand=operand)
        super().__init__(operand._standard, operand.batch_shape, operand.n, operand.d, operand.p)
        self.operand, self._rows_line_up = operand, operand._rows_line_up

    def _apply(self, x):
        batch = torch.broadcast_shapes(self.batch_shape, x.shape[:-2])
        _, pull = torch.func.vjp(self.operand._apply, x.new_zeros(*batch, self.n, self.p))
        return pull(x.expand(*batch, *x.shape[-2:]))[0]

    def _row(self, i):
        return self.operand._column(i).mT

    def _column(self, j):
        return self.operand._row(j).mT

    def _grid(self, i, j):
        return self.operand._grid(j, i).transpose(-4, -3).mT

    def to_dense(self) -> torch.Tensor:
        return self.operand.to_dense().transpose(-4, -3).mT

    def block_norms(self) -> torch.Tensor:
        return self.operand.block_norms().mT

    def _span_blocks(self):
        for block in self.operand._span_blocks():
            yield self.operand._as_blocks(block).mT.flatten(-2)

    def _scaled(self, factor):
        return TransposedOperator(self.operand._scaled(factor))

    def _mapped(self, change):
        return TransposedOperator(self.operand._mapped(change))

    def _transposed(self):
        return self.operand


def check_operators(**operators) -> None:
    for name, W in operators.items():
        if not isinstance(W, InteractionOperator):
            raise TypeError(f"{name} must be an InteractionOperator; got {type(W).__name__}")


# base.py makes these without importing this file, so that no import runs in a circle.
InteractionOperator._made_of.update(
    sum=SumOperator, composition=ComposedOperator, transpose=TransposedOperator
)
