"""The experiment "gradient-flow": how far a dependency can lie and still be learned.

A token is (f v, (1 - f) v, f): a number v that is either the flagged one, f = 1, or a
distraction. The flagged token comes first, T distractions after it, and the last token
answers with the flagged number. Each layer can do this exactly; they differ in the gradient
with which they start.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import product

import torch
from torch import Tensor
from torch.nn import functional

from headsandstates.experiments.training import F64
from ssmbook import gradients, maps, systems
from ssmbook._checks import check_choice

LAYERS = ("LTI", "selective", "attention")
RATES = {"SGD": 0.05, "Adam": 0.01}  # by optimizer
FAILED = 0.5
GRID = [4, 8, 16, 23, 32, 45, 64, 91, 128, 181, 256]
# Layers by optimizer, and what they keep of a state in one step at first.
RUNS = {
    "SGD": [
        *(["LTI", rho] for rho in (0.8, 0.9, 0.95, 0.98)),
        *(["selective", rho] for rho in (0.8, 0.9, 0.95)),
        ["attention", 0.9],
    ],
    "Adam": [["LTI", 0.8], ["LTI", 0.9], ["attention", 0.9]],
}
FULL = {
    "grid": GRID, "layers": RUNS, "steps": 1000, "budgets": [250], "seeds": 6, "batch": 32, "slope_seeds": 8,
    "fine": {
        "0.8": [19, 20, 21, 22, 23, 24, 25, 26, 28], "0.9": [40, 43, 46, 49, 52, 55, 58],
        "0.95": [80, 86, 92, 98, 104, 110], "0.98": [180, 200, 220, 240, 260],
    }, "fine_seeds": 12,
    "collapse": {"rho": 0.9, "rates": [0.0125, 0.025, 0.05, 0.1], "steps": [500, 1000, 2000]},
    "around": [-10, -5, 0, 5, 10],
    "spread": {"rho": [0.8, 0.9, 0.95, 0.98], "T": [100, 120, 140, 160, 180, 200, 220]},
}  # fmt: skip
# Written before the runs. If the weight that is needed is inversely proportional to rate
# times steps, then all pairs of one product learn the same distance: that of the fitted
# constant, moved by the logarithm of the product. Of four poles the slowest decides, with a
# quarter of CB.
NEEDED, AT = 0.0057, 0.05 * 1000  # the constant of the fine grids, and their rate times steps


def predicted(rho: float, product: float) -> float:
    """The distance T at which rho^T is the weight that ``product``, rate times steps, needs."""
    return math.log(product / (NEEDED * AT)) / math.log(1 / rho)


SMALL = {
    "grid": GRID[:3], "layers": {name: found[:1] for name, found in RUNS.items()}, "steps": 100,
    "budgets": [], "seeds": 2, "slope_seeds": 2, "fine": {}, "fine_seeds": 2, "around": [0],
    "collapse": {"rho": 0.9, "rates": [0.05], "steps": [100]}, "spread": {"rho": [0.8, 0.9], "T": [4]},
}  # fmt: skip


def flagged_tokens(
    S: int, batch: int, T: int, *, loud: float = 1.0, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Draw tokens (S, batch, T + 1, 3), the flagged one first, and what is asked for, (S, batch).

    Parameters
    ----------
    S, batch : int
        How many layers, and sequences for each.
    T : int
        The distractions after the flagged token.
    loud : float, default 1.0
        Their standard deviation; the flagged number has 1.
    generator : torch.Generator, optional
        Draws the numbers.

    Returns
    -------
    tuple of Tensor
        Tokens and flagged numbers.
    """
    v = torch.randn(S, batch, T + 1, generator=generator)
    v[..., 1:] *= loud
    f = torch.zeros(T + 1)
    f[0] = 1.0
    return torch.stack([f * v, (1 - f) * v, f.expand_as(v)], -1), v[..., 0]


def start(
    layer: str, S: int, *, rho: float | list[float] = 0.9, generator: torch.Generator | None = None
) -> dict[str, Tensor]:
    """Draw the parameters of S layers before training; ``rho``: what a step keeps of the state or of each.

    "LTI": h = exp(-exp(nu)) h + B x with four poles of radius rho at first. "selective":
    the same decay, but exp(-Delta_i) with Delta_i = softplus(w x_i + b), w = 0 and the b
    that gives rho at first. "attention": the last token's logit is u x_j. In each the
    answer is C h, or C times the mean of B x_j.

    Parameters
    ----------
    layer : str
        One of ``LAYERS``.
    S : int
        How many layers.
    rho : float or list of float, default 0.9
        Between 0 and 1.
    generator : torch.Generator, optional
        Draws the weights.

    Returns
    -------
    dict
        The leaves (S, …) by name.

    Raises
    ------
    ValueError
        If the layer is unknown.
    """
    check_choice("layer", layer, LAYERS)
    N, decay = 4, -torch.as_tensor(rho, dtype=F64).log()
    found = {
        "B": 0.5 * torch.randn(S, N, 3, generator=generator),
        "C": 0.5 * torch.randn(S, N, generator=generator) / N**0.5,
    }
    if layer == "LTI":
        found["nu"] = decay.log().float().repeat(S, N // decay.numel())
    elif layer == "selective":
        found["w"] = torch.zeros(S, N, 3)
        found["b"] = decay.expm1().log().float().repeat(S, N // decay.numel())
    else:
        found["u"] = torch.zeros(S, N, 3)
    return {name: value.requires_grad_() for name, value in found.items()}


def weights(layer: str, parameters: dict[str, Tensor], x: Tensor) -> Tensor:
    """Return the weight of each token in the last answer, (S, batch, T + 1, N)."""
    T = x.shape[2] - 1
    if layer == "LTI":
        ages = torch.arange(T, -1, -1, dtype=x.dtype)
        return (-parameters["nu"].exp()[:, None, None] * ages[:, None]).exp()
    if layer == "selective":
        scores = torch.einsum("snc,sbtc->sbtn", parameters["w"], x) + parameters["b"][:, None, None]
        delta = functional.softplus(scores)
        return (-(delta.sum(2, keepdim=True) - delta.cumsum(2))).exp()
    return torch.einsum("snc,sbtc->sbtn", parameters["u"], x).softmax(2)


def answer(layer: str, parameters: dict[str, Tensor], x: Tensor) -> Tensor:
    """Return the answers (S, batch) at the last token."""
    states = (weights(layer, parameters, x) * torch.einsum("snc,sbtc->sbtn", parameters["B"], x)).sum(2)
    return (states * parameters["C"][:, None]).sum(2)


def train(
    layer: str, T: int, *, rho: float | list[float] = 0.9, optimizer: str = "SGD", rate: float | None = None,
    steps: int = 1000, batch: int = 32, loud: float = 1.0, seeds: int = 8, seed: int = 0,
) -> dict[str, Tensor]:  # fmt: skip
    """Train ``seeds`` layers at once on the dependency at distance T, each on sequences of its own.

    Gradients above norm 1 are cut to it, layer by layer.

    Parameters
    ----------
    layer : str
        One of ``LAYERS``.
    T : int
        The distance of the flagged token.
    rho : float or list of float, default 0.9
        As for `start`.
    optimizer : {"SGD", "Adam"}
        Of torch.
    rate : float, optional
        By default 0.05 for SGD, 0.01 for Adam.
    steps, batch : int
        How many batches, and of how many sequences.
    loud : float, default 1.0
        How large the distractions are, as in `flagged_tokens`.
    seeds : int, default 8
        How many layers.
    seed : int, default 0
        Of all draws.

    Returns
    -------
    dict
        "error" (seeds,): the mean squared error on 1,024 new sequences over that of
        answering 0, NaN where training diverged. "weight" (seeds,): what the layer keeps of
        the flagged token before training.
    """
    generator = torch.Generator().manual_seed(seed)
    parameters = start(layer, seeds, rho=rho, generator=generator)
    with torch.no_grad():  # rho^T, or 1/(T + 1) for attention
        x, _ = flagged_tokens(seeds, 1, T, generator=torch.Generator().manual_seed(0))
        weight = weights(layer, parameters, x)[:, 0, 0].mean(1)
    descent = getattr(torch.optim, optimizer)(parameters.values(), lr=rate or RATES[optimizer])
    for _ in range(steps):
        x, target = flagged_tokens(seeds, batch, T, loud=loud, generator=generator)
        descent.zero_grad()
        (answer(layer, parameters, x) - target).square().mean(1).sum().backward()
        _cut(parameters)
        descent.step()
    with torch.no_grad():
        x, target = flagged_tokens(seeds, 1024, T, loud=loud, generator=generator)
        error = (answer(layer, parameters, x) - target).square().mean(1) / target.square().mean(1)
    return {"error": error, "weight": weight}


def _cut(parameters: dict[str, Tensor]) -> None:
    """Scale each layer's gradient to norm 1 where it is longer."""
    grads = [each.grad for each in parameters.values()]
    size = torch.stack([g.flatten(1).square().sum(1) for g in grads]).sum(0).sqrt()
    for g in grads:
        g /= size.clamp_min(1.0).view(-1, *[1] * (g.ndim - 1))


def jobs(given: dict) -> dict:
    """One job for the slopes, one for each layer, decay, optimizer and steps, and one for each fine grid."""
    found = {"slopes": partial(_slopes, given)}
    for optimizer, layers in given["layers"].items():
        for layer, rho in layers:
            name = f"{layer} {rho}" if layer != "attention" else layer
            found[f"{optimizer}, {name}"] = partial(_reach, given, layer, rho, optimizer, given["steps"])
    for steps in given["budgets"]:
        for layer in ("LTI", "attention"):
            found[f"{layer}, {steps} steps"] = partial(_reach, given, layer, 0.9, "SGD", steps)
    for rho in given["fine"]:
        found[f"fine, LTI {rho}"] = partial(_fine, given, float(rho), given["fine"][rho])
    rho = given["collapse"]["rho"]
    for rate, steps in product(given["collapse"]["rates"], given["collapse"]["steps"]):
        middle = round(predicted(rho, rate * steps))
        grid = [middle + shift for shift in given["around"]]
        found[f"rate {rate:g}, {steps} steps"] = partial(_fine, given, rho, grid, rate=rate, steps=steps)
    found["spread"] = partial(_fine, given, given["spread"]["rho"], given["spread"]["T"])
    return found


def _fine(given, rho, grid, **how):
    """Errors of linear layers at every distance of a fine grid, by seed."""
    how = {"steps": given["steps"], "batch": given["batch"], "seeds": given["fine_seeds"], **how}
    runs = [train("LTI", T, rho=rho, seed=1000 + T, **how) for T in grid]
    return {"rho": rho, "T": grid, "error": torch.stack([run["error"] for run in runs])}


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
