"""What stands in the built pages: the tests ask it, and it writes what the book is held to.

python -m ssmbook._book.built > tests/book/manifest.json    # after `make book`: the new minimum
"""

import json
import sys
from functools import cache
from pathlib import Path

from bs4 import BeautifulSoup

from ssmbook._book.claims import KINDS as STATEMENTS
from ssmbook._book.moved import MARK

HTML = Path("_build/html")
BREAK = "<wbr>"
# What a browser fetches as soon as the page opens: tags with an address, and relations of links.
FETCHED = "script img iframe source video audio embed object track input".split()
FETCHED_LINKS = set("stylesheet icon shortcut preload prefetch modulepreload preconnect dns-prefetch".split())


def pages(html):
    """Every built page, sorted."""
    return sorted(path for path in Path(html).rglob("*.html") if "_static" not in path.parts)


def chapters(html):
    """The pages that hold the book's own text; an address that only leads to another holds none."""
    found = sorted((Path(html) / "chapters").rglob("*.html"))
    return [path for path in found if MARK not in path.read_text(encoding="utf-8")[:200]]


@cache
def soup(path):
    """A built page; where a phone may break a name is nothing to a reader of its text."""
    return BeautifulSoup(Path(path).read_text(encoding="utf-8").replace(BREAK, ""), "html.parser")


def leaves_the_site(address):
    return address.startswith(("http:", "https:", "//", "ftp:"))


def fetched(page):
    """(tag, address) of everything that the browser fetches by itself when it opens the page."""
    for node in page.find_all(FETCHED):
        address = node.get("data" if node.name == "object" else "src")
        more = (candidate.split()[0] for candidate in node.get("srcset", "").split(",") if candidate.strip())
        yield from ((node.name, found) for found in (address, *more) if found)
    for node in page.find_all("link"):
        if FETCHED_LINKS & set(node.get("rel", [])):
            yield "link", node.get("href", "")


def counts(html):
    """How much of each kind of thing the built book holds."""
    found = dict.fromkeys(("pages", "figures", "sliders", "statements", "exercises", "citations"), 0)
    for path in chapters(html):
        page = soup(path)
        found["pages"] += 1
        found["figures"] += len(page.select("article .cell_output img:not(.ssm-slider img)"))
        found["sliders"] += len(page.select("article figure.ssm-slider input[type=range]"))
        found["statements"] += sum(len(page.select(f"article div.proof.{kind}")) for kind in STATEMENTS)
        found["exercises"] += len(page.select("article div.exercise"))
        found["citations"] += len(page.select("article div.citation"))
    return found


if __name__ == "__main__":
    json.dump(counts(HTML), sys.stdout, indent=2)
    sys.stdout.write("\n")
