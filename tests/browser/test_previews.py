"""A reference shows what it refers to: to a pointer, by the keyboard and to a finger, over file://."""

import re

import pytest
from browser.test_pages import CONTRAST, axe, violations

GAP = "chapters/3-three-theorems/interaction-rank-gap.html"
COUNT = "chapters/3-three-theorems/head-count.html"
TIP = "#preview.shown"
FACTS = """(tip) => {
  const box = tip.getBoundingClientRect();
  return {
    text: tip.innerText,
    inside: box.left >= 0 && box.right <= innerWidth && box.top >= 0 && box.bottom <= innerHeight,
    pushed: tip.scrollWidth > tip.clientWidth + 1,
    formulas: tip.querySelectorAll("mjx-container").length,
    wrong: tip.querySelectorAll("mjx-merror, .math:not(:has(mjx-container))").length,
    pictures: [...tip.querySelectorAll("img")].map((one) => one.naturalWidth > 0),
    stops: tip.querySelectorAll("a, button, [tabindex]").length,
    role: tip.getAttribute("role"),
    described: document.querySelector("[aria-describedby=preview]")?.getAttribute("href"),
    moves: getComputedStyle(tip).transitionDuration,
  };
}"""


def reference(page, end):
    """The first reference that can be seen and leads there."""
    link = page.locator(f"article a[href*='{end}']:visible").first
    link.evaluate("(node) => node.scrollIntoView({ block: 'center' })")
    return link


def seen(page):
    tip = page.locator(TIP)
    tip.wait_for()
    facts = tip.evaluate(FACTS)
    assert facts["inside"] and not facts["pushed"] and not facts["wrong"] and not facts["stops"]
    assert facts["role"] == "tooltip" and all(facts["pictures"])
    return facts


@pytest.mark.parametrize("view", ["light", "dark"])
def test_a_pointer_sees_what_a_reference_refers_to(open_page, disk, view):
    visit = open_page(disk + COUNT, view, reduced_motion="reduce")
    page = visit.page
    for end, words, least in (
        ("#prop-semiseparable", "Proposition 5.3", 3),
        ("#equation-eq-lag", "Equation (1.5)", 1),
        ("#fig-position-content", "Fig. 1.4", 0),
        ("#cite-dao2024transformers", "Tri Dao and Albert Gu", 0),
        ("#rank-and-singular-values", "Rank and singular values", 2),
        ("head-count-deeper.html#ex-head-count-skip", "Exercise 7", 0),
        ("structured-dynamics.html", "Structured dynamics", 0),
    ):
        link = reference(page, end)
        link.hover()
        page.locator(TIP).filter(has_text=words).wait_for()
        facts = seen(page)
        assert facts["formulas"] >= least and facts["described"] == link.get_attribute("href")
        assert bool(facts["pictures"]) == end.startswith("#fig-") and facts["moves"] == "0s"
    page.evaluate(axe)
    assert not [one for one in violations(page, CONTRAST) if ".preview" in one["target"]]
    assert not visit.messages
    assert all(url.startswith(("file:", "data:")) for url in visit.requests)


def test_it_stays_under_the_pointer_and_escape_closes_it(open_page, disk):
    page = open_page(disk + GAP).page
    link = reference(page, "#thm-head-count")
    link.hover()
    assert "Theorem 7.1 (Head Count)" in seen(page)["text"] and "7. The head count" in seen(page)["text"]
    page.locator(TIP).hover()
    page.wait_for_timeout(600)
    assert page.locator(TIP).is_visible()
    page.mouse.move(5, 5)
    page.locator(TIP).wait_for(state="hidden")
    link.hover()
    seen(page)
    page.keyboard.press("Escape")
    assert not page.locator(TIP).count() and not page.locator("[aria-describedby=preview]").count()


def test_the_keyboard_opens_and_leaves_it(open_page, disk):
    page = open_page(disk + GAP).page
    link = reference(page, "#thm-head-count")
    link.evaluate("(node) => node.focus({ focusVisible: true })")
    assert "Head Count" in seen(page)["text"]
    page.keyboard.press("Escape")
    assert not page.locator(TIP).count()
    assert link.evaluate("(node) => node === document.activeElement")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    assert "Head Count" in seen(page)["text"]
    page.keyboard.press("Enter")
    page.wait_for_url("**/head-count.html#thm-head-count")


def test_a_long_press_shows_it_on_a_phone_and_a_tap_follows(open_page, disk):
    page = open_page(disk + GAP, "phone", is_mobile=True, color_scheme="dark").page
    link = reference(page, "#thm-head-count")
    box, finger = link.bounding_box(), page.context.new_cdp_session(page)
    point = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
    finger.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [point]})
    page.locator(TIP).wait_for()
    finger.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.wait_for_timeout(400)
    assert "Theorem 7.1" in seen(page)["text"] and GAP in page.url
    page.touchscreen.tap(195, 840)
    page.locator(TIP).wait_for(state="hidden")
    link.tap()
    page.wait_for_url(re.compile("head-count.html#thm-head-count"))


def test_a_page_without_formulas_typesets_those_that_it_shows(open_page, disk):
    page = open_page(f"{disk}chapters/appendix/verification.html").page
    assert not page.locator("script[src*='tex-chtml']").count()
    reference(page, "#thm-head-count").hover()
    assert seen(page)["formulas"] > 5
