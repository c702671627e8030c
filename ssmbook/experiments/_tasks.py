"""Tasks: which model learns what, at which length, and how it does at other lengths."""

from __future__ import annotations

from functools import partial
from itertools import product

import torch

from ssmbook.experiments._runs import Experiment
from ssmbook.experiments.tasks import MODELS, SYMBOLS, TURNS, accuracy, build, counted, draw, train

LENGTHS = {"copying": [8, 4, 16], "selective copying": [8], "recall": [4], "rotation": [12]}
SHORT = {"copying": [2], "selective copying": [2], "recall": [2], "rotation": [6]}


FULL = {
    "lengths": LENGTHS, "models": list(MODELS), "seeds": 4, "steps": 600, "batch": 32, "d": 32,
    "parameters": 20_000,
}  # fmt: skip
SMALL = {"lengths": SHORT, "models": ["attention", "SSD"], "seeds": 1, "steps": 30}


def jobs(given: dict) -> dict:
    """One job for each task, length and model, the controls first, and one with shuffled answers."""
    found = {"controls": partial(_controls, given)}
    first = [(task, lengths[0]) for task, lengths in given["lengths"].items()]
    others = [(task, L) for task, lengths in given["lengths"].items() for L in lengths[1:]]
    for sizes, shuffled in ((first, False), (first, True), (others, False)):
        for (task, L), model in product(sizes, given["models"]):
            name = f"{task} {L}, {model}{', shuffled' if shuffled else ''}"
            found[name] = partial(_one, given, task, L, model, shuffled)
    return found


EXPERIMENT = Experiment("tasks", FULL, SMALL, jobs)


def _model(given, model, seed):
    return build(model, d=given["d"], parameters=given["parameters"], seed=seed)


def _one(given, task, L, model, shuffled):
    """Final losses by seed, and right answers by length tested and seed; of the control one seed."""
    tested = [L // 2, L, 2 * L, 4 * L]
    losses, right = [], []
    for seed in range(1 if shuffled else given["seeds"]):
        net = _model(given, model, seed)
        how = {"steps": given["steps"], "batch": given["batch"], "seed": seed, "shuffled": shuffled}
        losses.append(train(net, task, L, **how))
        right.append([accuracy(net, task, length) for length in tested])
    return {
        "task": task, "L": L, "model": model, "shuffled": shuffled, "loss": losses, "tested": tested,
        "right": list(zip(*right, strict=True)),
    }  # fmt: skip


def _controls(given):
    """Parameter counts, the accuracy of untrained models, and that of guessing."""
    found = {"parameters": {}, "untrained": {}, "guessing": {}}
    for model in given["models"]:
        net = _model(given, model, 0)
        found["parameters"][model] = counted(net)
        found["untrained"][model] = {
            task: accuracy(net, task, lengths[0]) for task, lengths in given["lengths"].items()
        }
    for task, lengths in given["lengths"].items():
        _, answers = draw(task, lengths[0], 4096, generator=torch.Generator().manual_seed(0))
        found["guessing"][task] = 1 / (TURNS if task == "rotation" else SYMBOLS)
        counts = answers[answers >= 0].bincount()
        assert abs(float(counts.max() / counts.sum()) - found["guessing"][task]) < 0.02
    return found
