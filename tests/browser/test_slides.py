"""The decks at 1280 by 720: whole, legible from the last row, sliders that move, an answer that waits."""

from pathlib import Path

import pytest
from browser.visit import visited

from ssmbook._book.slides import chapters_of, name_of, read_plan

ROOT = Path(__file__).resolve().parents[2]
DECKS = [lecture["name"] for lecture in read_plan(ROOT)["lectures"]]
DECKS += [name_of(docname) for docname in chapters_of(ROOT)]
SCREEN = {"viewport": {"width": 1280, "height": 720}}
SMALLEST, SMALLEST_IN_PICTURES = 24, 18
MOST_WORDS = 80
FACTS = """() => {
  const box = (node) => node.getBoundingClientRect();
  const touch = (a, b) =>
    a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  const lines = (node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    return [...range.getClientRects()];
  };
  const below = (node) => // the stop behind a formula
    node.lastChild.nodeType === 3 && box(node).height
    && lines(node.lastChild).some((line) => line.top > box(node.querySelector("mjx-container")).bottom - 4);
  const inPart = (node) => node.closest(".part");
  return Reveal.getSlides().map((section, index) => {
    Reveal.slide(index);
    const all = [...section.querySelectorAll(".body *, h1, h2, .mark, p")];
    const nodes = all.filter((node) => box(node).height);
    const words = nodes.filter((node) => [...node.childNodes].some((n) => n.nodeType === 3 && n.data.trim()));
    const own = words.filter((node) => !node.closest("mjx-container, aside"));
    const pictures = nodes.filter((node) => node.dataset.text);
    const placed = nodes.filter((node) => !inPart(node) && !node.closest("mjx-container, aside"));
    const marks = [...section.querySelectorAll(".mark")].map(box);
    const arrows = [...document.querySelectorAll(":is(.navigate-left, .navigate-right)")].map(box);
    const told = [...section.querySelectorAll(".ssm-slider-control > *")].map(box);
    const seen = [...section.querySelectorAll(".seen")].flatMap(lines);
    const around = [...section.querySelectorAll(".part, h2"), document.querySelector(".slide-number a")];
    const taken = [...pictures.filter((img) => !inPart(img)), ...around].map(box).concat(told, arrows);
    const read = own.filter((node) => node.matches(".body :is(p, li):not(.admonition-title)")).map((node) => {
      const copy = node.cloneNode(true);
      copy.querySelectorAll("mjx-container").forEach((formula) => formula.replaceWith(" formula "));
      return copy.textContent;
    });
    const said = [...section.querySelectorAll(".body :is(p:not(.admonition-title), div.math)")];
    const whole = !section.matches(".statement") || !said[0].matches("div.math")
      && !/^\\s*[a-z]/.test(said[0].firstChild.data || "")
      && (said.at(-1).matches("div.math") || /[.?!\\]]$/.test(said.at(-1).textContent.trim()));
    return {
      torn: [...section.querySelectorAll(".unbroken")].filter(below).length + !whole,
      covered: marks.some((mark) => lines(section.querySelector("h2")).some((line) => touch(mark, line)))
        || told.some((part) => arrows.some((arrow) => touch(part, arrow)))
        || seen.some((line) => taken.some((one) => touch(line, one))),
      read: read.join(" ").split(/\\s+/).filter((word) => /\\w/.test(word)).length,
      kind: section.className.split(" ")[0],
      low: Math.max(0, ...placed.map((node) => box(node).bottom)),
      right: Math.max(0, ...placed.map((node) => box(node).right)),
      smallest: Math.min(100, ...own.map((node) => parseFloat(getComputedStyle(node).fontSize))),
      inPictures: Math.min(100, ...pictures.map((img) =>
        Number(img.dataset.text) * box(img).width / (Number(img.getAttribute("width")) || img.naturalWidth))),
      steps: section.querySelectorAll(".fragment").length,
      parts: section.querySelectorAll(".part").length,
    };
  });
}"""


each_deck = pytest.mark.parametrize("name", DECKS)


def shown(page, address):
    """What a deck asked for and said, what is seen of its slides, and how a walk through it went."""
    visit = visited(page, address)
    page.wait_for_selector("html[data-ready=true]")
    slides = page.evaluate(FACTS)
    page.evaluate("Reveal.slide(0)")
    return {
        "slides": slides,
        "walk": walk(page),
        "visit": visit,
        "broken": page.locator("mjx-merror").count(),
    }


@pytest.fixture
def deck(look, disk, name):
    return look(SCREEN, f"{disk}slides/{name}.html", shown)


@each_deck
def test_every_slide_is_whole_and_legible(deck, name):
    slides = deck["slides"]
    assert len(slides) >= 10
    for number, slide in enumerate(slides):
        where = f"slide {number}, {slide['kind']}: {slide}"
        assert slide["low"] <= 720 and slide["right"] <= 1280, where
        assert slide["smallest"] >= SMALLEST, where
        assert slide["read"] <= MOST_WORDS, where
        assert slide["inPictures"] > SMALLEST_IN_PICTURES - 0.1, where  # a panel's width is whole pixels
        assert bool(slide["steps"]) == bool(slide["parts"]), where
        assert not slide["torn"] and not slide["covered"], where
    assert not deck["visit"].messages and not deck["broken"]
    requests = [address for address in deck["visit"].requests if not address.startswith("data:")]
    assert requests and all(address.startswith("file:") for address in requests)


def walk(page):
    """(slides, slides seen, sliders, sliders moved, frames seen of each) on the way with the keys."""
    total, seen, moved, frames = page.evaluate("Reveal.getTotalSlides()"), set(), 0, []
    for _ in range(3 * total):
        seen.add(page.evaluate("Reveal.getIndices().h"))
        control = page.locator("section.present input[type=range]")
        if control.count():
            before = control.get_attribute("aria-valuetext")
            control.press(
                "ArrowLeft" if control.input_value() == control.get_attribute("max") else "ArrowRight"
            )
            moved += before != control.get_attribute("aria-valuetext")
            frames.append(page.locator("section.present .ssm-slider-frames > div:visible").count())
        if page.evaluate("Reveal.isLastSlide()"):
            break
        page.keyboard.press("PageDown")
    return total, seen, page.locator("section input[type=range]").count(), moved, frames


@each_deck
def test_keys_walk_through_the_deck_and_move_its_sliders(deck, name):
    total, seen, sliders, moved, frames = deck["walk"]
    assert seen == set(range(total))
    assert moved == sliders and set(frames) <= {1}


def margins(page, address):
    """How far the headings of the printed slides stand from the edges of their pages."""
    visited(page, address)
    page.wait_for_selector(".pdf-page h2")
    return page.evaluate("""() => [...document.querySelectorAll(".pdf-page h2")].map((heading) => {
      const page = heading.closest(".pdf-page").getBoundingClientRect();
      const box = heading.getBoundingClientRect();
      return Math.min(box.left - page.left, box.top - page.top, page.right - box.right);
    })""")


def test_what_is_printed_keeps_its_margins(look, disk):
    found = look(SCREEN, f"{disk}slides/trade-off.html?print-pdf", margins)
    assert len(found) > 10 and min(found) >= 12
