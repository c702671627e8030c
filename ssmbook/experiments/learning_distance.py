"""Can a dependency at distance T be learned? Layers, tokens and training that ask for nothing else.

A token is (f v, (1 - f) v, f): a number v that is either the flagged one, f = 1, or a distraction. The
flagged token comes first, T distractions after it, and the last token answers with the flagged number. Each
layer can do this exactly; they differ in the gradient with which they start.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from ssmbook._checks import check_choice, check_integer, check_like, check_number, check_positive

LAYERS = ("LTI", "selective", "attention")
RATES = {"SGD": 0.05, "Adam": 0.01}  # by optimizer


def flagged_tokens(
    S: int, batch: int, T: int, *, loud: float = 1.0, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Draw tokens (S, batch, T + 1, 3), the flagged one first, and what is asked for, (S, batch).

    S, batch, T >= 1. ``loud`` >= 0: the standard deviation of the distractions; the flagged number has 1.
    Raises ``TypeError``/``ValueError`` otherwise. Introduced in *gradient-flow*.
    """
    S, batch, T = (check_integer(*given, low=1) for given in (("S", S), ("batch", batch), ("T", T)))
    check_like(generator=generator)
    loud = check_number("loud", loud, "a number >= 0", lambda value: 0 <= value < math.inf)
    v = torch.randn(S, batch, T + 1, generator=generator)
    v[..., 1:] *= loud
    f = torch.zeros(T + 1)
    f[0] = 1.0
    return torch.stack([f * v, (1 - f) * v, f.expand_as(v)], -1), v[..., 0]


def start(
    layer: str, S: int, *, rho: float = 0.9, N: int = 4, generator: torch.Generator | None = None
) -> dict[str, Tensor]:
    """Draw the parameters of S layers before training; ``rho``: what a step keeps of the state.

    "LTI": h = exp(-exp(nu)) h + B x with N poles, all of radius rho at first. "selective": the same decay,
    but exp(-Delta_i) with Delta_i = softplus(w x_i + b), w = 0 and the b that gives rho at first.
    "attention": the last token's logit is u x_j. In each the answer is C h, or C times the mean of B x_j.
    Returns name -> (S, …) leaves. Raises ``ValueError`` for an unknown layer or rho outside (0, 1).
    Introduced in *gradient-flow*.
    """
    check_choice("layer", layer, LAYERS)
    S, N = (check_integer(*given, low=1) for given in (("S", S), ("N", N)))
    check_like(generator=generator)
    rho = check_number("rho", rho, "a number in (0, 1)", lambda value: 0 < value < 1)
    decay = -math.log(rho)
    found = {
        "B": 0.5 * torch.randn(S, N, 3, generator=generator),
        "C": 0.5 * torch.randn(S, N, generator=generator) / N**0.5,
    }
    if layer == "LTI":
        found["nu"] = torch.full((S, N), math.log(decay))
    elif layer == "selective":
        found["w"] = torch.zeros(S, N, 3)
        found["b"] = torch.full((S, N), math.log(math.expm1(decay)))
    else:
        found["u"] = torch.zeros(S, N, 3)
    return {name: value.requires_grad_() for name, value in found.items()}


def kept(layer: str, parameters: dict[str, Tensor], x: Tensor) -> Tensor:
    """What the last answer sees of each token: weights (S, batch, T + 1, N).

    Introduced in *gradient-flow*.
    """
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
    """The answers (S, batch) at the last token. Introduced in *gradient-flow*."""
    states = (kept(layer, parameters, x) * torch.einsum("snc,sbtc->sbtn", parameters["B"], x)).sum(2)
    return (states * parameters["C"][:, None]).sum(2)


def train(
    layer: str, T: int, *, rho: float = 0.9, optimizer: str = "SGD", rate: float | None = None,
    steps: int = 1000, batch: int = 32, loud: float = 1.0, seeds: int = 8, seed: int = 0,
) -> dict[str, Tensor]:  # fmt: skip
    """Train ``seeds`` layers at once on the dependency at distance T, each on sequences of its own.

    ``rate`` > 0: the learning rate (0.05 for SGD, 0.01 for Adam). ``loud``: how large the distractions are,
    as in `flagged_tokens`. Gradients above norm 1 are cut to it, layer by layer. Returns "error" (seeds,),
    the mean squared error on 1,024 new sequences over that of answering 0, NaN where training diverged, and
    "weight" (seeds,), what the layer keeps of the flagged token before training. Raises
    ``TypeError``/``ValueError`` for malformed arguments. Introduced in *gradient-flow*.
    """
    check_choice("optimizer", optimizer, RATES)
    rate = RATES[optimizer] if rate is None else check_positive("rate", rate)
    steps = check_integer("steps", steps, low=0)
    generator = torch.Generator().manual_seed(seed)
    parameters = start(layer, seeds, rho=rho, generator=generator)
    weight = _weight(layer, parameters, T)
    descent = getattr(torch.optim, optimizer)(parameters.values(), lr=rate)
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


@torch.no_grad()
def _weight(layer: str, parameters: dict[str, Tensor], T: int) -> Tensor:
    """What is kept of the flagged token before training: rho^T, or 1/(T + 1) for attention."""
    x, _ = flagged_tokens(len(parameters["B"]), 1, T, generator=torch.Generator().manual_seed(0))
    return kept(layer, parameters, x)[:, 0, 0].mean(1)
