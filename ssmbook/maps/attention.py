"""Softmax attention: H heads, each a convex (with a sink: sub-convex) mixture times one value map."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ssmbook._checks import check_finite, check_flags, check_shape
from ssmbook.maps.base import spelled_out
from ssmbook.maps.coefficients import alibi_bias, distances, softmax_coefficients
from ssmbook.maps.key_side import HeadMap, per_head


class Attention(HeadMap):
    """Multi-head softmax attention: W_ij(X) = sum_h alpha^h_ij(X) V_h with V_h = W_O[h] W_V[h].

    d, p: widths in and out; H heads; head_width: width of queries, keys and values, so rank V_h <=
    head_width; causal: only j <= i is seen; bias: optional start (H, L) of a learned additive logit per
    distance |i - j| < L (longer sequences are refused); alibi: fixed linear penalty (``alibi_bias``); sink:
    one more key with logit 0 and value 0. Parameters ``W_Q``, ``W_K`` (H, head_width, d), ``W_V``, ``W_O``,
    perhaps ``bias``.
    Left out (core): all projection biases, dropout, rotary embedding, norms (`vaswani2017attention`).
    Raises ``ValueError``/``TypeError`` for bad sizes or a bias of other shape. Introduced in *zoo*.

    >>> layer = Attention(4, 4, H=2, head_width=3)
    >>> x = torch.randn(8, 4)
    >>> W = layer.interaction(x)
    >>> torch.allclose(layer(x), W @ x, atol=1e-5), W.interaction_rank()
    (True, 2)
    """

    @spelled_out
    def __init__(
        self,
        d: int,
        p: int,
        *,
        H: int,
        head_width: int,
        causal: bool = True,
        bias: torch.Tensor | None = None,
        alibi: bool = False,
        sink: bool = False,
        **new: Any,
    ):
        super().__init__(d, p, H=H, head_width=head_width, causal=causal, **new)
        check_flags(alibi=alibi, sink=sink)
        self.alibi, self.sink = alibi, sink
        self._draw_queries_and_keys(new)
        self.bias = None
        if bias is not None:
            check_shape("bias", bias, "H L", {"H": H})
            check_finite("bias", bias, meta_ok=True)
            self._check_alike("bias", bias)
            self.bias = nn.Parameter(bias.clone())

    @classmethod
    def from_transformers(cls, mixer: nn.Module) -> Attention:
        """The heads of a BERT or GPT-2 attention of transformers, with its weights, for tokens (x, 1).

        mixer: a ``BertAttention``, a ``GPT2Attention``, or any module with their parts. The last channel of a
        token, always 1, carries the biases of queries, keys and values, so d is one more than the model's;
        left out are the bias behind the heads, dropout and what stands around them. Returns a new map in
        the dtype and on the device of the mixer. Raises ``TypeError`` for anything else, ``ValueError`` for
        logits that are scaled otherwise than by 1 / sqrt(head_width). Introduced in *trained-layers*.
        """
        if hasattr(mixer, "c_attn") and hasattr(mixer, "c_proj"):
            if not mixer.scale_attn_weights or mixer.scale_attn_by_inverse_layer_idx:
                raise ValueError("mixer must divide its logits by sqrt(head_width) and nothing else")
            rows = torch.cat([mixer.c_attn.weight.mT, mixer.c_attn.bias[:, None]], 1).chunk(3)
            H, out, causal = mixer.num_heads, mixer.c_proj.weight.mT, True
        elif hasattr(getattr(mixer, "self", None), "query") and hasattr(
            getattr(mixer, "output", None), "dense"
        ):
            parts = (mixer.self.query, mixer.self.key, mixer.self.value)
            rows = [torch.cat([part.weight, part.bias[:, None]], 1) for part in parts]
            H, out, causal = mixer.self.num_attention_heads, mixer.output.dense.weight, False
        else:
            raise TypeError(
                f"mixer must have the parts of BERT's or GPT-2's attention; got {type(mixer).__name__}"
            )
        width, like = len(rows[0]) // H, {"dtype": out.dtype, "device": out.device}
        core = cls(rows[0].shape[1], len(out), H=H, head_width=width, causal=causal, **like)
        found = {
            name: row.unflatten(0, (H, width)) for name, row in zip(("W_Q", "W_K", "W_V"), rows, strict=True)
        }
        found["W_O"] = out.unflatten(1, (H, width)).transpose(0, 1)
        core.load_state_dict(found)
        return core

    def _check(self, x: Tensor) -> None:
        super()._check(x)
        if self.bias is not None and x.shape[-2] > self.bias.shape[-1]:
            raise ValueError(
                f"x must have at most {self.bias.shape[-1]} tokens, as bias has; got {x.shape[-2]}"
            )

    def relative_bias(self, n: int) -> Tensor | None:
        """The additive logits (H, n, n) for n tokens: learned bias plus ALiBi, None where there is neither.

        Introduced in *zoo*.

        >>> bias = Attention(4, 4, H=8, head_width=2, alibi=True).relative_bias(3)
        >>> (-bias[0]).tolist()  # what the first head takes off its logits: its slope is 1/2
        [[0.0, 0.5, 1.0], [0.5, 0.0, 0.5], [1.0, 0.5, 0.0]]
        """
        like = {"dtype": self.W_Q.dtype, "device": self.W_Q.device}
        bias = alibi_bias(self.H, n, **like) if self.alibi else None
        if self.bias is None:
            return bias
        learned = self.bias[:, distances(n, self.bias.device)]
        return learned if bias is None else learned + bias

    def _coefficients(self, x: Tensor) -> Tensor:
        q, k = per_head(self.W_Q, x), per_head(self.W_K, x)
        bias = self.relative_bias(x.shape[-2])
        return softmax_coefficients(q, k, causal=self.causal, bias=bias, sink=self.sink)
