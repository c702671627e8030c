"""The built pages, parsed."""

from functools import cache
from pathlib import Path

from bs4 import BeautifulSoup

HTML = Path("_build/html")
BREAK = "<wbr>"


def pages(html):
    """Every built page, sorted."""
    return sorted(path for path in Path(html).rglob("*.html") if "_static" not in path.parts)


def chapters(html):
    """The pages that hold the book's own text."""
    return sorted((Path(html) / "chapters").rglob("*.html"))


@cache
def soup(path):
    """A built page; where a phone may break a name is nothing to a reader of its text."""
    return BeautifulSoup(Path(path).read_text(encoding="utf-8").replace(BREAK, ""), "html.parser")
