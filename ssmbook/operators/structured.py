"""Kinds of operators: given block by block, time-invariant, pointwise, or diagonal in the channels."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ssmbook._checks import check_finite, check_integer, check_shape
from ssmbook.numerics import norms, toeplitz
from ssmbook.operators.base import InteractionOperator
from ssmbook.operators.ranks import heads_of_span

# Above this many (token, lag) pairs the FFT takes over from the direct sum.
_DIRECT_PAIRS = 2**16
# The direct sum copies its windows of x in parts of at most this many entries.
_WINDOW_ENTRIES = 2**22
# Wide: channels from which rows are reduced by their Gram matrix. Panel: that many of its
# columns at a time.
_WIDE, _PANEL = 512, 384


class DenseOperator(InteractionOperator):
    """An interaction operator given block by block.

    ``W`` (..., n, n, p, d), ``W[..., i, j, :, :]`` being W_ij; it is kept, not copied.

    >>> W = DenseOperator(torch.ones(3, 3, 2, 2))  # every token hears the sum of all
    >>> W.apply(torch.ones(3, 2)).tolist(), W.interaction_rank()
    ([[6.0, 6.0], [6.0, 6.0], [6.0, 6.0]], 1)
    """

    def __init__(self, W: Tensor) -> None:
        sizes = check_shape("W", W, "... n n p d")
        super().__init__(W, W.shape[:-4], sizes["n"], sizes["p"], sizes["d"])
        self.W = W

    def _apply(self, x):
        return torch.einsum("...ijpd,...jd->...ip", self.W, x)

    def _row(self, i):
        return self.W[..., i, :, :, :]

    def _column(self, j):
        return self.W[..., :, j, :, :]

    def to_dense(self) -> Tensor:
        return self.W.clone()

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


class LagOperator(InteractionOperator):
    """A causal convolution, W_ij = M_{i−j} for 0 ≤ i−j < L and zero elsewhere.

    ``M`` (..., L, p, d): lag operators, ``M[..., tau, :, :]`` being M_tau; ``n``: the
    number of tokens, n ≥ L (by default L). Nothing of size n² is built unless asked for:
    the rank comes from the L rows √(n−tau) vec M_tau, since M_tau occurs n−tau times;
    ``apply`` sums directly where that is cheap and uses the FFT beyond. The FFT spreads
    rounding errors to every token, even to earlier ones.

    >>> change = LagOperator(torch.tensor([1.0, -1.0]).reshape(2, 1, 1), n=5)  # y_i = x_i - x_(i-1)
    >>> change.apply(torch.arange(5.0)[:, None]).flatten().tolist()
    [0.0, 1.0, 1.0, 1.0, 1.0]
    """

    def __init__(self, M: Tensor, n: int | None = None) -> None:
        sizes = check_shape("M", M, "... L p d")
        n = sizes["L"] if n is None else check_integer("n", n, low=0)
        if n < sizes["L"]:
            raise ValueError(f"n must be at least L = {sizes['L']}, the number of lags in M; got {n}")
        super().__init__(M, M.shape[:-3], n, sizes["p"], sizes["d"])
        self.M, self.L = M, sizes["L"]

    def _apply(self, x):
        if self.L == 0:
            return x.new_zeros(*torch.broadcast_shapes(self.batch_shape, x.shape[:-2]), self.n, self.p)
        by_fft = self.n * self.L > _DIRECT_PAIRS and self.L > 64
        return self._apply_fft(x) if by_fft else self._apply_direct(x)

    def _apply_fft(self, x):
        size = 1 << (self.n + self.L - 2).bit_length()
        M_hat, x_hat = torch.fft.rfft(self.M, size, dim=-3), torch.fft.rfft(x, size, dim=-2)
        y_hat = torch.einsum("...fpd,...fd->...fp", M_hat, x_hat)
        return torch.fft.irfft(y_hat, size, dim=-2)[..., : self.n, :]

    def _apply_direct(self, x):
        padded = torch.nn.functional.pad(x, (0, 0, self.L - 1, 0))
        windows = padded.unfold(-2, self.L, 1)
        taps = self.M.flip(-3)
        tokens = _WINDOW_ENTRIES * max(1, self.n) // max(1, windows.numel())
        parts = windows.split(max(1, tokens), dim=-3)
        return torch.cat([torch.einsum("...idl,...lpd->...ip", part, taps) for part in parts], dim=-2)

    def _row(self, i):
        seen = self.M[..., : i + 1, :, :].flip(-3)
        after = self.n - 1 - i
        return torch.nn.functional.pad(seen, (0, 0, 0, 0, self.n - after - seen.shape[-3], after))

    def _column(self, j):
        seen = self.M[..., : self.n - j, :, :]
        return torch.nn.functional.pad(seen, (0, 0, 0, 0, j, self.n - j - seen.shape[-3]))

    def to_dense(self) -> Tensor:
        return toeplitz(self.M, self.n, dim=-3)

    def block_norms(self) -> Tensor:
        return toeplitz(norms(self.M.flatten(-2)), self.n)

    def _coefficients(self, V):
        return toeplitz(torch.einsum("...lpd,...hpd->...hl", self.M, V), self.n)

    def _span_blocks(self):
        tau = torch.arange(self.L, dtype=torch.float64, device=self.device)
        rows = self.M.to(torch.float64).reshape(*self.batch_shape, self.L, self.p * self.d)
        yield (self.n - tau).sqrt()[:, None] * rows

    def _as_heads(self, most):
        return heads_of_span(self, most)

    @property
    def _rank_limit(self) -> int:
        return min(self.L, self._width)

    def _scaled(self, factor):
        return LagOperator(factor * self.M, self.n)

    def _mapped(self, change):
        return LagOperator(change(self.M), self.n)

    def _plus(self, other):
        L = max(self.L, other.L)
        return LagOperator(_padded(self.M, L) + _padded(other.M, L), self.n)


def _padded(M: Tensor, L: int) -> Tensor:
    return torch.nn.functional.pad(M, (0, 0, 0, 0, 0, L - M.shape[-3]))


class PointwiseOperator(InteractionOperator):
    """A block-diagonal operator, W_ii = W_i and zero elsewhere: what a feed-forward layer does.

    ``W`` (..., n, p, d).

    >>> W = PointwiseOperator(torch.arange(3.0).reshape(3, 1, 1))  # y_i = i x_i
    >>> W.apply(torch.ones(3, 1)).flatten().tolist(), W.past_future_rank()
    ([0.0, 1.0, 2.0], 0)
    """

    def __init__(self, W: Tensor) -> None:
        sizes = check_shape("W", W, "... n p d")
        super().__init__(W, W.shape[:-3], sizes["n"], sizes["p"], sizes["d"])
        self.W = W

    def _apply(self, x):
        return torch.einsum("...ipd,...id->...ip", self.W, x)

    def _row(self, i):
        return torch.nn.functional.pad(self.W[..., i : i + 1, :, :], (0, 0, 0, 0, i, self.n - 1 - i))

    def _column(self, j):
        return self._row(j)

    def to_dense(self) -> Tensor:
        return torch.diag_embed(self.W.movedim(-3, -1)).movedim((-2, -1), (-4, -3))

    def block_norms(self) -> Tensor:
        return torch.diag_embed(norms(self.W.flatten(-2)))

    def _span_blocks(self):
        yield self.W.reshape(*self.batch_shape, self.n, self.p * self.d)

    def _as_heads(self, most):
        return heads_of_span(self, most)

    def _coefficients(self, V):
        return torch.diag_embed(torch.einsum("...ipd,...hpd->...hi", self.W, V))

    @property
    def _stored(self) -> bool:
        return self.p == self.d == 1  # a gate is stored; wider blocks are products

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


class DiagonalOperator(InteractionOperator):
    """A scalar operator for each channel, W_ij = diag(w¹_ij, …, w^d_ij): what S4D and Mamba's core do.

    ``channels``: an operator of any kind with p = d = 1 and batch shape (..., d), its last
    batch dimension being the channels; for given coefficients alpha (..., d, n, n) that is
    ``DenseOperator(alpha[..., None, None])``. Ranks and spectra come from d numbers for
    each pair of tokens.

    >>> decay, lag = torch.tensor([0.9, 0.5]), torch.arange(6)
    >>> W = DiagonalOperator(LagOperator((decay[:, None] ** lag)[..., None, None]))
    >>> W, W.interaction_rank()  # each channel forgets at its own rate: a head for each
    (DiagonalOperator(batch_shape=(), n=6, p=2, d=2, dtype=torch.float32), 2)
    """

    def __init__(self, channels: InteractionOperator) -> None:
        if (channels.p, channels.d) != (1, 1) or not channels.batch_shape:
            raise ValueError(f"channels must have p = d = 1 and batch shape (..., d); got {channels}")
        *batch, d = channels.batch_shape
        super().__init__(channels._like, batch, channels.n, d, d)
        self.channels, self._width = channels, d

    @property
    def _stored(self) -> bool:
        return self.channels._stored

    def _apply(self, x):
        return self.channels._apply(x.mT[..., None])[..., 0].mT

    def _values(self, blocks: Tensor) -> Tensor:
        """Blocks (..., d, n, 1, 1) of the channels as numbers (..., n, d)."""
        return blocks[..., 0, 0].mT

    def _row(self, i):
        return torch.diag_embed(self._values(self.channels._row(i)))

    def _rows(self) -> Iterator[Tensor]:
        for row in self.channels._rows():
            yield torch.diag_embed(self._values(row))

    def _column(self, j):
        return torch.diag_embed(self._values(self.channels._column(j)))

    def to_dense(self) -> Tensor:
        return torch.diag_embed(self.channels.to_dense()[..., 0, 0].movedim(-3, -1))

    def block_norms(self) -> Tensor:
        rows = [norms(self._values(row)) for row in self.channels.rows()]
        return torch.stack(rows, dim=-2) if rows else self._zeros(0, 0)

    def _coefficients(self, V):
        diagonal = V.diagonal(0, -2, -1)
        rows = [
            torch.einsum("...jc,...hc->...hj", self._values(row), diagonal) for row in self.channels.rows()
        ]
        return torch.stack(rows, dim=-2) if rows else super()._coefficients(V)

    def _as_blocks(self, rows):
        return torch.diag_embed(rows)

    def _span_blocks(self):
        if self.channels._shared_rows:
            for block in self.channels._span_blocks():
                yield block.expand(*self.channels.batch_shape, *block.shape[-2:])[..., 0].mT
        else:
            for row in self.channels.rows():
                yield self._values(row)

    def _as_heads(self, most):
        return heads_of_span(self, most)

    def _span_rows(self) -> Tensor:
        if self.d >= _WIDE and not self.batch_shape:
            # The Cholesky factor of their Gram matrix, at half the cost of QR, unless that
            # is nearly singular: then its rounding would hide singular values.
            gram = torch.zeros(self.d, self.d, dtype=torch.float64, device=self.device)
            for block in self._span_blocks():
                check_finite("W", block)
                for left in range(0, self.d, _PANEL):  # the lower half is all that is read
                    columns = block[:, left:].to(torch.float64)
                    gram[left:, left : left + _PANEL] += columns.mT @ columns[:, :_PANEL]
            values = torch.linalg.eigvalsh(gram)
            if values[0] > 1e-10 * values[-1]:
                return torch.linalg.cholesky(gram).mT
        return super()._span_rows()

    def _row_vectors(self, i):
        return self._values(self.channels.row(i))

    def _column_vectors(self, j):
        return self._values(self.channels.column(j))

    def _past_future_blocks(self):
        # The block of a cut is block diagonal over the channels: their ranks add.
        for block in self.channels._past_future_blocks():
            yield block[..., 0, :, :]

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
