"""Present: a page for a room, on which keys step through headings, boxes and pictures."""

import pytest

ROOM = {"viewport": {"width": 1280, "height": 720}}
ZOO = "chapters/1-one-operator/zoo.html"
HERE = """() => {
  const box = document.activeElement.getBoundingClientRect();
  const bar = document.querySelector(".bd-header-article").getBoundingClientRect().bottom;
  return { tag: document.activeElement.tagName, gap: box.top - bar, place: box.top + scrollY };
}"""


@pytest.fixture
def page(open_page, disk):
    page = open_page(f"{disk}{ZOO}", **ROOM).page
    page.get_by_role("button", name="Present").click()
    return page


def presenting(page):
    return page.locator("html.presenting").count() == 1


def test_the_text_is_large_the_sidebars_are_gone_and_a_menu_keeps_its_arrows(page):
    assert page.get_by_role("button", name="Present").get_attribute("aria-pressed") == "true"
    paragraph = page.locator("article section > p").first
    assert float(paragraph.evaluate("(node) => getComputedStyle(node).fontSize").removesuffix("px")) >= 24
    assert paragraph.bounding_box()["width"] >= 1000
    for sidebar in (".bd-sidebar-primary", ".bd-sidebar-secondary"):
        assert not page.locator(sidebar).first.is_visible()
    slider = page.locator("figure.ssm-slider").first
    control = slider.locator("select")
    picture = slider.locator(".ssm-slider-frames > div:visible")
    slider.evaluate("(node) => scrollTo(0, node.getBoundingClientRect().top + scrollY - 90)")
    assert picture.bounding_box()["width"] > 900
    assert control.bounding_box()["y"] + control.bounding_box()["height"] <= 720
    control.focus()
    before, scrolled = control.input_value(), page.evaluate("scrollY")
    control.press("ArrowRight")
    assert control.input_value() != before and page.evaluate("scrollY") == scrolled
    control.press("PageDown")
    assert page.evaluate("scrollY") > scrolled and presenting(page)


def test_arrows_step_to_every_box_and_picture_and_back(page):
    places = []
    for _ in range(100):
        page.keyboard.press("ArrowRight")
        here = page.evaluate(HERE)
        if places and here["place"] == places[-1]:
            break
        assert 0 <= here["gap"] <= 12, here
        places.append(here["place"])
    boxes = page.locator("article > section :is(div.proof[id], div.exercise, div.takeaway)").count()
    pictures = page.locator("article div.cell_output figure:not(figure figure)").count()
    assert len(places) >= boxes + pictures + page.locator("article h2").count()
    assert places == sorted(places)
    for place in reversed(places[:-1]):
        page.keyboard.press("PageUp")
        assert abs(page.evaluate(HERE)["place"] - place) < 2


def test_escape_ends_it_and_the_next_page_goes_on_with_it(page):
    page.locator("a.right-next").click()
    page.wait_for_url("**/factorized.html")
    assert presenting(page)
    page.keyboard.press("Escape")
    assert not presenting(page)
    before = page.evaluate("scrollY")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("scrollY") == before
    page.reload()
    assert not presenting(page)
