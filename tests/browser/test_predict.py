"""Predict boxes: what follows a question is covered until the reader has chosen, or entered a number."""

import pytest

PAGE = "chapters/1-one-operator/two-ways-to-mix.html"
COVERED = """() => [...document.querySelectorAll("div.predict")].map((box) => {
  const next = box.nextElementSibling;
  return next.inert && next.classList.contains("predict-covered");
})"""


@pytest.fixture
def page(browser, disk):
    page = browser.new_page()
    page.goto(disk + PAGE)
    yield page
    page.close()


def test_a_choice_by_keyboard_uncovers_the_answer_to_its_question_alone(page):
    second = page.locator("div.predict").nth(1)
    assert page.evaluate(COVERED) == [True, True]
    choice = second.locator("button.predict-choice").nth(1)
    choice.focus()
    choice.press("Enter")
    assert page.evaluate(COVERED) == [True, False]
    assert choice.get_attribute("aria-pressed") == "true"
    assert "Compare" in second.locator("[role=status]").inner_text()


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


@pytest.mark.parametrize("words", ["90", "−3", "50 %", "0,5", "1e-3"])
def test_a_number_may_be_written_in_many_ways_and_on_a_phone(browser, disk, words):
    page = browser.new_page(viewport={"width": 390, "height": 844}, has_touch=True)
    page.goto(disk + PAGE)
    first = page.locator("div.predict").first
    field = first.locator("input")
    assert field.get_attribute("inputmode") == "decimal"
    box = field.bounding_box()
    assert box["x"] + box["width"] <= 390 and box["height"] >= 24
    field.fill(words)
    first.get_by_role("button", name="Check").tap()
    assert page.evaluate(COVERED) == [False, True]
    page.close()


def test_without_javascript_nothing_is_covered_and_the_item_is_text(browser, disk):
    page = browser.new_page(java_script_enabled=False)
    page.goto(disk + PAGE)
    assert page.locator(".predict-covered").count() == 0
    assert page.get_by_text("a number (of steps)").is_visible()
    assert page.locator("div.admonition input").count() == 0
    page.close()


def test_a_link_into_the_answer_uncovers_it(page):
    page.evaluate("location.hash = 'fig-plane-of-lags'")
    page.wait_for_function("!document.querySelector('#fig-plane-of-lags').closest('.predict-covered')")
    assert page.evaluate(COVERED) == [True, False]


def test_on_paper_nothing_is_covered(page):
    page.emulate_media(media="print")
    blurred = "getComputedStyle(document.querySelector('.predict-covered')).filter"
    assert page.evaluate(blurred) == "none"
