"""Graders: right answers pass, wrong ones get a hint, nothing a learner types raises."""

import math
import sys
import textwrap

import numpy as np
import pytest
import torch

from ssmbook import chapters
from ssmbook.exercises import Verdict, _grader, agrees, check, close, grader, judged
from ssmbook.exercises._grader import first_wrong

GRADERS = '''
"""Graders of a chapter that exists only in this test."""
import torch
from ssmbook.exercises import close, grader

@grader("toy-chapter/trace", right=torch.trace, hint="sum the entries with i = j")
def trace_cases():
    return [(torch.eye(3),), (torch.arange(4.0).reshape(2, 2),)]

@grader("toy-chapter/root", judge=lambda root, x: None if root(x) ** 2 == x else f"not a root of {x}")
def root_cases():
    return [(4.0,), (9.0,)]

@grader("toy-chapter/square", right=abs, judge=lambda square, x: str(square(x)), hint="square it")
def square_cases():
    return [(1.0,)]

@grader("toy-chapter/width")
def width(answer):
    return close(answer, 3.0, "count the columns of the value map")

@grader("toy-chapter/careless")
def careless(answer):
    return None if answer.shape == (2,) else "give a pair"
'''


@pytest.fixture(autouse=True)
def toy_chapter(tmp_path, monkeypatch):
    (tmp_path / "toy_chapter").mkdir()
    (tmp_path / "toy_chapter/graders.py").write_text(textwrap.dedent(GRADERS), encoding="utf-8")
    monkeypatch.setattr(chapters, "__path__", [*chapters.__path__, str(tmp_path)])
    monkeypatch.setattr(_grader, "_GRADERS", {})
    yield
    for name in [name for name in sys.modules if name.startswith("ssmbook.chapters.toy_chapter")]:
        del sys.modules[name]


def test_right_answers():
    verdict = check("toy-chapter/width", 3)
    assert verdict and verdict == Verdict("toy-chapter/width", True)
    assert repr(verdict) == "✓ toy-chapter/width: correct"
    assert check("toy-chapter/trace", lambda matrix: matrix.diagonal().sum())


def test_wrong_answers_get_the_hint():
    verdict = check("toy-chapter/width", 4)
    assert not verdict
    assert repr(verdict) == "✗ toy-chapter/width: count the columns of the value map"
    assert check("toy-chapter/trace", lambda matrix: matrix.sum() + 1).hint == "sum the entries with i = j"


def test_a_judge_is_asked_about_each_case_after_what_is_right():
    assert check("toy-chapter/root", lambda x: -(x**0.5))
    assert check("toy-chapter/root", lambda x: 2.0).hint == "not a root of 9.0"
    assert check("toy-chapter/root", 2.0).hint == "expected a function; got float"
    assert check("toy-chapter/square", lambda x: 2 * x).hint == "square it"
    assert check("toy-chapter/square", lambda x: x**2).hint == "1.0"


def test_in_place_answers_do_not_harm_the_reference():
    def greedy(matrix):
        total = matrix.diagonal().sum()
        matrix.zero_()
        return total

    assert check("toy-chapter/trace", greedy)


@pytest.mark.parametrize(
    "answer", [None, "x", object, print, 1j, [], {}, float("nan"), torch.zeros(2), lambda: 1, np.ones(3)]
)
@pytest.mark.parametrize("name", ["trace", "width", "careless"])
def test_nothing_a_learner_types_raises(name, answer):
    verdict = check(f"toy-chapter/{name}", answer)
    assert isinstance(verdict, Verdict)
    assert bool(verdict) is (name == "careless" and isinstance(answer, torch.Tensor))
    assert verdict or verdict.hint


def test_hints_name_types_shapes_and_failures():
    hint = check("toy-chapter/trace", lambda matrix: 1 / 0).hint
    assert hint == "your function failed on a tensor (3, 3) with ZeroDivisionError: division by zero"
    hint = agrees(lambda n, matrix: 1 / 0, float, [(2, torch.eye(3))], "")
    assert hint == "your function failed on 2, a tensor (3, 3) with ZeroDivisionError: division by zero"
    assert check("toy-chapter/trace", 3).hint == "expected a function; got int"
    assert (
        check("toy-chapter/trace", lambda m: m).hint
        == "on a tensor (3, 3), expected a number; got shape (3, 3)"
    )
    assert check("toy-chapter/width", "three").hint == "expected a number; got str"
    assert "AttributeError" in check("toy-chapter/careless", 3).hint


def test_failure_texts_hold_no_addresses():
    def fail(matrix):
        raise KeyError(f"{object()}")

    assert " at 0x" not in check("toy-chapter/trace", fail).hint


def test_unknown_names_list_the_known():
    grader("toy-chapters/other")(lambda answer: None)  # of another chapter, and not listed
    with pytest.raises(
        ValueError,
        match="one of toy-chapter/careless, toy-chapter/root, .*, toy-chapter/width; got 'toy-chapter/no'",
    ):
        check("toy-chapter/no", 1)
    with pytest.raises(
        ValueError, match="a chapter that has graders, one of .*toy-chapter.*; got 'nowhere/width'"
    ):
        check("nowhere/width", 1)
    with pytest.raises(ValueError, match="must read \"chapter-name/exercise-id\"; got 'width'"):
        check("width", 1)
    with pytest.raises(ValueError, match="must read"):
        check("_grader/width", 1)
    with pytest.raises(TypeError, match="name must be a str; got int"):
        check(3, 1)


def test_a_taken_name_is_refused_but_a_reload_is_not():
    def first(answer):
        return None

    def second(answer):
        return "no"

    assert grader("toy-chapter/again")(first) is first
    assert grader("toy-chapter/cases", right=abs)(first) is first  # and no grader in its place
    grader("toy-chapter/again")(first)
    with pytest.raises(ValueError, match="name must be new; 'toy-chapter/again' is graded by"):
        grader("toy-chapter/again")(second)
    with pytest.raises(ValueError, match="must read"):
        grader("no slash")


def test_close():
    wanted = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    for right in (
        wanted,
        wanted.float(),
        [[1, 2]],
        np.array([[1.0, 2.0]]),
        wanted.clone().requires_grad_(),
        wanted + 1e-10,
    ):
        assert close(right, wanted, "hint") is None
    assert close(wanted + 1e-5, wanted, "hint") == "hint"
    assert close(wanted + 1e-5, wanted, "hint", rtol=1e-4) is None
    assert close([[1, float("nan")]], wanted, "hint") == "hint"
    assert close([[1 + 1j, 2]], wanted, "hint") == close(wanted, wanted + 1j, "hint") == "hint"
    assert close([1, 2], wanted, "hint") == "expected a tensor of shape (1, 2); got shape (2,)"
    assert close([[1], [2, 3]], wanted, "hint") == "expected a tensor of shape (1, 2); got list"
    assert close(True, True, "hint") is None and close(2, 3, "hint") == "hint"


def test_without_arguments_there_is_no_case_to_name():
    assert _grader._case(()) == "" and _grader._case((3,)) == "for 3 "


def test_agrees_needs_cases():
    with pytest.raises(ValueError, match="cases must hold"):
        agrees(abs, abs, [], "hint")
    for call, words in (
        (lambda: agrees(abs, abs, 4, "hint"), "cases must be a sequence of tuples of arguments; got int"),
        (lambda: judged(abs, abs, [(1,), 4]), r"cases\[1\] must be a sequence of arguments; got int"),
        (lambda: agrees(abs, abs, [(1,)], "hint", parts="ab"), "parts must be a sequence of names; got str"),
        (lambda: agrees(abs, abs, [(1,)], "hint", mistakes=4), "mistakes must be a dict .*; got int"),
    ):
        with pytest.raises(TypeError, match=words):
            call()
    assert agrees(abs, abs, [(-1,), (2.5,)], "hint") is None
    assert agrees(lambda x: x, abs, [(1,), (-1,)], "hint") == "hint"
    assert agrees(lambda x: x, lambda x: 0.0, [(9e-10,), (-9e-10,)], "hint") is None
    assert agrees(lambda x: x, lambda x: 0.0, [(1.1e-9,)], "hint") == "hint"


def test_an_answer_that_fails_on_a_later_case_makes_no_known_mistake():
    def answer(n):
        return {1: 0.0, 2: 0.0}[n]

    mistakes = {"you forget n": lambda n: 0.0}
    assert agrees(answer, float, [(1,), (2,)], "wrong", mistakes=mistakes) == "you forget n"
    assert "you forget n" not in agrees(answer, float, [(1,), (2,), (3,)], "wrong", mistakes=mistakes)


def test_the_first_wrong_entry_is_shown_with_the_digits_it_takes():
    assert first_wrong([1.0, 2.0], [1.0, 3.0], 1e-6, 0) == "entry (1) is 2, wanted 3"
    assert first_wrong(2.00001, 2.0, 1e-6, 0) == "your number is 2.0000100000000001, wanted 2"
    assert first_wrong([1 + 1e-7, 2.0], [1.0, 3.0], 1e-6, 0).startswith("entry (1)")  # rounding is no mistake


def test_plain_numbers_are_compared_in_double_precision():
    assert close(1 + 1e-8, 1.0, "hint", rtol=1e-9) == "hint" and close(1.0, 1 + 1e-10, "hint") is None
    assert close([1 + 1e-8], torch.ones(1), "hint", rtol=1e-9, atol=0) == "hint"


def test_plain_arguments_are_named_with_the_wrong_number():
    mistakes = {"you forget n": lambda n: 0.0}
    answer = agrees(lambda n: n if n < 3 else 1.0, float, [(2,), (3,)], "wrong", mistakes=mistakes)
    assert answer == "wrong: for 3 your number is 1, wanted 3"
    of_tensors = agrees(torch.sum, torch.trace, [(torch.ones(2, 2),)], "wrong", mistakes=mistakes)
    assert of_tensors == "wrong: your number is 4, wanted 2"
    assert agrees(lambda F: 1.0, lambda F: F(2.0), [(math.sqrt,)], "wrong", mistakes=mistakes) == (
        f"wrong: your number is 1, wanted {2**0.5:.4g}"
    )
    fails = agrees(lambda F, x: F.no, lambda F, x: x, [(math.sqrt, 2)], "wrong")
    assert fails.startswith("your function failed on a function, 2 with AttributeError")


def test_what_is_near_enough_is_measured_by_what_is_right():
    """Half of 2 away from 2, and as much as itself away from 1: only the first is near enough."""

    def judged(*answer):
        how = {"mistakes": {"you forget both": lambda x: (0.0, 0.0)}, "parts": ("a", "b"), "rtol": 0.5}
        return agrees(lambda x: answer, lambda x: (2.0, 4.0), [(torch.ones(1),)], "wrong", **how)

    assert close(1.0, 2.0, "far", rtol=0.5) is None and close(2.0, 1.0, "far", rtol=0.5) == "far"
    assert judged(1.0, 2.0) is None
    assert judged(1.0, 1.0) == "wrong: a is right; in b your number is 1, wanted 4"
    assert judged(4.0, 2.0) == "wrong: b is right; in a your number is 4, wanted 2"


def test_parts_are_judged_one_by_one():
    def judged(answer):
        mistakes = {"you do not double": lambda x: (x.sum(), x)}
        wanted = lambda x: (x.sum(), 2 * x)  # noqa: E731
        cases = [(torch.tensor([1.0, 2.0]),), (torch.ones(3),)]
        return agrees(answer, wanted, cases, "wrong", mistakes=mistakes, parts=("total", "twice"))

    assert judged(lambda x: (x.sum(), x + x)) is None
    assert judged(lambda x: [x.sum().item(), (x + x).tolist()]) is None
    assert judged(lambda x: (x.sum(), x)) == "you do not double"
    assert judged(lambda x: (x.sum(), 3 * x)) == "wrong: total is right; in twice entry (0) is 3, wanted 2"
    assert judged(lambda x: (0.0, 2 * x)) == "wrong: twice is right; in total your number is 0, wanted 3"
    assert judged(lambda x: (0.0, x)) == "wrong: in total your number is 0, wanted 3"
    assert judged(lambda x: (x, x)) == "on a tensor (2,), total: expected a number; got shape (2,)"
    assert judged(lambda x: (0.0, "x")) == "on a tensor (2,), twice: expected a tensor of shape (2,); got str"
    assert judged(lambda x: x) == "on a tensor (2,), expected 2 results, total, twice; got Tensor"
    assert judged(lambda x: (x, x, x)) == "on a tensor (2,), expected 2 results, total, twice; got 3"
