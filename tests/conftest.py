"""For all tests: one hypothesis profile, and no figure left open.

The same examples on every machine, and no deadline on a busy one.
"""

import sys

import pytest
from hypothesis import settings

settings.register_profile("book", deadline=None, derandomize=True)
settings.load_profile("book")


@pytest.fixture(autouse=True)
def no_figure_left_open():
    """Tests count the open figures: those of an earlier test, or of a fixture that lives longer, are none."""
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")
