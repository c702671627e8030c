"""Graders of the chapter *two-ways-to-mix*."""

from functools import partial

import torch

from ssmbook.chapters._graded import f64, heads_agree, seeded, summed
from ssmbook.exercises import grader
from ssmbook.operators import LagOperator
from ssmbook.systems import System, rotation


def _band(n, w, keep):
    lag = torch.arange(n)[:, None] - torch.arange(n)[None, :]
    return keep(lag).to(f64) / w


def _window(n, w):
    return _band(n, w, lambda lag: (lag >= 0) & (lag < w))


@grader(
    "two-ways-to-mix/window",
    right=_window,
    hint="the table is not the moving average",
    mistakes={
        "your rows sum to 1, and here the first rows sum to less: a token before the first counts as 0": (
            lambda n, w: _window(n, w) / _window(n, w).sum(1, keepdim=True)
        ),
        "your window holds w + 1 tokens: the token itself is one of the w": (
            lambda n, w: _band(n, w, lambda lag: (lag >= 0) & (lag <= w))
        ),
        "your table is transposed: rows are outputs, and the past is to the left": (
            lambda n, w: _window(n, w).T
        ),
        "your outputs see their future: entries above the diagonal are 0": (
            lambda n, w: _band(n, w, lambda lag: lag.abs() < w)
        ),
        "that is the moving sum: the average divides by w": lambda n, w: w * _window(n, w),
    },
    formula="Row i holds 1/w at j = i, i-1, ..., i-w+1, as far as those exist",
)
def window_cases():
    """For a function (n, w) -> (n, n) table of the moving average over the last w tokens."""
    return [(1, 1), (5, 1), (5, 3), (4, 9), (17, 6)]


def _missed(M, H, repeats=lambda n: torch.arange(n, 0, -1, dtype=f64).sqrt(), power=2):
    """Missed share of the energy of lags (n, p, d) with H heads."""
    rows = repeats(len(M))[:, None] * M.double().reshape(len(M), -1)
    sigma = torch.linalg.svdvals(rows) ** power
    return float(sigma[H:].sum() / sigma.sum())


def _lags(n, p, d, seed):
    return torch.randn(n, p, d, **seeded(seed))


@grader(
    "two-ways-to-mix/missed",
    right=_missed,
    hint="not the missed share",
    mistakes={
        "you count every lag once: lag τ stands n - τ times in the table": (
            lambda M, H: _missed(M, H, lambda n: torch.ones(n, dtype=f64))
        ),
        "a row that stands m times is worth one row times the root of m, and you multiply by m": (
            lambda M, H: _missed(M, H, lambda n: torch.arange(n, 0, -1, dtype=f64))
        ),
        "energy is a sum of squares: square the singular values before you add them": (
            partial(_missed, power=1)
        ),
        "that is the share the heads keep; asked is the share they miss": lambda M, H: 1 - _missed(M, H),
    },
    formula="Scale row τ of the n × pd table by the root of n - τ; of its squared singular values add those "
    "after the first H, and divide by the sum of all",
)
def missed_cases():
    """For a function (lags (n, p, d), H) -> share of the energy that the best H heads miss."""
    return [(_lags(7, 2, 2, 0), 1), (_lags(9, 3, 2, 1), 2), (_lags(5, 2, 3, 2), 0), (_lags(3, 2, 2, 3), 3)]


def _fading_heads(theta, rho, n, causal=True):
    tau = torch.arange(n, dtype=f64)[:, None] - torch.arange(n, dtype=f64)
    alpha = rho**tau * torch.stack([torch.cos(theta * tau), torch.sin(theta * tau)])
    V = torch.tensor([[[1.0, 0], [0, 1]], [[0, -1], [1, 0]]], dtype=f64)
    return alpha.tril() if causal else alpha, V


def _of_fading(theta, rho, n):
    """The operator (n, n, 2, 2) by the powers of A: another way than that of the two heads."""
    eye = torch.eye(2, dtype=f64)
    return LagOperator(System(rotation(theta, rho=rho, dtype=f64), eye, eye).lags(n)).to_dense()


FADING_MISTAKES = {
    "your state turns and does not fade: where is rho?": lambda theta, rho, n: _of_fading(theta, 1.0, n),
    "your outputs see their future: the tables are 0 above the diagonal": (
        lambda *case: summed(*_fading_heads(*case, causal=False))
    ),
    "your state turns the other way: mind the sign of J": lambda theta, rho, n: _of_fading(-theta, rho, n),
    "you shrink once: after τ steps the factor is rho to the power τ": (
        lambda theta, rho, n: _of_fading(theta, 1.0, n) * rho
    ),
}


@grader(
    "two-ways-to-mix/fading",
    formula="(rho R(theta))^τ = rho^τ cos(theta τ) I + rho^τ sin(theta τ) J: two tables, two maps",
)
def grade_fading(answer):
    """A function (theta, rho, n) -> (alpha (2, n, n), V (2, 2, 2)): two heads that turn and fade."""
    cases = [(0.7, 0.9, 6), (0.3, 1.0, 5), (2.0, 0.5, 1), (-1.1, 0.8, 7)]
    hint = "the two heads do not add up to the system; in the blocks of the sum"
    how = {"mistakes": FADING_MISTAKES, "rtol": 1e-5, "atol": 1e-6}
    return heads_agree(answer, _of_fading, cases, lambda theta, rho, n: (2, n, 2, 2), hint, **how)
