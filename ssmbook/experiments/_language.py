"""Language models: what four kinds of layers learn of a text, and what the lens sees of it."""

from __future__ import annotations

from functools import partial
from itertools import product

import torch

from ssmbook import lens
from ssmbook.experiments import language
from ssmbook.experiments._runs import Experiment
from ssmbook.experiments.tasks import counted

READ = 4  # texts under the lens


FULL = {
    "models": list(language.MODELS), "seeds": 3, "steps": 1000, "batch": 16, "n": 64, "rate": 5e-3, "d": 32,
    "layers": 4, "parameters": 40_000,
}  # fmt: skip
SMALL = {"seeds": 1, "steps": 20, "layers": 2}


def jobs(given: dict) -> dict:
    """One job for each model and seed, and each model on a shuffled text."""
    runs = [(0, False), (0, True), *((seed, False) for seed in range(1, given["seeds"]))]
    found = {}
    for (seed, shuffled), model in product(runs, given["models"]):
        run = "shuffled text" if shuffled else f"seed {seed}"
        found[f"{model}, {run}"] = partial(_one, given, model, seed, shuffled)
    return found


EXPERIMENT = Experiment("language", FULL, SMALL, jobs)


def _one(given, model, seed, shuffled):
    """Bits a character, and the layers under the lens before and after; seed 0 keeps its weights."""
    text, real = language.manual(shuffled=0 if shuffled else None), language.manual()
    sizes = {key: given[key] for key in ("d", "layers", "parameters")}
    net, keeps = language.build(model, **sizes, seed=seed), seed == 0 and not shuffled
    windows = {"held out": _windows(text.held_out, given["n"]), "real": _windows(real.held_out, given["n"])}
    untrained = _measured(net, windows["real"])
    how = {key: given[key] for key in ("steps", "batch", "n", "rate")}
    training = language.train(net, text.train, seed=seed, **how)
    net.half().float()  # as the weights are kept: what is measured is what can be loaded
    found = {
        "model": model, "seed": seed, "parameters": counted(net), "training": training,
        "untrained": untrained, "trained": _measured(net, windows["real"], permuted=keeps),
    }  # fmt: skip
    with torch.no_grad():
        found["held out"] = language.bits(net, windows["held out"])
    if keeps:
        found["weights"] = {name: value.half() for name, value in net.state_dict().items()}
    return found


def _windows(text, n):
    return text[: len(text) // (n + 1) * (n + 1)].unflatten(0, (-1, n + 1))


def _measured(net, windows, permuted=False):
    """Bits a character, and for every layer its heads, their count on each text, and its spectrum.

    ``permuted``: the counts with the entries of its weight matrices permuted as well.
    """
    net.eval()
    with torch.no_grad():
        found = {"bits": language.bits(net, windows), "layers": []}
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
