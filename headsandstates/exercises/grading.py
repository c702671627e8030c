"""Graders: how they are registered, how an answer is compared with the right one, and what a learner sees."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module

import torch

_EXERCISES: dict[str, Exercise] = {}


@dataclass(frozen=True)
class Exercise:
    """How an exercise is graded: ``grade(answer)`` a hint or None; further hints, right answer, mistakes.

    Parameters
    ----------
    grade : callable
        An answer to a hint, or to None if it is correct.
    steps : tuple of str
        Further hints, one by one.
    right : callable or None
        The right answer.
    mistakes : mapping
        A sentence about each wrong answer that is known, and that answer.
    """

    grade: Callable
    steps: tuple[str, ...]
    right: Callable | None
    mistakes: Mapping[str, Callable]


@dataclass(frozen=True)
class Verdict:
    """What ``check`` returns: the exercise, whether the answer is correct (also as a bool), a hint if not."""

    name: str
    correct: bool
    hint: str = ""

    def __bool__(self) -> bool:
        return self.correct

    def __repr__(self) -> str:
        return f"✓ {self.name}: correct" if self.correct else f"✗ {self.name}: {self.hint}"


def check(name: str, answer: object) -> Verdict:
    """Grade ``answer`` to the exercise ``name`` ("chapter-name/exercise-id") and return the ``Verdict``.

    A wrong ``answer`` of any type gives a hint, never an exception. Each further one is
    told one hint more: where to look, then how it is done. Wrong answers are counted in the
    namespace of the caller until a right one. Raises ``ValueError`` for an unknown name.

    >>> check("two-ways-to-mix/window", lambda n, w: torch.eye(n))
    ✗ two-ways-to-mix/window: the matrix is not the moving average: for 5, 3, entry (0, 0) is 1, wanted 0.3333
    """
    exercise = find(name)
    try:
        hint = exercise.grade(answer)
    except Exception as error:  # the learner's code may fail in any way: a wrong answer, not a broken book
        hint = f"your answer failed with {_describe(error)}"
    misses = sys._getframe(1).f_globals.setdefault("_wrong_answers", {})
    if hint is None:
        misses.pop(name, None)
        return Verdict(name, True)
    misses[name] = misses.get(name, 0) + 1
    return Verdict(name, False, ". ".join((hint, *exercise.steps[: misses[name] - 1])))


def grader(
    name: str, *, hint: str = "", look: str = "", formula: str = "", **options: object
) -> Callable[[Callable], Callable]:
    """Register the decorated function as the grader of an exercise.

    With ``options`` the function takes nothing and returns the cases, tuples of arguments, on which
    ``first_problem`` examines an answer with these options. Without them it takes the answer itself and
    returns None if it is correct, else a hint. Graders live in ``chapters/<chapter_name>/graders.py``.

    Parameters
    ----------
    name : str
        "chapter-name/exercise-id".
    hint : str
        What is wrong, told at the first wrong answer.
    look : str
        Where to look, told at the second one.
    formula : str
        How it is done, in words, told last.
    **options
        Those of ``first_problem``: right, mistakes, judge, view, parts, rtol and atol.

    Returns
    -------
    Callable
        The decorator, which returns the function as it is.
    """
    steps = tuple(step for step in (look and f"Where to look: {look}", formula) if step)

    def register(function: Callable) -> Callable:
        def grade(answer):
            return first_problem(answer, function(), hint=hint, **options)

        right, mistakes = options.get("right"), options.get("mistakes", {})
        _EXERCISES[name] = Exercise(grade if options else function, steps, right, mistakes)
        return function

    return register


def find(name: str) -> Exercise:
    """The exercise of this name; ``ValueError`` for an unknown one, listing those of its chapter."""
    chapter = name.partition("/")[0]
    with suppress(ModuleNotFoundError):
        import_module(f"headsandstates.chapters.{chapter.replace('-', '_')}.graders")
    if name not in _EXERCISES:
        known = sorted(other for other in _EXERCISES if other.startswith(f"{chapter}/"))
        of_chapter = f"one of {', '.join(known)}" if known else '"chapter-name/exercise-id"'
        raise ValueError(f"name must be {of_chapter}; got {name!r}")
    return _EXERCISES[name]


def first_problem(
    answer: object,
    cases: Iterable[tuple],
    *,
    right: Callable | None = None,
    hint: str = "",
    mistakes: Mapping[str, Callable] | None = None,
    judge: Callable | None = None,
    view: Callable = lambda result, *case: result,
    parts: tuple[str, ...] = (),
    rtol: float = 1e-6,
    atol: float = 1e-9,
) -> str | None:
    """Run a learner's function on the cases and return the first mistake as a hint, or None.

    An answer that agrees on all cases with one of the mistakes gets its sentence, another one the hint and
    its first wrong entry. Tensors are cloned for the learner.

    Parameters
    ----------
    answer : object
        What the learner handed in.
    cases : iterable of tuple
        The arguments of one call each.
    right : Callable, optional
        A right answer; without it only ``judge`` decides.
    hint : str
        What is wrong with an answer that makes none of the mistakes.
    mistakes : Mapping[str, Callable], optional
        A sentence for each wrong function that learners are known to write.
    judge : Callable, optional
        Called first, as judge(result, *case): a hint or None, for forms and for exercises with many right
        answers.
    view : Callable
        What is compared, view(result, *case); by default the result itself.
    parts : tuple of str
        The names of the tensors to compare where there are several.
    rtol : float, default 1e-6
        What is forgiven, as a share of the right number.
    atol : float, default 1e-9
        What is forgiven besides.

    Returns
    -------
    str or None
        The hint; None for an answer that is right on all cases.
    """
    if not callable(answer):
        return f"expected a function; got {type(answer).__name__}"
    cases = list(cases)

    def seen(function, case):
        return view(function(*_cloned(case)), *case)

    for case in cases:
        try:
            result = answer(*_cloned(case))
        except Exception as error:  # any failure of the learner's function is a wrong answer
            return f"your function failed on {_words(case)} with {_describe(error)}"
        if judge and (problem := judge(result, *case)):
            return problem
        if right is None:
            continue
        found, wanted = view(result, *case), seen(right, case)
        if problem := _misshaped(found, wanted, parts):
            return f"on {_words(case)}, {problem}"
        differ = partial(_first_wrong, parts=parts, rtol=rtol, atol=atol)
        if place := differ(found, wanted):
            for sentence, mistake in (mistakes or {}).items():
                with suppress(Exception):  # a function that fails on another case makes another mistake
                    if not any(differ(seen(answer, other), seen(mistake, other)) for other in cases):
                        return sentence
            numbers = all(isinstance(argument, int | float) for argument in case)
            return f"{hint}: {f'for {_words(case)}, ' if numbers else ''}{place}"
    return None


def _by_part(found, wanted, parts):
    return zip(parts, found, wanted, strict=True) if parts else [("", found, wanted)]


def _misshaped(found, wanted, parts) -> str | None:
    """What is wrong with the form of the result."""
    if parts and not (isinstance(found, tuple | list) and len(found) == len(parts)):
        return f"expected {len(parts)} results, {', '.join(parts)}; got {type(found).__name__}"
    for part, one, other in _by_part(found, wanted, parts):
        shape = tuple(_tensor(other).shape)
        try:
            got = tuple(_tensor(one).shape)
        except (TypeError, ValueError, RuntimeError):
            got = type(one).__name__
        if got != shape:
            expected = f"a tensor of shape {shape}" if shape else "a number"
            return f"{part and f'{part}: '}expected {expected}; got {got}"
    return None


def _first_wrong(found, wanted, parts, rtol: float, atol: float) -> str | None:
    """The first wrong entry: "entry (3, 0) is 0.5, wanted 0.333"; with parts also which are right."""
    good = ""
    for part, one, other in _by_part(found, wanted, parts):
        wrong = _wrong(one, other, rtol, atol)
        if wrong.any():
            place = tuple(wrong.nonzero()[0].tolist())
            where = f"entry ({', '.join(map(str, place))})" if place else "your number"
            got, want = (_tensor(each)[place].item() for each in (one, other))
            digits = 4 if f"{got:.4g}" != f"{want:.4g}" else 17  # else the two would look equal
            return f"{good}{part and f'in {part} '}{where} is {got:.{digits}g}, wanted {want:.{digits}g}"
        good += f"{part} is right; "
    return None


def _wrong(answer, wanted, rtol: float, atol: float) -> torch.Tensor:
    """Which entries of an answer are not the wanted ones, in the dtype of both and float64 at least."""
    pair = [_tensor(each).detach().cpu() for each in (answer, wanted)]
    dtype = torch.promote_types(torch.promote_types(pair[0].dtype, pair[1].dtype), torch.float64)
    return ~torch.isclose(*(each.to(dtype) for each in pair), rtol=rtol, atol=atol)


def _tensor(value) -> torch.Tensor:
    """As a tensor; Python's numbers keep their double precision."""
    found = torch.as_tensor(value)
    plain = found.is_floating_point() and not hasattr(value, "dtype")
    return torch.as_tensor(value, dtype=torch.float64) if plain else found


def _cloned(case: tuple) -> list:
    return [each.clone() if isinstance(each, torch.Tensor) else each for each in case]


def _words(case: tuple) -> str:
    tensors = [f"a tensor {tuple(each.shape)}" if isinstance(each, torch.Tensor) else each for each in case]
    return ", ".join("a function" if callable(each) else str(each) for each in tensors)


def _describe(error: Exception) -> str:
    first = str(error).strip().partition("\n")[0].rstrip(".")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
