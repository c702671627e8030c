"""What the catalogues of mistakes of all chapters have to keep."""

import pytest

from ssmbook.exercises import _grader, check


@pytest.fixture
def each_mistake():
    """Hold an exercise to its catalogue {sentence: wrong answer}, the registered one where none is given.

    Every mistake is told its sentence, after what was found where that differs;
    without the formula at first and with it at the second call. ``anew``: the wrong answers of the
    catalogue, in its order, made by another route.
    """

    def hold(name, catalogue=None, anew=None):
        found = _grader._find(name)
        catalogue = found.mistakes if catalogue is None else catalogue
        assert catalogue
        if anew is not None:
            catalogue = dict(zip(catalogue, anew, strict=True))
        for sentence, answer in catalogue.items():
            _grader._MISSES.clear()
            first, second = (check(name, answer) for _ in range(2))
            assert not first and not second
            assert first.hint.endswith(sentence) and found.formula not in first.hint, first.hint
            assert second.hint == f"{first.hint}. {found.formula}"

    return hold
