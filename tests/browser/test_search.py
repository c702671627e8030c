"""Search: it finds the phrase, says where, and opens the page at the marked words."""

import re

import pytest

PHRASE = "interaction rank"
MARKS = """() => [...document.querySelectorAll("article .highlighted")].map((mark) => {
  const { top, bottom } = mark.getBoundingClientRect();
  return { text: mark.textContent, seen: top >= 0 && bottom <= innerHeight && mark.offsetParent !== null };
})"""


def search(open_page, address, phrase):
    """The page of hits, reached from the preface as a reader does."""
    visit = open_page(f"{address}chapters/preface.html")
    visit.page.keyboard.press("Control+k")
    visit.page.keyboard.type(phrase)
    visit.page.keyboard.press("Enter")
    visit.page.wait_for_selector("#search-results .search-summary:has-text('found')")
    return visit


def hits(visit):
    return visit.page.locator("#search-results li")


def check_excerpts(page):
    """Over http each hit has an excerpt of prose."""
    page.wait_for_function("document.querySelectorAll('#search-results li p.context').length >= 5")
    excerpts = page.locator("#search-results li p.context").all_inner_texts()[:5]
    for excerpt in excerpts:
        assert 80 < len(excerpt) < 300
        assert re.search("interaction|rank", excerpt, re.I)
        assert not re.search(r"[\\$]|Contents|import |torch\.|assert |:label:|#", excerpt), excerpt
    assert sum(PHRASE in excerpt.lower() for excerpt in excerpts) >= 3


@pytest.mark.parametrize("place", ["disk", "web"])
def test_a_hit_opens_at_the_marked_phrase(open_page, request, place):
    visit = search(open_page, request.getfixturevalue(place), PHRASE)
    if place == "web":
        check_excerpts(visit.page)
    else:
        assert hits(visit).count() > 5
        assert not visit.page.locator("#search-results p.context").count()
    assert not visit.messages
    leading = [hits(visit).nth(number).locator("a").first for number in range(3)]
    (defining,) = (hit for hit in leading if "interaction-operator.html" in hit.get_attribute("href"))
    defining.click()
    visit.page.wait_for_selector("article .highlighted")
    visit.page.wait_for_function(f"({MARKS})().some((mark) => mark.seen)")
    marks = visit.page.evaluate(MARKS)
    assert {mark["text"].lower() for mark in marks} == {PHRASE}
    assert [mark["seen"] for mark in marks].index(True) == 0
    assert not visit.page.locator("mjx-merror, [data-mjx-error], mjx-container .highlighted").count()
    assert not visit.messages


def test_words_that_stand_apart_are_marked_one_by_one(open_page, web):
    page = open_page(f"{web}chapters/1-one-operator/zoo.html?highlight=attention+recurrence").page
    page.wait_for_selector("article .highlighted")
    assert {mark["text"].lower() for mark in page.evaluate(MARKS)} == {"attention", "recurrence"}
