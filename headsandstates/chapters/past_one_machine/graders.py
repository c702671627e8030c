"""Grader of *Past one machine* in *scans, deeper*."""

from functools import partial

import torch

from headsandstates.chapters._graded import seeded
from headsandstates.exercises import grader


def _gradients(P, early, last, *, at_starts=False):
    """The gradients at the slices' ends, or at their starts."""
    g, found = last, []
    for P_r, early_r in zip(P.flip(0), early.flip(0), strict=True):
        start = early_r + P_r * g
        found.append(start if at_starts else g)
        g = start
    return torch.stack(found[::-1])


@grader(
    "past-one-machine/gradients",
    right=_gradients,
    hint="not the gradients at the ends of the slices",
    look="the end of slice r is the start of slice r + 1",
    mistakes={
        "those are the gradients at the starts, not the ends": partial(_gradients, at_starts=True),
        "the loss at the last state is left out": lambda P, early, last: _gradients(P, early, 0 * last),
    },
    formula="The last end has `last`; the end of slice r is the start of slice r + 1, which has "
    "early[r + 1] + P[r + 1] * (the gradient at the end of slice r + 1)",
)
def gradients_cases():
    """For a function (P (R, D), early (R, D), last (D,)) -> gradients at the slices' ends (R, D)."""
    for seed, (R, D) in enumerate(((1, 1), (2, 3), (5, 2), (8, 4))):
        like = seeded(seed)
        P, early = torch.randn(2, R, D, **like)
        yield P, early, torch.randn(D, **like)
