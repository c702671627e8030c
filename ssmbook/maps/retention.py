"""Linear attention that forgets: at a fixed rate for each head (RetNet), or as the token says (GLA)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from ssmbook._checks import check_number
from ssmbook.maps.attention import per_head
from ssmbook.maps.base import New, Unpack, random_parameter
from ssmbook.maps.linear_attention import KeySideMap


class RetNet(KeySideMap):
    """Retention: alpha_ij = gamma_h^(i - j) <q_i, k_j> / sqrt(head_width) for j <= i.

    Buffer ``decay`` (H,), gamma_h = 1 - 2^(-5 - h) for h = 0, 1, ...; parameters ``W_Q``,
    ``W_K`` (H, head_width, d), ``W_V``, ``W_O``. This is the core of the layer, without
    rotation of queries and keys, group norm, output gate (`sun2023retentive`).

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
    >>> layer = RetNet(4, 4, H=2, head_width=3)
    >>> layer.interaction(torch.randn(8, 4)).interaction_rank()
    2
    """

    def __init__(self, d: int, p: int, *, H: int, head_width: int, **new: Unpack[New]):
        super().__init__(d, p, H=H, head_width=head_width, **new)
        decay = [1 - 2.0 ** (-5 - h) for h in range(H)]
        self.register_buffer("decay", self.W_V.detach().new_tensor(decay))

    def _read_write(self, x: Tensor):
        q, k = per_head(self.W_Q, x) / self.head_width**0.5, per_head(self.W_K, x)
        return q, k, self.decay.log()[:, None, None].expand(*q.shape[:-1], 1)


class GLA(KeySideMap):
    """Gated linear attention: S_i = diag(a_i) S_{i-1} + k_i v_i^T, each key channel with its own decay.

    a_i = sigmoid(W_a x_i + b_a)^(1/temperature). Parameters ``W_Q``, ``W_K``, ``W_a`` (H,
    head_width, d), ``b_a`` (H, head_width), ``W_V``, ``W_O``. This is the core of the
    layer, without low-rank gate projection, head norm, output gate (`yang2024gated`).

    Parameters
    ----------
    d, p : int
        Widths in and out.
    H : int
        Heads.
    head_width : int
        Width of queries, keys and values.
    temperature : float, default 16
        Above 0; large values slow the decay.
    generator, dtype, device : optional
        Of the random parameters, as in ``torch.randn``.

    Raises
    ------
    TypeError, ValueError
        If ``temperature`` is not above 0.

    Examples
    --------
    >>> layer = GLA(4, 4, H=2, head_width=3)
    >>> layer.interaction(torch.randn(8, 4)).interaction_rank()
    2
    """

    def __init__(
        self, d: int, p: int, *, H: int, head_width: int, temperature: float = 16.0, **new: Unpack[New]
    ):
        super().__init__(d, p, H=H, head_width=head_width, **new)
        self.temperature = check_number("temperature", temperature, 1e-9)
        self.W_a = random_parameter(H, head_width, d, fan_in=d, **new)
        self.b_a = nn.Parameter(self.W_a.new_zeros(H, head_width))

    def _read_write(self, x: Tensor):
        gate = per_head(self.W_a, x) + self.b_a[:, None, :]
        log_a = functional.logsigmoid(gate) / self.temperature
        return per_head(self.W_Q, x) / self.head_width**0.5, per_head(self.W_K, x), log_a


ZOO = {
    "RetNet": lambda of, new: RetNet(**of.head, **new),
    "GLA": lambda of, new: GLA(**of.head, **new),
}
