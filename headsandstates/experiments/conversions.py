"""The book's small models of characters with other layers: recurrences, shared heads, SSD as its heads."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from headsandstates.experiments import language
from ssmbook import lens


class Small(NamedTuple):
    """The book's small attention model, and windows of its text to fit to and held out."""

    net: nn.Module
    fitted: Tensor
    held_out: Tensor

    @classmethod
    def load(cls, given: dict) -> Small:
        text, n = language.manual(), given["n"]
        held_out = language.windows(text.held_out, n)
        held_out = held_out[:: len(held_out) // given["windows"]]
        fitted = text.train[: given["fitted"] * n].view(-1, n)
        return cls(language.load_trained("attention"), fitted, held_out)

    @torch.no_grad()
    def bits(self, net: nn.Module) -> Tensor:
        """Bits per character on held-out windows."""
        return language.bits(net, self.held_out)

    def drawn(self, net: nn.Module, seed: int) -> Callable[[], Tensor]:
        """The loss on 16 windows that are drawn anew each time."""
        text, generator = language.manual().train, torch.Generator().manual_seed(seed)
        n = self.held_out.shape[1]

        def loss():
            first = torch.randint(len(text) - n, (16,), generator=generator)
            return language.bits(net, text[first[:, None] + torch.arange(n)])

        return loss

    def trained(self, begin: Callable[[int], nn.Module], given: dict, lengths: list[int]) -> dict:
        """Bits after training whole models for these numbers of steps, seed by seed."""
        found = []
        for steps in lengths:
            nets = [begin(seed) for seed in range(given["seeds"])]
            for seed, net in enumerate(nets):
                lens.train([net], self.drawn(net, seed), steps=steps)
            found.append([self.bits(net) for net in nets])
        return {"after": found}


def _with_mixers(net: nn.Module, mixers: list[nn.Module]) -> nn.Module:
    """A copy of a small model with copies of other layers in it."""
    net = copy.deepcopy(net)
    for block, mixer in zip(list(net)[1:-2], mixers, strict=True):
        block.mixer = copy.deepcopy(mixer)
    return net


def converted(given: dict, N: int) -> dict:
    """The small model as recurrences with N states: bits before training the whole model and after."""
    small = Small.load(given)
    mixers = [lens.convert(layer, small.fitted, N) for layer in lens.layers(small.net)]
    net = _with_mixers(small.net, mixers)
    found = {"attention": small.bits(small.net), "before": small.bits(net)}
    return {**found, **small.trained(lambda seed: copy.deepcopy(net), given, given["steps"])}


def new_layers(given: dict) -> dict:
    """Bits with new recurrences of two states in the small model, all else as trained, after training."""
    small = Small.load(given)

    def begin(seed):
        generator = torch.Generator().manual_seed(seed)
        sizes = {"H": 8, "head_width": 4, "N": 2, "generator": generator}
        return _with_mixers(small.net, [lens.Recurrence(32, 32, **sizes) for _ in range(4)])

    return small.trained(begin, given, given["steps"][-1:])


def shared(given: dict, how: dict, k: int, width: int) -> dict:
    """Shared heads in every layer of the small model: bits before and after their training.

    Parameters
    ----------
    given : dict
        The settings of the small model.
    how : dict
        Those of the training: "steps".
    k, width : int
        How many heads each layer shares, and the rank of their value maps.

    Returns
    -------
    dict
        How many "parameters" the heads have, and the bits "before" and "after".
    """
    small = Small.load(given)
    seen = lens.observe(small.net, small.fitted)
    changes = {name: each.share(k, width=width).float() for name, each in seen.items()}
    found = {"parameters": sum(p.numel() for each in changes.values() for p in each.parameters())}
    with lens.replace(small.net, changes):
        found["before"] = small.bits(small.net)
        lens.train(changes.values(), small.drawn(small.net, 0), steps=how["steps"])
        found["after"] = small.bits(small.net)
    return found


def as_heads(given: dict) -> dict:
    """The book's small SSD model with every recurrence as its heads: bits, and the largest gap of logits."""
    net = language.load_trained("SSD")
    text = language.windows(language.manual().held_out, given["n"])[: given["fitted"]]
    changes = {layer: lens.convert(layer, text[:, :-1]) for layer in lens.layers(net)}
    with torch.no_grad():
        before, found = net(text[:, :-1]), {"as it is": language.bits(net, text)}
        with lens.replace(net, changes):
            found |= {"as heads": language.bits(net, text), "gap": (net(text[:, :-1]) - before).abs().max()}
    return found
