"""Sums and compositions of operators: structured where the structure survives, lazy otherwise."""

from __future__ import annotations

import torch

from .._checks import check_alike
from .base import InteractionOperator
from .dense import DenseOperator
from .factorized import FactorizedOperator
from .lag import LagOperator
from .pointwise import PointwiseOperator
from .shapes import shared_batch


class SumOperator(InteractionOperator):
    """The sum of operators of different kinds, kept as terms: what parallel branches (a hybrid) do.

    ``terms``: operators of equal n, p, d, dtype and device, batch shapes equal or absent; made by ``+``. The
    span of a sum is not made of the spans of its terms, so ranks read it row by row. Introduced in
    *interaction-operator*.
    """

    def __init__(self, *terms: InteractionOperator) -> None:
        first, *others = terms
        for other in others:
            _check_addable(first, other)
        batch = shared_batch(**{f"term {t}": term.batch_shape for t, term in enumerate(terms)})
        super().__init__(first._standard, batch, first.n, first.p, first.d)
        self.terms = terms

    def _apply(self, x):
        return sum(term._apply(x) for term in self.terms)

    def row(self, i):
        return sum(term.row(i) for term in self.terms)

    def rows(self):
        for parts in zip(*(term.rows() for term in self.terms), strict=True):
            yield sum(parts)

    def column(self, j):
        return sum(term.column(j) for term in self.terms)

    def to_dense(self):
        return sum(term.to_dense() for term in self.terms)

    def _scaled(self, factor):
        return SumOperator(*(term._scaled(factor) for term in self.terms))


class ComposedOperator(InteractionOperator):
    """One operator after another, W_ij = sum_k S_ik T_kj: what stacked layers do once frozen.

    ``outer`` S has blocks (p, q), ``inner`` T blocks (q, d); equal n, dtype and device, batch shapes equal or
    absent; made by ``@``. Rows are pulled back through ``inner`` without building it. Introduced in
    *interaction-operator*.
    """

    def __init__(self, outer: InteractionOperator, inner: InteractionOperator) -> None:
        _check_composable(outer, inner)
        batch = shared_batch(left=outer.batch_shape, right=inner.batch_shape)
        super().__init__(outer._standard, batch, outer.n, outer.p, inner.d)
        self.outer, self.inner = outer, inner

    def _apply(self, x):
        return self.outer._apply(self.inner._apply(x))

    def to_dense(self):
        return torch.einsum("...ikpq,...kjqd->...ijpd", self.outer.to_dense(), self.inner.to_dense())

    def _scaled(self, factor):
        return ComposedOperator(self.outer._scaled(factor), self.inner)


def add(left: InteractionOperator, right: InteractionOperator) -> InteractionOperator:
    """Return left + right, of their own kind when both are dense, factorized, lag or pointwise operators.

    Two factorized operators put their heads side by side. Raises ``ValueError`` for unequal n, p, d, device
    or batch shape, ``TypeError`` for unequal dtype. Introduced in *interaction-operator*.
    """
    _check_addable(left, right)
    shared_batch(left=left.batch_shape, right=right.batch_shape)
    if isinstance(left, DenseOperator) and isinstance(right, DenseOperator):
        return DenseOperator(left.W + right.W)
    if isinstance(left, PointwiseOperator) and isinstance(right, PointwiseOperator):
        return PointwiseOperator(left.W + right.W)
    if isinstance(left, LagOperator) and isinstance(right, LagOperator):
        L = max(left.L, right.L)
        return LagOperator(_lags(left.M, L) + _lags(right.M, L), left.n)
    if isinstance(left, FactorizedOperator) and isinstance(right, FactorizedOperator):
        return FactorizedOperator(_side_by_side(left.alpha, right.alpha), _side_by_side(left.V, right.V))
    terms = [*(left.terms if isinstance(left, SumOperator) else [left])]
    return SumOperator(*terms, *(right.terms if isinstance(right, SumOperator) else [right]))


def compose(left: InteractionOperator, right: InteractionOperator) -> InteractionOperator:
    """Return left @ right: (left @ right).apply(x) == left.apply(right.apply(x)).

    Dense, pointwise, lag and factorized pairs keep their kind (heads multiply: H_left · H_right of them);
    others are composed lazily. Raises ``ValueError`` for unequal n, device or batch shape or ``left.d`` other
    than ``right.p``, ``TypeError`` for unequal dtype. Introduced in *interaction-operator*.
    """
    _check_composable(left, right)
    shared_batch(left=left.batch_shape, right=right.batch_shape)
    if isinstance(left, DenseOperator) and isinstance(right, DenseOperator):
        return DenseOperator(torch.einsum("...ikpq,...kjqd->...ijpd", left.W, right.W))
    if isinstance(left, PointwiseOperator) and isinstance(right, PointwiseOperator):
        return PointwiseOperator(left.W @ right.W)
    if isinstance(left, FactorizedOperator) and isinstance(right, FactorizedOperator):
        alpha = torch.einsum("...gik,...hkj->...ghij", left.alpha, right.alpha).flatten(-4, -3)
        return FactorizedOperator(
            alpha, torch.einsum("...gpq,...hqd->...ghpd", left.V, right.V).flatten(-4, -3)
        )
    if isinstance(left, LagOperator) and isinstance(right, LagOperator):
        return _convolve(left, right)
    return ComposedOperator(left, right)


def _check_addable(left, right):
    wanted, got = (left.n, left.p, left.d), (right.n, right.p, right.d)
    if wanted != got:
        raise ValueError(f"right must have (n, p, d) = {wanted} like left; got {got}")
    check_alike(left=left._standard, right=right._standard)


def _check_composable(left, right):
    if (left.n, left.d) != (right.n, right.p):
        raise ValueError(
            f"right must have (n, p) = {(left.n, left.d)}, the (n, d) of left; got {(right.n, right.p)}"
        )
    check_alike(left=left._standard, right=right._standard)


def _convolve(left, right):
    # The columns of M_0, M_1, … of the inner operator are its impulse responses: the outer one maps them.
    L = min(left.n, max(0, left.L + right.L - 1)) if left.L and right.L else 0
    responses = _lags(right.M, left.n).unbind(-1)
    mapped = [left._apply(response)[..., :L, :] for response in responses]
    return LagOperator(torch.stack(mapped, dim=-1), left.n)


def _lags(M, L):
    return torch.nn.functional.pad(M, (0, 0, 0, 0, 0, L - M.shape[-3]))


def _side_by_side(first, second):
    batch = shared_batch(left=first.shape[:-3], right=second.shape[:-3])
    return torch.cat([part.expand(*batch, *part.shape[-3:]) for part in (first, second)], dim=-3)
