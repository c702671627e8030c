"""The grader of *scans*: right answers pass, natural mistakes get sentences of their own, parts are named."""

import torch

from ssmbook.chapters.scans import graders
from ssmbook.exercises import check
from ssmbook.scans import diagonal_scan_naive

NAME = "scans/backward"


def right(a, state, h, d):
    """By autograd, with the inputs rebuilt from the outputs."""
    before = torch.cat((state[None], h[:-1]))
    leaves = [t.clone().requires_grad_() for t in (a, h - a * before, state)]
    return torch.autograd.grad(diagonal_scan_naive(*leaves)[0], leaves, d)


def in_three(stacked):
    def answer(a, state, h, d):
        found = stacked(a, state, h, d)
        return found[: len(h)], found[len(h) : -1], found[-1]

    return answer


def test_backward(each_mistake):
    assert check(NAME, right)
    assert check(NAME, in_three(graders._by_hand))
    each_mistake(NAME, [(in_three(wrong), words) for wrong, words in graders.BACKWARD_MISTAKES])


def test_the_wrong_part_is_named():
    for i, name in enumerate(("a", "b", "state")):

        def spoiled(*case, i=i):
            parts = list(right(*case))
            parts[i] = 2 * parts[i]
            return parts

        assert f"the gradient of {name} is not that of the loop" in check(NAME, spoiled).hint


def test_what_is_no_function_is_named():
    assert "expected a function" in check(NAME, 3).hint
