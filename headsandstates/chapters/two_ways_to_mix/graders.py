"""Graders of the chapter *two-ways-to-mix*."""

from functools import partial

import torch

from headsandstates.chapters._graded import f64, missed, misshaped, seeded_cases, summed
from headsandstates.exercises import grader


def _window(n, w):
    lag = torch.arange(n)[:, None] - torch.arange(n)
    return ((lag >= 0) & (lag < w)).to(f64) / w


@grader(
    "two-ways-to-mix/window",
    right=_window,
    hint="the matrix is not the moving average",
    mistakes={
        "the first rows sum to less than 1: tokens before the first count as 0": (
            lambda n, w: _window(n, w) / _window(n, w).sum(1, keepdim=True)
        ),
        "your window holds w + 1 tokens": lambda n, w: _window(n, w + 1) * (w + 1) / w,
    },
    formula="Row i holds 1/w at j = i, i-1, ..., i-w+1, as far as those exist",
)
def window_cases():
    """For a function (n, w) -> (n, n) weights of the moving average over the last w tokens."""
    return [(5, 3), (4, 9), (17, 6), (5, 1), (1, 1)]


@grader(
    "two-ways-to-mix/missed",
    right=missed,
    hint="not the missed share",
    mistakes={
        "lag τ occurs n - τ times, so its row must be repeated n - τ times": partial(missed, repeated=False),
        "energy is the sum of the squares of the singular values": partial(missed, power=1),
    },
    formula="Repeat the row of M_τ n - τ times, or multiply it by the root of n - τ; of the squared singular "
    "values of all rows add those after the first H, and divide by the sum of all",
)
def missed_cases():
    """For a function (lags (n, p, d), H) -> share of the energy that the best H heads miss."""
    sizes = ((7, 2, 2, 1), (9, 3, 2, 2), (5, 2, 3, 0), (3, 2, 2, 3))
    return [(torch.randn(n, p, d, **like), H) for like, (n, p, d, H) in seeded_cases(*sizes)]


def _fading_heads(theta, rho, n):
    tau = torch.arange(n, dtype=f64)[:, None] - torch.arange(n, dtype=f64)
    alpha = (rho**tau * torch.stack([torch.cos(theta * tau), torch.sin(theta * tau)])).tril()
    return alpha, torch.tensor([[[1.0, 0], [0, 1]], [[0, -1], [1, 0]]], dtype=f64)


@grader(
    "two-ways-to-mix/fading",
    right=_fading_heads,
    judge=lambda heads, theta, rho, n: misshaped(heads, alpha=(2, n, n), V=(2, 2, 2)),
    view=summed,
    hint="the two heads do not add up to the system; in the blocks of the sum",
    mistakes={
        "your state does not fade: where is rho?": lambda theta, rho, n: _fading_heads(theta, 1.0, n),
        "your state rotates the other way": lambda theta, rho, n: _fading_heads(-theta, rho, n),
    },
    rtol=1e-5,
    atol=1e-6,
    formula="(rho R(theta))^τ = rho^τ cos(theta τ) I + rho^τ sin(theta τ) J: one head for I and one for J",
)
def fading_cases():
    """For a function (theta, rho, n) -> (alpha (2, n, n), V (2, 2, 2)): two heads that rotate and fade."""
    return [(0.7, 0.9, 6), (0.3, 1.0, 5), (2.0, 0.5, 1), (-1.1, 0.8, 7)]
