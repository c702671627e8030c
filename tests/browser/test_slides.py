"""The decks at 1280 by 720: whole, legible from the last row, sliders that move, an answer that waits."""

from pathlib import Path

import pytest

from ssmbook._book.slides import chapters_of, name_of, read_plan
from ssmbook._book.visit import visited

ROOT = Path(__file__).resolve().parents[2]
DECKS = [lecture["name"] for lecture in read_plan(ROOT)["lectures"]]
DECKS += [name_of(docname) for docname in chapters_of(ROOT)]
SCREEN = {"viewport": {"width": 1280, "height": 720}}
SMALLEST, SMALLEST_IN_PICTURES = 24, 18
FACTS = """() => {
  const box = (node) => node.getBoundingClientRect();
  const inPart = (node) => node.closest(".part");
  return Reveal.getSlides().map((section, index) => {
    Reveal.slide(index);
    const all = [...section.querySelectorAll(".body *, h1, h2, .mark, p")];
    const nodes = all.filter((node) => box(node).height);
    const words = nodes.filter((node) => [...node.childNodes].some((n) => n.nodeType === 3 && n.data.trim()));
    const own = words.filter((node) => !node.closest("mjx-container, aside"));
    const pictures = nodes.filter((node) => node.dataset.text);
    const placed = nodes.filter((node) => !inPart(node) && !node.closest("mjx-container, aside"));
    return {
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
        assert slide["inPictures"] > SMALLEST_IN_PICTURES - 0.1, where  # a panel's width is whole pixels
        assert bool(slide["steps"]) == bool(slide["parts"]), where
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
