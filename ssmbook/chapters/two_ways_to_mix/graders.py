"""Graders of the chapter *two-ways-to-mix*."""

import torch

from ssmbook.exercises import agrees, grader


def _window(n: int, w: int) -> torch.Tensor:
    weights = torch.zeros(n, n, dtype=torch.float64)
    for i in range(n):
        for j in range(max(0, i - w + 1), i + 1):
            weights[i, j] = 1 / w
    return weights


@grader("two-ways-to-mix/window")
def grade_window(answer):
    """A function (n, w) -> (n, n) table of the moving average over the last w tokens."""
    cases = [(1, 1), (5, 1), (5, 3), (4, 9), (17, 6)]
    hint = "row i holds 1/w at j = i, i-1, ..., i-w+1, as far as those exist, and 0 elsewhere"
    return agrees(answer, _window, cases, hint)
