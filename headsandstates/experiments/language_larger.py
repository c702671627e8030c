"""The experiment "language-larger": three models of a million parameters on the text of "language"."""

from __future__ import annotations

from functools import partial
from itertools import product

import torch

from headsandstates.experiments import language
from headsandstates.experiments.tasks import count_parameters

FULL = {
    "models": ["attention", "SSD", "hybrid"], "seeds": 2, "steps": 400, "batch": 16, "n": 128, "rate": 2e-3,
    "d": 128, "layers": 4, "parameters": 1_000_000,
}  # fmt: skip
SMALL = {"seeds": 1, "steps": 5, "d": 32, "layers": 2, "parameters": 60_000}
# Written before the run, from best to worst: the order of the small models of "language". No result of the
# book says how it depends on size.
PREDICTED = ["SSD", "hybrid", "attention"]


def jobs(given: dict) -> dict:
    """One job for each seed and model."""
    runs = product(range(given["seeds"]), given["models"])
    return {f"{model}, seed {seed}": partial(_one, given, model, seed) for seed, model in runs}


def _one(given, model, seed):
    """Bits a character on the training text, in ten parts of the training, and on the text held out."""
    text, how = language.manual(), {key: given[key] for key in ("steps", "batch", "n", "rate")}
    net = language.build(model, **{key: given[key] for key in ("d", "layers", "parameters")}, seed=seed)
    training = language.train(net, text.train, seed=seed, **how)
    with torch.no_grad():
        windows = language.windows(text.held_out, given["n"])
        parts = [language.bits(net.eval(), part) for part in windows.split(64)]
        sizes = [len(part) for part in windows.split(64)]
    held_out = sum(float(bits) * size for bits, size in zip(parts, sizes, strict=True)) / sum(sizes)
    return {"model": model, "seed": seed, "parameters": count_parameters(net), "training": training,
            "held out": held_out}  # fmt: skip
