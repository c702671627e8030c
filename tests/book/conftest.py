"""The built book, for the tests that read its pages."""

import os
from pathlib import Path

import pytest

from headsandstates.site.built import HTML, chapters

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def built():
    if chapters(ROOT / HTML):
        return ROOT / HTML
    message = "The book is not built: run `make book` first (`make test` does both)."
    pytest.fail(message) if os.environ.get("BOOK_MUST_BE_BUILT") else pytest.skip(message)
