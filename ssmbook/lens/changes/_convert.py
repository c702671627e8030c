"""Layers in another form that can be trained: attention as a recurrence, any heads as fewer shared ones."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from ssmbook.lens._calls import split_texts
from ssmbook.lens._layers import MixingLayer, read
from ssmbook.lens.changes._observe import Fit, observe
from ssmbook.lens.changes._recurrence import Recurrence
from ssmbook.lens.changes._shared import SharedHeads
from ssmbook.maps.attention import Attention


def share_heads(
    layer: MixingLayer,
    texts: Tensor,
    H: int | None = None,
    *,
    fit: Fit = "uncorrelated",
    width: int | None = None,
) -> SharedHeads:
    """Return H shared heads of a layer, fitted to texts, as a module to put in by ``replace`` and to train.

    Parameters
    ----------
    layer : MixingLayer
        One of ``layers(model)``, with heads that have value maps.
    texts : Tensor
        Token ids (texts, n) or hidden states (texts, n, d).
    H : int, optional
        The number of heads, by default all of the layer's, which is exact.
    fit : {"uncorrelated", "operator", "output"}
        Which of the three `ReplacementErrors` to make least, as for ``Observed.merge``.
    width : int, optional
        The rank that each value map may have, full by default.

    Returns
    -------
    SharedHeads
        In the dtype of the model.

    Raises
    ------
    ValueError
        If the layer has no heads with value maps; if H or the width is 0 or larger than the layer's;
        and as ``operator``.

    Examples
    --------
    >>> from ssmbook import lens
    >>> from ssmbook.maps import SSD
    >>> model, x = torch.nn.Sequential(SSD(6, 6, H=4, head_width=3, N=5)).eval(), torch.randn(2, 10, 6)
    >>> shared = lens.share_heads(lens.layers(model)[0], x)
    >>> with lens.replace(model, {0: shared}):
    ...     changed = model(x)
    >>> sorted(shared.state_dict()), torch.allclose(changed, model(x), atol=1e-4)
    (['W_O', 'W_V', 'mix'], True)
    """
    found = observe(layer.model, texts, [layer.name])[layer.name].share(H, fit, width)
    return found.to(next(layer.model.parameters()).dtype)


def convert(layer: MixingLayer, texts: Tensor, N: int = 2, *, steps: int = 100) -> Recurrence | SharedHeads:
    """Return a layer in the other form: causal softmax attention as recurrences, a recurrence as its heads.

    Attention becomes a `Recurrence`, whose decays and gates are fitted to its attention matrices on the
    texts by their cross entropy: an approximation, to be trained on with ``train``. A recurrence that has
    heads, such as SSD, becomes its ``share_heads``, exactly. Both are put in by ``replace``; a `Recurrence`
    also is a layer by itself.

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
    own = isinstance(layer.module, Attention)
    if layer.family != "attention" and not own:
        return share_heads(layer, texts)
    readings = [read(layer, text) for text in split_texts(layer.model, texts)]
    W_O, W_V = (layer.module.W_O, layer.module.W_V) if own else readings[0].factors
    dtype = next(layer.model.parameters()).dtype
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

    What else the loss depends on is left as it is, gradients included. Ten lines of progress go to
    stderr.

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
