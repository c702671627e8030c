"""Graders of the page *past-one-machine*."""

from functools import partial

import torch

from ssmbook.exercises import agrees, grader


def _cases():
    for seed, (R, D) in enumerate(((1, 1), (2, 3), (5, 2), (8, 4))):
        generator = torch.Generator().manual_seed(seed)
        P, early = torch.randn(2, R, D, generator=generator, dtype=torch.float64)
        yield P, early, torch.randn(D, generator=generator, dtype=torch.float64)


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


GRADIENT_MISTAKES = [
    (
        partial(_by_hand, starts=True),
        "those are the gradients at the slices' starts, and asked are their ends",
    ),
    (
        partial(_by_hand, forward=True),
        "`last` belongs to the end of the last slice, and you begin with the first",
    ),
    (
        partial(_by_hand, bare=True),
        "what a start does to its slice's end is the product of that slice's gates",
    ),
    (
        lambda P, early, last: _by_hand(P, early, 0 * last),
        "the loss at the state after all slices is left out: it is the gradient at the last end",
    ),
]


@grader(
    "past-one-machine/gradients",
    formula="The last end has `last`; the end of slice r is the start of slice r + 1, which has "
    "early[r + 1] + P[r + 1] * (the gradient at the end of slice r + 1)",
)
def grade_gradients(answer):
    """A function (P (R, D), early (R, D), last (D,)) -> gradients at the slices' ends (R, D)."""
    hint = "not the gradients at the ends, where the end of slice r is the start of slice r + 1"
    return agrees(answer, _by_autograd, list(_cases()), hint, mistakes=GRADIENT_MISTAKES)
