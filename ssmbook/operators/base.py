"""What every interaction operator is: its action on x, everything else derived once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from numbers import Real
from operator import index
from typing import Any

import torch

from ssmbook._checks import check_alike, check_integer, check_sequence, check_shape, shared_batch
from ssmbook.numerics import HALF, single
from ssmbook.operators.spectra import Spectral


class InteractionOperator(Spectral, ABC):
    """The interaction operator W(X) of a sequence map: y_i = sum_j W_ij x_j.

    ``W @ x`` (or ``W(x)``, ``W.apply(x)``) acts on tokens, ``W1 @ W2`` composes; ``W1 + W2``, ``W - V``,
    ``sum([…])``, ``c * W``, ``W / c`` with a number or a 0-dimensional tensor; ``W.T``, ``W.to(…)``,
    ``W.detach()``; ``W[i, j]`` is the block W_ij (p, d) or, with slices, several. ``shape``, ``batch_shape``,
    ``n``, ``p``, ``d``, ``dtype`` and ``device`` are attributes. ``apply``, ``row``, ``to_dense`` and
    ``block_norms`` carry gradients; ranks, spectra and best heads are detached and computed in float64.

    A kind must define ``_apply``, ``_scaled`` and ``_mapped``; it overrides ``_row``, ``rows``, ``_column``,
    ``to_dense``, ``_span_blocks``, ``block_norms`` or ``_coefficients`` where its structure makes them
    cheaper, and ``_plus``, ``_after`` and ``_transposed`` where it survives. Introduced in
    *interaction-operator*.

    >>> W = LagOperator(0.5 ** torch.arange(4.0).reshape(4, 1, 1))  # y_i = x_i + x_(i-1) / 2 + …
    >>> (W @ torch.ones(4, 1)).flatten().tolist()
    [1.0, 1.5, 1.75, 1.875]
    >>> W[3].flatten().tolist(), W[3, 1].item(), W.T[1, 3].item()
    ([0.125, 0.25, 0.5, 1.0], 0.25, 0.25)
    """

    def __init__(self, standard: torch.Tensor, batch_shape: Sequence[int], n: int, p: int, d: int) -> None:
        self._standard = standard
        self.batch_shape = torch.Size(check_sequence("batch_shape", batch_shape, "ints"))
        self.n, self.p, self.d, self._width = n, p, d, p * d

    @property
    def dtype(self) -> torch.dtype:
        return self._standard.dtype

    @property
    def device(self) -> torch.device:
        return self._standard.device

    @property
    def shape(self) -> torch.Size:
        """The shape (..., n, n, p, d) of ``to_dense()``, whether or not it is ever built."""
        return torch.Size((*self.batch_shape, self.n, self.n, self.p, self.d))

    def __repr__(self) -> str:
        sizes = f"n={self.n}, p={self.p}, d={self.d}"
        return f"{type(self).__name__}(batch_shape={tuple(self.batch_shape)}, {sizes}, dtype={self.dtype})"

    # What a kind defines
    @abstractmethod
    def _apply(self, x: torch.Tensor) -> torch.Tensor:
        """Return W x for a checked x (..., n, d)."""

    def row(self, i: int) -> torch.Tensor:
        """Return the blocks W_ij of one output token over j, shape (..., n, p, d).

        Raises ``TypeError``/``ValueError`` for an index outside 0 … n−1. Introduced in
        *interaction-operator*.
        """
        return self._row(check_integer("i", i, low=0, high=self.n - 1))

    def _row(self, i: int) -> torch.Tensor:
        # W is linear in x, so the transpose that a row needs is the vector-Jacobian product of apply.
        _, pull = torch.func.vjp(lambda x: self._applied(x)[..., i, :], self._zeros(self.n, self.d))
        units = torch.eye(self.p, dtype=self.dtype, device=self.device)
        parts = [pull(unit.expand(*self.batch_shape, self.p))[0] for unit in units]
        return torch.stack(parts, dim=-2) if parts else self._zeros(self.n, 0, self.d)

    def rows(self) -> Iterator[torch.Tensor]:
        """Yield ``row(0)``, ``row(1)``, … in turn, so that only one row of blocks is held at a time."""
        for i in range(self.n):
            yield self._row(i)

    def column(self, j: int) -> torch.Tensor:
        """Return the blocks W_ij of one input token over i, shape (..., n, p, d).

        Raises ``TypeError``/``ValueError`` for an index outside 0 … n−1. Introduced in
        *interaction-operator*.
        """
        return self._column(check_integer("j", j, low=0, high=self.n - 1))

    def _column(self, j: int) -> torch.Tensor:
        parts = []
        for b in range(self.d):
            x = self._zeros(self.n, self.d)
            x[..., j, b] = 1
            parts.append(self._applied(x))
        return torch.stack(parts, dim=-1) if parts else self._zeros(self.n, self.p, 0)

    # What follows from it
    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """Return y_i = sum_j W_ij x_j.

        ``x`` (..., n, d) to (..., n, p), in the dtype and on the device of the operator. The batch shapes of
        operator and ``x`` are equal, or one of the two is unbatched. Raises ``TypeError`` for a non-tensor or
        another dtype, ``ValueError`` for another shape or device. Introduced in *interaction-operator*.
        """
        check_shape("x", x, "... n d", {"n": self.n, "d": self.d})
        check_alike(W=self._standard, x=x)
        shared_batch(W=self.batch_shape, x=x.shape[:-2])
        return self._applied(x)

    def _applied(self, x: torch.Tensor) -> torch.Tensor:
        return self._in_single()._apply(single(x)).to(self.dtype)

    def _in_single(self) -> InteractionOperator:
        """W in the precision in which it is computed: long sums in half precision forget small terms."""
        return self.to(torch.float32) if self.dtype in HALF else self

    __call__ = apply

    def __getitem__(self, place) -> torch.Tensor:
        """Return the block W_ij (..., p, d) at ``[i, j]``, a row or column of blocks, or several with slices.

        ``W[i]`` is ``W[i, :]``, (..., n, p, d); integers may be negative. Raises ``IndexError`` outside.
        """
        i, j = place if isinstance(place, tuple) and len(place) == 2 else (place, slice(None))
        i, j = (_tokens(given, self.n) for given in (i, j))
        single = isinstance(i, int), isinstance(j, int)
        blocks = self._grid(*([k] if isinstance(k, int) else k for k in (i, j)))
        blocks = blocks[..., 0, :, :] if single[1] else blocks
        return blocks.select(-3 if single[1] else -4, 0) if single[0] else blocks

    def _grid(self, i: list[int], j: list[int]) -> torch.Tensor:
        """The blocks W_ij of some output and some input tokens, (..., len(i), len(j), p, d)."""
        if len(j) == 1 < len(i):
            return self._column(j[0])[..., i, None, :, :]
        rows = [self._row(k)[..., j, :, :] for k in i]
        return torch.stack(rows, dim=-4) if rows else self._zeros(0, len(j), self.p, self.d)

    @property
    def T(self) -> InteractionOperator:
        """The transpose, (Wᵀ)_ij = W_jiᵀ: it takes y (..., n, p) back to (..., n, d)."""
        return self._transposed()

    def to(self, *args: Any, **kwargs: Any) -> InteractionOperator:
        """Return the same operator in another dtype or on another device; arguments as ``Tensor.to``."""
        return self._mapped(lambda tensor: tensor.to(*args, **kwargs))

    def detach(self) -> InteractionOperator:
        """Return the same operator outside the graph of gradients."""
        return self._mapped(torch.Tensor.detach)

    def to_dense(self) -> torch.Tensor:
        """Return all blocks as one tensor (..., n, n, p, d), ``[..., i, j, :, :]`` being W_ij.

        This is the expensive view: n² blocks. Introduced in *interaction-operator*.
        """
        rows = list(self.rows())
        return torch.stack(rows, dim=-4) if rows else self._zeros(self.n, self.n, self.p, self.d)

    def to_block_matrix(self) -> torch.Tensor:
        """Return W as one matrix (..., n·p, n·d) that acts on the stacked tokens.

        Introduced in *interaction-operator*.
        """
        dense = self.to_dense().movedim(-2, -3)
        return dense.reshape(*self.batch_shape, self.n * self.p, self.n * self.d)

    def block_norms(self) -> torch.Tensor:
        """Return the Frobenius norms ‖W_ij‖ as an (..., n, n) picture.

        Introduced in *interaction-operator*.

        >>> LagOperator(torch.tensor([1.0, -3.0]).reshape(2, 1, 1), n=3).block_norms().tolist()
        [[1.0, 0.0, 0.0], [3.0, 1.0, 0.0], [0.0, 3.0, 1.0]]
        """
        rows = [torch.linalg.matrix_norm(row) for row in self.rows()]
        return torch.stack(rows, dim=-2) if rows else self._zeros(self.n, self.n)

    def coefficients(self, V: torch.Tensor) -> torch.Tensor:
        """Return the inner products ⟨W_ij, V_h⟩ with given value maps.

        ``V`` (H, p, d) or (..., H, p, d) to (..., H, n, n). For orthonormal V_h these are the mixing
        coefficients that bring sum_h alpha^h_ij V_h closest to W. Raises as ``apply``.
        Introduced in *interaction-operator*.
        """
        check_shape("V", V, "... H p d", {"p": self.p, "d": self.d})
        check_alike(W=self._standard, V=V)
        shared_batch(W=self.batch_shape, V=V.shape[:-3])
        return self._coefficients(V)

    def _coefficients(self, V: torch.Tensor) -> torch.Tensor:
        rows = [torch.einsum("...jpd,...hpd->...hj", row, V) for row in self.rows()]
        if not rows:
            return torch.einsum("...ijpd,...hpd->...hij", self.to_dense(), V)
        return torch.stack(rows, dim=-2)

    # Algebra: a kind answers for its own kind; what it does not keep is held as a sum or a composition.
    def _plus(self, other):
        """Return self + other as one operator, for another of the same kind; None where the kind is lost."""
        return None

    def _after(self, other):
        """Return self @ other as one operator, for another of the same kind; None where the kind is lost."""
        return None

    @abstractmethod
    def _scaled(self, factor: float | torch.Tensor) -> InteractionOperator:
        """Return the operator of the same kind with every W_ij multiplied by ``factor``."""

    @abstractmethod
    def _mapped(self, change: Callable[[torch.Tensor], torch.Tensor]) -> InteractionOperator:
        """Return the operator of the same kind with each of its tensors changed."""

    def _transposed(self) -> InteractionOperator:
        return self._made_of["transpose"](self)

    def __add__(self, other):
        if not isinstance(other, InteractionOperator):
            return NotImplemented
        check_addable(self, other)
        joined = self._plus(other) if type(self) is type(other) else None
        if joined is None:
            terms = [getattr(part, "terms", (part,)) for part in (self, other)]
            joined = self._made_of["sum"](*terms[0], *terms[1])
        return joined

    def __radd__(self, other):
        # sum([W, …]) starts from 0.
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __sub__(self, other):
        return self + (-other) if isinstance(other, InteractionOperator) else NotImplemented

    def __matmul__(self, other):
        if not isinstance(other, InteractionOperator):
            return self.apply(other)
        check_composable(self, other)
        joined = self._after(other) if type(self) is type(other) else None
        return self._made_of["composition"](self, other) if joined is None else joined

    def __mul__(self, factor):
        if isinstance(factor, torch.Tensor):
            if factor.dim() or factor.is_complex():
                got = f"shape {tuple(factor.shape)}, dtype {factor.dtype}"
                raise TypeError(
                    f"an operator is multiplied by a number or a real 0-dimensional tensor; got {got}"
                )
            return self._scaled(factor.to(self.dtype))
        if isinstance(factor, bool) or not isinstance(factor, Real):
            return NotImplemented
        return self._scaled(float(factor))

    __rmul__ = __mul__

    def __truediv__(self, divisor):
        if isinstance(divisor, torch.Tensor) and not divisor.is_complex():
            divisor = divisor.to(self.dtype)
        return self * (1 / divisor) if isinstance(divisor, (Real, torch.Tensor)) else NotImplemented

    def __neg__(self):
        return self._scaled(-1.0)

    # A NumPy number or array on the left leaves the product to the operator.
    __array_ufunc__ = None

    def _zeros(self, *shape: int) -> torch.Tensor:
        return torch.zeros(*self.batch_shape, *shape, dtype=self.dtype, device=self.device)


def _tokens(given, n: int):
    """A place on the token axis as an int in 0 … n−1 or a list of them."""
    if isinstance(given, slice):
        return list(range(*given.indices(n)))
    if isinstance(given, bool) or not hasattr(given, "__index__"):
        raise IndexError(f"an operator is indexed by W[i, j], integers or slices; got {given!r}")
    place = index(given)
    if not -n <= place < n:
        raise IndexError(f"token {place} is outside an operator of {n} tokens")
    return place % n


def check_addable(left, right):
    wanted, got = (left.n, left.p, left.d), (right.n, right.p, right.d)
    if wanted != got:
        raise ValueError(f"right must have (n, p, d) = {wanted} like left; got {got}")
    check_alike(left=left._standard, right=right._standard)
    shared_batch(left=left.batch_shape, right=right.batch_shape)


def check_composable(left, right) -> torch.Size:
    """Return the batch shape of left @ right, or refuse."""
    if (left.n, left.d) != (right.n, right.p):
        raise ValueError(
            f"right must have (n, p) = {(left.n, left.d)}, the (n, d) of left; got {(right.n, right.p)}"
        )
    check_alike(left=left._standard, right=right._standard)
    return shared_batch(left=left.batch_shape, right=right.batch_shape)
