"""The decks on two screens: whole, legible from the last row, answers that wait, sliders that move."""

from pathlib import Path

import pytest
from pypdf import PdfReader

from headsandstates.site.lectures import lectures

ROOT = Path(__file__).resolve().parents[2]
DECKS = [lecture.name for lecture in lectures(ROOT)]
SMALLEST, SMALLEST_IN_PICTURES, LOW, RIGHT = 24, 18, 700, 1262
FACTS = """() => {
  const box = (node) => node.getBoundingClientRect();
  return Reveal.getSlides().map((section, index) => {
    Reveal.slide(index);
    const scale = Reveal.getScale(), at = box(section);
    const all = [...section.querySelectorAll(".body *, h1, h2, p")];
    const nodes = all.filter((node) => box(node).height && !node.closest("mjx-container, aside"));
    const drawn = nodes.filter((node) => node.matches("svg text"));
    const written = nodes.filter((node) => !node.closest("svg"));
    const says = (node) => [...node.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    const words = written.filter(says);
    const formulas = [...section.querySelectorAll(".body mjx-container")].filter((node) => box(node).height);
    const placed = [...nodes.filter((node) => !node.closest(".source")), ...formulas];
    return {
      low: Math.max(0, ...placed.map((node) => (box(node).bottom - at.top) / scale)),
      right: Math.max(0, ...placed.map((node) => (box(node).right - at.left) / scale)),
      smallest: Math.min(100, ...words.map((node) => parseFloat(getComputedStyle(node).fontSize))),
      inPictures: Math.min(100, ...nodes.filter((node) => node.dataset.text).map((img) =>
        Number(img.dataset.text) * box(img).width / scale / Number(img.getAttribute("width"))),
        ...drawn.map((node) => parseFloat(getComputedStyle(node).fontSize) * node.getCTM().a)),
    };
  });
}"""


@pytest.fixture
def deck(open_page, disk):
    def opened(name, **screen):
        visit = open_page(f"{disk}slides/{name}.html", viewport=screen or {"width": 1280, "height": 720})
        visit.page.wait_for_selector("html[data-ready=true]")
        return visit

    return opened


@pytest.mark.parametrize("name", DECKS)
def test_every_slide_is_whole_and_legible(deck, name):
    visit = deck(name)
    for number, slide in enumerate(visit.page.evaluate(FACTS)):
        where = f"slide {number}: {slide}"
        assert slide["low"] <= LOW and slide["right"] <= RIGHT, where
        assert slide["smallest"] >= SMALLEST, where
        assert slide["inPictures"] > SMALLEST_IN_PICTURES - 0.1, where  # a panel's width is whole pixels
    assert not visit.messages and not visit.page.locator("mjx-merror").count()
    requests = [address for address in visit.requests if not address.startswith("data:")]
    assert requests and all(address.startswith("file:") for address in requests)
    for number, slide in enumerate(deck(name, width=1024, height=768).page.evaluate(FACTS)):
        assert slide["low"] <= LOW and slide["right"] <= RIGHT, f"at 1024, slide {number}: {slide}"


@pytest.mark.parametrize("name", DECKS)
def test_keys_walk_through_a_deck_uncover_answers_and_move_sliders(deck, name):
    page = deck(name).page
    total, seen, moved = page.evaluate("Reveal.getTotalSlides()"), set(), 0
    for _ in range(6 * total):
        seen.add(page.evaluate("Reveal.getIndices().h"))
        control = page.locator("section.present input[type=range]")
        if control.count() and not page.locator("section.present .fragment:not(.visible)").count():
            before = control.get_attribute("aria-valuetext")
            last = control.input_value() == control.get_attribute("max")
            control.press("ArrowLeft" if last else "ArrowRight")
            moved += before != control.get_attribute("aria-valuetext")
        if (
            page.evaluate("Reveal.isLastSlide()")
            and not page.locator("section.present .fragment:not(.visible)").count()
        ):
            break
        waiting = page.locator("section.present .fragment:not(.visible)").count()
        page.keyboard.press("PageDown")
        if waiting:
            assert page.locator("section.present .fragment:not(.visible)").count() == waiting - 1
    assert seen == set(range(total))
    assert moved == page.locator("section input[type=range]").count() > 0


@pytest.mark.parametrize("name", DECKS)
def test_a_handout_has_two_pages(open_page, disk, tmp_path, name):
    page = open_page(f"{disk}slides/{name}-handout.html").page
    page.pdf(path=tmp_path / "handout.pdf", prefer_css_page_size=True)
    assert len(PdfReader(tmp_path / "handout.pdf").pages) == 2
