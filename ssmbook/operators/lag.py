"""Time-invariant causal operators: W_ij depends on the lag i - j alone."""

from __future__ import annotations

import torch

from ssmbook._checks import check_integer, check_room, check_shape
from ssmbook.numerics import toeplitz
from ssmbook.operators.base import InteractionOperator
from ssmbook.operators.pointwise import PointwiseOperator

# Above this many (token, lag) pairs the FFT takes over from the direct sum.
_DIRECT_PAIRS = 2**16
# The direct sum copies its windows of x in parts of at most this many entries.
_WINDOW_ENTRIES = 2**22


class LagOperator(InteractionOperator):
    """A causal convolution, W_ij = M_{i−j} for 0 ≤ i−j < L and zero elsewhere.

    ``M`` (..., L, p, d): lag operators, ``M[..., tau, :, :]`` being M_tau; ``n``: the number of tokens,
    n ≥ L (by default L). Nothing of size n² is built unless asked for: the rank comes from the L rows
    √(n−tau) vec M_tau, since M_tau occurs n−tau times; ``apply`` sums directly where that is cheap and uses
    the FFT beyond (there rounding, relative to the largest entry, reaches every token, earlier ones too).
    Dtype and device are those of ``M``. Raises ``TypeError`` for a non-floating tensor or a non-integer
    ``n``, ``ValueError`` for another shape or ``n`` below L. Introduced in *interaction-operator*.

    >>> change = LagOperator(torch.tensor([1.0, -1.0]).reshape(2, 1, 1), n=5)  # y_i = x_i - x_(i-1)
    >>> change.apply(torch.arange(5.0)[:, None]).flatten().tolist()
    [0.0, 1.0, 1.0, 1.0, 1.0]
    """

    def __init__(self, M: torch.Tensor, n: int | None = None) -> None:
        sizes = check_shape("M", M, "... L p d")
        n = sizes["L"] if n is None else check_integer("n", n, low=0)
        if n < sizes["L"]:
            raise ValueError(
                f"n must be at least L = {sizes['L']}, the number of lag operators in M; got {n} "
                f"(pass M[..., :{n}, :, :] to drop the lags that cannot occur)"
            )
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

    def to_dense(self) -> torch.Tensor:
        check_room("n", *self.shape)
        return toeplitz(self.M, self.n, dim=-3)

    def block_norms(self) -> torch.Tensor:
        check_room("n", *self.batch_shape, self.n, self.n)
        return toeplitz(torch.linalg.matrix_norm(self.M), self.n)

    def _coefficients(self, V):
        products = torch.einsum("...lpd,...hpd->...hl", self.M, V)
        check_room("n", *products.shape[:-1], self.n, self.n)
        return toeplitz(products, self.n)

    def _span_blocks(self):
        tau = torch.arange(self.L, dtype=torch.float64, device=self.device)
        rows = self.M.to(torch.float64).reshape(*self.batch_shape, self.L, self.p * self.d)
        yield (self.n - tau).sqrt()[:, None] * rows

    def _colored(self, time, channel):
        # G[s, t] = sum_i Σ_t[i−s, i−t] takes the place of diag(n − tau): its root times the vec M_tau Σ_x^½.
        M = self.M if channel is None else self.M @ channel
        if time is None:
            return LagOperator(M, self.n)
        gram = _lag_gram(time @ time.mT)[: self.L, : self.L]
        values, vectors = torch.linalg.eigh(gram)
        root = values.clamp_min(0).sqrt()[:, None] * vectors.mT
        return PointwiseOperator(torch.einsum("st,...tpd->...spd", root, M))

    def _scaled(self, factor):
        return LagOperator(factor * self.M, self.n)

    def _mapped(self, change):
        return LagOperator(change(self.M), self.n)

    def _plus(self, other):
        L = max(self.L, other.L)
        return LagOperator(_padded(self.M, L) + _padded(other.M, L), self.n)

    def _after(self, other):
        # The columns of M_0, M_1, … of the inner operator are its impulse responses: the outer one maps them.
        L = min(self.n, max(0, self.L + other.L - 1)) if self.L and other.L else 0
        responses = _padded(other.M, self.n).unbind(-1)
        mapped = [self._applied(response)[..., :L, :] for response in responses]
        return LagOperator(torch.stack(mapped, dim=-1), self.n)


def _padded(M: torch.Tensor, L: int) -> torch.Tensor:
    return torch.nn.functional.pad(M, (0, 0, 0, 0, 0, L - M.shape[-3]))


def _lag_gram(covariance: torch.Tensor) -> torch.Tensor:
    """G[s, t] = sum over i ≥ max(s, t) of covariance[i − s, i − t], (n, n): running sums along diagonals."""
    gram, n = torch.zeros_like(covariance), len(covariance)
    for offset in range(n):
        sums = covariance.diagonal(offset).cumsum(0).flip(0)
        gram.diagonal(offset).copy_(sums)
        gram.diagonal(-offset).copy_(sums)
    return gram
