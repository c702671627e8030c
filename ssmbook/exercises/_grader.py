"""The register of graders, the verdict a learner sees, and the comparisons that graders are made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import torch

from ssmbook._checks import check_sequence

_CHAPTERS = "ssmbook.chapters"
_GRADERS: dict[str, _Grader] = {}
_MISSES: dict[str, int] = {}  # wrong answers so far, by exercise: the second one is told the formula


@dataclass(frozen=True)
class _Grader:
    """What is registered under a name: the function of the chapter, and what is made of it."""

    function: Callable
    grade: Callable
    formula: str
    mistakes: Mapping[str, Callable]


@dataclass(frozen=True)
class Verdict:
    """What ``check`` says about an answer: exercise, correct or not (also as a bool), a hint if not.

    >>> Verdict("zoo/one", False, "the sum runs over j")
    ✗ zoo/one: the sum runs over j
    """

    name: str
    correct: bool
    hint: str = ""

    def __bool__(self) -> bool:
        return self.correct

    def __repr__(self) -> str:
        return f"✓ {self.name}: correct" if self.correct else f"✗ {self.name}: {self.hint}"


def grader(
    name: str,
    *,
    right: Callable | None = None,
    judge: Callable | None = None,
    formula: str = "",
    **options: object,
) -> Callable[[Callable], Callable]:
    """Register the decorated function as the grader of the exercise ``name``, "chapter-name/exercise-id".

    The function takes the learner's answer (anything) and returns None if it is correct, else a hint (str)
    that says what is wrong. With ``right`` or ``judge`` it takes nothing and gives the cases instead: on them
    the answer ``agrees`` with ``right``, whose ``options`` go along, and is then ``judged``. ``formula`` says
    how it is done, and follows the hint from the second wrong answer on. The function lives in
    ``ssmbook/chapters/<chapter_name>/graders.py``. Raises ``ValueError`` for a malformed name or one that is
    taken.
    """
    _check_name(name)

    def register(function: Callable) -> Callable:
        taken = _GRADERS[name].function if name in _GRADERS else function
        if (taken.__module__, taken.__qualname__) != (function.__module__, function.__qualname__):
            raise ValueError(
                f"name must be new; {name!r} is graded by {taken.__module__}.{taken.__qualname__}"
            )
        grade = _on_cases(function, right, judge, options) if right or judge else function
        _GRADERS[name] = _Grader(function, grade, formula, options.get("mistakes", {}))
        return function

    return register


def _on_cases(cases: Callable, right: Callable | None, judge: Callable | None, options: dict) -> Callable:
    """What grades an answer on the cases, by what is ``right`` and then by the ``judge``."""

    def grade(answer):
        given = list(cases())
        problem = agrees(answer, right, given, **options) if right else None
        return problem or (judged(answer, judge, given) if judge else None)

    return grade


def check(name: str, answer: object) -> Verdict:
    """Grade ``answer`` to the exercise ``name`` ("chapter-name/exercise-id") and return the ``Verdict``.

    ``answer`` is whatever the exercise asks for: a function, a tensor, a number. A wrong type or an answer
    that fails while it runs gives a hint, never an exception; a second wrong answer is told how it is done.
    Raises ``ValueError`` for an unknown name,
    listing the known ones. Introduced in *two-ways-to-mix*.

    >>> check("two-ways-to-mix/window", lambda n, w: torch.eye(n))
    ✗ two-ways-to-mix/window: the table is not the moving average: for 5, 3 entry (0, 0) is 1, wanted 0.3333
    """
    found = _find(name)
    try:
        hint = found.grade(answer)
    except Exception as error:  # the learner's code may fail in any way: a wrong answer, not a broken book
        hint = f"your answer failed with {_describe(error)}"
    if hint is None:
        return Verdict(name, True)
    _MISSES[name] = _MISSES.get(name, 0) + 1
    return Verdict(name, False, f"{hint}. {found.formula}" if found.formula and _MISSES[name] > 1 else hint)


def close(answer: object, wanted: object, hint: str, *, rtol: float = 1e-6, atol: float = 1e-9) -> str | None:
    """Return None if ``answer`` is ``wanted`` within the tolerances, else a hint that says what differs.

    ``wanted`` is a tensor of any shape or a number; ``answer`` may be a tensor, an array, nested lists or a
    number of the same shape, of any numeric dtype. A wrong type or shape is named; otherwise ``hint`` is
    returned as it is.

    >>> close(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0]), "each is the sum of those before")
    'each is the sum of those before'
    >>> close(2.0, 2.0, "twice one") is None
    True
    """
    wanted = _tensor(wanted)
    shape = tuple(wanted.shape)
    expected = f"a tensor of shape {shape}" if shape else "a number"
    try:
        answer = _tensor(answer)
    except (TypeError, ValueError, RuntimeError):
        return f"expected {expected}; got {type(answer).__name__}"
    if tuple(answer.shape) != shape:
        return f"expected {expected}; got shape {tuple(answer.shape)}"
    return hint if bool(_wrong(answer, wanted, rtol, atol).any()) else None


def judged(answer: object, judge: Callable, cases: Iterable[tuple]) -> str | None:
    """Return the first hint of ``judge(answer, *case)`` over the cases, None if there is none.

    For an exercise with many right answers; ``judge`` returns None for a right one. Tensors are cloned for
    the learner's function; what is no function is named.

    >>> judged(abs, lambda answer, x: None if answer(x) > 0 else f"not positive at {x}", [(-1,), (0,)])
    'not positive at 0'
    """
    if not callable(answer):
        return f"expected a function; got {type(answer).__name__}"
    return next(filter(None, (judge(_on_clones(answer), *case) for case in _tuples(cases))), None)


def _tuples(cases) -> list[tuple]:
    """The argument tuples of an exercise, in a list."""
    cases = check_sequence("cases", cases, "tuples of arguments")
    return [tuple(check_sequence(f"cases[{i}]", case, "arguments")) for i, case in enumerate(cases)]


def agrees(
    answer: object,
    wanted: Callable,
    cases: Iterable[tuple],
    hint: str,
    *,
    mistakes: Mapping[str, Callable] | None = None,
    parts: tuple[str, ...] = (),
    rtol: float = 1e-6,
    atol: float = 1e-9,
) -> str | None:
    """Return None if a function gives what ``wanted`` gives for every argument tuple, else what is wrong.

    Tensors among the arguments are cloned for the learner. A non-function, an exception and a wrong shape
    are named. An answer that does on every case what a function of ``mistakes`` does is told the sentence
    under which it stands; another one ``hint``, followed by its first wrong entry where ``mistakes`` are
    given. ``parts`` names the results of a function that returns several: each is judged by itself. ``cases``
    must not be empty (``ValueError``).

    >>> agrees(lambda x: x + x, lambda x: x**2, [(2.0,), (3.0,)], "square it")
    'square it'
    """
    cases, parts = _tuples(cases), [str(part) for part in check_sequence("parts", parts, "names")]
    if not cases:
        raise ValueError("cases must hold at least one tuple of arguments; got none")
    if not isinstance(mistakes, Mapping | None):
        raise TypeError(f"mistakes must be a dict of functions or None; got {type(mistakes).__name__}")

    def compared(answer, *arguments):
        try:
            result = answer(*arguments)
        except Exception as error:  # any failure of the learner's function is a wrong answer
            return f"your function failed on {_arguments(arguments)} with {_describe(error)}"
        right = wanted(*arguments)
        problem = _differs(result, right, hint, parts, rtol, atol)
        if problem != hint:
            return problem and f"on {_arguments(arguments)}, {problem}"
        catalogue = (mistakes or {}).items()
        known = (say for say, wrong in catalogue if _same(answer, wrong, cases, parts, rtol, atol))
        place = f"{_case(arguments)}{_where(result, right, parts, rtol, atol)}"
        return next(known, f"{hint}: {place}" if mistakes else hint)

    return judged(answer, compared, cases)


def first_wrong(answer, wanted, rtol: float, atol: float) -> str:
    """Say which entry of an answer is the first wrong one: "entry (3, 0) is 0.5, wanted 0.333"."""
    place = tuple(_wrong(answer, wanted, rtol, atol).nonzero()[0].tolist())
    where = f"entry ({', '.join(map(str, place))})" if place else "your number"
    got, right = (_tensor(each)[place].item() for each in (answer, wanted))
    digits = 4 if f"{got:.4g}" != f"{right:.4g}" else 17  # two equal numbers would say nothing
    return f"{where} is {got:.{digits}g}, wanted {right:.{digits}g}"


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


def _on_clones(function: Callable) -> Callable:
    return lambda *arguments: function(*(a.clone() if isinstance(a, torch.Tensor) else a for a in arguments))


def _differs(result, right, hint: str, parts: list[str], rtol: float, atol: float) -> str | None:
    """``close``, for each part where a function returns several; a wrong form is named before a number."""
    if not parts:
        return close(result, right, hint, rtol=rtol, atol=atol)
    several = isinstance(result, tuple | list)
    if not several or len(result) != len(parts):
        came = len(result) if several else type(result).__name__
        return f"expected {len(parts)} results, {', '.join(parts)}; got {came}"
    found = [close(one, other, hint, rtol=rtol, atol=atol) for one, other in zip(result, right, strict=True)]
    named = zip(parts, found, strict=True)
    forms = (f"{part}: {problem}" for part, problem in named if problem not in (None, hint))
    return next(forms, hint if hint in found else None)


def _where(result, right, parts: list[str], rtol: float, atol: float) -> str:
    """The first wrong entry; of several parts also which are right."""
    if not parts:
        return first_wrong(result, right, rtol, atol)
    each = zip(parts, result, right, strict=True)
    wrong = [part for part, one, other in each if close(one, other, "wrong", rtol=rtol, atol=atol)]
    good = "".join(f"{part} is right; " for part in parts if part not in wrong)
    at = parts.index(wrong[0])
    return f"{good}in {wrong[0]} {first_wrong(result[at], right[at], rtol, atol)}"


def _same(answer: Callable, wrong: Callable, cases: list[tuple], parts, rtol: float, atol: float) -> bool:
    """Whether the answer makes exactly this mistake, on every case."""
    wrong = _on_clones(wrong)
    try:
        pairs = ((answer(*case), wrong(*case)) for case in cases)
        return not any(_differs(*pair, "different", parts, rtol, atol) for pair in pairs)
    except Exception:  # an answer that fails on a later case makes another mistake
        return False


def _arguments(arguments: tuple) -> str:
    return ", ".join(map(_argument, arguments))


def _case(arguments: tuple) -> str:
    """The case in words, where it has no tensor and no function: a number alone says little."""
    plain = arguments and not any(isinstance(a, torch.Tensor) or callable(a) for a in arguments)
    return f"for {_arguments(arguments)} " if plain else ""


def _argument(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor {tuple(value.shape)}"
    return "a function" if callable(value) else repr(value)


def _describe(error: Exception) -> str:
    first = str(error).strip().partition("\n")[0]
    words = f"{type(error).__name__}: {first}" if first else type(error).__name__
    return re.sub(r" at 0x[0-9a-fA-F]+", "", words)


def _check_name(name) -> None:
    if not isinstance(name, str):
        raise TypeError(f"name must be a str; got {type(name).__name__}")
    if not re.fullmatch(r"[a-z0-9-]+/[a-z0-9-]+", name):
        raise ValueError(f'name must read "chapter-name/exercise-id"; got {name!r}')


def _find(name: str) -> _Grader:
    _check_name(name)
    chapter = name.partition("/")[0]
    chapters = _chapters()
    if chapter not in chapters:
        raise ValueError(
            f"name must start with a chapter that has graders, {_listed(chapters)}; got {name!r}"
        )
    import_module(f"{_CHAPTERS}.{chapter.replace('-', '_')}.graders")
    if name not in _GRADERS:
        known = [other for other in _GRADERS if other.startswith(f"{chapter}/")]
        raise ValueError(f"name must be an exercise of the chapter, {_listed(known)}; got {name!r}")
    return _GRADERS[name]


def _chapters() -> list[str]:
    folders = [Path(folder) for folder in import_module(_CHAPTERS).__path__]
    files = [file for folder in folders for file in folder.glob("*/graders.py")]
    return [file.parent.name.replace("_", "-") for file in files]


def _listed(names: list[str]) -> str:
    return "one of " + ", ".join(sorted(names)) if names else "of which there is none yet"
