"""What the catalogues of mistakes of all chapters have to keep."""

import pytest

from ssmbook.exercises import _grader, check


@pytest.fixture
def each_mistake():
    """Hold an exercise to its catalogue [(wrong answer, sentence), ...].

    Every mistake is told a sentence of its own, after what was found where that differs;
    without the formula at first and with it at the second call. ``anew``: the wrong answers of the
    catalogue, in its order, made by another route.
    """

    def hold(name, catalogue, anew=None):
        if anew is not None:
            catalogue = [(answer, sentence) for answer, (_, sentence) in zip(anew, catalogue, strict=True)]
        for answer, sentence in catalogue:
            _grader._MISSES.clear()
            first, second = (check(name, answer) for _ in range(2))
            assert not first and not second
            formula = _grader._FORMULAS[name]
            assert first.hint.endswith(sentence) and formula not in first.hint, first.hint
            assert second.hint == f"{first.hint}. {formula}"
        assert len({sentence for _, sentence in catalogue}) == len(catalogue)

    return hold
