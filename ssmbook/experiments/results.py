"""Results of the experiments that come with the book."""

from __future__ import annotations

from pathlib import Path

from ssmbook._checks import check_choice
from ssmbook.experiments._runs import Results

FOLDER = Path(__file__).parent / "measured"
NAMES = ("gradient-flow", "language", "learning-heads", "tasks")


def measurement(name: str) -> Results:
    """Return the results of an experiment as they come with the book: settings, versions, numbers.

    ``name``: "learning-heads", "gradient-flow", "tasks" or "language". The attribute ``results``
    holds the numbers by job, ``command`` how to make them again, ``settings``, ``versions`` and ``machine``
    what made these. Raises ``ValueError`` for another name. Introduced in *learning-heads*.
    """
    check_choice("name", name, NAMES)
    return Results.load(FOLDER / f"{name}.json")
