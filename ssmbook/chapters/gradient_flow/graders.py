"""Graders of the chapter *gradient-flow*."""

import math
from functools import partial

import torch

from ssmbook.chapters._graded import f64, seeded
from ssmbook.exercises import grader
from ssmbook.experiments import gradient_flow as distance
from ssmbook.gradients import fit_log_slope
from ssmbook.maps import LTISSM
from ssmbook.systems import System


def _start(T, c):
    return math.log(math.log(1 / c) / T)


@grader(
    "gradient-flow/start-for",
    right=_start,
    hint="not the start",
    rtol=1e-9,
    mistakes={
        "that is the pole: the layer stores the nu with exp(-exp(nu)) = pole": lambda T, c: c ** (1 / T),
        "nu is the logarithm of what you return": lambda T, c: math.log(1 / c) / T,
    },
    formula="Solve exp(-exp(nu) T) = c: nu = log(log(1 / c) / T)",
)
def start_for_cases():
    """For a function (T, c) -> nu with exp(-exp(nu)) ** T = c: at that start T steps keep the share c."""
    return [(T, c) for T in (1, 7, 100, 20_000) for c in (0.5, 0.005, 1e-9)]


def _slope(F, x, near, far, *, output=lambda y: y):
    """The slope by autograd, of the last output or of a part of it."""
    blocks = torch.autograd.functional.jacobian(lambda x: output(F(x)[-1]), x).transpose(0, 1).flip(0)
    norms = torch.linalg.matrix_norm(blocks, ord=2)
    return fit_log_slope(torch.arange(len(x)), norms, window=(near, far))


def _neuron(x, w=0.9):
    """h_i = tanh(w h_{i - 1} + x_i): what is handed on depends on the tokens."""
    h = [torch.zeros_like(x[0])]
    for token in x:
        h.append(torch.tanh(w * h[-1] + token))
    return torch.stack(h[1:])


@grader(
    "gradient-flow/slope",
    right=_slope,
    hint="the slope is not that of the layer's gradient",
    mistakes={
        "the distance runs against the position": lambda *given: -_slope(*given),
        "entries of a summed output may cancel": partial(_slope, output=lambda y: y.sum(0, keepdim=True)),
    },
    formula="Take the Jacobian of the last output by x, the largest singular value of its block at each "
    "position, flip the order, and fit a line to the logarithms at the distances near, ..., far",
)
def slope_cases():
    """For a function (F, x (n, d), near, far) -> slope of log ||dy_last/dx_(last - tau)||_2 in between."""
    # Two poles, near and far (no straight line); one pole; a neuron, which is not linear.
    new = seeded(4)
    two = LTISSM(
        System(
            torch.tensor([0.95, 0.7], dtype=f64).diag(), torch.randn(2, 3, **new), torch.randn(2, 2, **new)
        )
    )
    one = LTISSM(System(0.9 * torch.eye(2, dtype=f64), torch.randn(2, 2, **new), torch.eye(2, dtype=f64)))
    yield two, torch.randn(41, 3, **new), 1, 10
    yield two, torch.randn(41, 3, **new), 10, 39
    yield one, torch.randn(41, 2, **new), 0, 40
    yield _neuron, torch.randn(25, 1, **new), 2, 20


def _signals(B, C, nu, T, *, distractions=1.0):
    """The derivatives of E (answer - v_0)^2 by autograd, from the layer's answers to single values."""
    B, nu = B.clone().requires_grad_(), torch.tensor(nu, dtype=B.dtype, requires_grad=True)
    parameters = {"B": B[None, None], "C": B.new_full((1, 1), C), "nu": nu[None, None]}
    v = torch.cat([B.new_zeros(1, T + 1), torch.eye(T + 1, dtype=B.dtype)])[None]
    f = (torch.arange(T + 1) == 0).to(B).expand_as(v)
    alone, *answers = distance.answer("LTI", parameters, torch.stack([f * v, (1 - f) * v, f], -1))[0]
    missed = torch.stack(answers) - alone - torch.eye(T + 1, dtype=B.dtype)[0]
    error = alone.square() + missed[0].square() + distractions * missed[1:].square().sum()
    return torch.autograd.grad(error, (B, nu))


def _by_pole(B, C, nu, T):
    by_B, by_nu = _signals(B, C, nu, T)
    return by_B, -by_nu / math.exp(nu - math.exp(nu))


@grader(
    "gradient-flow/signals",
    right=_signals,
    hint="not the signals",
    parts=("by_B", "by_nu"),
    mistakes={
        "differentiate by nu, not by the pole: one more factor": _by_pole,
        "the T distractions cause errors too": partial(_signals, distractions=0.0),
    },
    formula="With w = lambda^T the expected squared error is (C B_0 w - 1)^2 + (C B_2 w)^2 + (C B_1)^2 times "
    "the sum of lambda^(2t) over t < T, and lambda^t has the derivative t lambda^t log(lambda) by nu",
)
def signals_cases():
    """For a function (B (3,), C, nu, T) -> derivatives (by_B (3,), by_nu) of the expected squared error."""
    new = seeded(5)
    starts = ((0.7, 0.9, 6), (-0.4, 0.8, 1), (1.3, 0.98, 45), (0.5, 0.5, 3))
    return [(torch.randn(3, **new), C, math.log(-math.log(rho)), T) for C, rho, T in starts]
