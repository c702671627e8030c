"""Grader of the chapter *positions*."""

from functools import partial

import torch

from headsandstates.chapters._graded import f64, seeded_cases
from headsandstates.exercises import grader


def _bag_share(M, *, first=1, repeated=True):
    """The floor over the energy; the keywords make two natural mistakes."""
    floor = sum((M[first : i + 1] - M[first : i + 1].mean(0)).square().sum() for i in range(1, len(M)))
    times = torch.arange(len(M), 0, -1, dtype=f64) if repeated else torch.ones(len(M), dtype=f64)
    return floor / (times @ M.flatten(1).square().sum(1))


@grader(
    "positions/bag-share",
    right=_bag_share,
    hint="not the share of the energy that a bag misses",
    mistakes={
        "a layer knows its own token, so lag 0 does not belong to the mean": partial(_bag_share, first=0),
        "in the energy, lag tau occurs n - tau times": partial(_bag_share, repeated=False),
    },
    formula="Sum |M_tau - mean|^2 over 1 <= tau <= i for every row i, with the mean of M_1, ..., M_i, and "
    "divide by the sum of (n - tau) |M_tau|^2",
)
def bag_share_cases():
    """For a function of the lags M (n, p, d)."""
    return [(torch.randn(shape, **like),) for like, shape in seeded_cases((3, 1, 1), (7, 2, 3), (20, 3, 1))]
