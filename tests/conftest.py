"""For all tests: one hypothesis profile, and exercises that nobody has answered yet.

The same examples on every machine, and no deadline on a busy one.
"""

import pytest
from hypothesis import settings

from ssmbook.exercises import _grader

settings.register_profile("book", deadline=None, derandomize=True)
settings.load_profile("book")


@pytest.fixture(autouse=True)
def no_wrong_answer_so_far(monkeypatch):
    """A grader tells its formula at the second wrong answer: no test inherits those of another."""
    monkeypatch.setattr(_grader, "_MISSES", {})
