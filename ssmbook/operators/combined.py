"""Operators made of operators: what ``+``, ``@`` and ``.T`` give where no kind of its own remains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ssmbook.operators.base import InteractionOperator
from ssmbook.operators.gated import GatedHeads
from ssmbook.operators.structured import DiagonalOperator, PointwiseOperator

if TYPE_CHECKING:
    from ssmbook.operators.factorized import FactorizedOperator


class _Joined(InteractionOperator):
    """An operator made of others, its ``parts``: few heads where all of them are few heads."""

    # Heads are compressed in each batch element by itself.
    _shared_rows = False
    parts: tuple[InteractionOperator, ...]

    @property
    def _stored(self) -> bool:
        return all(part._stored for part in self.parts)

    def _reduced(self):
        # With more heads than half of the rows or of the columns it is faster block by block.
        most = min(self.n**2, self._width) // 2
        for W in (self, self.T):  # gates after the heads, or before them
            gated = _gated(W, most // max(1, min(W.n, W.p))) if _has_gate(W) else None
            if gated is not None:
                return gated if W is self else gated.T
        heads = self._as_heads(most)
        return self if heads is None else heads

    def _span_blocks(self):
        W = self._reduced()
        if W is self:
            yield from super()._span_blocks()
        else:
            for block in W._span_blocks():
                yield W._as_blocks(block).flatten(-2)


class SumOperator(_Joined):
    """The sum of operators of different kinds, made by ``+`` and kept as ``terms``: parallel branches.

    The blocks of a sum lie in what the blocks of its terms span together: ranks are read in
    a basis of that, or row by row where it is wide.
    """

    def __init__(self, *terms: InteractionOperator) -> None:
        first = terms[0]
        batch = torch.broadcast_shapes(*(term.batch_shape for term in terms))
        super().__init__(first._like, batch, first.n, first.p, first.d)
        self.terms = self.parts = terms

    def _as_heads(self, most):
        heads = _few(self.terms, most)
        return sum(heads) if heads and sum(part.H for part in heads) <= most else None

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


class ComposedOperator(_Joined):
    """One operator after another, W_ij = sum_k S_ik T_kj with S ``outer`` and T ``inner``; made by ``@``.

    Its blocks lie in what the products of a block of S and a block of T span, for its
    ranks. Rows are pulled back through ``inner`` without building it.
    """

    def __init__(self, outer: InteractionOperator, inner: InteractionOperator) -> None:
        batch = torch.broadcast_shapes(outer.batch_shape, inner.batch_shape)
        super().__init__(outer._like, batch, outer.n, outer.p, inner.d)
        self.outer, self.inner = self.parts = outer, inner

    def _as_heads(self, most):
        heads = _few(self.parts, most)
        return heads[0]._product(heads[1]) if heads and heads[0].H * heads[1].H <= most else None

    def _apply(self, x):
        return self.outer._apply(self.inner._apply(x))

    def _rows(self) -> Iterator[Tensor]:
        # What acts token by token multiplies blocks, and pulls back nothing.
        if isinstance(self.outer, PointwiseOperator):
            for left, row in zip(self.outer.W.unbind(-3), self.inner._rows(), strict=True):
                yield left[..., None, :, :] @ row
            return
        if isinstance(self.inner, PointwiseOperator):
            for row in self.outer._rows():
                yield row @ self.inner.W
            return
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


def _few(parts: Iterable[InteractionOperator], most: int) -> list[FactorizedOperator] | None:
    """Every part as heads, or None as soon as one takes more than ``most``."""
    found = []
    for part in parts:
        found.append(part._as_heads(most))
        if found[-1] is None:
            return None
    return found


def _has_gate(W: InteractionOperator) -> bool:
    """Whether a gate comes last in W or in one of its terms."""
    if isinstance(W, SumOperator):
        return any(map(_has_gate, W.terms))
    return isinstance(W, ComposedOperator) and (_is_gate(W.outer) or _has_gate(W.outer))


def _is_gate(W: InteractionOperator) -> bool:
    return isinstance(W, DiagonalOperator) and isinstance(W.channels, PointwiseOperator)


def _gated(W: InteractionOperator, most: int) -> GatedHeads | None:
    """Return W as at most ``most`` gated heads in float64; None if it cannot or if most have no gate."""
    if isinstance(W, SumOperator) and _has_gate(W):
        parts = [_gated(term, most) for term in W.terms]
        if None in parts:
            return None
        joined = sum(parts)
        gated = sum(part.heads.H for part, term in zip(parts, W.terms, strict=True) if _has_gate(term))
        return joined if joined.heads.H <= min(most, 2 * gated) else None
    if isinstance(W, ComposedOperator) and _is_gate(W.outer):
        inner = _gated(W.inner, most)
        g = W.outer.channels.W[..., 0, 0].mT[..., None, :, :].to(torch.float64)
        return None if inner is None else GatedHeads(inner.heads, g * inner.g)
    if isinstance(W, ComposedOperator) and _has_gate(W.outer):
        outer = _gated(W.outer, most)
        inner = None if outer is None else W.inner._as_heads(most // max(1, outer.heads.H))
        if inner is None:
            return None
        return GatedHeads(outer.heads._product(inner), outer.g.repeat_interleave(inner.H, dim=-3))
    heads = W._as_heads(most)
    return None if heads is None else GatedHeads(heads, heads.V.new_ones(heads.H, W.n, W.p))


class TransposedOperator(InteractionOperator):
    """The transpose of an operator whose kind has no transpose of its own, (Wᵀ)_ij = W_jiᵀ; made by ``W.T``.

    It is applied by pulling back through its ``operand``, so it costs what that costs.
    """

    def __init__(self, operand: InteractionOperator) -> None:
        super().__init__(operand._like, operand.batch_shape, operand.n, operand.d, operand.p)
        self.operand, self._shared_rows, self._stored = operand, operand._shared_rows, operand._stored
        self._width = operand._width

    def _as_heads(self, most):
        heads = self.operand._as_heads(most)
        return None if heads is None else heads.T

    def _apply(self, x):
        batch = torch.broadcast_shapes(self.batch_shape, x.shape[:-2])
        _, pull = torch.func.vjp(self.operand._apply, x.new_zeros(*batch, self.n, self.p))
        return pull(x.expand(*batch, *x.shape[-2:]))[0]

    def to_dense(self) -> Tensor:
        return self.operand.to_dense().transpose(-4, -3).mT

    def _coefficients(self, V):
        return self.operand._coefficients(V.mT).mT

    def _as_blocks(self, rows):
        return self.operand._as_blocks(rows).mT

    def _span_blocks(self):
        return self.operand._span_blocks()

    def _scaled(self, factor):
        return TransposedOperator(self.operand._scaled(factor))

    def _mapped(self, change):
        return TransposedOperator(self.operand._mapped(change))

    def _transposed(self):
        return self.operand
