"""mLSTM, the matrix memory of xLSTM."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from ssmbook.maps.attention import per_head
from ssmbook.maps.base import New, Unpack, random_parameter
from ssmbook.maps.linear_attention import KeySideMap, LinearAttention


class MLSTM(LinearAttention):
    """mLSTM: linear attention that forgets, with exponential input gates and a normalizer of its own.

    alpha_ij = s_ij / max(|sum_j s_ij|, 1) with s_ij = f_{j+1} ... f_i exp(w_I x_j + b_I)
    <q_i, k_j> / sqrt(head_width) for j <= i and f_i = sigmoid(w_F x_i + b_F). Parameters
    ``W_Q``, ``W_K`` (H, head_width, d), ``W_I``, ``W_F`` (H, 1, d), ``b_I``, ``b_F`` (H,),
    ``W_V``, ``W_O``. The core of the layer, without head norm, output gate and the running
    maximum that keeps the exponentials in range and changes no output (`beck2024xlstm`).

    Parameters
    ----------
    d, p : int
        Widths in and out.
    H : int
        Heads.
    head_width : int
        Width of queries, keys and values.
    generator, dtype, device : optional
        Of the random parameters, as in ``torch.randn``.

    Examples
    --------
    >>> layer = MLSTM(4, 4, H=2, head_width=3)
    >>> layer.interaction(torch.randn(8, 4)).interaction_rank()
    2
    """

    def __init__(self, d: int, p: int, *, H: int, head_width: int, **new: Unpack[New]):
        super().__init__(d, p, H=H, head_width=head_width, normalized=True, **new)
        self.W_I, self.W_F = (random_parameter(H, 1, d, fan_in=d, **new) for _ in "IF")
        self.b_I = nn.Parameter(self.W_I.new_zeros(H))
        self.b_F = nn.Parameter(self.W_F.new_full((H,), 3.0))  # at the start f is about 0.95

    def _read_write(self, x: Tensor):
        q, k = per_head(self.W_Q, x) / self.head_width**0.5, per_head(self.W_K, x)
        enter = torch.exp(per_head(self.W_I, x) + self.b_I[:, None, None])
        return q, enter * k, functional.logsigmoid(per_head(self.W_F, x) + self.b_F[:, None, None])

    def _coefficients(self, x: Tensor) -> Tensor:
        alpha = KeySideMap._coefficients(self, x)
        return alpha / alpha.sum(-1, keepdim=True).abs().clamp(min=1)

    def _normalize(self, read: Tensor) -> Tensor:
        return read[..., :-1] / read[..., -1:].abs().clamp(min=1)


ZOO = {"mLSTM": lambda of, new: MLSTM(**of.head, **new)}
