"""Graders of the chapter *gradient-flow*."""

import math
from functools import partial

import torch

from ssmbook.chapters._graded import f64, seeded
from ssmbook.exercises import grader
from ssmbook.experiments import learning_distance as distance
from ssmbook.gradients import fit_log_slope
from ssmbook.operators import LagOperator


def _start(T, c):
    return math.log(math.log(1 / c) / T)


@grader(
    "gradient-flow/start-for",
    right=_start,
    hint="not the start",
    rtol=1e-9,
    mistakes={
        "that is the pole: the layer stores the nu with exp(-exp(nu)) = pole": lambda T, c: c ** (1 / T),
        "that is what a step takes from the logarithm: nu is its logarithm": lambda T, c: math.log(1 / c) / T,
        "your nu does not know c: a larger share asks for a slower pole": lambda T, c: math.log(1 / T),
    },
    formula="Solve exp(-exp(nu) T) = c: nu = log(log(1 / c) / T)",
)
def start_for_cases():
    """For a function (T, c) -> nu with exp(-exp(nu)) ** T = c: at that start T steps keep the share c."""
    return [(T, c) for T in (1, 7, 100, 20_000) for c in (0.5, 0.005, 1e-9)]


class _Lags:
    """y_i = sum_tau M_tau x_{i - tau}: the norms of its derivatives are those of the lags."""

    def __init__(self, M):
        self.M = M

    def __call__(self, x):
        return torch.einsum("ijpd,jd->ip", LagOperator(self.M).to_dense().to(x), x)

    def norms(self, x):
        return torch.linalg.matrix_norm(self.M, ord=2)


class _Neuron:
    """h_i = tanh(w h_{i - 1} + x_i): what is handed on depends on the tokens."""

    def __init__(self, w):
        self.w = w

    def __call__(self, x):
        h = [torch.zeros_like(x[0])]
        for token in x:
            h.append(torch.tanh(self.w * h[-1] + token))
        return torch.stack(h[1:])

    def norms(self, x):
        """The chain rule by hand: 1 - h_j^2, times w (1 - h_l^2) for every l after j."""
        slopes = 1 - self(x)[:, 0].square().flip(0)
        return slopes * torch.cat([slopes.new_ones(1), self.w * slopes[:-1]]).cumprod(0)


def _wanted_slope(F, x, near, far):
    return fit_log_slope(torch.arange(len(x)), F.norms(x), window=(near, far)).slope


def _slope(F, x, near, far, *, order=2, curve=torch.log, output=lambda y: y):
    """The slope by autograd, with another norm, logarithm or output where one is given."""
    blocks = torch.autograd.functional.jacobian(lambda x: output(F(x)[-1]), x).transpose(0, 1).flip(0)
    norms = torch.linalg.matrix_norm(blocks, ord=order)[near : far + 1]
    tau = torch.arange(near, far + 1, dtype=f64)
    line = torch.stack([tau, torch.ones_like(tau)], 1)
    return torch.linalg.lstsq(line, curve(norms)[:, None]).solution[0, 0]


def _two_ends(F, x, near, far):
    logs = F.norms(x).log()
    return (logs[far] - logs[near]) / (far - near)


@grader(
    "gradient-flow/slope",
    right=_wanted_slope,
    hint="the slope is not that of the layer's gradient",
    mistakes={
        "your slope is that along positions: the distance runs the other way": lambda *given: -_slope(*given),
        "your logarithm is to base 10: the laws are in natural ones": partial(_slope, curve=torch.log10),
        "your line goes through the norms, and the law is about their logarithms": (
            partial(_slope, curve=lambda norms: norms)
        ),
        "your norm is that of Frobenius; asked for is the largest singular value": (
            partial(_slope, order="fro")
        ),
        "you differentiate the sum of an output's entries, which may cancel: the derivative is a matrix": (
            partial(_slope, output=lambda y: y.sum(0, keepdim=True))
        ),
        "your line goes through all distances; asked for are those from near to far": (
            lambda F, x, near, far: _slope(F, x, 0, len(x) - 1)
        ),
        "your line leaves the distance far out": lambda F, x, near, far: _slope(F, x, near, far - 1),
        "your line goes through two of the points: fit it to all of them by least squares": _two_ends,
        "you measure at zero tokens: right for linear layers, others answer for the x they are given": (
            lambda F, x, near, far: _slope(F, torch.zeros_like(x), near, far)
        ),
    },
    formula="Take the Jacobian of the last output by x, the largest singular value of its block at each "
    "position, flip the order, and fit a line to the logarithms at the distances near, ..., far",
)
def slope_cases():
    """For a function (F, x (n, d), near, far) -> slope of log ||dy_last/dx_(last - tau)||_2 in between."""
    # Two poles, near and far (no straight line); one pole; a neuron, which is not linear.
    new = seeded(4)
    B, C = torch.randn(2, 3, **new), torch.randn(2, 2, **new)
    tau = torch.arange(41, dtype=f64)[:, None]
    two = torch.einsum("ps,ts,sd->tpd", C, torch.tensor([0.95, 0.7], dtype=f64) ** tau, B)
    one = 0.9 ** tau[:, :, None] * torch.randn(2, 2, **new)
    yield _Lags(two), torch.randn(41, 3, **new), 1, 10
    yield _Lags(two), torch.randn(41, 3, **new), 10, 39
    yield _Lags(one), torch.randn(41, 2, **new), 0, 40
    yield _Neuron(0.9), torch.randn(25, 1, **new), 2, 20


def _expected_error(B, C, nu, T):
    """E (answer - v_0)^2, from the layer's answers to single values: it is linear in them."""
    parameters = {"B": B[None, None], "C": B.new_full((1, 1), C), "nu": nu[None, None]}
    v = torch.cat([B.new_zeros(1, T + 1), torch.eye(T + 1, dtype=B.dtype)])[None]
    f = (torch.arange(T + 1) == 0).to(B).expand_as(v)
    alone, *answers = distance.answer("LTI", parameters, torch.stack([f * v, (1 - f) * v, f], -1))[0]
    response = torch.stack(answers) - alone
    return alone.square() + (response - torch.eye(T + 1, dtype=B.dtype)[0]).square().sum()


def _by_autograd(B, C, nu, T):
    B, nu = B.clone().requires_grad_(), torch.tensor(nu, dtype=B.dtype, requires_grad=True)
    return torch.autograd.grad(_expected_error(B, C, nu, T), (B, nu))


def _signals(B, C, nu, T, *, asked=1.0, others=1.0, flag=1.0, late=0, twice=2.0, chain=True):
    """The derivatives in closed form, each of their terms with a switch."""
    lam, age = math.exp(-math.exp(nu)), T + late
    w, t = lam**age, torch.arange(T, dtype=B.dtype)
    number, silence, read = C * B[0] * w - asked, others * C * B[1], flag * C * B[2] * w
    by_B = torch.stack([number * w, silence * (lam ** (2 * t)).sum(), read * w])
    by_log = age * w * (B[0] * number + B[2] * read) + B[1] * silence * (t * lam ** (2 * t)).sum()
    return twice * C * by_B, twice * C * by_log * (math.log(lam) if chain else 1 / lam)


@grader(
    "gradient-flow/signals",
    right=_by_autograd,
    hint="not the signals",
    parts=("by_B", "by_nu"),
    mistakes={
        "yours are the derivatives of half the squared error": partial(_signals, twice=1.0),
        "you differentiate by the pole, and the layer stores nu: one more factor": (
            partial(_signals, chain=False)
        ),
        "your layer hears the flagged token alone: the T distractions err too": partial(_signals, others=0.0),
        "the flag is a number as well: what B_2 reads of it is in the answer": partial(_signals, flag=0.0),
        "yours is the power of the answer: where is the number asked for?": partial(_signals, asked=0.0),
        "the flagged token is T steps back, not T + 1": partial(_signals, late=1),
    },
    formula="With w = lambda^T the expected squared error is (C B_0 w - 1)^2 + (C B_2 w)^2 + (C B_1)^2 times "
    "the sum of lambda^(2t) over t < T, and lambda^t has the derivative t lambda^t log(lambda) by nu",
)
def signals_cases():
    """For a function (B (3,), C, nu, T) -> derivatives (by_B (3,), by_nu) of the expected squared error."""
    new = seeded(5)
    starts = ((0.7, 0.9, 6), (-0.4, 0.8, 1), (1.3, 0.98, 45), (0.5, 0.5, 3))
    return [(torch.randn(3, **new), C, math.log(-math.log(rho)), T) for C, rho, T in starts]
