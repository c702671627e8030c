"""Layers in another form that can be trained: attention as a recurrence, any heads as fewer shared ones."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ssmbook._checks import check_integer
from ssmbook.lens._calls import capture, split_texts
from ssmbook.lens._change import Change, Heads, coefficients_of, observe
from ssmbook.lens._errors import factors
from ssmbook.lens._layers import MixingLayer, read
from ssmbook.maps.attention import Attention, per_head
from ssmbook.maps.linear_attention import LinearAttention, outer, safe_reciprocal
from ssmbook.scans import diagonal_scan


def heads(
    layer: MixingLayer, texts: Tensor, H: int | None = None, *, fit: str = "uncorrelated",
    width: int | None = None,
) -> Heads:  # fmt: skip
    """Return H shared heads of a layer, fitted to texts, as a module to put in by ``replace`` and to train.

    H: all of the layer's if ``None``, which is exact; ``fit``: as ``Observed.merge``; ``width``: the rank
    that each value map may have, full if ``None``. In the dtype of the model. Raises as ``observe`` and
    ``merge``.

    >>> from ssmbook import lens
    >>> from ssmbook.maps import SSD
    >>> model, x = torch.nn.Sequential(SSD(6, 6, H=4, head_width=3, N=5)).eval(), torch.randn(2, 10, 6)
    >>> shared = lens.heads(lens.layers(model)[0], x)
    >>> with lens.replace(model, {0: shared}):
    ...     changed = model(x)
    >>> sorted(shared.state_dict()), torch.allclose(changed, model(x), atol=1e-4)
    (['W_O', 'W_V', 'mix'], True)
    """
    found = observe(layer.model, texts, [layer.name])[layer.name].heads(H, fit, width)
    return found.to(next(layer.model.parameters()).dtype)


class Recurrence(LinearAttention):
    """Causal heads with N states each, which fade, and content gates: a map of the book, with ``step``.

    alpha_ij = sum_s exp(<q_s, x_i>) a_s^(i - j) exp(<k_s, x_j> + b_s), s = 1 ... N, divided by its row sum,
    so it also keeps that sum of each state. d, p: widths in and out; H heads; head_width: width of the
    values. Parameters ``W_Q``, ``W_K`` (H, N, d), ``b_K``, ``log_rate`` (H, N), a = exp(-exp(log_rate)),
    ``W_V``, ``W_O``. Initially no gate looks at the content, and the rates are from 1/2 down to 1/64.
    """

    _queries = False

    def __init__(self, d: int, p: int, *, H: int, head_width: int, N: int, **new: Any):
        super().__init__(d, p, H=H, head_width=head_width, normalized=True, **new)
        self.key_width = check_integer("N", N, low=1)
        like = self.W_V.detach()
        self.W_Q, self.W_K = (nn.Parameter(like.new_zeros(H, N, d)) for _ in "QK")
        self.b_K = nn.Parameter(like.new_zeros(H, N))
        rates = torch.logspace(-1, -6, N, base=2.0).log().to(like)
        self.log_rate = nn.Parameter(rates.expand(H, N).clone())

    def _read_write(self, x: Tensor):
        q, k = per_head(self.W_Q, x).exp(), (per_head(self.W_K, x) + self.b_K[:, None]).exp()
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

        def coefficients(x):
            return self.coefficients(x.to(self.W_K.dtype)).to(x)

        return Change(name, coefficients, self.W_O, None, cost, self.W_V, of_tokens=True)


def convert(layer: MixingLayer, texts: Tensor, N: int = 2, *, steps: int = 100) -> Recurrence | Heads:
    """Return a layer in the other form: causal softmax attention as recurrences, a recurrence as its heads.

    Attention becomes a ``Recurrence`` with N states per head and the layer's own value maps; decays and gates
    are fitted to its attention matrices on the texts, by ``steps`` steps of Adam on their cross entropy. It
    is an approximation, to be trained on with ``tune``. A recurrence that has heads, such as SSD, becomes its
    ``heads``, exactly. Both are put in by ``replace``; a ``Recurrence`` also is a layer by itself. Raises as
    ``operator``, and ``ValueError`` for attention that is not causal.

    >>> from ssmbook import lens
    >>> from ssmbook.maps import Attention
    >>> model = torch.nn.Sequential(Attention(6, 6, H=2, head_width=3)).eval()
    >>> found = lens.convert(lens.layers(model)[0], torch.randn(2, 10, 6), N=2, steps=5)
    >>> found.change.name, found(torch.randn(4, 6)).shape
    ('recurrences with 2 states', torch.Size([4, 6]))
    """
    own = isinstance(layer.module, Attention)
    if layer.family != "attention" and not own:
        return heads(layer, texts)
    readings = []
    for text in split_texts(layer.model, texts):
        calls, _ = capture(layer.model, {layer.name: layer.module}, text)
        readings.append(read(layer, calls[layer.name]))
    W_O, W_V = (layer.module.W_O, layer.module.W_V) if own else factors(readings[0])
    dtype = next(layer.model.parameters()).dtype
    alpha, x = (
        torch.stack(part).to(dtype)
        for part in zip(*((coefficients_of(each), each.core.x) for each in readings), strict=True)
    )
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
        for parameter, gradient in zip(fitted, torch.autograd.grad(gap, fitted), strict=True):
            parameter.grad = gradient
        optimizer.step()
    found.zero_grad()
    return found.eval()


def tune(
    modules: Iterable[nn.Module], loss: Callable[[], Tensor], *, steps: int = 150, rate: float = 0.005
) -> list[float]:
    """Train modules alone, in place, by Adam with warm-up and cosine decay; return the losses.

    ``loss``: draws a batch and returns its loss, inside ``replace`` where the modules are put in so. What
    else the loss depends on is left as it is, gradients included. Ten lines of progress go to stderr.
    """
    trained = [parameter for module in modules for parameter in module.parameters()]
    optimizer = torch.optim.Adam(trained, lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps + 1, pct_start=0.1)
    losses = []
    for step in range(1, steps + 1):
        missed = loss()
        for parameter, gradient in zip(trained, torch.autograd.grad(missed, trained), strict=True):
            parameter.grad = gradient
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        schedule.step()
        losses.append(float(missed.detach()))
        if step * 10 // steps > (step - 1) * 10 // steps:
            print(f"step {step} of {steps}: loss {losses[-1]:.3f}", file=sys.stderr)
    optimizer.zero_grad()
    return losses
