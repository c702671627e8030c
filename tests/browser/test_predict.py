"""Predict boxes: what follows a question is covered until the reader has chosen."""

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
    first = page.locator("div.predict").first
    assert page.evaluate(COVERED) == [True, True]
    choice = first.locator("button.predict-choice").nth(1)
    choice.focus()
    choice.press("Enter")
    assert page.evaluate(COVERED) == [False, True]
    assert choice.get_attribute("aria-pressed") == "true"
    assert "Compare" in first.locator("[role=status]").inner_text()


def test_a_link_into_the_answer_uncovers_it(page):
    page.evaluate("location.hash = 'fig-plane-of-lags'")
    page.wait_for_function("!document.querySelector('#fig-plane-of-lags').closest('.predict-covered')")
    assert page.evaluate(COVERED) == [True, False]


def test_on_paper_nothing_is_covered(page):
    page.emulate_media(media="print")
    blurred = "getComputedStyle(document.querySelector('.predict-covered')).filter"
    assert page.evaluate(blurred) == "none"
