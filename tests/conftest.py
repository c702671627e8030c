"""For all tests: one hypothesis profile, exercises that nobody has answered yet, and no figure left open.

The same examples on every machine, and no deadline on a busy one.
"""

import sys

import pytest
from hypothesis import settings

from ssmbook.exercises import _grader

settings.register_profile("book", deadline=None, derandomize=True)
settings.load_profile("book")


@pytest.fixture(autouse=True)
def no_wrong_answer_so_far(monkeypatch):
    """A grader tells its formula at the second wrong answer: no test inherits those of another."""
    monkeypatch.setattr(_grader, "_MISSES", {})


@pytest.fixture(autouse=True)
def no_figure_left_open():
    """Tests count the open figures: those of an earlier test, or of a fixture that lives longer, are none."""
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")
