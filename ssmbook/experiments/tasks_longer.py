"""The experiment "tasks-longer": what "tasks" left unlearned, trained five times as long."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from ssmbook.experiments import tasks
from ssmbook.experiments.tasks import accuracy, assemble, build, train
from ssmbook.maps import DeltaNet, Mamba3

# Models whose median in "tasks" is below 0.95, trained at the better of two rates: that of "tasks" and
# "rate_tried", compared on one seed of 600 steps on one task. The last of the cells are two published layers,
# one whose states rotate and one whose state transition has negative eigenvalues; they are trained for 600
# steps only, because a step takes three times as long.
FULL = {
    "cells": [
        ["rotation", "SSD"], ["copying", "SSD"], ["selective copying", "selective SSM"], ["recall", "SSD"],
        ["rotation", "attention"], ["copying", "rotating SSM"], ["recall", "rotating SSM"],
        ["copying", "selective SSM"], ["selective copying", "SSD"], ["recall", "selective SSM"],
        ["rotation", "Mamba-3"], ["rotation", "DeltaProduct"],
    ],
    "lengths": {"copying": 8, "selective copying": 8, "recall": 4, "rotation": 12},
    "rate_task": {
        "attention": "rotation", "selective SSM": "selective copying", "SSD": "selective copying",
        "rotating SSM": "selective copying",
    },
    "rate_tried": 1e-2,
    "rates": {
        "attention": 3e-3, "selective SSM": 1e-2, "SSD": 1e-2, "rotating SSM": 1e-2, "Mamba-3": 3e-3,
        "DeltaProduct": 3e-3,
    },
    "seeds": 1, "first_seed": 100, "steps": 3000, "short": 600, "batch": 32, "d": 32, "parameters": 20_000,
}  # fmt: skip
SMALL = {"cells": [["rotation", "SSD"], ["rotation", "Mamba-3"]], "rate_task": {}, "short": 10, "steps": 20}

# Written before the run: the least and the largest share right at the length of training. No state is short
# of room at these lengths (12 to 36 bits), so theory forbids none of them to learn. Only the rotating SSM
# cannot ask for a key, since its read is the same for every token. Twelve tokens of the rotation can be
# followed without rotation, by counting and taking the rest in the feed-forward layer; but a rule for sums up
# to 24 says nothing of larger sums. A state that rotates, and two reflections in a row, can follow the rule
# at any length.
LEARNED, NOT_LEARNED = (0.95, 1.0), (0.0, 0.9)
PREDICTED = {
    "copying": {"rotating SSM": LEARNED, "selective SSM": LEARNED, "SSD": LEARNED},
    "selective copying": {"rotating SSM": LEARNED, "selective SSM": LEARNED, "SSD": LEARNED},
    "recall": {"rotating SSM": NOT_LEARNED, "selective SSM": LEARNED, "SSD": LEARNED},
    "rotation": {
        "attention": LEARNED, "selective SSM": LEARNED, "SSD": LEARNED, "Mamba-3": LEARNED,
        "DeltaProduct": LEARNED,
    },
}  # fmt: skip
PREDICTED_BEYOND = {  # the share of tokens 13 to 24 of the rotation; a guess is 1/3
    "attention": NOT_LEARNED, "selective SSM": NOT_LEARNED, "SSD": NOT_LEARNED, "Mamba-3": LEARNED,
    "DeltaProduct": LEARNED,
}  # fmt: skip


def model(name: str, *, d: int = 32, parameters: int = 20_000, seed: int = 0) -> nn.Module:
    """Build a model of ``tasks`` or, of the same size, one with two layers "Mamba-3" or "DeltaProduct".

    Mamba-3 has 4 heads of width 16 and 16 states, as SSD has; DeltaProduct has 4 heads of width 8 with two
    updates per token, whose factors between 0 and 2 make eigenvalues between -1 and 1.
    """
    generator = torch.Generator().manual_seed(seed)
    if name == "Mamba-3":
        mixers = [Mamba3(d, d, H=4, head_width=16, N=16, generator=generator) for _ in range(2)]
    elif name == "DeltaProduct":
        mixers = [DeltaNet(d, d, H=4, head_width=8, pairs=2, generator=generator) for _ in range(2)]
    else:
        return build(name, d=d, parameters=parameters, seed=seed)
    return assemble(mixers, d, tasks.VOCABULARY, parameters, seed)


def jobs(given: dict) -> dict:
    """The other rate on one task of each model, then all cells, with one seed after another."""
    found = {}
    for name, task in given["rate_task"].items():
        what = (task, name, given["short"], given["rate_tried"], 0)
        found[f"rate {given['rate_tried']:g}, {task}, {name}"] = partial(_one, given, *what)
    for seed in range(given["first_seed"], given["first_seed"] + given["seeds"]):
        for task, name in given["cells"]:
            steps = given["steps" if name in tasks.MODELS else "short"]
            what = (task, name, steps, given["rates"][name], seed)
            found[f"seed {seed}, {task}, {name}"] = partial(_one, given, *what)
    return found


def _one(given, task, name, steps, rate, seed):
    """Final loss of a run, and its right answers by length tested."""
    L = given["lengths"][task]
    net = model(name, d=given["d"], parameters=given["parameters"], seed=seed)
    loss = train(net, task, L, steps=steps, batch=given["batch"], rate=rate, seed=seed)
    tested = [L // 2, L, 2 * L, 4 * L]
    right = [accuracy(net, task, length) for length in tested]
    return {"task": task, "L": L, "model": name, "steps": steps, "rate": rate, "seed": seed,
            "loss": loss, "tested": tested, "right": right}  # fmt: skip
