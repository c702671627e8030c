"""Tasks: which model learns what, at which length, and how it does beyond that length."""

from __future__ import annotations

from functools import partial

import torch

from ssmbook.experiments._runs import Experiment
from ssmbook.experiments.tasks import MODELS, SYMBOLS, TURNS, accuracy, build, counted, draw, train

LENGTHS = {"rotation": [12], "recall": [4]}


def settings(size: str) -> dict:
    """The settings of the small run (a minute) and of the book's."""
    full = size == "full"
    return {
        "lengths": LENGTHS if full else {"recall": [2], "rotation": [6]},
        "models": list(MODELS) if full else ["attention", "SSD"],
        "seeds": 2 if full else 1,
        "steps": 300 if full else 30,
        "batch": 32,
        "d": 32,
        "parameters": 20_000,
    }


def jobs(given: dict) -> dict:
    """One job for each task, length and model, the controls first."""
    found = {"controls": partial(_controls, given)}
    for task, lengths in given["lengths"].items():
        for L in lengths:
            for model in given["models"]:
                found[f"{task} {L}, {model}"] = partial(_one, given, task, L, model)
    return found


EXPERIMENT = Experiment("tasks", settings, jobs)


def _model(given, model, seed):
    return build(model, d=given["d"], parameters=given["parameters"], seed=seed)


def _one(given, task, L, model):
    at_length, beyond, losses = [], [], []
    for seed in range(given["seeds"]):
        net = _model(given, model, seed)
        losses.append(train(net, task, L, steps=given["steps"], batch=given["batch"], seed=seed))
        at_length.append(accuracy(net, task, L))
        beyond.append(accuracy(net, task, 2 * L))
    return {"task": task, "L": L, "model": model, "accuracy": at_length, "beyond": beyond, "loss": losses}


def _controls(given):
    """Parameter counts, untrained accuracy, the accuracy of guessing, and of the most frequent answer."""
    found = {"parameters": {}, "untrained": {}, "guessing": {}}
    for model in given["models"]:
        net = _model(given, model, 0)
        found["parameters"][model] = counted(net)
        task = next(iter(given["lengths"]))
        found["untrained"][model] = accuracy(net, task, given["lengths"][task][0])
    for task, lengths in given["lengths"].items():
        _, answers = draw(task, lengths[0], 4096, generator=torch.Generator().manual_seed(0))
        found["guessing"][task] = 1 / (TURNS if task == "rotation" else SYMBOLS)
        counts = answers[answers >= 0].bincount()
        assert abs(float(counts.max() / counts.sum()) - found["guessing"][task]) < 0.02
    return found
