"""Graders of the page *past-one-machine*."""

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


@grader("past-one-machine/gradients")
def grade_gradients(answer):
    """A function (P (R, D), early (R, D), last (D,)) -> gradients at the slices' ends (R, D)."""
    hint = (
        "the last slice's end has the gradient `last`; the end of slice r is the start of slice r + 1, which "
        "is felt in that slice's outputs (early) and, times its product, at its end"
    )
    return agrees(answer, _by_autograd, list(_cases()), hint)
