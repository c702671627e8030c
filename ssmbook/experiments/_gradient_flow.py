"""Gradient flow: the slopes of untrained layers, and the longest dependency that training finds."""

from __future__ import annotations

import math
from functools import partial

import torch

from ssmbook import gradients, maps, systems
from ssmbook.experiments._runs import Experiment
from ssmbook.experiments.learning_distance import train

F64 = torch.float64
GRID = [4, 8, 16, 23, 32, 45, 64, 91, 128, 181, 256]
FAILED = 0.5
# Layers and what they keep of a state in one step at first.
LAYERS = {
    "SGD": [
        *(["LTI", rho] for rho in (0.8, 0.9, 0.95, 0.98)),
        *(["selective", rho] for rho in (0.8, 0.9, 0.95)),
        ["attention", 0.9],
    ],
    "Adam": [["LTI", 0.8], ["LTI", 0.9], ["attention", 0.9]],
}


FULL = {
    "grid": GRID, "layers": LAYERS, "steps": 1000, "budgets": [250], "seeds": 6, "batch": 32,
    "slope_seeds": 8,
}  # fmt: skip
SMALL = {
    "grid": GRID[:3], "layers": {name: found[:1] for name, found in LAYERS.items()}, "steps": 100,
    "budgets": [], "seeds": 2, "slope_seeds": 2,
}  # fmt: skip


def jobs(given: dict) -> dict:
    """One job for the slopes, one for each layer, decay, optimizer and number of steps."""
    found = {"slopes": partial(_slopes, given)}
    for optimizer, layers in given["layers"].items():
        for layer, rho in layers:
            name = f"{layer} {rho}" if layer != "attention" else layer
            found[f"{optimizer}, {name}"] = partial(_reach, given, layer, rho, optimizer, given["steps"])
    for steps in given["budgets"]:
        for layer in ("LTI", "attention"):
            found[f"{layer}, {steps} steps"] = partial(_reach, given, layer, 0.9, "SGD", steps)
    return found


EXPERIMENT = Experiment("gradient-flow", FULL, SMALL, jobs)


def _reach(given, layer, rho, optimizer, steps):
    """Errors at growing distances, up to the second in a row where half of the runs failed."""
    errors, weights = [], []
    for distance in given["grid"]:
        options = {"optimizer": optimizer, "steps": steps, "seeds": given["seeds"], "batch": given["batch"]}
        run = train(layer, distance, rho=rho, seed=distance, **options)
        errors.append(run["error"])
        weights.append(run["weight"].mean())
        if len(errors) > 1 and all(float(e.median()) > FAILED for e in errors[-2:]):
            break
    reached = {"T": given["grid"][: len(errors)], "error": torch.stack(errors), "weight": weights}
    return {"layer": layer, "rho": rho, "steps": steps, **reached}


def _slopes(given):
    """Fitted slopes of gradient profiles beside their laws, seed by seed."""
    found = {}
    for name, measure in _LAWS.items():
        rows = [measure(torch.Generator().manual_seed(seed)) for seed in range(given["slope_seeds"])]
        found[name] = {"law": [row[0] for row in rows], "measured": [row[1] for row in rows]}
    return found


def _fitted(F, x, window):
    distances, norms = gradients.gradient_profile(F, x)
    return gradients.fit_log_slope(distances, norms, window=window)


def _lti(generator, rho=0.9):
    A = rho * systems.random_orthogonal(6, generator=generator, dtype=F64)
    eye = torch.eye(6, dtype=F64)
    x = torch.randn(120, 6, generator=generator, dtype=F64)
    return math.log(rho), _fitted(maps.LTISSM(systems.System(A, eye, eye)), x, (20, 100))


def _two_decays(generator):
    A = torch.diag(torch.tensor([0.95, 0.7], dtype=F64))
    B, C = (torch.randn(2, 2, generator=generator, dtype=F64) for _ in range(2))
    x = torch.randn(120, 2, generator=generator, dtype=F64)
    return math.log(0.95), _fitted(maps.LTISSM(systems.System(A, B, C)), x, (30, 100))


def _selective(generator, open_gate=True):
    layer = maps.SelectiveSSM(3, N=1, generator=generator, dtype=F64)
    with torch.no_grad():
        layer.log_A.zero_()
        layer.b_delta.fill_(-2.0 if open_gate else -20.0)
        layer.W_delta.mul_(0.3)
    x = torch.randn(400, 3, generator=generator, dtype=F64)
    delta = layer.selection(x)[0].detach()
    law = float(-delta[20:380].mean(0).min())
    return law, _fitted(layer, x, (20, 380))


def _attention(generator, alibi=False):
    layer = maps.Attention(3, 3, H=1, head_width=3, alibi=alibi, generator=generator, dtype=F64)
    with torch.no_grad():
        layer.W_Q.zero_()
    x = torch.randn(120, 3, generator=generator, dtype=F64)
    law = -float(maps.Attention.relative_bias(layer, 2)[0, 1, 0].abs()) if alibi else 0.0
    return law, _fitted(layer, x, (20, 100))


_LAWS = {
    "LTI, ρ = 0.5": partial(_lti, rho=0.5),
    "LTI, ρ = 0.9": _lti,
    "LTI, ρ = 0.99": partial(_lti, rho=0.99),
    "LTI, ρ = 1": partial(_lti, rho=1.0),
    "LTI, poles 0.95 and 0.7": _two_decays,
    "selective, open": _selective,
    "selective, held": partial(_selective, open_gate=False),
    "attention, no logits": _attention,
    "attention, ALiBi": partial(_attention, alibi=True),
}
