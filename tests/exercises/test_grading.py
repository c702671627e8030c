"""How answers are graded: right ones pass, wrong ones get a hint, nothing that a learner types raises."""

import numpy as np
import pytest
import torch
from helpers import F64

from headsandstates.exercises import check, grader
from headsandstates.exercises.grading import first_problem


@grader("toy/trace", right=torch.trace, hint="sum the entries with i = j", formula="that is A.trace()")
def trace_cases():
    return [(torch.eye(3),), (torch.arange(4.0).reshape(2, 2),)]


@grader("toy/root", judge=lambda root, x: None if root**2 == x else f"not a root of {x}")
def root_cases():
    return [(4.0,), (9.0,)]


@grader("toy/pair")
def grade_pair(answer):
    return None if answer.shape == (2,) else "give a pair"


def learner():
    """``check`` as a new learner calls it, from a namespace of their own."""
    return eval("lambda name, answer: check(name, answer)", {"check": check})


def test_right_answers():
    verdict = check("toy/trace", lambda matrix: matrix.diagonal().sum())
    assert verdict and repr(verdict) == "✓ toy/trace: correct"
    assert check("toy/root", lambda x: -(x**0.5))
    assert check("toy/pair", torch.zeros(2))


def test_the_formula_follows_the_second_wrong_answer_of_a_learner():
    wrong, right = lambda matrix: matrix.sum() + 1, lambda matrix: matrix.trace()
    ask = learner()
    first, second = ask("toy/trace", wrong), ask("toy/trace", wrong)
    assert first.hint.startswith("sum the entries with i = j") and "A.trace()" not in first.hint
    assert second.hint == f"{first.hint}. that is A.trace()"
    assert learner()("toy/trace", wrong) == first  # another learner in the same process
    assert ask("toy/trace", right) and ask("toy/trace", wrong) == first  # a right answer starts anew


@grader("toy/half", right=lambda x: x / 2, hint="not a half", look="at x", formula="divide x by 2")
def half_cases():
    return [(3.0,)]


def test_each_further_wrong_answer_gets_one_hint_more():
    ask, wrong = learner(), lambda x: x
    told = [ask("toy/half", wrong).hint for _ in range(4)]
    assert told[0].startswith("not a half: ") and "look" not in told[0]
    assert told[1] == f"{told[0]}. Where to look: at x"
    assert told[2] == told[3] == f"{told[1]}. divide x by 2"


def test_a_judge_examines_every_case():
    assert check("toy/root", lambda x: 2.0).hint == "not a root of 9.0"


@pytest.mark.parametrize("answer", [None, "x", object, 1j, [], {}, torch.zeros(3), lambda: 1, np.ones(3)])
@pytest.mark.parametrize("name", ["toy/trace", "toy/root", "toy/pair"])
def test_nothing_that_a_learner_types_raises(name, answer):
    verdict = check(name, answer)
    assert not verdict and verdict.hint


def test_an_answer_that_overwrites_its_arguments_harms_nobody():
    def greedy(matrix):
        total = matrix.trace().clone()
        matrix.zero_()
        return total

    assert check("toy/trace", greedy) and check("toy/trace", greedy)


@pytest.mark.parametrize(
    "right", [[[1, 2]], np.array([[1.0, 2.0]]), torch.tensor([[1.0, 2.0]]).requires_grad_()]
)
def test_a_right_result_may_have_any_type(right):
    wanted = torch.tensor([[1.0, 2.0]], dtype=F64)
    assert first_problem(lambda x: right, [(0,)], right=lambda x: wanted) is None


@pytest.mark.parametrize("wrong", [[1, 2], [[1], [2, 3]], [[1, float("nan")]], [[1 + 1j, 2]], [[1, 2.001]]])
def test_a_wrong_result_is_refused(wrong):
    wanted = torch.tensor([[1.0, 2.0]], dtype=F64)
    assert first_problem(lambda x: wrong, [(0,)], right=lambda x: wanted)


def test_a_known_mistake_is_one_on_every_case():
    mistakes = {"you forget n": lambda n: 0.0}
    for failing, known in ((9, True), (2, False)):
        answer = lambda n, failing=failing: 0.0 if n != failing else 1 / 0  # noqa: E731
        hint = first_problem(answer, [(1,), (2,)], right=float, hint="wrong", mistakes=mistakes)
        assert (hint == "you forget n") is known


def test_of_several_results_the_wrong_one_is_named():
    right = lambda x: (x, 2 * x)  # noqa: E731
    given = {"right": right, "hint": "wrong", "parts": ("once", "twice")}
    assert first_problem(right, [(1.0,)], **given) is None
    assert "twice" in first_problem(lambda x: (x, x), [(1.0,)], **given)
    assert first_problem(lambda x: x, [(1.0,)], **given)


def test_unknown_exercises():
    for name in ("toy/no", "nowhere/width", "width"):
        with pytest.raises(ValueError, match=name):
            check(name, 1)
