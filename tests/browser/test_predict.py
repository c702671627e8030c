"""Predict boxes: what answers a question is covered until the reader has chosen, or entered a number."""

import re

import pytest
from browser.visit import SETTLED

from headsandstates.site.built import chapters

PAGE = "chapters/1-one-operator/two-ways-to-mix.html"
# For each question whether its answer is covered: the first thing after its box with a card before it.
COVERED = """() => [...document.querySelectorAll("div.predict")].map((box) => {
  const show = box.querySelector(".predict-show"), closed = show.getAttribute("aria-expanded") === "false";
  let card = box.nextElementSibling;
  while (!card.matches(".predict-card") && !card.querySelector(".predict-card"))
    card = card.nextElementSibling;
  card = card.matches(".predict-card") ? card : card.querySelector(".predict-card");
  const next = card.nextElementSibling, seen = card.checkVisibility();
  if (seen !== closed || (next.getAttribute("hidden") === "until-found") !== closed) throw box.outerHTML;
  return closed;
})"""
FOCUSED = "document.activeElement.className"
HEIGHTS = "[...document.querySelectorAll('.predict-covered')].map((one) => one.offsetHeight)"


@pytest.fixture
def page(browser, disk):
    context = browser.new_context()
    page = context.new_page()
    page.goto(disk + PAGE)
    yield page
    context.close()


def test_a_choice_by_keyboard_uncovers_the_answer_to_its_question_alone_and_is_remembered(page):
    second = page.locator("div.predict").nth(1)
    assert page.evaluate(COVERED) == [True, True]
    choice = second.locator("button.predict-choice").nth(1)
    choice.focus()
    choice.press("Enter")
    assert page.evaluate(COVERED) == [True, False]
    assert choice.get_attribute("aria-pressed") == "true" and page.evaluate(FOCUSED) == "predict-choice"
    assert "Compare" in second.locator("[role=status]").inner_text()
    page.reload()
    assert page.evaluate(COVERED) == [True, False]
    assert choice.get_attribute("aria-pressed") == "true"
    second.get_by_role("button", name="Cover the answer again").press("Enter")
    assert page.evaluate(COVERED) == [True, True] and choice.get_attribute("aria-pressed") == "false"
    page.reload()
    assert page.evaluate(COVERED) == [True, True]


def test_any_number_uncovers_the_answer_and_anything_else_does_not(page):
    first = page.locator("div.predict").first
    field = first.get_by_label("a number (of steps)")
    said = first.locator("[role=status]")
    for words in ("", "many", "1/2"):
        field.fill(words)
        first.get_by_role("button", name="Check").click()
        assert page.evaluate(COVERED) == [True, True]
        assert field.get_attribute("aria-invalid") == "true"
        assert said.inner_text() == "Please enter a number."
    field.fill("1,024.5")
    field.press("Enter")
    assert page.evaluate(COVERED) == [False, True]
    assert field.get_attribute("aria-invalid") == "false"
    assert "1,024.5" in said.inner_text()
    page.reload()
    assert page.evaluate(COVERED) == [False, True] and field.input_value() == "1,024.5"


@pytest.mark.parametrize("words", ["90", "−3", "50 %", "0,5", "1e-3"])
def test_a_number_may_be_written_in_many_ways_and_on_a_phone(browser, disk, words):
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True)
    page = context.new_page()
    page.goto(disk + PAGE)
    first = page.locator("div.predict").first
    field = first.locator("input")
    assert field.get_attribute("inputmode") == "decimal"
    box = field.bounding_box()
    assert box["x"] + box["width"] <= 390 and box["height"] >= 24
    field.fill(words)
    first.get_by_role("button", name="Check").tap()
    assert page.evaluate(COVERED) == [False, True]
    context.close()


def test_a_card_opens_in_its_place_and_hands_on_the_focus(page):
    card = page.locator(".predict-card").nth(1)
    card.focus()
    card.press("Enter")
    assert False in page.evaluate(COVERED)
    assert (
        page.evaluate("document.activeElement.tabIndex") == -1
        and not page.locator(".predict-covered:focus").count()
    )


def test_one_switch_shows_all_answers_of_every_page_and_covers_them_again(page, web):
    page.goto(web + PAGE)  # pages of one address share a process, and what it stores is there at once
    page.locator(".predict-choice").first.click()
    switch = page.get_by_role("button", name="Show all answers")
    assert switch.evaluate("(one) => one.nextElementSibling.matches('.theme-switch-button')")
    switch.press("Enter")
    assert page.evaluate(COVERED) == [False, False] and switch.get_attribute("aria-pressed") == "true"
    page.goto(web + "chapters/primer.html")
    assert page.evaluate(COVERED) == [False, False] and switch.get_attribute("aria-pressed") == "true"
    switch.click()
    assert page.evaluate(COVERED) == [True, True]
    page.goto(web + PAGE)
    assert page.evaluate(COVERED) == [True, False], "what was answered stays"


def test_where_nothing_can_be_stored_the_page_works(browser, disk):
    context = browser.new_context()
    context.add_init_script("Object.defineProperty(window, 'localStorage', { get() { throw Error(); } })")
    page = context.new_page()
    page.goto(disk + PAGE)
    page.locator(".predict-choice").first.click()
    assert page.evaluate(COVERED) == [True, False]
    context.close()


def test_the_browsers_search_finds_what_is_covered_and_uncovers_it(browser, web):
    context = browser.new_context()
    page = context.new_page()
    page.goto(web + PAGE + "#:~:text=it%20needs%20for%20nothing")
    assert page.evaluate(COVERED) == [True, True]
    page.goto("about:blank")
    page.goto(web + PAGE + "#:~:text=A%20rotation%20keeps%20part")
    page.wait_for_function(f"({COVERED})()[1] === false")
    assert page.evaluate(COVERED) == [True, False]
    context.close()


def test_a_hit_of_the_books_search_uncovers_its_words(page, disk):
    page.goto(disk + PAGE + "?find=keeps+part+of+an+arrow")
    page.wait_for_selector(".highlighted")
    assert page.evaluate(COVERED) == [True, False] and page.locator(".highlighted").first.is_visible()


def test_a_browser_that_cannot_search_what_is_hidden_gets_words_it_can(browser, disk):
    context = browser.new_context()
    context.add_init_script(
        "delete HTMLElement.prototype.onbeforematch; delete Element.prototype.onbeforematch"
    )
    page = context.new_page()
    page.goto(disk + PAGE)
    first = page.locator(".predict-covered").first
    assert first.get_attribute("hidden") is None and "blur" in first.evaluate(
        "(n) => getComputedStyle(n).filter"
    )
    page.locator(".predict-show").first.click()
    page.locator(".predict-show").nth(1).click()
    assert not page.locator(".predict-covered").count()
    context.close()


def test_a_slider_stays_and_a_hand_on_it_lifts_its_veil(page):
    slider = page.locator("#ssm-slider-plane")
    control, picture = slider.locator("input"), slider.locator("svg").first
    assert control.is_visible() and not picture.is_visible()
    control.press("Tab")
    assert not picture.is_visible()
    control.press("ArrowRight")
    assert picture.is_visible() and page.evaluate(COVERED) == [True, True]


# Of a veiled slider: what is seen beside its control, what lies upon it, whether its control takes a press.
VEILED = """(slider) => {
  slider.scrollIntoView({ block: "center", behavior: "instant" });
  const here = slider.getBoundingClientRect(), control = slider.querySelector(":is(input, select)");
  const { left, top, width, height } = control.getBoundingClientRect();
  const meets = ({ left, top, right, bottom }) =>
    left < here.right && here.left < right && top < here.bottom && here.top < bottom;
  const shown = (selector, root) => [...root.querySelectorAll(selector)].filter((one) =>
    one.checkVisibility({ visibilityProperty: true }) && one.getBoundingClientRect().width > 1);
  return {
    seen: shown("svg, img, figcaption", slider).map((one) => one.outerHTML.slice(0, 80)),
    upon: shown(".predict-card", document).filter((one) => meets(one.getBoundingClientRect()))
      .map((one) => one.outerHTML),
    pressed: document.elementFromPoint(left + width / 2, top + height / 2) === control,
  };
}"""
BY = {
    "keys": ({"viewport": {"width": 1280, "height": 800}}, lambda control: control.press("ArrowRight")),
    "mouse": ({"viewport": {"width": 900, "height": 800}}, lambda control: control.click()),
    "finger": ({"viewport": {"width": 390, "height": 844}, "has_touch": True}, lambda control: control.tap()),
}


@pytest.mark.parametrize("by", BY)
def test_every_veiled_slider_keeps_its_secret_and_a_hand_lifts_its_veil(browser, built, by):
    options, touch = BY[by]
    pages = [
        one for one in chapters(built) if re.search(r">Predict</p>.*ssm-slider", one.read_text("utf-8"), re.S)
    ]
    context, tried = browser.new_context(**options), []
    for one in pages:
        page = context.new_page()
        page.goto(one.as_uri())
        page.evaluate(SETTLED)
        for name in page.locator(".predict-veiled").evaluate_all("(all) => all.map(({ id }) => id)"):
            slider = page.locator(f"#{name}")
            found = slider.evaluate(VEILED)
            assert found == {"seen": [], "upon": [], "pressed": True}, name
            touch(slider.locator(":is(input, select)"))
            found = slider.evaluate(VEILED)
            assert len(found["seen"]) > 1 and not found["upon"], name
            tried.append(name)
        page.close()
    context.close()
    assert len(tried) > 8 and "ssm-slider-alibi-signs" in tried, tried


def test_without_javascript_nothing_is_covered_and_the_item_is_text(browser, disk):
    page = browser.new_page(java_script_enabled=False)
    page.goto(disk + PAGE)
    assert page.locator(".predict-covered, .predict-card, .predict-veiled").count() == 0
    assert page.get_by_text("a number (of steps)").is_visible()
    assert page.locator("div.admonition input").count() == 0
    page.close()


def test_a_link_into_the_answer_uncovers_it(page):
    page.evaluate("location.hash = 'fig-plane-of-lags'")
    page.wait_for_function(f"({COVERED})()[1] === false")
    assert page.evaluate(COVERED) == [True, False]


def test_on_paper_nothing_is_covered(page):
    page.emulate_media(media="print")
    assert page.evaluate(HEIGHTS) and min(page.evaluate(HEIGHTS)) > 10
    assert not page.locator(".predict-card").first.is_visible()
    assert page.locator("#ssm-slider-plane svg").first.is_visible()


WHAT = """() => {
  const covered = [...document.querySelectorAll(".predict-covered")];
  const kept = ".proof, .admonition, section, h2, h3, .ssm-slider, .cell_input";
  const heard = [...document.querySelectorAll(".predict-veiled :is(input, output)")];
  const wrong = [
    ...covered.flatMap((one) => [one, ...one.querySelectorAll("*")]).filter((one) => one.matches(kept)),
    ...heard.filter((one) => !one.checkVisibility({ visibilityProperty: true })),
    ...[...document.querySelectorAll("div.predict")].filter((box) =>
      box.querySelector(".predict-show").hidden && box.nextElementSibling?.tagName !== "SECTION"
      && box.nextElementSibling !== null),
  ].map((one) => one.outerHTML.slice(0, 100));
  for (const one of covered) one.removeAttribute("hidden");
  const heights = covered.map((one) => one.offsetHeight).reduce((sum, one) => sum + one, 0);
  return [wrong, heights, document.querySelector("article").offsetHeight];
}"""


def test_only_what_answers_is_covered_no_statement_no_summary_no_slider(browser, built):
    pages = [one for one in chapters(built) if re.search(r">Predict</p>", one.read_text(encoding="utf-8"))]
    shares = {}
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.route(re.compile("mathjax"), lambda route: route.abort())  # heights are compared, not looked at
    for one in pages:
        page = context.new_page()
        page.goto(one.as_uri())
        wrong, covered, all_ = page.evaluate(WHAT)
        assert not wrong, one
        shares[one.stem] = covered, all_
        page.close()
    context.close()
    assert len(pages) > 20 and max(covered / all_ for covered, all_ in shares.values()) < 0.2, shares
    assert sum(covered for covered, _ in shares.values()) < 0.08 * sum(all_ for _, all_ in shares.values())
