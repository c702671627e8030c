"""What every interaction operator is: its action on x, everything else derived once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch

from .._checks import check_alike, check_integer, check_shape
from .ranks import (
    RankReport,
    check_rtol,
    compress,
    default_rtol,
    leading_row_directions,
    numerical_rank,
    rank_report,
)
from .shapes import shared_batch


class InteractionOperator(ABC):
    """The interaction operator W(X) of a sequence map: y_i = sum_j W_ij x_j.

    ``batch_shape``, ``n``, ``p``, ``d``, ``dtype`` and ``device`` are attributes; W_ij is a (p, d) block. A
    kind must define ``_apply`` and ``_scaled``; it overrides ``row``, ``rows``, ``column``, ``to_dense``,
    ``_span_blocks``, ``block_norms`` or ``coefficients`` where its structure makes them cheaper. ``apply``,
    ``row``, ``to_dense`` and ``block_norms`` carry gradients; ranks, spectra and best heads are detached and
    computed in float64. Introduced in *interaction-operator*.
    """

    def __init__(self, standard: torch.Tensor, batch_shape, n: int, p: int, d: int) -> None:
        self._standard = standard
        self.batch_shape = torch.Size(batch_shape)
        self.n, self.p, self.d = n, p, d

    @property
    def dtype(self) -> torch.dtype:
        return self._standard.dtype

    @property
    def device(self) -> torch.device:
        return self._standard.device

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
        check_integer("i", i, low=0, high=self.n - 1)
        # W is linear in x, so the transpose that a row needs is the vector-Jacobian product of apply.
        _, pull = torch.func.vjp(lambda x: self._apply(x)[..., i, :], self._zeros(self.n, self.d))
        units = torch.eye(self.p, dtype=self.dtype, device=self.device)
        parts = [pull(unit.expand(*self.batch_shape, self.p))[0] for unit in units]
        return torch.stack(parts, dim=-2) if parts else self._zeros(self.n, 0, self.d)

    def rows(self) -> Iterator[torch.Tensor]:
        """Yield ``row(0)``, ``row(1)``, … in turn, so that only one row of blocks is held at a time."""
        for i in range(self.n):
            yield self.row(i)

    def column(self, j: int) -> torch.Tensor:
        """Return the blocks W_ij of one input token over i, shape (..., n, p, d).

        Raises ``TypeError``/``ValueError`` for an index outside 0 … n−1. Introduced in
        *interaction-operator*.
        """
        check_integer("j", j, low=0, high=self.n - 1)
        parts = []
        for b in range(self.d):
            x = self._zeros(self.n, self.d)
            x[..., j, b] = 1
            parts.append(self._apply(x))
        return torch.stack(parts, dim=-1) if parts else self._zeros(self.n, self.p, 0)

    def _span_blocks(self) -> Iterator[torch.Tensor]:
        """Yield matrices (..., r, pd) that, stacked, have the singular values and row space of all vec
        W_ij."""
        for row in self.rows():
            yield row.reshape(*self.batch_shape, self.n, self.p * self.d)

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
        return self._apply(x)

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
        """Return the Frobenius norms ‖W_ij‖ as an (..., n, n) picture. Introduced in
        *interaction-operator*."""
        rows = [torch.linalg.matrix_norm(row) for row in self.rows()]
        return torch.stack(rows, dim=-2) if rows else self._zeros(self.n, self.n)

    def coefficients(self, V: torch.Tensor) -> torch.Tensor:
        """Return the inner products ⟨W_ij, V_h⟩ with given value maps.

        ``V`` (H, p, d) or (..., H, p, d) to (..., H, n, n). For orthonormal V_h these are the mixing
        coefficients that bring sum_h alpha^h_ij V_h closest to W. Raises as ``apply``.
        Introduced in *interaction-operator*.
        """
        H = check_shape("V", V, "... H p d", {"p": self.p, "d": self.d})["H"]
        check_alike(W=self._standard, V=V)
        batch = shared_batch(W=self.batch_shape, V=V.shape[:-3])
        rows = [torch.einsum("...jpd,...hpd->...hj", row, V) for row in self.rows()]
        if not rows:
            return torch.zeros(*batch, H, self.n, self.n, dtype=self.dtype, device=self.device)
        return torch.stack(rows, dim=-2)

    @torch.no_grad()
    def span_matrix(self) -> torch.Tensor:
        """Return a small matrix with the singular values and row space of the rows vec W_ij (row-major vec).

        Shape (..., m, p·d) with m ≤ p·d, float64, detached. Raises ``ValueError`` when a block is not finite:
        its rank would mean nothing. Introduced in *interaction-operator*.
        """
        empty = torch.zeros(*self.batch_shape, 0, self.p * self.d, dtype=torch.float64, device=self.device)
        return compress(self._span_blocks(), empty)

    @torch.no_grad()
    def spectrum(self, joint: bool = False) -> torch.Tensor:
        """Return the singular values of the rows vec W_ij: float64, descending, (..., m) with m ≤ p·d.

        They are the singular values of W rearranged as a sum of Kronecker products (Van Loan–Pitsianis).
        ``joint=True``: one spectrum for the whole batch, shape (m,). Raises as ``span_matrix``.
        Introduced in *interaction-operator*.
        """
        matrix = self.span_matrix()
        if joint:
            matrix = compress([matrix.reshape(-1, matrix.shape[-1])], matrix.new_zeros(0, matrix.shape[-1]))
        return _singular_values(matrix)

    def rank_report(self, rtol: float | None = None, joint: bool = False) -> RankReport:
        """Return the interaction rank with its spectrum, tolerance and gap; arguments as
        ``interaction_rank``."""
        rtol = self._cut(rtol)
        return rank_report(self.spectrum(joint), rtol)

    def interaction_rank(self, rtol: float | None = None, joint: bool = False):
        """Return k, the dimension of the operator span of all W_ij.

        ``rtol``: singular values at most ``rtol`` times the largest count as zero; by default
        ``default_rtol`` of the operator's dtype (1e-10 in float64): rounding above that counts, so the
        difference of two nearly equal operators has the rank of its rounding. Returns an ``int``, or int64
        (...) when batched; ``joint=True`` takes one span over the whole batch and returns an ``int``. Raises
        as ``span_matrix``, and ``ValueError`` for ``rtol`` outside [0, 1). Introduced in
        *interaction-operator*.
        """
        return self.rank_report(rtol, joint).rank

    @torch.no_grad()
    def row_rank(self, i: int, rtol: float | None = None):
        """Return the dimension of span_j W_ij for one output token: ``int``, or int64 (...) when batched.

        Raises as ``interaction_rank`` and ``row``. Introduced in *zoo*.
        """
        return self._blocks_rank(self.row(i), rtol)

    @torch.no_grad()
    def column_rank(self, j: int, rtol: float | None = None):
        """Return the dimension of span_i W_ij for one input token: ``int``, or int64 (...) when batched.

        Raises as ``interaction_rank`` and ``column``. Introduced in *zoo*.
        """
        return self._blocks_rank(self.column(j), rtol)

    @torch.no_grad()
    def best_heads(self, H: int):
        """Return the H-head operator nearest to W in Frobenius norm, as a ``FactorizedOperator``.

        Truncated Kronecker SVD (Van Loan–Pitsianis; the optimum is Eckart–Young, *eckart1936approximation*):
        orthonormal V (..., H, p, d) and alpha^h_ij = ⟨W_ij, V_h⟩ (..., H, n, n), in the operator's dtype,
        detached. Raises ``ValueError`` for H below 0 or above min(n², p·d), and as ``span_matrix``.
        Introduced in *interaction-operator*.
        """
        from .factorized import FactorizedOperator

        V = self.leading_value_maps(H)
        return FactorizedOperator(self.coefficients(V), V)

    @torch.no_grad()
    def leading_value_maps(self, H: int) -> torch.Tensor:
        """Return the H orthonormal value maps (..., H, p, d) of ``best_heads(H)``; raises as that does.

        Introduced in *interaction-operator*.
        """
        check_integer("H", H, low=0, high=min(self.n**2, self.p * self.d))
        basis = leading_row_directions(self.span_matrix(), H)
        return basis.reshape(*self.batch_shape, H, self.p, self.d).to(self.dtype)

    # Algebra (imported late: algebra.py knows the kinds, and the kinds know this class)
    def __add__(self, other):
        from .algebra import add

        return add(self, other) if isinstance(other, InteractionOperator) else NotImplemented

    def __sub__(self, other):
        return self + (-1.0) * other if isinstance(other, InteractionOperator) else NotImplemented

    def __matmul__(self, other):
        from .algebra import compose

        return compose(self, other) if isinstance(other, InteractionOperator) else NotImplemented

    def __mul__(self, factor):
        if isinstance(factor, bool) or not isinstance(factor, (int, float)):
            return NotImplemented
        return self._scaled(float(factor))

    __rmul__ = __mul__

    def __neg__(self):
        return self._scaled(-1.0)

    @abstractmethod
    def _scaled(self, factor: float) -> InteractionOperator:
        """Return the operator of the same kind with every W_ij multiplied by ``factor``."""

    # Small parts
    def _zeros(self, *shape: int) -> torch.Tensor:
        return torch.zeros(*self.batch_shape, *shape, dtype=self.dtype, device=self.device)

    def _cut(self, rtol: float | None) -> float:
        rtol = default_rtol(self.dtype) if rtol is None else rtol
        check_rtol(rtol)
        return float(rtol)

    def _blocks_rank(self, blocks: torch.Tensor, rtol: float | None):
        rtol = self._cut(rtol)
        rows = blocks.reshape(*self.batch_shape, self.n, self.p * self.d)
        empty = torch.zeros_like(rows[..., :0, :], dtype=torch.float64)
        return numerical_rank(_singular_values(compress([rows], empty)), rtol)


def _singular_values(matrix: torch.Tensor) -> torch.Tensor:
    return (
        torch.linalg.svdvals(matrix)
        if matrix.numel()
        else matrix.new_zeros(*matrix.shape[:-2], min(matrix.shape[-2:]))
    )


def operator_span(W: InteractionOperator, rtol: float | None = None) -> torch.Tensor:
    """Return an orthonormal basis (k, p, d) of the operator span, one span over the whole batch.

    In the dtype and on the device of ``W``, detached, found in float64; ``rtol`` as in ``interaction_rank``.
    Raises ``TypeError`` when ``W`` is not an operator, else as ``interaction_rank``. Introduced in
    *interaction-operator*.
    """
    if not isinstance(W, InteractionOperator):
        raise TypeError(f"W must be an InteractionOperator; got {type(W).__name__}")
    width = W.p * W.d
    matrix = W.span_matrix().reshape(-1, width)
    matrix = compress([matrix], matrix.new_zeros(0, width))
    k = W.interaction_rank(rtol, joint=True)
    return leading_row_directions(matrix, k).reshape(k, W.p, W.d).to(W.dtype)
