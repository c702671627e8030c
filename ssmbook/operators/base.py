"""What every interaction operator is: its action on x, its blocks, what they span, and the algebra.

A kind of operator is a subclass. The public methods check their arguments and convert half
precision to float32; then they call methods with an underscore, which a kind provides:

- It must define ``_apply``, ``_scaled`` and ``_mapped``. All else follows: columns from
  ``_apply``, rows from the transpose, ranks, floors and best heads from the rows.
- For its blocks it may override ``_row``, ``_rows``, ``_column``, ``to_dense``,
  ``block_norms`` and ``_coefficients``, where its structure makes them cheaper.
- For their span it may override ``_span_blocks``, and ``_past_future_blocks`` for cuts in
  time; ``_as_heads`` where few heads are W. If all blocks lie in a known subspace,
  ``_width`` is its dimension, ``_as_blocks`` leads from coordinates to blocks, and
  ``_row_vectors`` and ``_column_vectors`` are coordinates, too.
- In the algebra it may override ``_plus``, ``_after`` and ``_transposed``, where the result
  is of the same kind. Otherwise the result is a `SumOperator`, a `ComposedOperator` or a
  `TransposedOperator`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from numbers import Real
from typing import TYPE_CHECKING, overload

import torch
from torch import Tensor

from ssmbook._checks import (
    check_integer,
    check_number,
    check_same_dtype_device,
    check_shape,
    shared_batch,
)
from ssmbook.numerics import (
    HALF,
    RankReport,
    half_to_float32,
    item_if_scalar,
    norms,
)
from ssmbook.operators.spectra import (
    r_factor,
    singular_values,
    stacked_r_factor,
    tail_energies,
)

if TYPE_CHECKING:
    from typing_extensions import Self

    from ssmbook.operators.factorized import FactorizedOperator


class InteractionOperator(ABC):
    """The interaction operator W(X) of a sequence map: y_i = sum_j W_ij x_j.

    ``W @ x`` (or ``W(x)``, ``W.apply(x)``) acts on tokens, ``W1 @ W2`` composes; ``W1 +
    W2``, ``W - V``, ``sum([…])``, ``c * W``, ``W / c`` with a number or a 0-dimensional
    tensor; ``W.T``; ``W[i, j]`` is the block W_ij (p, d), ``W[i]`` a row of them.
    ``apply``, ``row``, ``to_dense`` and ``block_norms`` carry gradients; ranks, spectra and
    best heads are detached and computed in float64.

    Parameters
    ----------
    like : Tensor
        Any tensor of the dtype and on the device of W.
    batch_shape : sequence of int
        The shape (...) of independent operators.
    n : int
        Tokens.
    p, d : int
        Widths out and in.

    Examples
    --------
    >>> W = LagOperator(0.5 ** torch.arange(4.0).reshape(4, 1, 1))  # y_i = x_i + x_(i-1) / 2 + …
    >>> (W @ torch.ones(4, 1)).flatten().tolist()
    [1.0, 1.5, 1.75, 1.875]
    >>> W[3].flatten().tolist(), W[3, 1].item(), W.T[1, 3].item()
    ([0.125, 0.25, 0.5, 1.0], 0.25, 0.25)
    """

    # False if a row means something different in each batch element, because each was
    # compressed on its own.
    _shared_rows = True
    # Whether W is the very numbers that it stores, and not blocks that were rounded when
    # they were computed.
    _stored = False

    def __init__(self, like: Tensor, batch_shape: Sequence[int], n: int, p: int, d: int) -> None:
        self._like = like  # a tensor of the dtype and on the device of W
        self.batch_shape = torch.Size(batch_shape)
        self.n, self.p, self.d, self._width = n, p, d, p * d

    @property
    def dtype(self) -> torch.dtype:
        return self._like.dtype

    @property
    def device(self) -> torch.device:
        return self._like.device

    @property
    def shape(self) -> torch.Size:
        """The shape (..., n, n, p, d) of ``to_dense()``, whether or not it is ever built."""
        return torch.Size((*self.batch_shape, self.n, self.n, self.p, self.d))

    def __repr__(self) -> str:
        sizes = f"n={self.n}, p={self.p}, d={self.d}"
        return f"{type(self).__name__}(batch_shape={tuple(self.batch_shape)}, {sizes}, dtype={self.dtype})"

    # What a kind defines
    @abstractmethod
    def _apply(self, x: Tensor) -> Tensor:
        """Return W x for a checked x (..., n, d)."""

    @abstractmethod
    def _scaled(self, factor: float | Tensor) -> Self:
        """Return the operator of the same kind with every W_ij multiplied by ``factor``."""

    @abstractmethod
    def _mapped(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Return the operator of the same kind with each of its tensors changed."""

    # How it acts
    def apply(self, x: Tensor) -> Tensor:
        """Return y_i = sum_j W_ij x_j, from ``x`` (..., n, d) to (..., n, p), in the dtype of the operator.

        The batch shapes of operator and ``x`` are equal, or one of the two is unbatched.
        Raises ``TypeError`` for another dtype, ``ValueError`` for another shape or device.
        """
        check_shape("x", x, "... n d", {"n": self.n, "d": self.d})
        check_same_dtype_device(W=self._like, x=x)
        shared_batch(W=self.batch_shape, x=x.shape[:-2])
        return self._in_float32()._apply(half_to_float32(x)).to(self.dtype)

    __call__ = apply

    def _in_float32(self) -> Self:
        """W in the precision in which it is computed: long sums in half precision forget small terms."""
        return self.to(torch.float32) if self.dtype in HALF else self

    def to(self, *args: torch.dtype | torch.device | str | Tensor | bool, **kwargs: object) -> Self:
        """Return the same operator in another dtype or on another device; arguments as ``Tensor.to``."""
        return self._mapped(lambda tensor: tensor.to(*args, **kwargs))

    def detach(self) -> Self:
        """Return the same operator outside the graph of gradients."""
        return self._mapped(Tensor.detach)

    # Its blocks
    def row(self, i: int) -> Tensor:
        """Return the blocks W_ij of one output token over j, shape (..., n, p, d)."""
        i = check_integer("i", i, low=0, high=self.n - 1)
        return self._in_float32()._row(i).to(self.dtype)

    def _row(self, i: int) -> Tensor:
        return self.T._column(i).mT

    def rows(self) -> Iterator[Tensor]:
        """Yield ``row(0)``, ``row(1)``, … in turn, so that only one row of blocks is in memory at a time."""
        for row in self._in_float32()._rows():
            yield row.to(self.dtype)

    def _rows(self) -> Iterator[Tensor]:
        for i in range(self.n):
            yield self._row(i)

    def column(self, j: int) -> Tensor:
        """Return the blocks W_ij of one input token over i, shape (..., n, p, d)."""
        j = check_integer("j", j, low=0, high=self.n - 1)
        return self._in_float32()._column(j).to(self.dtype)

    def _column(self, j: int) -> Tensor:
        parts = []
        for b in range(self.d):
            x = self._zeros(self.n, self.d)
            x[..., j, b] = 1
            parts.append(self._apply(x))
        return torch.stack(parts, dim=-1) if parts else self._zeros(self.n, self.p, 0)

    def __getitem__(self, place: int | tuple[int, int | slice]) -> Tensor:
        """Return the block W_ij (..., p, d) at ``[i, j]``; ``W[i]`` is the row of an output token."""
        i, j = place if isinstance(place, tuple) else (place, slice(None))
        return self.row(range(self.n)[i])[..., j, :, :]

    def to_dense(self) -> Tensor:
        """Return all n² blocks as one tensor (..., n, n, p, d), ``[..., i, j, :, :]`` being W_ij."""
        rows = list(self.rows())
        return torch.stack(rows, dim=-4) if rows else self._zeros(self.n, self.n, self.p, self.d)

    def to_block_matrix(self) -> Tensor:
        """Return W as one matrix (..., n·p, n·d) that acts on the stacked tokens."""
        dense = self.to_dense().movedim(-2, -3)
        return dense.reshape(*self.batch_shape, self.n * self.p, self.n * self.d)

    def block_norms(self) -> Tensor:
        """Return the Frobenius norms ‖W_ij‖ as an (..., n, n) picture.

        >>> LagOperator(torch.tensor([1.0, -3.0]).reshape(2, 1, 1), n=3).block_norms().tolist()
        [[1.0, 0.0, 0.0], [3.0, 1.0, 0.0], [0.0, 3.0, 1.0]]
        """
        rows = [norms(row.flatten(-2)) for row in self.rows()]
        return torch.stack(rows, dim=-2) if rows else self._zeros(self.n, self.n)

    def coefficients(self, V: Tensor) -> Tensor:
        """Return the inner products ⟨W_ij, V_h⟩ with given value maps.

        ``V`` (H, p, d) or (..., H, p, d) to (..., H, n, n). For orthonormal V_h these are
        the mixing coefficients that bring sum_h alpha^h_ij V_h closest to W. Raises as
        ``apply``.
        """
        check_shape("V", V, "... H p d", {"p": self.p, "d": self.d})
        check_same_dtype_device(W=self._like, V=V)
        shared_batch(W=self.batch_shape, V=V.shape[:-3])
        return self._coefficients(V)

    def _coefficients(self, V: Tensor) -> Tensor:
        rows = [torch.einsum("...jpd,...hpd->...hj", row, V) for row in self.rows()]
        if not rows:
            return torch.einsum("...ijpd,...hpd->...hij", self.to_dense(), V)
        return torch.stack(rows, dim=-2)

    # What its blocks span
    def _span_blocks(self) -> Iterator[Tensor]:
        """Yield matrices (..., r, width) with, stacked, the singular values and row space of all vec W_ij."""
        for row in self.rows():
            yield row.flatten(-2)

    def _reduced(self) -> InteractionOperator:
        """Return W in the form in which its ranks and best heads cost least."""
        return self

    def _as_heads(self, most: int) -> FactorizedOperator | None:
        """Return W as at most ``most`` heads in float64, by the spans of its parts; None if it cannot."""
        return None

    def _as_blocks(self, rows: Tensor) -> Tensor:
        """Return the blocks (..., p, d) of coordinates (..., width); orthonormal rows stay orthonormal."""
        return rows.unflatten(-1, (self.p, self.d))

    @torch.no_grad()
    def span_rows(self, joint: bool = False) -> Tensor:
        """Return a few rows with the singular values and row space of all vec W_ij: float64, (..., m, width).

        m ≤ width, which is p·d, or d where W is diagonal in the channels: the rows then are
        the diagonals of blocks. ``joint=True``: one matrix (m, width) for the whole batch.
        Raises ``ValueError`` when a block is not finite.

        >>> W = LagOperator(torch.ones(4, 1, 2))  # the same block ten times: one row, √10 times as long
        >>> W.span_rows().square().sum(0).round(decimals=4)
        tensor([10., 10.], dtype=torch.float64)
        """
        matrix = self._exact()._span_rows()
        return r_factor(matrix.flatten(0, -2)) if joint else matrix

    def _span_rows(self) -> Tensor:
        empty = torch.zeros(*self.batch_shape, 0, self._width, dtype=torch.float64, device=self.device)
        return stacked_r_factor(self._span_blocks(), empty)

    def _exact(self) -> Self:
        """W in the precision in which its span is decided."""
        return self.to(torch.float64) if self._stored and self.dtype in HALF else self

    def _row_vectors(self, i: int) -> Tensor:
        return self.row(i).flatten(-2)

    def _column_vectors(self, j: int) -> Tensor:
        return self.column(j).flatten(-2)

    @torch.no_grad()
    def spectrum(self, joint: bool = False) -> Tensor:
        """Return the singular values of the rows vec W_ij: float64, descending, (..., m) with m ≤ p·d.

        ``joint=True``: one spectrum for the whole batch, shape (m,). Raises ``ValueError``
        when a block is not finite.

        >>> heads = FactorizedOperator(torch.ones(1, 4, 4), torch.eye(2)[None])
        >>> [round(value, 3) for value in heads.spectrum().tolist()]  # one head, of norm 4 · √2
        [5.657]
        """
        return singular_values(self._reduced().span_rows(joint))

    def rank_report(self, rtol: float | None = None, joint: bool = False) -> RankReport:
        """Return the interaction rank with spectrum, tolerance and gap; arguments as ``interaction_rank``.

        Of blocks that were rounded to half precision, ``rank`` to ``high`` is an interval.
        """
        return ranks.report(self, rtol, joint)

    def interaction_rank(self, rtol: float | None = None, joint: bool = False) -> int | Tensor:
        """Return k, the dimension of the operator span of all W_ij.

        ``rtol``: singular values at most ``rtol`` times the largest count as zero; by
        default 1e-10 in float64, 16 machine epsilons in shorter dtypes. The difference of
        two nearly equal operators therefore has a meaningless rank, that of its rounding
        errors. Heads and recurrences in half precision are the numbers that they store, so
        1e-10 holds for them; of other blocks in half precision the rank is a lower bound,
        with a ``HalfPrecisionWarning``. Returns an ``int``, or int64 (...) when batched;
        ``joint=True`` takes one span over the whole batch and returns an ``int``. Raises as
        ``spectrum``, and ``ValueError`` for ``rtol`` outside [0, 1).

        >>> turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
        >>> M = torch.stack([torch.linalg.matrix_power(turn, lag) for lag in range(8)])
        >>> LagOperator(M).interaction_rank()  # I and the quarter turn span all eight lags
        2
        """
        return ranks.report(self, rtol, joint).rank

    @torch.no_grad()
    def row_rank(self, i: int, rtol: float | None = None) -> int | Tensor:
        """Return the dimension of span_j W_ij for one output token; otherwise as ``interaction_rank``."""
        return ranks.rank_of_vectors(self, self._exact()._row_vectors(i), rtol)

    @torch.no_grad()
    def column_rank(self, j: int, rtol: float | None = None) -> int | Tensor:
        """Return the dimension of span_i W_ij for one input token; otherwise as ``interaction_rank``."""
        return ranks.rank_of_vectors(self, self._exact()._column_vectors(j), rtol)

    @torch.no_grad()
    def past_future_rank(self, rtol: float | None = None) -> int | Tensor:
        """Return the past–future rank of a causal operator: the widest memory that some cut in time needs.

        It is the largest rank, over the cuts 0 < t < n, of the block of W that takes the
        tokens before t to the outputs from t onward; a recurrence with N states has at most
        N. ``rtol`` is relative to the largest singular value of all these blocks. Returns
        an ``int``, or int64 (...) when batched. Kinds other than recurrences need n − 1
        dense decompositions: for a wide layer use ``W.mixing`` or ``W.channels``. Raises
        ``ValueError`` when a block W_ij with j > i is not zero, and as
        ``interaction_rank``.

        >>> W = LagOperator(0.5 ** torch.arange(8.0).reshape(8, 1, 1))  # one state carries the past
        >>> W.past_future_rank()
        1
        """
        return ranks.widest_cut(self, rtol)

    def _past_future_blocks(self) -> Iterator[Tensor]:
        """Yield, for t = 1 … n−1, matrices (..., k, r, c) with ranks that add up.

        Their sum is the rank of the part of W from tokens before t to tokens from t onward.
        """
        return ranks.cuts_in_time(self)

    # What fewer heads miss
    @torch.no_grad()
    def floor(
        self,
        H: int | None = None,
        *,
        time_covariance: Tensor | None = None,
        channel_covariance: Tensor | None = None,
    ) -> float | Tensor:
        """Return the relative squared error of the best H heads, ‖W − best_heads(H)‖² / ‖W‖².

        It is the expected error of the output over its expected energy, for inputs with the
        second moments E x_i x_jᵀ = time_covariance[i, j] · channel_covariance. A zero
        operator has error 0. Source: thm-head-floor, after `eckart1936approximation`.

        Parameters
        ----------
        H : int, optional
            A number of heads; ``None``: the whole curve H = 0 … m, m the length of
            ``spectrum()``, from 1 down to 0. With m or more heads the error is 0.
        time_covariance : Tensor (n, n), optional
            Symmetric positive semidefinite, of any dtype; ``None``: the identity, tokens
            that do not correlate.
        channel_covariance : Tensor (d, d), optional
            Likewise for channels.

        Returns
        -------
        float, or Tensor (...) float64 when batched; without H a Tensor (..., m + 1)

        Raises
        ------
        ValueError
            If H is negative, a covariance is none or has another shape, and as
            ``spectrum``.

        Examples
        --------
        >>> W = LagOperator(torch.tensor([[[3.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 4.0]]]))
        >>> round(W.floor(1), 4), W.floor(2)  # energies 2 · 3² and 4²: without the second, 16 / 34
        (0.4706, 0.0)
        >>> W.floor(1, channel_covariance=torch.diag(torch.tensor([0.0, 1.0])))  # only the second is driven
        0.0
        """
        rows, _ = ranks.driven_rows(self._reduced(), time_covariance, channel_covariance)
        curve = tail_energies(singular_values(rows))[..., : self._rank_limit + 1]
        if H is None:
            return curve
        return item_if_scalar(curve[..., min(check_integer("H", H, low=0), curve.shape[-1] - 1)])

    def epsilon_heads(
        self,
        eps: float,
        *,
        time_covariance: Tensor | None = None,
        channel_covariance: Tensor | None = None,
    ) -> int | Tensor:
        """Return k_ε, the fewest heads whose relative squared error ``floor`` is at most ``eps``.

        Source: prop-epsilon-heads.

        Parameters
        ----------
        eps : float
            At least 0.
        time_covariance, channel_covariance : Tensor, optional
            The second moments of the inputs, as in ``floor``.

        Returns
        -------
        int, or Tensor (...) int64 when batched

        Raises
        ------
        TypeError, ValueError
            Unless ``eps`` is a number of at least 0, and as ``floor``.

        Examples
        --------
        >>> W = LagOperator(torch.tensor([[[3.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 4.0]]]))
        >>> W.epsilon_heads(0.5), W.epsilon_heads(0.1)
        (1, 2)
        """
        eps = check_number("eps", eps, 0)
        curve = self.floor(time_covariance=time_covariance, channel_covariance=channel_covariance)
        return item_if_scalar((curve > eps).sum(-1))

    @torch.no_grad()
    def best_heads(
        self,
        H: int | None = None,
        *,
        time_covariance: Tensor | None = None,
        channel_covariance: Tensor | None = None,
    ) -> FactorizedOperator:
        """Return the H-head operator nearest to W, as a ``FactorizedOperator``; it misses ``floor(H)``.

        Truncated Kronecker SVD (Van Loan–Pitsianis; the optimum is Eckart–Young,
        `eckart1936approximation`): V is orthonormal and alpha^h_ij = ⟨W_ij, V_h⟩. For
        colored inputs the maps V_h R, R the root of the channel covariance, are orthonormal
        instead, and alpha^h_ij = ⟨W_ij R, V_h R⟩.

        Parameters
        ----------
        H : int, optional
            0 to min(n², p·d), or min(n², d) where W is diagonal in the channels; ``None``:
            as many as its interaction rank (the largest of a batch), so that the heads are
            W.
        time_covariance, channel_covariance : Tensor, optional
            The second moments of the inputs whose output is missed least, as in ``floor``.

        Returns
        -------
        FactorizedOperator
            alpha (..., H, n, n) and V (..., H, p, d), in the dtype of W, detached.

        Raises
        ------
        ValueError
            For H outside that range, and as ``floor``.

        Examples
        --------
        >>> W = DenseOperator(torch.randn(6, 6, 3, 3, dtype=torch.float64))
        >>> two = W.best_heads(2)
        >>> missed = (W - two).block_norms().square().sum() / W.block_norms().square().sum()
        >>> two.interaction_rank(), abs(missed.item() - W.floor(2)) < 1e-12
        (2, True)
        """
        if H is not None:
            H = check_integer("H", H, low=0, high=min(self.n**2, self._width))
        return ranks.nearest_heads(self, H, time_covariance, channel_covariance)

    @property
    def _rank_limit(self) -> int:
        """A bound on the rank by sizes alone."""
        return min(self.n**2, self._width)

    # Algebra
    def _plus(self, other: Self) -> InteractionOperator | None:
        """Return self + other as one operator, for another of the same kind; None where the kind is lost."""
        return None

    def _after(self, other: Self) -> InteractionOperator | None:
        """Return self @ other as one operator, for another of the same kind; None where the kind is lost."""
        return None

    def _transposed(self) -> InteractionOperator:
        return combined.TransposedOperator(self)

    @property
    def T(self) -> InteractionOperator:
        """The transpose, (Wᵀ)_ij = W_jiᵀ: it takes y (..., n, p) back to (..., n, d)."""
        return self._transposed()

    def __add__(self, other: InteractionOperator) -> InteractionOperator:
        if not isinstance(other, InteractionOperator):
            return NotImplemented
        self._check_partner(other, "sizes (n, p, d)", self.shape[-3:], other.shape[-3:])
        joined = self._plus(other) if type(self) is type(other) else None
        if joined is None:
            terms = [getattr(part, "terms", (part,)) for part in (self, other)]
            joined = combined.SumOperator(*terms[0], *terms[1])
        return joined

    def __radd__(self, other: int) -> Self:
        # sum([W, …]) starts from 0.
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __sub__(self, other: InteractionOperator) -> InteractionOperator:
        return self + (-other) if isinstance(other, InteractionOperator) else NotImplemented

    @overload
    def __matmul__(self, other: Tensor) -> Tensor: ...
    @overload
    def __matmul__(self, other: InteractionOperator) -> InteractionOperator: ...
    def __matmul__(self, other):
        if not isinstance(other, InteractionOperator):
            return self.apply(other)
        self._check_partner(other, "tokens and output width (n, p)", (self.n, self.d), (other.n, other.p))
        joined = self._after(other) if type(self) is type(other) else None
        return combined.ComposedOperator(self, other) if joined is None else joined

    def _check_partner(self, right: InteractionOperator, what: str, wanted: tuple, got: tuple) -> None:
        if tuple(wanted) != tuple(got):
            raise ValueError(f"right must have the {what} = {tuple(wanted)}; got {tuple(got)}")
        check_same_dtype_device(left=self._like, right=right._like)
        shared_batch(left=self.batch_shape, right=right.batch_shape)

    def __mul__(self, factor: float | Tensor) -> Self:
        if isinstance(factor, Tensor) and factor.dim() == 0 and not factor.is_complex():
            return self._scaled(factor.to(self.dtype))
        return self._scaled(float(factor)) if isinstance(factor, Real) else NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, divisor: float | Tensor) -> Self:
        one = self._like.new_ones(()) if isinstance(divisor, Tensor) else 1
        return self * (one / divisor)

    def __neg__(self) -> Self:
        return self._scaled(-1.0)

    # A NumPy number or array on the left leaves the product to the operator.
    __array_ufunc__ = None

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(*self.batch_shape, *shape, dtype=self.dtype, device=self.device)


# The kinds that the algebra and the best heads make are built on the class above.
from ssmbook.operators import combined, ranks  # noqa: E402
