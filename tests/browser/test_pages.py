"""Every page over file://, light, dark, on a phone, on paper, in a room: silent, whole, alive, accessible."""

from importlib.resources import files
from pathlib import Path

import pytest
from browser.visit import FOLD, SLIDER, VIEWS, finger, steps, turn, visited

from headsandstates.site.page import page_names
from headsandstates.sliders import FRAME_DPI
from ssmbook.display.images import FIGURE_DPI
from ssmbook.display.style import SMALLEST_PT

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*page_names(ROOT), "search"]
# What axe finds and the book did not write: rule -> elements.
THEIRS = {
    "region": ("img.logo__image",),  # the theme's sidebar is no landmark
    "aria-allowed-role": ("div.citation[role=doc-biblioentry]",),  # docutils
    "aria-deprecated-role": ("div.citation[role=doc-biblioentry]",),
    "aria-required-children": ("div.citation-list[role=list]",),
}
# Contrast costs most: it is looked at in light and in dark. What scrolls is looked at on a phone, too.
CONTRAST = {"runOnly": ["color-contrast"]}
RULES = {
    "light": [{"rules": {"color-contrast": {"enabled": False}}}, CONTRAST],
    "dark": [CONTRAST],
    "phone": [{"runOnly": ["scrollable-region-focusable"]}],
}
MEASURED = ("light", "phone", "paper", "room")  # dark has the places of light
# A formula's inside is MathJax's, the colors of code are looked at on one page, and one entry of the API is
# like another: nine of ten elements.
EMPTY = """() => {
  for (const node of document.querySelectorAll("mjx-container, pre")) node.replaceChildren();
  for (const entry of [...document.querySelectorAll(".api-reference > dl.py")].slice(30)) entry.remove();
}"""
TAB_STOP = 350  # ms: what scrolls gets its tab stop 300 after the window has a new width
# Words that look alike, on grounds that look alike, have the same contrast: one of them stands for all.
LOOKS = """const looks = () => {
  const kept = new Map();
  const look = (node) => {
    const { color, backgroundColor, backgroundImage, fontSize, fontWeight, opacity, filter, position } =
      getComputedStyle(node);
    return [color, backgroundColor, backgroundImage, fontSize, fontWeight, opacity, filter, position].join();
  };
  for (const node of document.querySelectorAll("body *")) {
    const words = [...node.childNodes].some((one) => one.nodeType === 3 && one.data.trim());
    if (!words || !node.checkVisibility()) continue;
    let key = "";
    for (let one = node; one; one = one.parentElement) key += look(one) + "/";
    if (!kept.has(key)) kept.set(key, node);
  }
  return [...kept.values()];
};
"""
FIND_VIOLATIONS = """async ([allowed, rules]) => {
  LOOKS
  const context = rules.runOnly?.includes("color-contrast") ? { include: looks() } : document;
  const found = await axe.run(context, { resultTypes: ["violations"], preload: false, ...rules });
  return found.violations.flatMap(({ id, nodes }) => nodes.map(({ target, html }) => {
    const node = document.querySelector(target[0]);
    const excuse = (allowed[id] || []).find((selector) => node && node.matches(selector));
    return { rule: id, excuse: excuse || null, target: target.join(" "), html: html.slice(0, 160) };
  }));
}""".replace("LOOKS", LOOKS)
axe = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


each_page = pytest.mark.parametrize("name", PAGES, ids=[name.split("/")[-1] for name in PAGES])


def violations(page, rules):
    """What axe finds on a page that has it."""
    return page.evaluate(FIND_VIOLATIONS, [THEIRS, rules])


def every_view(page, address):
    """The visit, how its sliders moved, and what is seen and found in each view."""
    visit = visited(page, address)
    drawn = page.locator("figure.ssm-slider:not([data-lab])")  # test_lab.py moves the live ones
    moved = [steps(slider) for slider in drawn.all()]
    seen, found = {}, {}
    page.evaluate(FOLD, False)  # proofs and solutions are looked at too
    for view in MEASURED:
        turn(page, view)
        seen[view] = visit.facts
    page.evaluate(FOLD, True)
    page.evaluate(EMPTY)
    page.evaluate(axe)
    for view in RULES:
        turn(page, view)
        page.wait_for_timeout(TAB_STOP)
        theme = page.evaluate("document.documentElement.dataset.theme")
        found[view] = theme, [one for rules in RULES[view] for one in violations(page, rules)]
    return visit, moved, seen, found


@pytest.fixture
def page_seen(look, disk, name):
    return look(VIEWS["light"], f"{disk}{name}.html", every_view)


@each_page
def test_nothing_is_asked_of_another_host_and_the_console_is_silent(page_seen, name):
    visit, *_ = page_seen
    assert visit.requests and not visit.messages
    assert not [url for url in visit.requests if not url.startswith(("file:", "data:", "blob:"))]


@each_page
def test_formulas_and_captions_are_seen_and_nothing_sticks_out_of_window_or_column(page_seen, name):
    for view, facts in page_seen[2].items():
        assert not facts["untypeset"] and not facts["errors"], view
        assert facts["width"] <= 0 and not facts["outside"], view
        assert not facts["parted"] and not facts["silent"], view


@each_page
def test_on_a_phone_all_can_be_read(page_seen, name):
    """No table and no printed line is pushed aside, no header torn, no letter lower than twelve pixels."""
    facts = page_seen[2]["phone"]
    assert not facts["torn"] and not facts["pushed"] and not facts["low"] and not page_seen[2]["light"]["low"]
    for of_slider, scale in facts["pictures"]:
        height = SMALLEST_PT / 72 * (FRAME_DPI if of_slider else FIGURE_DPI) * scale
        assert round(height, 1) >= 12


@each_page
def test_axe_finds_nothing_but_the_themes_own_in_either_mode(page_seen, name):
    for view, (theme, found) in page_seen[3].items():
        assert theme == ("dark" if view == "dark" else "light")
        assert not [one for one in found if not one["excuse"]], view


@each_page
def test_keys_move_every_slider(page_seen, name):
    """At each step one frame is seen, and its value is written, said and in the alternative text."""
    for states in page_seen[1]:
        assert [state["value"] for state in states] == list(range(states[0]["frames"]))
        for state in states:
            assert state["named"] and state["said"] and state["said"] == state["written"]
            assert len(state["seen"]) == 1
        pictures, texts = zip(*(state["seen"][0] for state in states), strict=True)
        assert len({state["said"] for state in states}) == len(set(texts)) == len(states)
        assert len(set(pictures)) > 1


@pytest.mark.parametrize("name", ["learning-heads", "trained-layers"])
def test_a_finger_moves_every_slider(open_page, disk, name):
    page = open_page(f"{disk}chapters/4-trained/{name}.html", "phone", is_mobile=True).page
    sliders = page.locator("figure.ssm-slider").all()
    assert sliders
    for slider in sliders:
        control = slider.locator("input[type=range]")
        control.scroll_into_view_if_needed()
        box, before = control.bounding_box(), slider.evaluate(SLIDER)
        assert box["height"] >= 24
        high = before["value"] < before["last"] / 2
        page.touchscreen.tap(box["x"] + (0.95 if high else 0.05) * box["width"], box["y"] + box["height"] / 2)
        after = slider.evaluate(SLIDER)
        assert after["value"] > before["value"] if high else after["value"] < before["value"]
        assert after["seen"] != before["seen"] and after["said"] != before["said"]


# What lies over a figure in the window, below the page's bar.
OVER = """(figure) => {
  const { left, top, right, bottom } = figure.getBoundingClientRect(), found = new Set();
  const bar = document.querySelector(".bd-header-article").getBoundingClientRect().bottom;
  for (let y = Math.max(top, bar) + 4; y < Math.min(bottom, innerHeight); y += 8) {
    for (let x = left + 4; x < right; x += 8) {
      const seen = document.elementFromPoint(x, y);
      if (seen && !figure.contains(seen)) found.add(seen.outerHTML.slice(0, 80));
    }
  }
  return [...found];
}"""


@pytest.mark.parametrize("view", ["phone", "tablet"])
def test_nothing_lies_over_a_picture_when_one_scrolls_back(open_page, disk, view):
    size = {} if view == "phone" else {"viewport": {"width": 820, "height": 1180}}
    address = f"{disk}chapters/1-one-operator/two-ways-to-mix.html"
    page = open_page(address, "phone", is_mobile=True, **size).page
    picture = page.locator("#ssm-slider-plane")
    picture.evaluate("(one) => one.scrollIntoView({ block: 'end', behavior: 'instant' })")
    place = page.evaluate("scrollY")
    finger(page, (60, 400), (0, 60))
    page.wait_for_function("(place) => scrollY < place - 20", arg=place)
    page.wait_for_timeout(300)
    assert not picture.evaluate(OVER)


@pytest.mark.parametrize("name", ["notation", "verification"])
def test_tables_of_words_fit_the_narrowest_phone_too(open_page, disk, name):
    facts = open_page(f"{disk}chapters/appendix/{name}.html", "small").facts
    assert not facts["pushed"] and facts["width"] <= 0


@pytest.mark.parametrize("view", ["light", "phone"])
def test_the_preface_does_not_jump_while_it_loads(open_page, web, view):
    """Scripts and pictures come late here; from 0.1 (window times way) on a shift counts as poor."""
    facts = open_page(f"{web}chapters/preface.html", view, late=(".js", ".png")).facts
    assert facts["shift"] < 0.1


STEADY = {  # where formulas, letters or scripts moved the text most
    "laboratory": 768,
    "1-one-operator/interaction-operator": 1440,
    "2-two-constructions/scans": 390,
    "3-three-theorems/gradient-highway": 768,
    "3-three-theorems/how-many-heads-really": 1280,
    "3-three-theorems/interaction-rank-gap-deeper": 768,
    "appendix/cheat-sheet": 768,
    "appendix/notation": 1440,
}


@pytest.mark.parametrize("name", STEADY, ids=[name.split("/")[-1] for name in STEADY])
def test_no_page_jumps_while_it_loads(open_page, disk, name):
    size = {"width": STEADY[name], "height": 900}
    facts = open_page(f"{disk}chapters/{name}.html", viewport=size).facts
    assert facts["shift"] < 0.1


def test_on_a_phone_sections_follow_the_first_and_a_reload_keeps_the_place(open_page, disk):
    page = open_page(f"{disk}chapters/3-three-theorems/head-count.html", "phone").page
    followed = "!document.documentElement.classList.contains('from-top')"
    page.wait_for_function(followed)
    heading = page.get_by_role("heading", name="States and heads are two ranks")
    heading.scroll_into_view_if_needed()
    page.wait_for_timeout(500)
    place = page.evaluate("scrollY")
    page.reload()
    assert page.evaluate(followed)
    page.wait_for_timeout(1000)
    assert place > 2000 and abs(page.evaluate("scrollY") - place) < 3


def test_works_cited_stand_beside_the_text_or_nowhere(open_page, disk):
    for view, beside in (("light", True), ("phone", False)):
        page = open_page(f"{disk}chapters/1-one-operator/two-ways-to-mix.html", view).page
        assert page.locator(".margin-note").first.is_visible() == beside


@pytest.mark.parametrize("name", ["heads.head_count", "operators.InteractionOperator.best_heads"])
def test_an_old_address_of_the_reference_leads_to_the_entry(open_page, disk, name):
    """It was one page; its tables have the names, and the entry of a class its methods."""
    page = open_page(f"{disk}chapters/appendix/status.html").page
    page.goto(f"{disk}chapters/appendix/api.html#ssmbook.{name}")
    page.wait_for_url(f"**/api-{name.partition('.')[0]}.html#ssmbook.{name}")


def test_the_colors_of_code_keep_their_contrast(open_page, disk):
    page = open_page(f"{disk}chapters/1-one-operator/two-ways-to-mix.html").page
    page.locator("details").evaluate_all("(all) => all.forEach((one) => { one.open = true; })")
    assert page.locator("pre span").count() > 100
    page.evaluate(axe)
    for view in ("light", "dark"):
        turn(page, view)
        assert not violations(page, CONTRAST), view


def test_axe_finds_what_is_planted(open_page, disk):
    """A pale word that looks like no other, a picture without words, a header without any."""
    page = open_page(f"{disk}chapters/appendix/cheat-sheet.html").page
    page.evaluate(
        """() => document.querySelector("article").insertAdjacentHTML("beforeend",
        "<p style='color: #bbb'>pale</p><img src='data:,'><table><tr><th></th></tr></table>")"""
    )
    page.evaluate(axe)
    found = [one["rule"] for rules in RULES["light"] for one in violations(page, rules)]
    assert {"color-contrast", "image-alt", "empty-table-header"} <= set(found)
