"""Search, over file://: the right page comes first or second, and a hit opens it at the marked words."""

import re

import pytest
from browser.test_pages import CONTRAST, axe, violations
from browser.visit import turn

PHRASE = "interaction rank"
# What readers asked for, and the page that answers, by the end of its address.
ASKED = {
    "interaction rank gap": "interaction-rank-gap",
    "head count theorem": "head-count",
    "head count": "head-count",
    "softmax": "how-many-heads-really",
    "mamba 2 heads": "zoo-deeper",
    "state space duality": "zoo-deeper",
    "RoPE": "positions",
    "sotfmax": "how-many-heads-really",
    "Interaction rnak": "interaction-rank-gap",
    "gradient highway": "gradient-highway",
    "selective scan": "scans",
    "kronecker": "factorized",
    "hippo": "structured-dynamics-deeper",
    "attention sink": "how-many-heads-really",
    "vanishing gradients": "gradient-highway",
    # in other words than the book's
    "how many heads": "head-count",
    "many GPUs": "scans-deeper",
    "positional encoding": "positions",
    "induction heads": "trade-off",
    "KV cache": "which-heads",
    "what is a state space model": "primer",
    # symbols and numbers
    "W_ij": "interaction-operator",
    "ε-head count": "head-count-deeper",
    "k_ε": "head-count-deeper",
    "theorem 8.1": "interaction-rank-gap",
    "epsilon_heads": "head-count-deeper",
    # letters that are wrong, missing or exchanged
    "Kroneker prodcut": "factorized",
    "semiseperable": "structured-dynamics",
    "vanishng gradeint": "gradient-highway",
    "zero order hodl": "structured-dynamics",
}
HITS = """() => [...document.querySelectorAll("#search-results li")].map((hit) => ({
  page: hit.querySelector("a").pathname.replace(/.*[/]|[.]html$/g, ""),
  kind: hit.querySelector(".hit-kind").textContent,
  name: hit.querySelector("a").textContent,
  text: hit.querySelector(".context").textContent,
  marks: hit.querySelectorAll("mark").length,
}))"""
MARKS = """() => [...document.querySelectorAll("article .highlighted")].map((mark) => {
  const { top, bottom } = mark.getBoundingClientRect();
  return { text: mark.textContent, seen: top >= 0 && bottom <= innerHeight && mark.offsetParent !== null };
})"""


@pytest.fixture
def asked(open_page, disk):
    """The page of hits, reached from the preface as a reader does."""
    visit = open_page(f"{disk}chapters/preface.html")
    visit.page.keyboard.press("Control+k")
    visit.page.keyboard.type(PHRASE)
    visit.page.keyboard.press("Enter")
    visit.page.wait_for_selector("#search-results .search-summary:has-text('found')")
    return visit


# Where the text of a field begins, less where its magnifier ends.
ROOM = """(form) => {
  const input = form.querySelector("input"), style = getComputedStyle(input);
  const before = parseFloat(style.borderLeftWidth) + parseFloat(style.paddingLeft);
  const { right } = form.querySelector("svg").getBoundingClientRect();
  return input.getBoundingClientRect().left + before - right;
}"""


@pytest.mark.parametrize("view", ["light", "phone"])
def test_a_query_begins_right_of_the_magnifier(open_page, disk, view):
    page = open_page(f"{disk}chapters/preface.html", view).page
    page.keyboard.press("Control+k")
    assert 3 <= page.locator("dialog[open] form.bd-search").evaluate(ROOM) <= 16
    page.keyboard.type("sink")
    page.keyboard.press("Enter")
    page.wait_for_selector("#search-results .search-summary:has-text('found')")
    assert 3 <= page.locator(".bd-search-container form.bd-search").evaluate(ROOM) <= 16


def hits(page, query):
    """The hits of a query that is typed into the page of hits."""
    page.locator(".bd-search-container input").fill(query)
    written = "(query) => new URLSearchParams(location.search).get('q') === query"
    page.wait_for_function(written, arg=query, polling=50)  # a busy machine may draw no frame for long
    return page.evaluate(HITS)


def test_the_right_page_comes_first_or_second(asked):
    lost = {}
    for query, answer in ASKED.items():
        first = [hit["page"] for hit in hits(asked.page, query)[:2]]
        if answer not in first:
            lost[query] = first
    assert not lost
    assert not asked.messages and not [
        url for url in asked.requests if not url.startswith(("file:", "data:"))
    ]


def test_a_hit_says_what_it_is_and_shows_its_words(asked):
    first, *others = asked.page.evaluate(HITS)
    assert len(others) > 5
    assert (first["kind"], first["name"]) in (
        ("Theorem", "Theorem 8.1 (Interaction Rank Gap)"),
        ("Page", "8. The interaction rank gap"),
    )
    kinds = {hit["kind"] for hit in [first, *others]}
    assert {"Theorem", "Page", "Definition", "Section"} <= kinds
    for hit in [first, *others]:
        assert 40 < len(hit["text"]) < 600 and "import " not in hit["text"]
    assert sum(hit["marks"] > 0 for hit in others) > len(others) / 2
    asked.page.wait_for_function("!document.querySelector('#search-results .math:not(:has(mjx-container))')")
    assert not asked.page.locator("#search-results mjx-merror, #search-results mark mjx-container").count()
    asked.page.evaluate(axe)
    for view in ("light", "dark"):
        turn(asked.page, view)
        assert not violations(asked.page, CONTRAST), view
    turn(asked.page, "phone")
    assert asked.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_misspelled_word_is_named_and_nonsense_finds_nothing(asked):
    assert hits(asked.page, "sotfmax")
    assert "softmax" in asked.page.locator(".search-summary").inner_text()
    assert not hits(asked.page, "qqzzxxy")
    assert "No places found" in asked.page.locator(".search-summary").inner_text()


def test_a_hit_opens_at_the_marked_phrase(asked):
    page = asked.page
    page.locator("#search-results a[href*='interaction-operator.html']").first.click()
    page.wait_for_selector("article .highlighted")
    page.wait_for_function(f"({MARKS})().some((mark) => mark.seen)")
    marks = page.evaluate(MARKS)
    assert {re.sub("[\\s-]+", " ", mark["text"].lower()) for mark in marks} == {PHRASE}
    assert not page.locator("mjx-merror, [data-mjx-error], mjx-container .highlighted").count()
    assert not asked.messages


def test_words_that_stand_apart_are_marked_one_by_one(open_page, web):
    page = open_page(f"{web}chapters/1-one-operator/zoo.html?find=attention+recurrence").page
    page.wait_for_selector("article .highlighted")
    marks = page.evaluate(MARKS)
    assert {mark["text"].lower() for mark in marks} == {"attention", "recurrence"}
    assert [mark["seen"] for mark in marks].index(True) == 0
