"""The grader of the page *past-one-machine*: the right answer passes, what one writes by mistake does not."""

import pytest
import torch

from ssmbook.exercises import check

NAME = "past-one-machine/gradients"


def right(P, early, last):
    g = torch.empty_like(P)
    g[-1] = last
    for r in range(len(P) - 2, -1, -1):
        g[r] = early[r + 1] + P[r + 1] * g[r + 1]
    return g


def of_its_own_slice(P, early, last):
    """The gradients at the starts."""
    g = torch.empty_like(P)
    for r in range(len(P) - 1, -1, -1):
        last = early[r] + P[r] * last
        g[r] = last
    return g


def without_the_loss_at_the_end(P, early, last):
    return right(P, early, 0 * last)


def without_products(P, early, last):
    return right(torch.ones_like(P), early, last)


def forward_in_time(P, early, last):
    return right(P.flip(0), early.flip(0), last).flip(0)


def test_the_recurrence_backwards_passes():
    assert check(NAME, right)


@pytest.mark.parametrize(
    "answer", [of_its_own_slice, without_the_loss_at_the_end, without_products, forward_in_time]
)
def test_mistakes_do_not(answer):
    verdict = check(NAME, answer)
    assert not verdict and "start of slice r + 1" in verdict.hint


def test_what_is_no_function_is_named():
    assert "expected a function" in check(NAME, 3).hint
