"""The decks: one for each chapter and ready lecture, with what `chapters/slides.yml` names."""

from pathlib import Path

import pytest
from addresses import fetched, leaves_the_site

from ssmbook._book.blocks import Book, SlidesError
from ssmbook._book.built import HTML, soup
from ssmbook._book.slides import chapters_of, lecture_deck, name_of, pages_of, read_plan

ROOT = Path(__file__).resolve().parents[2]
PLAN = read_plan(ROOT)
LECTURES = {lecture["name"]: lecture for lecture in PLAN["lectures"]}
NAMES = [*LECTURES, *map(name_of, chapters_of(ROOT))]


@pytest.fixture(scope="module", params=NAMES)
def deck(request, built):
    """The name of a deck and its built page."""
    return request.param, soup(built / f"slides/{request.param}.html")


def test_a_deck_stands_alone(deck):
    name, page = deck
    assert not [address for _, address in fetched(page) if leaves_the_site(address)]
    assert all(len((image.get("alt") or "").strip()) > 10 for image in page.find_all("img"))
    for section in page.select("section[data-label]"):
        address, _, anchor = section.select_one("h2 a")["href"].partition("#")
        assert soup((ROOT / HTML / "slides" / address).resolve()).find(id=anchor), anchor


def test_a_lecture_shows_what_the_plan_names(deck):
    name, page = deck
    shown = {section["data-label"] for section in page.select("section[data-label]")}
    for item in LECTURES[name]["slides"] if name in LECTURES else ():
        assert {item.get("show"), item.get("prove")} - {None} <= shown, item


def test_a_label_that_vanished_fails(built):
    book = Book(ROOT / HTML, pages_of(ROOT))
    for label in PLAN["notes"]:
        assert book.place(label)
    lecture = {**LECTURES["lecture"], "slides": [{"show": "fig-of-yesterday", "minutes": 90}]}
    with pytest.raises(SlidesError, match="fig-of-yesterday"):
        lecture_deck(book, lecture, PLAN)


def test_the_built_book_has_every_deck_and_links_to_it(built):
    index = soup(built / "chapters/appendix/lectures.html")
    linked = {link["href"].rpartition("/")[2] for link in index.select(".slides-index a[href*='/slides/']")}
    assert (
        linked
        == {f"{name}.html" for name in NAMES}
        == {path.name for path in (built / "slides").glob("*.html")}
    )
    for docname in chapters_of(ROOT):
        href = f"../../slides/{name_of(docname)}.html"
        assert soup(built / f"{docname}.html").find("a", href=href, title="Slides of this chapter")
