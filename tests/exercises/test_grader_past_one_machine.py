"""The grader of the page *past-one-machine*: the right answer passes, what one writes by mistake does not."""

import torch

from ssmbook.chapters.past_one_machine import graders
from ssmbook.exercises import check

NAME = "past-one-machine/gradients"


def right(P, early, last):
    g = torch.empty_like(P)
    g[-1] = last
    for r in range(len(P) - 2, -1, -1):
        g[r] = early[r + 1] + P[r + 1] * g[r + 1]
    return g


def test_the_recurrence_backwards_passes():
    assert check(NAME, right)


def test_each_mistake_gets_its_sentence(each_mistake):
    assert check(NAME, graders._by_hand)
    wrong = [
        lambda P, early, last: early + P * right(P, early, last),
        lambda P, early, last: right(P.flip(0), early.flip(0), last).flip(0),
        lambda P, early, last: right(P**0, early, last),
        lambda P, early, last: right(P, early, 0 * last),
    ]
    each_mistake(NAME, anew=wrong)


def test_another_wrong_answer_is_told_its_first_wrong_entry():
    verdict = check(NAME, lambda P, early, last: 2 * right(P, early, last))
    assert not verdict and "the end of slice r is the start of slice r + 1: entry (0, 0) is" in verdict.hint


def test_what_is_no_function_is_named():
    assert "expected a function" in check(NAME, 3).hint
