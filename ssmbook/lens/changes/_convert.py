"""Layers in another form, to be trained: attention as a recurrence, a recurrence as its heads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from ssmbook._checks import check_integer
from ssmbook.lens._calls import split_texts
from ssmbook.lens._layers import MixingLayer, read
from ssmbook.lens.changes._change import Change
from ssmbook.lens.changes._heads import SharedHeads, observe
from ssmbook.maps.attention import Attention, per_head
from ssmbook.maps.base import New, Unpack
from ssmbook.maps.linear_attention import LinearAttention, safe_reciprocal


class Recurrence(LinearAttention):
    """Causal heads with N states each, which fade, and content gates: a map of the book, with ``step``.

    alpha_ij = sum_s exp(<q_s, x_i>) a_s^(i - j) exp(<k_s, x_j> + b_s), s = 1 ... N, divided
    by its row sum, so it also keeps that sum of each state. The weights ``W_Q``, ``W_K``
    (H, N, d), ``b_K`` and ``log_rate`` (H, N), a = exp(-exp(log_rate)), are trained beside
    ``W_V`` and ``W_O``. Initially no gate looks at the content, and the rates are from 1/2
    down to 1/64.

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
    generator, dtype, device : optional
        Of the initial value maps, as in ``torch.randn``.

    Raises
    ------
    ValueError
        If a size is not positive.
    """

    _queries = False

    def __init__(self, d: int, p: int, *, H: int, head_width: int, N: int, **new: Unpack[New]) -> None:
        super().__init__(d, p, H=H, head_width=head_width, normalized=True, **new)
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

    @property
    def change(self) -> Change:
        """What ``replace`` puts in: coefficients made from the tokens alone, and these value maps."""
        name, cost = f"recurrences with {self.key_width} states", {"states": self.key_width}

        def coefficients(x: Tensor) -> Tensor:
            return self.coefficients(x.to(self.W_K.dtype)).to(x)

        return Change(name, coefficients, self.W_O, None, cost, self.W_V, of_tokens=True)


def convert(layer: MixingLayer, texts: Tensor, N: int = 2, *, steps: int = 100) -> Recurrence | SharedHeads:
    """Return a layer in the other form: causal softmax attention as recurrences, a recurrence as its heads.

    Attention becomes a `Recurrence`, whose decays and gates are fitted to its attention
    matrices on the texts by their cross entropy: an approximation, to be trained on with
    ``train``. A recurrence that has heads, such as SSD, becomes its ``SharedHeads``,
    exactly. Both are put in by ``replace``; a `Recurrence` also is a layer by itself.

    Parameters
    ----------
    layer : MixingLayer
        One of ``layers(model)``.
    texts : Tensor
        Token ids (texts, n) or hidden states (texts, n, d).
    N : int, default 2
        The states of each head of a `Recurrence`.
    steps : int, default 100
        Steps of Adam on the cross entropy.

    Returns
    -------
    Recurrence or SharedHeads
        In the dtype of the model, with the value maps of the layer.

    Raises
    ------
    ValueError
        If attention is not causal; if a recurrence has no heads with value maps; and as ``operator``.

    Examples
    --------
    >>> from ssmbook import lens
    >>> from ssmbook.maps import Attention
    >>> model = torch.nn.Sequential(Attention(6, 6, H=2, head_width=3)).eval()
    >>> found = lens.convert(lens.layers(model)[0], torch.randn(2, 10, 6), N=2, steps=5)
    >>> found.change.name, found(torch.randn(4, 6)).shape
    ('recurrences with 2 states', torch.Size([4, 6]))
    """
    own, dtype = isinstance(layer.module, Attention), next(layer.model.parameters()).dtype
    if layer.family != "attention" and not own:
        return observe(layer.model, texts, [layer.name])[layer.name].share().to(dtype)
    readings = [read(layer, text) for text in split_texts(layer.model, texts)]
    W_O, W_V = (layer.module.W_O, layer.module.W_V) if own else readings[0].factors
    alpha = torch.stack([reading.alpha for reading in readings]).to(dtype)
    x = torch.stack([reading.core.x for reading in readings]).to(dtype)
    if bool((alpha.triu(1) != 0).any()):
        raise ValueError("attention must be causal to become a recurrence; got weights on later tokens")
    (H, r, d), p = W_V.shape, W_O.shape[1]
    found = Recurrence(d, p, H=H, head_width=r, N=N, dtype=dtype, device=x.device)
    with torch.no_grad():
        found.W_V.copy_(W_V)
        found.W_O.copy_(W_O)
    fitted = [found.W_Q, found.W_K, found.b_K, found.log_rate]
    optimizer = torch.optim.Adam(fitted, lr=0.05)
    for _ in range(steps):
        gap = -(alpha * (found.coefficients(x) + 1e-6).log()).sum(-1).mean()
        _set_gradients(fitted, gap)
        optimizer.step()
    found.zero_grad()
    return found.eval()


def train(
    modules: Iterable[nn.Module], loss: Callable[[], Tensor], *, steps: int = 150, rate: float = 0.005
) -> list[float]:
    """Train modules alone, in place, by Adam with warm-up and cosine decay; return the losses.

    What else the loss depends on is left as it is, gradients included. Ten lines of
    progress go to stderr.

    Parameters
    ----------
    modules : iterable of Module
        What to train.
    loss : callable
        Draws a batch and returns its loss, inside ``replace`` where the modules are put in so.
    steps : int, default 150
        How many batches.
    rate : float, default 0.005
        The largest learning rate.

    Returns
    -------
    list of float
        The loss of each batch.
    """
    trained = [parameter for module in modules for parameter in module.parameters()]
    optimizer = torch.optim.Adam(trained, lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps + 1, pct_start=0.1)
    losses = []
    for step in range(1, steps + 1):
        missed = loss()
        _set_gradients(trained, missed)
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        schedule.step()
        losses.append(float(missed.detach()))
        if step * 10 // steps > (step - 1) * 10 // steps:
            print(f"step {step} of {steps}: loss {losses[-1]:.3f}", file=sys.stderr)
    optimizer.zero_grad()
    return losses


def _set_gradients(parameters: list[nn.Parameter], loss: Tensor) -> None:
    """Set the gradients of these parameters alone, as ``backward`` would those of all."""
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        parameter.grad = gradient
