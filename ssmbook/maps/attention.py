"""Heads: scalar coefficients times value maps; softmax attention, the most common of them."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional

from ssmbook._checks import check_integer, check_same_dtype_device, check_shape, check_tensors
from ssmbook.maps.base import New, SequenceMap, Unpack, random_parameter
from ssmbook.numerics import half_to_float32, sink_softmax, without_autocast
from ssmbook.operators import FactorizedOperator
from ssmbook.scans.fast.operation import active_transform

PER_HEAD = "... H n width"


class HeadMap(SequenceMap):
    """A sum of heads, W_ij(X) = sum_h alpha^h_ij(X) V_h with V_h = W_O[h] W_V[h] of rank <= head_width.

    Subclasses write ``_coefficients``. Parameters ``W_V``, ``W_Q``, ``W_K`` (H, head_width,
    d), the last two where ``_queries``, and ``W_O`` (H, p, head_width).

    Parameters
    ----------
    d, p : int
        Widths in and out.
    H : int
        Heads.
    head_width : int
        Width of queries, keys and values.
    pairs : int, default 1
        That many keys and values, one below another.
    generator, dtype, device : optional
        Of the random parameters, as in ``torch.randn``.
    """

    family = "key side"
    # Whether queries and keys are made from the tokens by a matrix for each head.
    _queries = True

    def __init__(self, d: int, p: int, *, H: int, head_width: int, pairs: int = 1, **new: Unpack[New]):
        super().__init__(d, p)
        self.H = check_integer("H", H, low=1)
        self.head_width = self.key_width = check_integer("head_width", head_width, low=1)
        self.W_V = random_parameter(H, pairs * head_width, d, fan_in=d, **new)
        self.W_O = random_parameter(H, p, head_width, fan_in=H * head_width, **new)
        if self._queries:
            self.W_Q = random_parameter(H, head_width, d, fan_in=d, **new)
            self.W_K = random_parameter(H, pairs * head_width, d, fan_in=d, **new)

    @abstractmethod
    def _coefficients(self, x: Tensor) -> Tensor: ...

    def coefficients(self, x: Tensor) -> Tensor:
        """The mixing coefficients alpha (..., H, n, n) of every head at x (..., n, d)."""
        x = self._check("x", x, "... n d")
        with without_autocast(x.device.type):
            return self._coefficients(x)

    def value_maps(self) -> Tensor:
        """The value maps V_h = W_O[h] W_V[h], (H, p, d)."""
        return self.W_O @ self.W_V

    def _project(self, mixed: Tensor) -> Tensor:
        """sum_h W_O[h] y^h for what each head mixed, y^h (..., H, n, head_width)."""
        return torch.einsum("hpr,...hnr->...np", self.W_O, mixed)

    def _interaction(self, x: Tensor) -> FactorizedOperator:
        return FactorizedOperator(self._coefficients(x), self.value_maps())


def rotate(a: Tensor, angle: Tensor) -> Tensor:
    """Turn each pair of neighboring entries, (..., 2 m), by its angle (..., m)."""
    first, second = a.unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = angle.cos(), angle.sin()
    return torch.stack((cos * first - sin * second, sin * first + cos * second), -1).flatten(-2)


def per_head(weight: Tensor, x: Tensor) -> Tensor:
    """Apply one matrix per head to every token: weight (H, c, d), x (..., n, d) -> (..., H, n, c)."""
    # Under autocast the product is in half precision. In memory it has no gaps, because
    # torch.compile mistakes the strides of the gradients of softplus and elu (pytorch issue
    # 120035).
    return torch.einsum("hcd,...nd->...hnc", weight, x).to(x.dtype).contiguous()


class SoftmaxMap(HeadMap):
    """Heads whose coefficients are a softmax; subclasses write ``_scores``, the arguments of the softmax."""

    @abstractmethod
    def _scores(self, x: Tensor) -> dict: ...

    def _values(self, x: Tensor) -> Tensor:
        return per_head(self.W_V, x)

    def _coefficients(self, x: Tensor) -> Tensor:
        return softmax_coefficients(**self._scores(x)).to(x.dtype)

    def _forward(self, x: Tensor) -> Tensor:
        return self._project(softmax_mix(self._values(x), **self._scores(x)))


class Attention(SoftmaxMap):
    """Multi-head softmax attention: W_ij(X) = sum_h alpha^h_ij(X) V_h with V_h = W_O[h] W_V[h].

    Parameters ``W_Q``, ``W_K`` (H, head_width, d), ``W_V``, ``W_O`` and, if given,
    ``bias``. This is the core of the layer, without projection biases, dropout, rotary
    embedding, norms (`vaswani2017attention`).

    Parameters
    ----------
    d, p : int
        Widths in and out.
    H : int
        Heads.
    head_width : int
        Width of queries, keys and values.
    causal : bool, default True
        Token i sees j <= i only.
    bias : Tensor (H, L), optional
        Initial value of a learned logit for each distance |i - j| < L, for at most L
        tokens.
    alibi : bool, default False
        A fixed linear penalty -2^(-8 h / H) |i - j| on the logits of head h = 1 ... H
        (`press2022train`).
    sink : bool, default False
        One more key with logit 0 and value 0.
    generator, dtype, device : optional
        Of the random parameters, as in ``torch.randn``.

    Raises
    ------
    ValueError
        For a bias of other heads.

    Examples
    --------
    >>> layer, x = Attention(4, 4, H=2, head_width=3), torch.randn(8, 4)
    >>> W = layer.interaction(x)
    >>> torch.allclose(layer(x), W @ x, atol=1e-5), W.interaction_rank()
    (True, 2)
    """

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
        **new: Unpack[New],
    ):
        super().__init__(d, p, H=H, head_width=head_width, **new)
        self.causal, self.alibi, self.sink = causal, alibi, sink
        self.bias = None
        if bias is not None:
            check_shape("bias", bias, "H L", {"H": H})
            self.bias = nn.Parameter(bias.clone())

    @classmethod
    def from_transformers(cls, mixer: nn.Module) -> Attention:
        """The heads of a BERT or GPT-2 attention of transformers, with its weights, for tokens (x, 1).

        mixer: a ``BertAttention``, a ``GPT2Attention``, or any module with their parts. The
        last channel of a token, always 1, carries the biases of queries, keys and values,
        so d is one more than the model's. The output bias and dropout are left out. Returns
        a new map in the dtype and on the device of the mixer. Raises ``TypeError`` for
        other modules, ``ValueError`` unless logits are divided by sqrt(head_width) and by
        nothing else.
        """
        if hasattr(mixer, "c_attn") and hasattr(mixer, "c_proj"):  # GPT-2
            if not mixer.scale_attn_weights or mixer.scale_attn_by_inverse_layer_idx:
                raise ValueError("mixer must divide its logits by sqrt(head_width) and nothing else")
            rows = torch.cat([mixer.c_attn.weight.mT, mixer.c_attn.bias[:, None]], 1).chunk(3)
            H, out, causal = mixer.num_heads, mixer.c_proj.weight.mT, True
        elif hasattr(mixer, "self") and hasattr(mixer, "output"):  # BERT
            parts = (mixer.self.query, mixer.self.key, mixer.self.value)
            rows = [torch.cat([part.weight, part.bias[:, None]], 1) for part in parts]
            H, out, causal = mixer.self.num_attention_heads, mixer.output.dense.weight, False
        else:
            raise TypeError(f"mixer must be an attention of BERT or GPT-2; got {type(mixer).__name__}")
        width, like = len(rows[0]) // H, {"dtype": out.dtype, "device": out.device}
        core = cls(rows[0].shape[1], len(out), H=H, head_width=width, causal=causal, **like)
        W_Q, W_K, W_V = (row.unflatten(0, (H, width)) for row in rows)
        W_O = out.unflatten(1, (H, width)).transpose(0, 1)
        core.load_state_dict({"W_Q": W_Q, "W_K": W_K, "W_V": W_V, "W_O": W_O})
        return core

    def relative_bias(self, n: int) -> Tensor | None:
        """The additive logits (H, n, n) for n tokens: learned bias plus ALiBi, or None if there is neither.

        Raises ``ValueError`` for more tokens than the learned bias has distances.

        >>> bias = Attention(4, 4, H=8, head_width=2, alibi=True).relative_bias(3)
        >>> bias[0].tolist()  # what the first head adds to its logits: its slope is 1/2
        [[0.0, -0.5, -1.0], [-0.5, 0.0, -0.5], [-1.0, -0.5, 0.0]]
        """
        if self.bias is None and not self.alibi:
            return None
        position = torch.arange(n, device=self.W_Q.device)
        distance = (position[:, None] - position).abs()
        parts = []
        if self.bias is not None:
            if n > self.bias.shape[-1]:
                raise ValueError(f"x must have at most {self.bias.shape[-1]} tokens, as bias has; got {n}")
            parts.append(self.bias[:, distance])
        if self.alibi:
            h = torch.arange(1, self.H + 1, dtype=self.W_Q.dtype, device=self.W_Q.device)
            parts.append(-torch.exp2(-8 * h / self.H)[:, None, None] * distance)
        return sum(parts)

    def _scores(self, x: Tensor) -> dict:
        made = {"q": per_head(self.W_Q, x), "k": per_head(self.W_K, x)}
        return made | {"causal": self.causal, "bias": self.relative_bias(x.shape[-2]), "sink": self.sink}


class LatentAttention(SoftmaxMap):
    """Multi-head latent attention: softmax attention whose keys and values are made from one short latent.

    Token j leaves c_j = W_D x_j and one key R_j W_R x_j for all heads, turned by its
    position. Head h scores them by <q_i, (W_K[h] c_j, R_j W_R x_j)> / sqrt(head_width +
    rope), with q_i = W_Q[h] x_i, of which R_i turns the last ``rope`` entries; V_h = W_O[h]
    W_V[h] W_D. Parameters ``W_D`` (latent, d), ``W_R`` (rope, d), ``W_Q`` (H, head_width +
    rope, d), ``W_K``, ``W_V`` (H, head_width, latent), ``W_O``. This is the core of the
    layer, without norms and the low rank of its queries (`deepseek2024v2`).

    Parameters
    ----------
    d, p : int
        Widths in and out.
    H : int
        Heads.
    head_width : int
        Width of queries, keys and values.
    latent : int
        Width of c.
    rope : int, default 2
        An even number of turned entries, with the frequencies 10000^(-2 m / rope).
    generator, dtype, device : optional
        Of the random parameters, as in ``torch.randn``.

    Raises
    ------
    ValueError
        If rope is odd.

    Examples
    --------
    >>> layer = LatentAttention(8, 8, H=4, head_width=3, latent=5)
    >>> layer.interaction(torch.randn(9, 8)).interaction_rank()  # a smaller cache, as many matrices
    4
    """

    _queries = False

    def __init__(
        self, d: int, p: int, *, H: int, head_width: int, latent: int, rope: int = 2, **new: Unpack[New]
    ):
        if check_integer("rope", rope, low=0) % 2:
            raise ValueError(f"rope must be even, because channels rotate in pairs; got {rope}")
        super().__init__(d, p, H=H, head_width=head_width, **new)
        self.latent, self.rope = check_integer("latent", latent, low=1), rope
        self.W_D = random_parameter(latent, d, fan_in=d, **new)
        self.W_R = random_parameter(rope, d, fan_in=d, **new)
        self.W_Q = random_parameter(H, head_width + rope, d, fan_in=d, **new)
        self.W_K, self.W_V = (random_parameter(H, head_width, latent, fan_in=latent, **new) for _ in "KV")

    def value_maps(self) -> Tensor:
        """The value maps V_h = W_O[h] W_V[h] W_D, (H, p, d): their rows lie in the ``latent`` rows of W_D."""
        return self.W_O @ self.W_V @ self.W_D

    def _values(self, x: Tensor) -> Tensor:
        return per_head(self.W_V, x @ self.W_D.mT)

    def _scores(self, x: Tensor) -> dict:
        like = {"dtype": half_to_float32(x[:0]).dtype, "device": x.device}  # bfloat16 counts to 256
        position, m = torch.arange(x.shape[-2], **like)[:, None], torch.arange(self.rope // 2, **like)
        angle = position * 10000 ** (-2 * m / max(1, self.rope))
        q, turned = per_head(self.W_Q, x).split([self.head_width, self.rope], -1)
        k = per_head(self.W_K, x @ self.W_D.mT)
        shared = rotate(x @ self.W_R.mT, angle)[..., None, :, :].expand(*k.shape[:-1], -1)
        return {"q": torch.cat([q, rotate(turned, angle)], -1), "k": torch.cat([k, shared], -1)}


def softmax_coefficients(
    q: Tensor, k: Tensor, *, causal: bool = True, bias: Tensor | None = None, sink: bool = False
) -> Tensor:
    """Softmax attention: alpha_ij = exp(s_ij) / sum_l exp(s_il), s_ij = <q_i, k_j> / sqrt(width) + bias.

    Parameters
    ----------
    q, k : Tensor (..., H, n, width)
        Queries and keys.
    causal : bool, default True
        Token i sees j <= i only.
    bias : Tensor (H, n, n) or (..., H, n, n), optional
        Added to the logits.
    sink : bool, default False
        One more key with logit 0 and value 0, so that rows sum to less than 1
        (`miller2023attention`).

    Returns
    -------
    Tensor (..., H, n, n)
        Exactly 0 at hidden pairs, also where a bias of minus infinity hides a whole row.

    Raises
    ------
    TypeError, ValueError
        For different shapes, dtypes or devices.

    Examples
    --------
    >>> q = k = torch.zeros(1, 2, 1)
    >>> softmax_coefficients(q, k).tolist()
    [[[1.0, 0.0], [0.5, 0.5]]]
    >>> softmax_coefficients(q, k, sink=True)[0]  # the sink takes a share of every row
    tensor([[0.5000, 0.0000],
            [0.3333, 0.3333]])
    """
    size = check_tensors(q=(q, PER_HEAD), k=(k, PER_HEAD), one_batch=True)
    logits = q @ k.mT / size["width"] ** 0.5
    if bias is not None:
        check_shape("bias", bias, "... H n n", size)
        check_same_dtype_device(q=q, bias=bias)
        logits = logits + bias
    if causal:
        future = torch.ones(size["n"], size["n"], dtype=torch.bool, device=q.device).triu(1)
        logits = logits.masked_fill(future, float("-inf"))
    if sink or bias is None:
        return sink_softmax(logits, 0.0 if sink else None)
    return sink_softmax(logits, torch.finfo(logits.dtype).min)  # takes weight only where bias hides every key


LONG = 256  # tokens from which the n^2 coefficients of a head are not kept where only their sums are wanted


def softmax_mix(
    v: Tensor, *, q: Tensor, k: Tensor, causal: bool = True, bias: Tensor | None = None, sink: bool = False
) -> Tensor:
    """sum_j alpha_ij v_j for values v (..., H, n, width) and the coefficients of ``softmax_coefficients``.

    For long sequences by PyTorch's ``scaled_dot_product_attention``, whose memory grows like n.
    A bias has n^2 entries anyway, and has its gradient from the coefficients alone.
    """
    whole = v.shape[-2] < LONG or v.dtype != q.dtype or bias is not None
    if whole or active_transform(v, q, k):
        return softmax_coefficients(q, k, causal=causal, bias=bias, sink=sink).to(v.dtype) @ v
    if torch.is_grad_enabled() and any(t.requires_grad for t in (v, q, k)):
        return _Mixed.apply(v, q, k, causal, sink)
    return _attend(v, q, k, causal, sink)


def _attend(v: Tensor, q: Tensor, k: Tensor, causal: bool, sink: bool) -> Tensor:
    n, width = v.shape[-2:]
    # The kernels want one width, and one batch dimension. A sink is a first token of zeros,
    # whose own output is dropped.
    v = functional.pad(v, (0, q.shape[-1] - width))
    given = (
        functional.pad(a, (0, 0, int(sink), 0)).reshape(-1, *a.shape[-3:-2], n + sink, a.shape[-1])
        for a in (q, k, v)
    )
    y = functional.scaled_dot_product_attention(*given, is_causal=causal)
    return y[..., -n:, :width].reshape(*v.shape[:-1], width)


class _Mixed(torch.autograd.Function):
    """`_attend`, whose kernels cannot be differentiated twice: then the coefficients are."""

    @staticmethod
    def forward(ctx, *given):
        *tensors, ctx.causal, ctx.sink = given
        ctx.save_for_backward(*tensors)
        with torch.enable_grad():
            ctx.leaves = [t.detach().requires_grad_() for t in tensors]
            ctx.y = _attend(*ctx.leaves, ctx.causal, ctx.sink)
        return ctx.y.detach()

    @staticmethod
    def backward(ctx, d_y):
        if not torch.is_grad_enabled():
            return *torch.autograd.grad(ctx.y, ctx.leaves, d_y, retain_graph=True), None, None

        def mix(v, q, k):
            return (softmax_coefficients(q, k, causal=ctx.causal, sink=ctx.sink) @ v).to(d_y.dtype)

        return *torch.func.vjp(mix, *ctx.saved_tensors)[1](d_y), None, None


ZOO = {
    "attention": lambda of, new: Attention(**of.head, **new),
    "attention, not causal": lambda of, new: Attention(causal=False, **of.head, **new),
    "attention, relative bias": lambda of, new: Attention(
        bias=torch.randn(of.head["H"], of.n, **new), **of.head, **new
    ),
    "attention, ALiBi": lambda of, new: Attention(alibi=True, **of.head, **new),
    "attention, sink": lambda of, new: Attention(sink=True, **of.head, **new),
    "latent attention": lambda of, new: LatentAttention(latent=of.d - 1, **of.head, **new),
}
