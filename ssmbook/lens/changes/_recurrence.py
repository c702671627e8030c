"""Attention as a recurrence: heads with a few states each, which fade, and gates that look at the content."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ssmbook._checks import check_integer
from ssmbook.lens.changes._change import Change
from ssmbook.maps.attention import per_head
from ssmbook.maps.key_side import LinearAttention, outer, safe_reciprocal
from ssmbook.scans import diagonal_scan


class Recurrence(LinearAttention):
    """Causal heads with N states each, which fade, and content gates: a map of the book, with ``step``.

    alpha_ij = sum_s exp(<q_s, x_i>) a_s^(i - j) exp(<k_s, x_j> + b_s), s = 1 ... N, divided by its row
    sum, so it also keeps that sum of each state. The weights ``W_Q``, ``W_K`` (H, N, d), ``b_K`` and
    ``log_rate`` (H, N), a = exp(-exp(log_rate)), are trained beside ``W_V`` and ``W_O``. Initially no gate
    looks at the content, and the rates are from 1/2 down to 1/64.

    Parameters
    ----------
    d, p : int
        Widths of the tokens that come in and go out.
    H : int
        The number of heads.
    head_width : int
        The width of the values of each head.
    N : int
        The states of each head.
    generator : torch.Generator, optional
        Draws the initial value maps.
    dtype : torch.dtype, optional
        Of the parameters.
    device : torch.device or str, optional
        Where they are.

    Raises
    ------
    ValueError
        If a size is not positive.
    """

    def __init__(
        self,
        d: int,
        p: int,
        *,
        H: int,
        head_width: int,
        N: int,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        new = {"generator": generator, "dtype": dtype, "device": device}
        super().__init__(d, p, H=H, head_width=head_width, normalized=True, queries=False, **new)
        self.key_width = check_integer("N", N, low=1)
        like = self.W_V.detach()
        self.W_Q, self.W_K = (nn.Parameter(like.new_zeros(H, N, d)) for _ in "QK")
        self.b_K = nn.Parameter(like.new_zeros(H, N))
        rates = torch.logspace(-1, -6, N, base=2.0).log().to(like)
        self.log_rate = nn.Parameter(rates.expand(H, N).clone())

    def _read_write(self, x: Tensor):
        q = per_head(self.W_Q, x).exp()
        k = (per_head(self.W_K, x) + self.b_K[:, None]).exp()
        return q, k, -self.log_rate.exp()[:, None].expand(q.shape)

    def _coefficients(self, x: Tensor) -> Tensor:
        q, k, _ = self._read_write(x)
        place = torch.arange(x.shape[-2], dtype=x.dtype, device=x.device)
        lag = place[:, None] - place
        alpha = 0
        for s in range(self.key_width):  # the decays are the same at all tokens
            decay = (-self.log_rate[:, s, None, None].exp() * lag.clamp(min=0)).exp().tril()
            alpha = alpha + decay * q[..., s, None] * k[..., None, :, s]
        return alpha * safe_reciprocal(alpha.sum(-1, keepdim=True))

    def _mix(self, x: Tensor, v: Tensor) -> Tensor:
        q, k, log_a = self._read_write(x)
        written = outer(k, self._with_ones(v))
        rates = log_a[..., None].expand(written.shape)
        memory, _ = diagonal_scan(rates.flatten(-2), written.flatten(-2), log=True)
        return self._read(q, memory.view(written.shape))

    @property
    def change(self) -> Change:
        """What ``replace`` puts in: coefficients made from the tokens alone, and these value maps."""
        name, cost = f"recurrences with {self.key_width} states", {"states": self.key_width}

        def coefficients(x: Tensor) -> Tensor:
            return self.coefficients(x.to(self.W_K.dtype)).to(x)

        return Change(name, coefficients, self.W_O, None, cost, self.W_V, of_tokens=True)
