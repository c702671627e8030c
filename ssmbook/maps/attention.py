"""Softmax attention: H heads, each a convex (with a sink: sub-convex) mixture times one value map."""

from __future__ import annotations

from torch import Tensor, nn

from .._checks import check_finite, check_shape
from .base import draw
from .coefficients import alibi_bias, distances, softmax_coefficients
from .key_side import HeadMap, per_head


class Attention(HeadMap):
    """Multi-head softmax attention: W_ij(X) = sum_h alpha^h_ij(X) V_h with V_h = W_O[h] W_V[h].

    d, p: widths in and out; heads: H; head_width: width of queries, keys and values, so rank V_h <=
    head_width; causal: only j <= i is seen; bias: optional start (H, L) of a learned additive logit per
    distance |i - j| < L (longer sequences are refused); alibi: fixed linear penalty (``alibi_bias``); sink:
    one more key with logit 0 and value 0. Parameters ``W_Q``, ``W_K`` (H, head_width, d), ``W_V``, ``W_O``,
    perhaps ``bias``.
    Left out (core): all projection biases, dropout, rotary embedding, norms (`vaswani2017attention`).
    Raises ``ValueError``/``TypeError`` for bad sizes or a bias of other shape. Introduced in *zoo*.
    """

    def __init__(self, d, p, *, heads, head_width, causal=True, bias=None, alibi=False, sink=False,
                 generator=None, dtype=None, device=None):  # fmt: skip
        like = {"generator": generator, "dtype": dtype, "device": device}
        super().__init__(d, p, heads=heads, head_width=head_width, causal=causal, **like)
        self.alibi, self.sink = bool(alibi), bool(sink)
        self.W_Q = draw(heads, head_width, d, fan_in=d, **like)
        self.W_K = draw(heads, head_width, d, fan_in=d, **like)
        self.bias = None
        if bias is not None:
            check_shape("bias", bias, "H L", {"H": heads})
            check_finite("bias", bias)
            self._check_alike("bias", bias)
            self.bias = nn.Parameter(bias.detach().clone())

    def _check(self, x: Tensor) -> None:
        super()._check(x)
        if self.bias is not None and x.shape[-2] > self.bias.shape[-1]:
            raise ValueError(
                f"x must have at most {self.bias.shape[-1]} tokens, as bias has; got {x.shape[-2]}"
            )

    def relative_bias(self, n: int) -> Tensor | None:
        """The additive logits (H, n, n) for n tokens: learned bias plus ALiBi, None where there is neither.

        Introduced in *zoo*.
        """
        like = {"dtype": self.W_Q.dtype, "device": self.W_Q.device}
        bias = alibi_bias(self.heads, n, **like) if self.alibi else None
        if self.bias is None:
            return bias
        learned = self.bias[:, distances(n, self.bias.device)]
        return learned if bias is None else learned + bias

    def _coefficients(self, x: Tensor) -> Tensor:
        q, k = per_head(self.W_Q, x), per_head(self.W_K, x)
        bias = self.relative_bias(x.shape[-2])
        return softmax_coefficients(q, k, causal=self.causal, bias=bias, sink=self.sink)
