"""The decks on two screens and on paper: whole, legible, answers that wait, sliders that move, live keys."""

import re
from pathlib import Path

import pytest
from color_words import color_words, names
from pypdf import PdfReader

from headsandstates.site.built import soup
from headsandstates.site.course import for_students
from headsandstates.site.lectures import lectures

ROOT = Path(__file__).resolve().parents[2]
DECKS = [lecture.name for lecture in lectures(ROOT)]
SMALLEST, SMALLEST_IN_PICTURES, LOW, RIGHT = 24, 18, 700, 1262
FACTS = """() => {
  const box = (node) => node.getBoundingClientRect(), size = (matrix) => Math.hypot(matrix.a, matrix.b);
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
        ...drawn.map((node) => parseFloat(getComputedStyle(node).fontSize) * size(node.getCTM()))),
    };
  });
}"""

# The notes and all colors of each slide with a live view.
LIVE = """() => Reveal.getSlides().filter((slide) => slide.querySelector(".lab-live")).map((slide) => [
  slide.querySelector("aside.notes").textContent,
  [...slide.querySelectorAll(".lab-live svg *")].flatMap((node) => {
    const { fill, stroke } = getComputedStyle(node);
    return [fill, stroke];
  }),
])"""


@pytest.fixture
def deck(open_page, disk):
    def opened(name, query="", **screen):
        screen = screen or {"width": 1280, "height": 720}
        visit = open_page(f"{disk}slides/{name}.html{query}", viewport=screen)
        visit.page.wait_for_selector("html[data-ready=true]", state="attached")
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
    requests = [address for address in visit.requests if not address.startswith(("data:", "blob:"))]
    assert requests and all(address.startswith("file:") for address in requests)
    for number, slide in enumerate(deck(name, width=1024, height=768).page.evaluate(FACTS)):
        assert slide["low"] <= LOW and slide["right"] <= RIGHT, f"at 1024, slide {number}: {slide}"


@pytest.mark.parametrize("name", DECKS)
def test_keys_walk_through_a_deck_uncover_answers_and_move_sliders(deck, name):
    """Arrows present, also where there is a slider; with Shift they move it and stay."""
    page = deck(name).page
    total, seen, moved = page.evaluate("Reveal.getTotalSlides()"), set(), 0
    for _ in range(6 * total):
        seen.add(page.evaluate("Reveal.getIndices().h"))
        control = page.locator("section.present .ssm-slider-control :is(input, select)")
        if control.count() and not page.locator("section.present .fragment:not(.visible)").count():
            before = control.input_value()
            last = before == control.get_attribute("max")
            page.keyboard.press("Shift+ArrowLeft" if last else "Shift+ArrowRight")
            moved += before != control.input_value()
            assert page.evaluate("Reveal.getIndices().h") in seen
        if (
            page.evaluate("Reveal.isLastSlide()")
            and not page.locator("section.present .fragment:not(.visible)").count()
        ):
            break
        waiting = page.locator("section.present .fragment:not(.visible)").count()
        page.keyboard.press("ArrowRight")
        if waiting:  # an answer and the picture that gives it away come together
            assert page.locator("section.present .fragment:not(.visible)").count() < waiting
    assert seen == set(range(total))
    assert moved == page.locator("section .ssm-slider-control").count() > 0


@pytest.mark.parametrize("name", DECKS)
def test_a_picture_that_answers_waits_for_the_answer(deck, name):
    page = deck(name).page
    for at in page.evaluate(
        "Reveal.getSlides().flatMap((one, i) => one.querySelector('.shown.fragment') ? [i] : [])"
    ):
        page.evaluate("(at) => Reveal.slide(at, 0, -1)", at)
        hidden = page.locator("section.present .fragment:not(.visible)")
        assert hidden.count() > 1 and page.locator("section.present .ask").is_visible()
        page.keyboard.press("ArrowRight")
        assert page.locator("section.present .answer.visible").count() == 1
        if not page.locator("section.present .shown.visible").count():  # a large picture has the next key
            page.keyboard.press("ArrowRight")
        assert page.locator("section.present .shown.visible").count() == 1


def test_a_deck_of_another_length_is_chosen_on_its_first_slide(deck):
    lecture = lectures(ROOT)[0]
    visit = deck(lecture.name)
    for length in (75, 50):
        visit.page.evaluate("Reveal.slide(0)")
        visit.page.locator(".length select").select_option(str(length))
        visit.page.wait_for_url(f"**?length={length}*")
        visit.page.wait_for_selector("html[data-ready=true]", state="attached")
        titles = visit.page.evaluate("Reveal.getSlides().map((one) => one.querySelector('h2')?.innerText)")
        assert len(titles) == 1 + len(lecture.cut(length))
        taken = sum(slide.minutes for slide in lecture.cut(length))
        clocks = visit.page.evaluate(
            "Array.from(document.querySelectorAll('.clock'), (one) => one.textContent)"
        )
        assert clocks[-1].endswith(f"until minute {taken}.")
    halves = [
        deck(lecture.name, f"?length={half}of2").page.evaluate("Reveal.getTotalSlides()") for half in (1, 2)
    ]
    assert sum(halves) == 2 + len(lecture.cut(75)) and min(halves) > 8
    assert not visit.messages


def test_a_show_of_hands_becomes_bars(deck):
    page = deck(lectures(ROOT)[0].name, "?length=50").page
    at = page.evaluate("Reveal.getSlides().findIndex((one) => one.querySelector('.choices'))")
    page.evaluate("(at) => Reveal.slide(at)", at)
    fields = page.locator("section.present .choices input")
    for i, hands in enumerate((3, 12, 0)):
        fields.nth(i).click()
        page.keyboard.type(str(hands))
    page.keyboard.press("Enter")
    shares = page.locator("section.present .choices li").evaluate_all(
        "(items) => items.map((one) => Number(one.style.getPropertyValue('--share')))"
    )
    assert shares == [0.25, 1, 0] and page.evaluate("Reveal.getIndices().h") == at
    page.keyboard.press("ArrowRight")
    assert page.locator("section.present .answer.visible").count() == 1


@pytest.mark.parametrize("name", DECKS)
def test_code_on_stage_runs_at_the_next_key_and_again_with_other_numbers(deck, name):
    visit = deck(name)
    page = visit.page
    page.emulate_media(reduced_motion="reduce")  # the result is there at once
    at = page.evaluate("Reveal.getSlides().findIndex((one) => one.querySelector('.run'))")
    page.evaluate("(at) => Reveal.slide(at, 0, -1)", at)
    stage = page.locator("section.present .run")
    fits = "(pre) => pre.scrollWidth <= pre.clientWidth"
    assert stage.locator("pre").evaluate(fits) and not stage.locator("svg.visible").count()
    stage.get_by_label("Your bet").fill("3")
    page.keyboard.press("PageDown")  # a clicker, while the field has the focus
    page.wait_for_function("document.querySelector('section.present output').textContent.startsWith('It is')")
    said, drawn = stage.locator("output").inner_text(), stage.locator("svg").get_attribute("aria-label")
    assert stage.locator("svg.visible .bet").count() == 1 and page.evaluate("Reveal.getIndices().h") == at
    number = stage.locator("pre input").first
    number.fill("0.5" if number.input_value() == "0.9" else "5")
    number.press("Enter")
    assert stage.locator("svg").get_attribute("aria-label") != drawn
    page.keyboard.press("ArrowRight")
    assert page.evaluate("Reveal.getIndices().h") == at + 1 and said and not visit.messages


@pytest.mark.parametrize("name", DECKS)
def test_a_slider_that_was_dragged_takes_no_key_from_the_deck(deck, name):
    page = deck(name).page
    slides = page.evaluate(
        "Reveal.getSlides().map((slide) => Boolean("
        "slide.querySelector('input[type=range]') && !slide.querySelector('.fragment')))"
    )
    at, last = slides.index(True), len(slides) - 1
    control = page.locator("section.present input[type=range]")

    def drag():
        page.evaluate("(at) => Reveal.slide(at)", at)
        box, before = None, control.get_attribute("aria-valuetext")
        while (now := control.bounding_box()) != box:  # the deck is still taking its place
            box = now
            page.wait_for_timeout(150)
        middle = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + 0.2 * box["width"], middle)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.8 * box["width"], middle, steps=4)
        page.mouse.up()
        assert control.get_attribute("aria-valuetext") != before
        page.mouse.click(box["x"] + 0.3 * box["width"], middle)
        assert page.evaluate("document.activeElement.type") == "range"

    for key, there in (
        ("Home", 0),
        ("End", last),
        ("PageUp", at - 1),
        ("ArrowRight", at + 1),
        ("ArrowLeft", at - 1),
    ):
        drag()
        page.keyboard.press(key)
        while page.locator("section.present .fragment:not(.visible)").count() and there > at:
            page.keyboard.press(key)
        assert page.evaluate("Reveal.getIndices().h") == there, key
    for key, state in (
        ("b", "Reveal.isPaused()"),
        ("o", "Reveal.isOverview()"),
        ("f", "Boolean(document.fullscreenElement)"),
    ):
        drag()
        page.keyboard.press(key)
        page.wait_for_function(state)
        page.evaluate(
            "document.fullscreenElement && document.exitFullscreen()"
        ) if key == "f" else page.keyboard.press(key)
    drag()
    page.keyboard.press("Shift+Slash")
    shown = page.locator(".r-overlay-help")
    assert "Move the slider" in shown.inner_text() and "Jump to first/last slide" not in shown.inner_text()
    page.keyboard.press("Escape")
    drag()
    with page.context.expect_page():
        page.keyboard.press("s")


@pytest.mark.parametrize("name", DECKS)
def test_live_views_have_the_colors_that_the_notes_name(deck, name):
    slides = deck(name).page.evaluate(LIVE)
    for said, colors in slides:
        seen = [
            names(*map(float, re.findall(r"[\d.]+", color)[:3]))
            for color in colors
            if color.startswith("rgb")
        ]
        assert color_words(said) <= set().union(*seen), said


@pytest.mark.parametrize("name", DECKS)
def test_a_printed_deck_shows_the_picture_of_every_slide(deck, built, tmp_path, name):
    page = deck(name, query="?print-pdf").page
    page.pdf(path=tmp_path / "deck.pdf", prefer_css_page_size=True, print_background=True)
    slides, sheets = (
        soup(built / f"slides/{name}.html").select(".slides > section"),
        PdfReader(tmp_path / "deck.pdf").pages,
    )
    assert len(sheets) == len(slides)
    for slide, sheet in zip(slides, sheets, strict=True):
        frames = slide.select(".ssm-slider-frames > div")
        pictures = {image["src"] for image in slide.select("img")}
        least = min(4, len(frames)) if frames else len(pictures)
        assert len(sheet.images) >= least, slide.h2.get_text()


def test_a_students_deck_runs_without_answers_and_notes(open_page, built, tmp_path):
    for_students(built, tmp_path / "site")
    visit = open_page((tmp_path / "site/slides/trained.html").as_uri())
    visit.page.wait_for_selector("html[data-ready=true]", state="attached")
    total = visit.page.evaluate("Reveal.getTotalSlides()")
    assert total == 1 + len(next(one for one in lectures(ROOT) if one.name == "trained").slides)
    assert not visit.page.locator(".answer, aside.notes").count() and not visit.messages


@pytest.mark.parametrize("name", DECKS)
def test_a_handout_has_two_pages(open_page, disk, tmp_path, name):
    page = open_page(f"{disk}slides/{name}-handout.html").page
    page.pdf(path=tmp_path / "handout.pdf", prefer_css_page_size=True)
    assert len(PdfReader(tmp_path / "handout.pdf").pages) == 2
