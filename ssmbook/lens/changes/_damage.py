"""What narrowing a key–value group costs, by a path of gates; and what else is measured on the way.

Each group gets a gate g and puts out g · full + (1 - g) · narrow. The loss of narrowing all
groups at once is the integral of its slopes along the path on which all gates close
together, so the damages of the groups add up to it exactly (completeness of integrated
gradients): how far they miss that sum says how far to trust them. The slope at the open end
alone sees only the first small step of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ssmbook.lens._load import token_losses
from ssmbook.lens.changes._groups import GroupLayer, Heads, attending, near

_log = logging.getLogger(__name__)
# Tokens that are in memory together; points of the path, until the sum is right to a tenth, or
# to a number of nats that is no damage.
TOKENS, _POINTS, _RIGHT, _NOTHING = 1024, (3, 5, 9), 0.1, 0.005


def late_loss(model: nn.Module, texts: Tensor, every: int = 1) -> Tensor:
    """Mean loss on the second half of each text (texts, n), where a cache matters, in nats per token.

    ``every``: 4 counts every fourth token of it alone.
    """
    half, found = texts.shape[1] // 2, []
    for part in _parts(texts):
        logits = getattr(model(part, use_cache=False), "logits", None)
        if logits is None:
            raise ValueError(f"model must have its output head; got {type(model).__name__}, without logits")
        loss = token_losses(logits[:, half:-1:every], part[:, half + 1 :: every])
        found.append(loss.mean(-1))
    return torch.cat(found)


def _parts(texts: Tensor) -> Sequence[Tensor]:
    return texts.split(max(1, TOKENS // texts.shape[1]))


def copies(like: Tensor, vocabulary: int, periods: Sequence[int], seed: int) -> Tensor:
    """Random tokens again and again, (periods, n) for texts (·, n); only copying predicts the second half.

    They begin as the texts do, where all of these begin alike.
    """
    g, n, rows = torch.Generator().manual_seed(seed), like.shape[1], []
    for period in periods:
        drawn = torch.randint(vocabulary // 40, vocabulary, (period,), generator=g)
        rows.append(drawn.repeat(-(-n // period))[:n])
    found = torch.stack(rows).to(like)
    if len(like) > 1 and bool((like[:, 0] == like[0, 0]).all()):
        found[:, 0] = like[0, 0]
    return found


def path_damages(
    model: nn.Module, found: list[GroupLayer], texts: Tensor, window: int, sink: int, every: int = 1
) -> dict[str, Tensor | float]:
    """Damages of narrowing each group on these texts, by the path on which all gates close together.

    Parameters
    ----------
    model : Module
        The language model.
    found : list of GroupLayer
        Its layers.
    texts : Tensor (texts, n)
        Token ids.
    window, sink : int
        What a narrow group keeps.
    every : int
        As for ``late_loss``.

    Returns
    -------
    dict
        "damage" (groups,); "slope" (groups,), the first-order estimate at the full model; "true", the loss
        that narrowing all groups adds; "miss", how far the sum is from it, relative; "points".
    """
    slopes, losses = {}, {}
    for points in _POINTS:
        path = torch.linspace(0, 1, points).tolist()
        for t in path:
            if t not in slopes:
                _log.info("step %d of %d of the path", len(slopes) + 1, points)
                slopes[t], losses[t] = _slope(model, found, texts, t, window, sink, every)
        simpson = torch.tensor([1.0, *[4.0, 2.0] * (points // 2 - 1), 4.0, 1.0]) / (3 * (points - 1))
        damage = -sum(weight * slopes[t] for weight, t in zip(simpson.tolist(), path, strict=True))
        true = losses[0.0] - losses[1.0]
        gap = abs(float(damage.sum()) - true)
        if gap <= max(_RIGHT * abs(true), _NOTHING):
            break
    miss = gap / max(abs(true), 1e-9)
    return {"damage": damage.cpu(), "slope": -slopes[1.0].cpu(), "true": true, "miss": miss, "points": points}


@torch.enable_grad()
def _slope(model, found, texts, t, window, sink, every) -> tuple[Tensor, float]:
    """The slope of the mean late loss in each gate where all are t, and that loss."""
    sizes, device = [layer.G for layer in found], next(model.parameters()).device
    gate = torch.full((sum(sizes),), t, device=device, requires_grad=True)
    forms = {}
    for layer, part in zip(found, gate.split(sizes), strict=True):
        forms[layer.module] = gated(part.repeat_interleave(layer.share)[:, None], window, sink)
    slope, loss = torch.zeros_like(gate), 0.0
    with attending(model, forms):
        for part in _parts(texts):
            each = late_loss(model, part, every).sum() / len(texts)
            slope += torch.autograd.grad(each, gate)[0]
            loss += float(each.detach())
    return slope.detach(), loss


def gated(gate: Tensor, window: int, sink: int) -> Callable[[Heads], Tensor]:
    """Attention of which each head puts out gate · full + (1 - gate) · narrow; gate (H, 1)."""

    def form(heads: Heads) -> Tensor:
        low = torch.finfo(heads.mask.dtype).min
        narrow = heads.attend(heads.mask.masked_fill(~near(heads.mask, window, sink), low))
        return narrow + gate.to(narrow) * (heads.attend() - narrow)

    return form


def chosen(damages: dict[str, Tensor], by: str, K: int) -> Tensor:
    """The K groups, (groups,) of bool, that ``by`` needs most, and then those that the others need most."""
    first = damages[by].clamp(min=0).tolist()
    rest = sum((each for name, each in damages.items() if name != by), torch.zeros_like(damages[by])).tolist()
    order = sorted(range(len(first)), key=lambda b: (-first[b], -rest[b]))
    full = torch.zeros(len(first), dtype=torch.bool)
    full[order[:K]] = True
    return full


@torch.no_grad()
def record(model: nn.Module, found: list[GroupLayer], texts: Tensor) -> list[dict[str, Tensor]]:
    """What every layer attends with: scaled "q" and its outputs "y" (B, H, n, r), "k" and "v" (B, G, n, r).

    "plain": whether that is softmax of q · k alone; "forgets": whether a window of its own hides some of
    the text.
    """
    kept: list[list] = [[] for _ in found]

    def recorder(place: int) -> Callable[[Heads], Tensor]:
        def form(heads: Heads) -> Tensor:
            y = heads.attend()
            given = heads.q * heads.rest["scaling"], heads.k, heads.v, y.transpose(1, 2)
            flags = (torch.tensor([flag]) for flag in (heads.plain, heads.forgets))
            kept[place].append([*(part.float() for part in given), *flags])
            return y

        return form

    with attending(model, {layer.module: recorder(place) for place, layer in enumerate(found)}):
        for part in _parts(texts):
            model(part, use_cache=False)
    names, joined = ("q", "k", "v", "y", "plain", "forgets"), [list(zip(*rows, strict=True)) for rows in kept]
    return [{name: torch.cat(parts) for name, parts in zip(names, rows, strict=True)} for rows in joined]


def weights(q: Tensor, k: Tensor) -> Tensor:
    """The attention weights (B, H, n, n) of scaled queries (B, H, n, r) and keys (B, G, n, r), causal."""
    n = q.shape[2]
    later = torch.ones(n, n, dtype=torch.bool, device=q.device).triu(1)
    scores = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT
    return scores.masked_fill(later, -torch.inf).softmax(-1)


def state_floor(alpha: Tensor, N: int) -> Tensor:
    """The share of squared weights (..., n, n) that no N states carry, at the worst of seven cuts."""
    n, energy = alpha.shape[-1], alpha.double().square().sum((-2, -1))
    lost = [torch.zeros_like(energy)]
    for t in sorted({round(n * c / 8) for c in range(1, 8)} & set(range(1, n))):
        sigma = torch.linalg.svdvals(alpha[..., t:, :t].double())
        lost.append(sigma[..., N:].square().sum(-1) / energy)
    return torch.stack(lost).amax(0)
