"""The decks at 1280 by 720: whole, legible from the last row, sliders that move, an answer that waits."""

from pathlib import Path

import pytest

from ssmbook._book.slides import chapters_of, name_of, read_plan

ROOT = Path(__file__).resolve().parents[2]
DECKS = [lecture["name"] for lecture in read_plan(ROOT)["lectures"]]
DECKS += [name_of(docname) for docname in chapters_of(ROOT)]
SCREEN = {"viewport": {"width": 1280, "height": 720}}
SMALLEST, SMALLEST_IN_PICTURES = 24, 18
FACTS = """() => {
  const box = (node) => node.getBoundingClientRect();
  return Reveal.getSlides().map((section, index) => {
    Reveal.slide(index);
    const all = [...section.querySelectorAll(".body *, h1, h2, .mark, p")];
    const nodes = all.filter((node) => box(node).height && !node.closest("mjx-container, aside"));
    const words = nodes.filter((node) => [...node.childNodes].some((n) => n.nodeType === 3 && n.data.trim()));
    const placed = nodes.filter((node) => !node.closest(".part"));
    return {
      low: Math.max(0, ...placed.map((node) => box(node).bottom)),
      right: Math.max(0, ...placed.map((node) => box(node).right)),
      smallest: Math.min(100, ...words.map((node) => parseFloat(getComputedStyle(node).fontSize))),
      inPictures: Math.min(100, ...nodes.filter((node) => node.dataset.text).map((img) =>
        Number(img.dataset.text) * box(img).width / (Number(img.getAttribute("width")) || img.naturalWidth))),
    };
  });
}"""


@pytest.fixture
def deck(open_page, disk):
    def opened(name):
        visit = open_page(f"{disk}slides/{name}.html", **SCREEN)
        visit.page.wait_for_selector("html[data-ready=true]")
        return visit

    return opened


@pytest.mark.parametrize("name", DECKS)
def test_every_slide_is_whole_and_legible(deck, name):
    visit = deck(name)
    slides = visit.page.evaluate(FACTS)
    assert len(slides) >= 10
    for number, slide in enumerate(slides):
        where = f"slide {number}: {slide}"
        assert slide["low"] <= 720 and slide["right"] <= 1280, where
        assert slide["smallest"] >= SMALLEST, where
        assert slide["inPictures"] > SMALLEST_IN_PICTURES - 0.1, where  # a panel's width is whole pixels
    assert not visit.messages and not visit.page.locator("mjx-merror").count()
    requests = [address for address in visit.requests if not address.startswith("data:")]
    assert requests and all(address.startswith("file:") for address in requests)


def test_keys_walk_through_a_deck_and_move_its_sliders(deck):
    page = deck(DECKS[0]).page
    total, seen, moved = page.evaluate("Reveal.getTotalSlides()"), set(), 0
    for _ in range(3 * total):
        seen.add(page.evaluate("Reveal.getIndices().h"))
        control = page.locator("section.present input[type=range]")
        if control.count():
            before = control.get_attribute("aria-valuetext")
            last = control.input_value() == control.get_attribute("max")
            control.press("ArrowLeft" if last else "ArrowRight")
            moved += before != control.get_attribute("aria-valuetext")
            assert page.locator("section.present .ssm-slider-frames > div:visible").count() == 1
        if page.evaluate("Reveal.isLastSlide()"):
            break
        page.keyboard.press("PageDown")
    assert seen == set(range(total))
    assert moved == page.locator("section input[type=range]").count() > 0
