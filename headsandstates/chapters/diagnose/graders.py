"""Graders of the chapter *diagnose*: foretell a weight, and choose a penalty."""

import math
from functools import partial

from headsandstates.exercises import grader


def _crowd(m, n):
    return float(n) if m == 0 else (1 - math.exp(-m * n)) / (1 - math.exp(-m))


def _foretell(weight, near, far, m, *, pays=True, crowds=True):
    odds = weight / (1 - weight)
    odds *= math.exp(-m * (far - near)) if pays else 1
    odds *= _crowd(m, near) / _crowd(m, far) if crowds else 1
    return odds / (1 + odds)


@grader(
    "diagnose/foretell",
    right=_foretell,
    hint="the weight at the far distance is wrong",
    mistakes={
        "the note pays m for every further token": partial(_foretell, pays=False),
        "more tokens compete at the far distance": partial(_foretell, crowds=False),
        "return the weight, not the odds": lambda *case: _foretell(*case) / (1 - _foretell(*case)),
    },
    formula="multiply the odds by exp(-m (far - near)) S(near) / S(far), with S(n) the sum of exp(-m d) for "
    "d from 0 to n - 1, and return odds / (1 + odds)",
)
def foretell_cases():
    """For a function (weight, near, far, m) -> the weight on a note at the far distance."""
    return [(0.9, 48, 1024, 1 / 256), (0.9, 48, 1024, 0.0), (0.5, 10, 20, 0.5), (0.2, 8, 9, 0.1)]


def _steepest(margin, distance, *, crowd=True):
    if margin < (math.log(distance) if crowd else 0):
        return 0.0
    low, high = 0.0, margin
    for _ in range(200):
        m = (low + high) / 2
        enough = margin - m * distance >= (math.log(_crowd(m, distance)) if crowd else 0)
        low, high = (m, high) if enough else (low, m)
    return low


@grader(
    "diagnose/steepest",
    right=_steepest,
    hint="not the steepest penalty",
    mistakes={
        "the other tokens compete, too": partial(_steepest, crowd=False),
        "without a penalty all tokens compete alike": lambda margin, n: max(0, margin - math.log(n)) / n,
    },
    formula="the largest m with margin - m n >= log S, S the sum of exp(-m d) for d from 0 to n - 1; halve "
    "an interval from 0 to the margin; 0 if even m = 0 is too steep",
)
def steepest_cases():
    """For a function (margin, distance) -> the steepest penalty m >= 0 that leaves a weight of one half."""
    return [(10.0, 1024), (10.0, 64), (7.0, 1000), (3.0, 100)]
