"""The experiment "diagnose": a letter noted at the start of a text, and one line in one layer changed."""

from __future__ import annotations

import math
from functools import partial
from itertools import product

import torch
from torch import Tensor, nn

from headsandstates.experiments import language
from headsandstates.experiments.training import descend

LETTERS = "ABCDEFGH"  # one of these is noted
MARK = ord("~") - 32  # the character before the letter, and the question
LAST = 4  # the place of the last mixing layer in the hybrid: attention
FULL = {
    "changes": ["as it is", "no penalty"], "seeds": 3, "steps": 300, "batch": 16, "gap": [8, 48],
    "rate": 1e-2, "distances": [48, 128, 512, 1024], "texts": 12,
}  # fmt: skip
SMALL = {"seeds": 1, "steps": 100, "distances": [48, 128]}


def note(text: Tensor, gap: int, batch: int, *, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw texts with a note: codes (batch, gap + 3) and the letters (batch,) that answer them.

    Each is the mark, one of eight letters, ``gap`` characters cut at random, and the mark.

    Parameters
    ----------
    text : Tensor (m,)
        The codes to cut from.
    gap : int
        The characters between the letter and the question.
    batch : int
        How many texts.
    generator : torch.Generator
        Draws places and letters.

    Returns
    -------
    tuple of Tensor
        Codes (batch, gap + 3), and the letters (batch,).
    """
    start = torch.randint(len(text) - gap, (batch, 1), generator=generator)
    between = text[start + torch.arange(gap)]
    letter = ord(LETTERS[0]) - 32 + torch.randint(len(LETTERS), (batch, 1), generator=generator)
    mark = torch.full_like(letter, MARK)
    return torch.cat([mark, letter, between.where(between != MARK, 0), mark], 1), letter[:, 0]


def change(net: nn.Module, name: str) -> nn.Module:
    """Change one line in the last mixing layer, in place: "no penalty" on distance, or "as it is"."""
    net[LAST].mixer.alibi = name != "no penalty"
    return net


def tune(
    net: nn.Module, text: Tensor, *, steps: int, batch: int, gap: list[int], rate: float, seed: int
) -> list[float]:
    """Train the last block alone to answer notes ``gap[0]`` to ``gap[1]`` characters back, in place.

    Parameters
    ----------
    net : Module
        The small model of "language".
    text : Tensor (m,)
        The codes to cut from.
    steps, batch : int
        How many batches, and of how many texts.
    gap : list of int
        The least and the largest distance of a note.
    rate : float
        The largest learning rate.
    seed : int
        Of the texts.

    Returns
    -------
    list of float
        The mean losses, in bits, of ten equal parts of the training.
    """
    generator = torch.Generator().manual_seed(seed)

    def loss():
        length = int(torch.randint(gap[0], gap[1] + 1, (), generator=generator))
        codes, letters = note(text, length, batch, generator=generator)
        with torch.no_grad():
            x = net[:LAST](codes)
        return nn.functional.cross_entropy(net[LAST:](x)[:, -1], letters) / math.log(2)

    losses = descend(net[LAST], loss, steps=steps, rate=rate)
    return [float(part.mean()) for part in torch.stack(losses).tensor_split(10)]


def ask(net: nn.Module, text: Tensor, gap: int, texts: int) -> tuple[float, list[float]]:
    """The share of right answers about notes ``gap`` characters back, and each head's weight on the note.

    Parameters
    ----------
    net : Module
        The model that is asked.
    text : Tensor (m,)
        The codes to cut from.
    gap : int
        The characters between the letter and the question.
    texts : int
        How many texts.

    Returns
    -------
    tuple of float and list of float
        The share of right answers; and for each head the weight that the question puts on
        the first four tokens in the last mixing layer, mean over all texts: a short
        convolution spreads the two characters of the note over four.
    """
    right, weights = [], []
    codes, letters = note(text, gap, texts, generator=torch.Generator().manual_seed(10_001))
    hook = net[LAST].mixer.register_forward_hook(
        lambda mixer, given, _: weights.append(mixer.coefficients(given[0])[:, :, -1, :4].sum(-1))
    )
    with torch.no_grad():
        for part, answers in zip(codes.split(4), letters.split(4), strict=True):
            right.append(net(part)[:, -1].argmax(-1) == answers)
    hook.remove()
    return float(torch.cat(right).double().mean()), torch.cat(weights).double().mean(0).tolist()


def jobs(given: dict) -> dict:
    """One job for each change and seed."""
    runs = product(range(given["seeds"]), given["changes"])
    return {f"{name}, seed {seed}": partial(_one, given, name, seed) for seed, name in runs}


def _one(given, name, seed):
    """The share of right answers and the weights on the note at each distance, and what the text costs."""
    text, net = language.manual(), change(language.load_trained("hybrid"), name)
    windows = text.held_out[: 64 * 65].unflatten(0, (-1, 65))
    with torch.no_grad():
        before = language.bits(net, windows)
    how = {key: given[key] for key in ("steps", "batch", "gap", "rate")}
    training = tune(net, text.train, seed=seed, **how)
    asked = [ask(net, text.held_out, gap, given["texts"]) for gap in given["distances"]]
    with torch.no_grad():
        after = language.bits(net, windows)
    right, weights = ([*each] for each in zip(*asked, strict=True))
    return {"training": training, "right": right, "on the note": weights, "bits of text": [before, after]}
