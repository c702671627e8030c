"""Graders of the page *past-one-machine*."""

from functools import partial

import torch

from ssmbook.chapters._graded import seeded
from ssmbook.exercises import grader


def _by_autograd(P, early, last):
    """The gradients of sum(early_r c_r) + last c_R at what is added at the end of every slice."""
    added = torch.zeros_like(P, requires_grad=True)
    c, loss = torch.ones_like(last), torch.zeros_like(last)
    for P_r, early_r, added_r in zip(P, early, added, strict=True):
        loss = loss + early_r * c
        c = P_r * c + added_r
    (found,) = torch.autograd.grad((loss + last * c).sum(), added)
    return found


def _by_hand(P, early, last, *, starts=False, forward=False, bare=False):
    """The gradients at the ends, with the mistake that is asked for."""
    g, found = last, []
    order = range(len(P)) if forward else range(len(P) - 1, -1, -1)
    for r in order:
        start = early[r] + (g if bare else P[r] * g)
        found.append(start if starts else g)
        g = start
    return torch.stack(found if forward else found[::-1])


@grader(
    "past-one-machine/gradients",
    right=_by_autograd,
    hint="not the gradients at the ends, where the end of slice r is the start of slice r + 1",
    mistakes={
        "those are the gradients at the slices' starts, and asked are their ends": (
            partial(_by_hand, starts=True)
        ),
        "`last` belongs to the end of the last slice, and you begin with the first": (
            partial(_by_hand, forward=True)
        ),
        "what a start does to its slice's end is the product of that slice's gates": (
            partial(_by_hand, bare=True)
        ),
        "the loss at the state after all slices is left out: it is the gradient at the last end": (
            lambda P, early, last: _by_hand(P, early, 0 * last)
        ),
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
