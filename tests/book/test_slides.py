"""The decks: what the plan promises, cut from the pages by label; nothing that a room could not read."""

import copy
import re
from pathlib import Path

import pytest
from addresses import fetched, leaves_the_site
from bs4 import BeautifulSoup

from ssmbook._book.blocks import Book, SlidesError, kind_of
from ssmbook._book.built import HTML, soup
from ssmbook._book.deck import prepared, render
from ssmbook._book.slides import (
    chapter_deck,
    chapters_of,
    lecture_deck,
    name_of,
    pages_of,
    read_plan,
)

ROOT = Path(__file__).resolve().parents[2]
PLAN = read_plan(ROOT)
CHAPTERS = chapters_of(ROOT)
LECTURES = {lecture["name"]: lecture for lecture in PLAN["lectures"]}
SMALLEST = 24


@pytest.fixture(scope="module")
def book(built):
    return Book(ROOT / HTML, pages_of(ROOT))


@pytest.fixture(scope="module", params=[*LECTURES, *CHAPTERS])
def deck(request, book):
    if request.param in LECTURES:
        return lecture_deck(book, LECTURES[request.param], PLAN)
    return chapter_deck(book, request.param, PLAN)


@pytest.fixture(scope="module")
def page(deck):
    return BeautifulSoup(render(deck), "html.parser")


@pytest.fixture(scope="module")
def sections(page):
    """Every slide but the first, which has the title."""
    return page.select(".slides > section")[1:]


def test_the_plan_names_only_what_the_book_has(book):
    for label in PLAN["notes"]:
        assert book.place(label)
    for lecture in PLAN["lectures"]:
        assert lecture_deck(book, lecture, PLAN).slides


@pytest.mark.parametrize("key", ["show", "prove", "ask"])
def test_a_label_that_vanished_fails(book, key):
    lecture = copy.deepcopy(LECTURES["lecture"])
    item = next(item for item in lecture["slides"] if key in item)
    item[key] = "fig-of-yesterday"
    with pytest.raises(SlidesError, match="'fig-of-yesterday' stands nowhere in the chapters"):
        lecture_deck(book, lecture, PLAN)


def test_a_chapters_deck_holds_all_that_is_worth_a_slide(book):
    for docname in CHAPTERS:
        deck = chapter_deck(book, docname, PLAN)
        for kind in ("statement", "figure", "slider", "question", "takeaway"):
            there = sum(kind_of(element) == kind for _, element in book.blocks[docname])
            assert sum(slide.kind == kind for slide in deck.slides) == there, (docname, kind)
        assert any(slide.kind == "slider" for slide in deck.slides), docname
        assert [slide.kind for slide in deck.slides].count("list") >= 2, docname


def test_the_answer_comes_on_the_next_step(deck, sections):
    for slide, following in zip(deck.slides, deck.slides[1:], strict=False):
        assert following.answers == (slide.kind == "question")
    for slide, section in zip(deck.slides, sections, strict=True):
        assert bool(section.find(class_="mark", string="Answer")) == slide.answers


def test_a_deck_stands_alone(page):
    assert not [address for _, address in fetched(page) if leaves_the_site(address)]
    assert not page.select("section section"), "to reveal.js a section inside a section is a slide"
    assert all(len((image.get("alt") or "").strip()) > 10 for image in page.find_all("img"))
    ids = [node["id"] for node in page.find_all(id=True)]
    assert len(ids) == len(set(ids))
    for section in page.select("section[data-label]"):
        address = section.select_one("h2 a")["href"]
        target = (ROOT / HTML / "slides" / address.partition("#")[0]).resolve()
        assert soup(target).find(id=address.partition("#")[2]), address


def test_no_text_of_a_slide_is_small():
    style = (ROOT / "chapters/assets/slides.css").read_text(encoding="utf-8")
    rules = [rule for rule in style.split("}") if "slide-number" not in rule]
    sizes = [float(size) for rule in rules for size in re.findall(r"font(?:-size)?:[^;]*?([\d.]+)px", rule)]
    assert sizes and min(sizes) >= SMALLEST
    script = (ROOT / "chapters/assets/slides.js").read_text(encoding="utf-8")
    assert min(map(int, re.search(r"SIZES = \[([^\]]+)\]", script)[1].split(","))) >= SMALLEST
    assert "://" not in script + style


def test_a_chapters_deck_opens_with_its_result(book):
    for docname in CHAPTERS:
        opening = render(chapter_deck(book, docname, PLAN)).partition("</section>")[0]
        words = BeautifulSoup(opening, "html.parser").select_one("p.result").get_text().split()
        assert 6 <= len(words) <= 80 and words[0][0].isupper() and words[-1].endswith("."), docname
        assert "sentence:" not in words


def test_addresses_in_a_deck_are_those_of_its_folder():
    page = (
        '<div id="a"><a href="../2-b/c.html#x">1</a><a href="#y">2</a><img src="../../_images/p.png"/></div>'
    )
    element = prepared(BeautifulSoup(page, "html.parser").div, "chapters/1-a/page")
    there = '<a href="../chapters/2-b/c.html#x">1</a><a href="../chapters/1-a/page.html#y">2</a>'
    assert str(element) == f'<div>{there}<img src="../_images/p.png"/></div>'


def test_the_built_book_has_every_deck_and_links_to_it(built):
    index = soup(built / "chapters/appendix/lectures.html")
    linked = {link["href"].rpartition("/")[2] for link in index.select(".slides-index a[href*='/slides/']")}
    names = {f"{name}.html" for name in [*LECTURES, *map(name_of, CHAPTERS)]}
    assert linked == names == {path.name for path in (built / "slides").glob("*.html")}
    for docname in CHAPTERS:
        href = f"../../slides/{name_of(docname)}.html"
        assert soup(built / f"{docname}.html").find("a", href=href, title="Slides of this chapter")
