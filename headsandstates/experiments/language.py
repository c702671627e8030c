"""The experiment "language": small models of characters, and what the lens measures of them."""

from __future__ import annotations

import math
from functools import partial
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor, nn

from headsandstates.experiments.results import FOLDER, load_weights
from headsandstates.experiments.tasks import assemble, count_parameters
from headsandstates.experiments.training import descend
from ssmbook import lens
from ssmbook._checks import check_choice
from ssmbook.maps import SSD, Attention, SelectiveSSM

MODELS = ("attention", "selective SSM", "SSD", "hybrid")
CHARACTERS = 96  # the 95 printable ones of ASCII from the space on, and one for all others
READ = 4  # texts under the lens
FULL = {
    "models": list(MODELS), "seeds": 3, "steps": 1000, "batch": 16, "n": 64, "rate": 5e-3, "d": 32,
    "layers": 4, "parameters": 40_000,
}  # fmt: skip
SMALL = {"seeds": 1, "steps": 20, "layers": 2}


class Text(NamedTuple):
    """Characters as numbers: those to train on, and the last tenth, held out."""

    train: Tensor
    held_out: Tensor


def manual(*, shuffled: int | None = None) -> Text:
    """The help topics of Python's manual (``pydoc_data.topics``), runs of white space as one space.

    Every version of Python has its own; a measurement says which it was. ``shuffled``: a
    seed; the characters of each part then stand in random order, which leaves their
    frequencies and nothing else.
    """
    from pydoc_data.topics import topics

    words = " ".join(" ".join(topics[name].split()) for name in sorted(topics))
    codes = torch.tensor([ord(letter) - 32 if " " <= letter <= "~" else CHARACTERS - 1 for letter in words])
    cut = len(codes) * 9 // 10
    parts = codes[:cut], codes[cut:]
    if shuffled is not None:
        generator = torch.Generator().manual_seed(shuffled)
        parts = (part[torch.randperm(len(part), generator=generator)] for part in parts)
    return Text(*parts)


def build(model: str, *, d: int = 32, layers: int = 4, parameters: int = 40_000, seed: int = 0) -> nn.Module:
    """Build a model of characters: codes (batch, n) to logits (batch, n, 96), with 8 heads of width d / 8.

    Attention has a fixed penalty for distance (ALiBi); "hybrid" changes between SSD and
    attention, SSD first.

    Parameters
    ----------
    model : str
        One of ``MODELS``.
    d : int, default 32
        The width.
    layers : int, default 4
        How many.
    parameters : int, default 40,000
        As many as fit into this number.
    seed : int, default 0
        Of the weights.

    Returns
    -------
    Module
        The model, not trained.

    Raises
    ------
    ValueError
        If the model is unknown.
    """
    check_choice("model", model, MODELS)
    generator = torch.Generator().manual_seed(seed)
    kinds = [("SSD", "attention")[place % 2] if model == "hybrid" else model for place in range(layers)]
    return assemble([_mixer(kind, d, generator) for kind in kinds], d, CHARACTERS, parameters, seed)


def _mixer(kind, d, generator):
    if kind == "selective SSM":
        return SelectiveSSM(d, N=8, discretization="mixed", generator=generator)
    heads = {"H": 8, "head_width": d // 8, "generator": generator}
    if kind == "attention":
        return Attention(d, d, alibi=True, **heads)
    return SSD(d, d, N=8, **heads)


def load_trained(model: str) -> nn.Module:
    """A model as trained for the book, seed 0, with the weights that come with it (kept in float16).

    Raises ``ValueError`` for an unknown model.
    """
    net = build(model)
    net.load_state_dict(load_weights(FOLDER / f"language-{model.replace(' ', '-')}-seed-0.safetensors"))
    return net.eval()


def train(
    model: nn.Module, text: Tensor, *, steps: int, batch: int, n: int, rate: float, seed: int
) -> list[float]:
    """Train by AdamW with warm-up and cosine decay on windows of n characters, in place.

    Parameters
    ----------
    model : Module
        Codes (batch, n) to logits.
    text : Tensor (m,)
        The codes to cut from.
    steps, batch : int
        How many batches, and of how many windows.
    n : int
        The characters of a window.
    rate : float
        The largest learning rate.
    seed : int
        Of the windows.

    Returns
    -------
    list of float
        The mean losses, in bits a character, of ten equal parts of the training.
    """
    generator = torch.Generator().manual_seed(seed)

    def loss():
        start = torch.randint(len(text) - n, (batch,), generator=generator)
        return bits(model, text[start[:, None] + torch.arange(n + 1)])

    losses = descend(model, loss, steps=steps, rate=rate)
    return [float(part.mean()) for part in torch.stack(losses).tensor_split(10)]


def bits(model: nn.Module, windows: Tensor) -> Tensor:
    """Bits a character that a model needs for windows (batch, n + 1), the first character given."""
    logits = model(windows[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten()) / math.log(2)


def jobs(given: dict) -> dict:
    """One job for each model and seed, and each model on a shuffled text."""
    runs = [(0, False), (0, True), *((seed, False) for seed in range(1, given["seeds"]))]
    found = {}
    for (seed, shuffled), model in product(runs, given["models"]):
        run = "shuffled text" if shuffled else f"seed {seed}"
        found[f"{model}, {run}"] = partial(_one, given, model, seed, shuffled)
    return found


def _one(given, model, seed, shuffled):
    """Bits a character, and the layers under the lens before and after; seed 0 keeps its weights."""
    text, real = manual(shuffled=0 if shuffled else None), manual()
    sizes = {key: given[key] for key in ("d", "layers", "parameters")}
    net, keeps = build(model, **sizes, seed=seed), seed == 0 and not shuffled
    texts = {"held out": windows(text.held_out, given["n"]), "real": windows(real.held_out, given["n"])}
    untrained = _measure(net, texts["real"])
    how = {key: given[key] for key in ("steps", "batch", "n", "rate")}
    training = train(net, text.train, seed=seed, **how)
    net.half().float()  # as the weights are kept: what is measured is what can be loaded
    found = {
        "model": model, "seed": seed, "parameters": count_parameters(net), "training": training,
        "untrained": untrained, "trained": _measure(net, texts["real"], permuted=keeps),
    }  # fmt: skip
    with torch.no_grad():
        found["held out"] = bits(net, texts["held out"])
    if keeps:
        found["weights"] = {name: value.half() for name, value in net.state_dict().items()}
    return found


def windows(text: Tensor, n: int) -> Tensor:
    """A text in windows (count, n + 1), without the rest that fills none."""
    return text[: len(text) // (n + 1) * (n + 1)].unflatten(0, (-1, n + 1))


def _measure(net, windows, permuted=False):
    """Bits a character, and for every layer its heads, their count on each text, and its spectrum.

    ``permuted``: the counts with the entries of its weight matrices permuted as well.
    """
    net.eval()
    with torch.no_grad():
        found = {"bits": bits(net, windows), "layers": []}
    report = lens.report(net, windows[:READ, :-1], permuted=permuted, gradient=False)
    for layer in report.layers:
        row = {"kind": layer.kind, "H": layer.H, "miss": layer.miss, "rank": layer.trained.rank}
        row |= {"counts": _counts(layer.trained), "spectrum": layer.trained.spectrum[:12]}
        row |= {"permuted": _counts(layer.permuted)} if permuted else {}
        heads = layer.trained.heads
        row |= {"states": sorted(heads["states_1%"]), "distance": sorted(heads["distance"])}
        found["layers"].append(row)
    return found


def _counts(measures):
    return {eps: measures.counts[eps] for eps in ("0.1", "0.01")}
