"""Small language models of characters, four kinds of equal size, on English text that Python brings along."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ssmbook._checks import check_choice
from ssmbook.experiments._data import descend
from ssmbook.experiments.results import FOLDER
from ssmbook.experiments.tasks import sized
from ssmbook.experiments.weights import load
from ssmbook.maps import SSD, Attention, SelectiveSSM

MODELS = ("attention", "selective SSM", "SSD", "hybrid")
CHARACTERS = 96  # the 95 printable ones of ASCII from the space on, and one for all others


class Text(NamedTuple):
    """Characters as numbers: those to train on, and the last tenth, held out."""

    train: Tensor
    held_out: Tensor


def manual(*, shuffled: int | None = None) -> Text:
    """The help topics of Python's manual (``pydoc_data.topics``), runs of white space as one space.

    Every version of Python has its own; a measurement says which it was. ``shuffled``: a seed; the
    characters of each part then stand in random order, which leaves their frequencies and nothing else.
    Introduced in *trained-layers*.
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

    Attention has a fixed penalty for distance (ALiBi); "hybrid" changes between SSD and attention, SSD
    first. All have as many parameters as fit into ``parameters``. Raises ``ValueError`` for an unknown model.
    Introduced in *trained-layers*.
    """
    check_choice("model", model, MODELS)
    generator = torch.Generator().manual_seed(seed)
    kinds = [("SSD", "attention")[place % 2] if model == "hybrid" else model for place in range(layers)]
    return sized([_mixer(kind, d, generator) for kind in kinds], d, CHARACTERS, parameters, seed)


def _mixer(kind, d, generator):
    if kind == "selective SSM":
        return SelectiveSSM(d, N=8, discretization="euler", generator=generator)
    heads = {"H": 8, "head_width": d // 8, "generator": generator}
    if kind == "attention":
        return Attention(d, d, alibi=True, **heads)
    return SSD(d, d, N=8, **heads)


def trained(model: str) -> nn.Module:
    """A model as trained for the book, seed 0, with the weights that come with it (kept in float16).

    Raises ``ValueError`` for an unknown model. Introduced in *trained-layers*.
    """
    net = build(model)
    weights, _ = load(FOLDER / f"language-{model.replace(' ', '-')}-seed-0.safetensors")
    net.load_state_dict(weights)
    return net.eval()


def train(
    model: nn.Module, text: Tensor, *, steps: int, batch: int, n: int, rate: float, seed: int
) -> list[float]:
    """Train by AdamW with warm-up and cosine decay on windows of n characters, in place.

    Returns the mean losses, in bits a character, of ten equal parts of the training.
    Introduced in *trained-layers*.
    """
    generator = torch.Generator().manual_seed(seed)

    def loss():
        start = torch.randint(len(text) - n, (batch,), generator=generator)
        return bits(model, text[start[:, None] + torch.arange(n + 1)])

    losses = descend(model, loss, steps=steps, rate=rate)
    return [float(part.mean()) for part in torch.stack(losses).tensor_split(10)]


def bits(model: nn.Module, windows: Tensor) -> Tensor:
    """Bits a character that a model needs for windows (batch, n + 1), the first character given.

    Introduced in *trained-layers*.
    """
    logits = model(windows[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten()) / math.log(2)
