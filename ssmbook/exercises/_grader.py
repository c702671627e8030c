"""The register of graders, the verdict a learner sees, and the comparisons that graders are made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import torch

_CHAPTERS = "ssmbook.chapters"
_GRADERS: dict[str, Callable] = {}


@dataclass(frozen=True)
class Verdict:
    """What ``check`` says about an answer: its exercise, whether it is correct (also as a bool), and a hint
    if not.
    """

    name: str
    correct: bool
    hint: str = ""

    def __bool__(self) -> bool:
        return self.correct

    def __repr__(self) -> str:
        return f"✓ {self.name}: correct" if self.correct else f"✗ {self.name}: {self.hint}"


def grader(name: str) -> Callable[[Callable], Callable]:
    """Register the decorated function as the grader of exercise ``name``, written
    "chapter-name/exercise-id".

    The function takes the learner's answer (anything) and returns None if it is correct, else a hint (str).
    It lives in ``ssmbook/chapters/<chapter_name>/graders.py``. Raises ``ValueError`` for a malformed name
    or one that is taken.
    """
    _check_name(name)

    def register(function: Callable) -> Callable:
        taken = _GRADERS.get(name)
        if taken and (taken.__module__, taken.__qualname__) != (function.__module__, function.__qualname__):
            raise ValueError(
                f"name must be new; {name!r} is graded by {taken.__module__}.{taken.__qualname__}"
            )
        _GRADERS[name] = function
        return function

    return register


def check(name: str, answer) -> Verdict:
    """Grade ``answer`` to the exercise ``name`` ("chapter-name/exercise-id") and return the ``Verdict``.

    ``answer`` is whatever the exercise asks for: a function, a tensor, a number. A wrong type or an answer
    that fails while it runs gives a hint, never an exception. Raises ``ValueError`` for an unknown name,
    listing the known ones. Introduced in *two-ways-to-mix*.
    """
    grade = _find(name)
    try:
        hint = grade(answer)
    except Exception as error:  # the learner's code may fail in any way: a wrong answer, not a broken book
        hint = f"your answer failed with {_describe(error)}"
    return Verdict(name, hint is None, hint or "")


def close(answer, wanted, hint: str, *, rtol: float = 1e-6, atol: float = 1e-9) -> str | None:
    """Return None if ``answer`` is ``wanted`` within the tolerances, else a hint that says what differs.

    ``wanted`` is a tensor of any shape or a number; ``answer`` may be a tensor, an array, nested lists or a
    number of the same shape, of any numeric dtype. A wrong type or shape is named; otherwise ``hint`` is
    returned as it is.
    """
    wanted = torch.as_tensor(wanted)
    shape = tuple(wanted.shape)
    expected = f"a tensor of shape {shape}" if shape else "a number"
    try:
        answer = torch.as_tensor(answer).detach()
    except (TypeError, ValueError, RuntimeError):
        return f"expected {expected}; got {type(answer).__name__}"
    if tuple(answer.shape) != shape:
        return f"expected {expected}; got shape {tuple(answer.shape)}"
    dtype = torch.promote_types(torch.promote_types(answer.dtype, wanted.dtype), torch.float64)
    answer, wanted = answer.to("cpu", dtype), wanted.to("cpu", dtype)
    return None if torch.allclose(answer, wanted, rtol=rtol, atol=atol, equal_nan=False) else hint


def agrees(
    answer, wanted: Callable, cases: Iterable[tuple], hint: str, *, rtol: float = 1e-6, atol: float = 1e-9
) -> str | None:
    """Return None if the learner's function gives what ``wanted`` gives for every argument tuple of
    ``cases``.

    Tensors among the arguments are cloned for the learner. A non-function, an exception and a wrong shape
    are named; otherwise ``hint`` is returned. ``cases`` must not be empty (``ValueError``).
    """
    if not callable(answer):
        return f"expected a function; got {type(answer).__name__}"
    cases = list(cases)
    if not cases:
        raise ValueError("cases must hold at least one tuple of arguments; got none")
    for arguments in cases:
        given = [a.clone() if isinstance(a, torch.Tensor) else a for a in arguments]
        try:
            result = answer(*given)
        except Exception as error:  # any failure of the learner's function is a wrong answer
            return f"your function failed on {_arguments(arguments)} with {_describe(error)}"
        problem = close(result, wanted(*arguments), hint, rtol=rtol, atol=atol)
        if problem:
            return problem if problem == hint else f"on {_arguments(arguments)}, {problem}"
    return None


def _arguments(arguments: tuple) -> str:
    return ", ".join(
        f"a tensor {tuple(a.shape)}" if isinstance(a, torch.Tensor) else repr(a) for a in arguments
    )


def _describe(error: Exception) -> str:
    first = str(error).strip().partition("\n")[0]
    words = f"{type(error).__name__}: {first}" if first else type(error).__name__
    return re.sub(r" at 0x[0-9a-fA-F]+", "", words)


def _check_name(name) -> None:
    if not isinstance(name, str):
        raise TypeError(f"name must be a str; got {type(name).__name__}")
    if not re.fullmatch(r"[a-z0-9-]+/[a-z0-9-]+", name):
        raise ValueError(f'name must read "chapter-name/exercise-id"; got {name!r}')


def _find(name: str) -> Callable:
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
