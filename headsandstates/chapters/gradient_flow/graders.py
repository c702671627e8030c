"""Graders of the chapter *gradient-flow*."""

import math
from functools import partial

import torch

from headsandstates.chapters._graded import f64, seeded
from headsandstates.exercises import grader
from ssmbook.gradients import fit_log_slope, gradient_profile
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


def _slope(F, x, near, far):
    return fit_log_slope(*gradient_profile(F, x), window=(near, far))


@grader(
    "gradient-flow/slope",
    right=_slope,
    hint="the slope is not that of the layer's gradient",
    mistakes={
        "the distance runs against the position": lambda *given: -_slope(*given),
        "entries of a summed output may cancel": (
            lambda F, *rest: _slope(lambda x: F(x).sum(-1, keepdim=True), *rest)
        ),
    },
    formula="Take the Jacobian of the last output by x, the largest singular value of its block at each "
    "position, flip the order, and fit a line to the logarithms at the distances near, ..., far",
)
def slope_cases():
    """For a function (F, x (n, d), near, far) -> slope of log ||dy_last/dx_(last - tau)||_2 in between."""
    # Two poles, near and far (no straight line), and one pole.
    new = seeded(4)
    eye, poles = torch.eye(2, dtype=f64), torch.tensor([0.95, 0.7], dtype=f64).diag()
    two = LTISSM(System(poles, torch.randn(2, 3, **new), torch.randn(2, 2, **new)))
    one = LTISSM(System(0.9 * eye, torch.randn(2, 2, **new), eye))
    yield two, torch.randn(41, 3, **new), 1, 10
    yield two, torch.randn(41, 3, **new), 10, 39
    yield one, torch.randn(41, 2, **new), 0, 40


def _signals(B, C, nu, T, *, distractions=1.0):
    """The derivatives of E (answer - v_0)^2 by autograd."""
    B, nu = B.clone().requires_grad_(), torch.tensor(nu, dtype=f64, requires_grad=True)
    kept = torch.exp(-torch.exp(nu) * torch.arange(T + 1))  # lambda^t
    error = (C * B[0] * kept[T] - 1) ** 2 + (C * B[2] * kept[T]) ** 2
    error = error + distractions * (C * B[1]) ** 2 * kept[:T].square().sum()
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
