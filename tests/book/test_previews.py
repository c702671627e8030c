"""What a reference shows and what the search finds: all of the book, in two scripts of moderate size."""

import json
import re
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest
import yaml

from headsandstates.site import claims, solutions
from headsandstates.site.built import chapters, soup
from headsandstates.site.page import page_names
from headsandstates.site.public import everything

ROOT = Path(__file__).resolve().parents[2]
# A solution is not for everyone's eyes, a cell has no name, and a lecture is a page of its own kind.
WITHOUT = re.compile(r"#(solution-|checks-)|^slides/")


def script(built, name, variable):
    text = (built / "_static" / name).read_text(encoding="utf-8")
    start, end = f"window.{variable} = ", ";\n"
    assert text.startswith(start) and text.endswith(end)
    return json.loads(text[len(start) : -len(end)])


@pytest.fixture(scope="module")
def previews(built):
    return script(built, "previews-index.js", "bookPreviews")


@pytest.fixture(scope="module")
def search(built):
    return script(built, "search-index.js", "bookSearch")


def test_every_reference_has_something_to_show(built, previews):
    bare, count = set(), 0
    for path in chapters(built):
        page = path.relative_to(built).as_posix()
        for link in soup(path).select("article a.reference.internal[href]"):
            address = urljoin(page, link["href"])
            if not urlsplit(link["href"]).scheme and not WITHOUT.search(address):
                count += 1
                name, html = previews.get(address, ("", ""))
                if not (name or html):
                    bare.add(address)
    assert count > 1500
    assert not bare
    assert sum(not html for _, html in previews.values()) < len(previews) / 50


def test_a_preview_has_the_statement_in_full_and_its_pictures_exist(built, previews):
    for claim in claims.collect(ROOT)[0]:
        address = f"{claim.docname}.html#{claim.label}"
        if address in previews:
            name, html = previews[address]
            box = soup(built / f"{claim.docname}.html").select_one(f'[id="{claim.label}"]')
            assert claim.title in name and name in re.sub(r"\s+", " ", box.get_text())
            assert html.count('class="math"') == len(box.select("section .math"))
    for _, html in previews.values():
        assert not re.search(r"<(a|script|button|iframe)\b| id=| style=| src=", html)
        for picture in re.findall(r'data-src="([^"]*)"', html):
            assert (built / picture).is_file(), picture


def test_the_search_knows_every_statement_exercise_name_and_page(search):
    known = {address: (kind, words) for kind, _, address, words in search["rows"]}
    for claim in claims.collect(ROOT)[0]:
        kind, words = known[f"{claim.docname}.html#{claim.label}"]
        assert kind == claim.kind.capitalize() and len(words) > 60, claim.label
    for exercise in solutions.collect(ROOT)[0]:
        assert f"{exercise.docname}.html#{exercise.label}" in known
    names = {address.partition("#")[2] for address, (kind, _) in known.items() if kind == "Python"}
    assert set(everything()) <= names
    assert {f"{page}.html" for page in page_names(ROOT)} <= set(known)
    assert search["synonyms"] == yaml.safe_load((ROOT / "chapters/synonyms.yml").read_text(encoding="utf-8"))
    assert not [words for _, words in known.values() if re.search(r"data:image|Show code|Hide code", words)]


def test_the_scripts_are_small(built):
    assert (built / "_static/previews-index.js").stat().st_size < 600_000
    assert (built / "_static/search-index.js").stat().st_size < 1_300_000  # read on the page of hits alone
