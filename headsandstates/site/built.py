"""The built pages: parsed, copied in part, rewritten; and the templates of what is built from them."""

import re
from copy import copy
from functools import cache
from pathlib import Path

from bs4 import BeautifulSoup
from jinja2 import Environment, PackageLoader, select_autoescape

HTML = Path("_build/html")
BREAK = "<wbr>"
TYPESET = re.compile(r'<mjx-container data-tex="([^"]*)".*?</mjx-container>', re.DOTALL)
IN_DARK = re.compile(r'<picture class="only-dark">.*?</picture>|<img class="only-dark"[^>]*>', re.DOTALL)
TEMPLATES = Environment(loader=PackageLoader("headsandstates.site"), autoescape=select_autoescape(["html"]))
# Pages that moved, each with where it went: its old address opens the new one, at the same place.
_SCANS = "chapters/2-two-constructions/scans-deeper"
MOVED = {"chapters/2-two-constructions/past-one-machine": f"{_SCANS}#past-one-machine"}
# Text that stays inside one cell of a table in Markdown.
TEMPLATES.filters["cell"] = lambda text: text.replace("|", r"\|")


def pages(html):
    """Every built page, sorted; what an old address opens is none."""
    return sorted(path for path in written(html) if "_static" not in path.parts)


def chapters(html):
    """The pages that hold the book's own text."""
    return sorted(path for path in written(html) if path.is_relative_to(Path(html) / "chapters"))


def written(html):
    moved = {Path(html, f"{old}.html") for old in MOVED}
    return (path for path in Path(html).rglob("*.html") if path not in moved)


def source(path):
    """A built page with its formulas as TeX, and pictures that do not wait, in light colors alone."""
    text = TYPESET.sub(r"\1", Path(path).read_text(encoding="utf-8"))
    return IN_DARK.sub("", text).replace(' loading="lazy"', "")


@cache
def soup(path):
    """A built page; where a phone may break a name is nothing to a reader of its text."""
    return BeautifulSoup(source(path).replace(BREAK, ""), "html.parser")


def excerpt(elements, dropped=""):
    """Copies of a page's elements in a document of their own, without scripts, signs of links and more."""
    document = BeautifulSoup("", "html.parser")
    for element in elements:
        document.append(copy(element))
    for node in document.select(f"a.headerlink, script, .margin-note, .lab-still{dropped}"):
        node.decompose()
    return document


def rewrite(paths, change):
    """Write every page anew that ``change(text)`` makes another."""
    for path in paths:
        text = path.read_text(encoding="utf-8")
        changed = change(text)
        if changed != text:
            path.write_text(changed, encoding="utf-8")
