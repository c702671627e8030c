"""Every page over file://, light, dark, on a phone, on paper and in a room: silent, whole, accessible."""

from importlib.resources import files
from pathlib import Path

import pytest
from browser.visit import FACTS, FOLD, SCREENS, VIEWS, turn, visited

from ssmbook._book.claims import page_names
from ssmbook.display.images import FIGURE_DPI, FRAME_DPI
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
EXCUSED = {  # pages that need them
    "chapters/1-one-operator/zoo": {"region"},
    "chapters/appendix/bibliography": set(THEIRS) - {"region"},
}
# Contrast costs most: it is looked at in light and in dark, and everything else in light and on a phone.
CONTRAST = {"runOnly": ["color-contrast"]}
RULES = {
    "light": [{"rules": {"color-contrast": {"enabled": False}}}, CONTRAST],
    "dark": [CONTRAST],
    "phone": [{"rules": {"color-contrast": {"enabled": False}}}],
}
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
  const context = rules.runOnly ? { include: looks() } : document;
  const found = await axe.run(context, { resultTypes: ["violations"], preload: false, ...rules });
  return found.violations.flatMap(({ id, nodes }) => nodes.map(({ target, html }) => {
    const node = document.querySelector(target[0]);
    const excuse = (allowed[id] || []).find((selector) => node && node.matches(selector));
    return { rule: id, excuse: excuse || null, target: target.join(" "), html: html.slice(0, 160) };
  }));
}""".replace("LOOKS", LOOKS)
axe = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


def each_page(*views):
    return pytest.mark.parametrize(
        ("name", "view"),
        [pytest.param(name, view, id=f"{name.split('/')[-1]},{view}") for name in PAGES for view in views],
    )


def violations(page, rules):
    """What axe finds on a page that has it."""
    return page.evaluate(FIND_VIOLATIONS, [THEIRS, rules])


def every_view(page, address):
    """What was asked for and said while the page was open, and what is seen and found in each view."""
    visit = visited(page, address)
    seen, found = {}, {}
    page.evaluate(FOLD, False)  # proofs and solutions are looked at too
    for view in VIEWS:
        turn(page, view)
        seen[view] = page.evaluate(FACTS)
    page.evaluate(FOLD, True)
    page.evaluate(EMPTY)
    page.evaluate(axe)
    for view in RULES:
        turn(page, view)
        page.wait_for_timeout(TAB_STOP)
        found[view] = [one for rules in RULES[view] for one in violations(page, rules)]
    return visit.requests, visit.messages, seen, found


@pytest.fixture
def page_seen(look, disk, name):
    return look(VIEWS["light"], f"{disk}{name}.html", every_view)


@pytest.fixture
def facts(page_seen, view):
    return page_seen[2][view]


@pytest.mark.parametrize("name", PAGES, ids=[name.split("/")[-1] for name in PAGES])
def test_nothing_is_asked_of_another_host_and_the_console_is_silent(page_seen, name):
    requests, messages, _, _ = page_seen
    assert requests and not messages
    assert not [url for url in requests if not url.startswith(("file:", "data:", "blob:"))]


@each_page(*VIEWS)
def test_every_formula_is_typeset(facts, name, view):
    assert not facts["untypeset"] and not facts["errors"]


@each_page(*VIEWS)
def test_nothing_sticks_out_of_the_window(facts, name, view):
    assert facts["width"] <= 0
    assert not facts["outside"]


@each_page(*VIEWS)
def test_a_formula_stays_in_its_column(facts, name, view):
    assert not facts["parted"]


@each_page("phone")
def test_on_a_phone_no_table_and_no_printed_line_is_pushed_aside(facts, name, view):
    assert not facts["pushed"]


@each_page("light", "phone")
def test_no_word_is_lower_than_twelve_pixels(facts, name, view):
    assert not facts["low"]


@pytest.mark.parametrize("name", ["notation", "verification"])
def test_tables_of_words_fit_the_narrowest_phone_too(open_page, disk, name):
    assert not open_page(f"{disk}chapters/appendix/{name}.html", "small").facts["pushed"]


@each_page("phone")
def test_on_a_phone_a_name_in_code_breaks_between_its_words(facts, name, view):
    assert not facts["torn"]


@each_page("phone")
def test_on_a_phone_no_letter_of_a_picture_is_lower_than_twelve_pixels(facts, name, view):
    for of_slider, scale in facts["pictures"]:
        height = SMALLEST_PT / 72 * (FRAME_DPI if of_slider else FIGURE_DPI) * scale
        assert round(height, 1) >= 12


@each_page(*SCREENS)
def test_the_page_wears_the_mode_that_was_asked_for(facts, name, view):
    assert facts["theme"] == ("dark" if view == "dark" else "light")


@each_page(*RULES)
def test_axe_finds_nothing_but_the_themes_own(page_seen, name, view):
    assert not [one for one in page_seen[3][view] if not one["excuse"]]


@pytest.mark.parametrize("view", SCREENS)
def test_the_preface_does_not_jump_while_it_loads(open_page, web, view):
    """Scripts and pictures come late here; from 0.1 (window times way) on a shift counts as poor."""
    facts = open_page(f"{web}chapters/preface.html", view, late=("tex-chtml.js", "theme.js", ".png")).facts
    assert facts["shift"] < 0.1


@pytest.mark.parametrize("view", ["light", "dark"])
def test_the_colors_of_code_keep_their_contrast(open_page, disk, view):
    page = open_page(f"{disk}chapters/1-one-operator/two-ways-to-mix.html", view).page
    page.locator("details").evaluate_all("(all) => all.forEach((one) => { one.open = true; })")
    assert page.locator("pre span").count() > 100
    page.wait_for_function("document.getAnimations().every((one) => one.playState === 'finished')")
    page.evaluate(axe)
    assert not violations(page, CONTRAST)


@pytest.mark.parametrize("name", EXCUSED, ids=[name.split("/")[-1] for name in EXCUSED])
def test_every_excuse_is_still_needed(page_seen, name):
    """An entry of the list that no page needs any more has to go."""
    used = {(one["rule"], one["excuse"]) for one in page_seen[3]["light"]}
    assert {(rule, selector) for rule in EXCUSED[name] for selector in THEIRS[rule]} <= used
    assert set().union(*EXCUSED.values()) == set(THEIRS)


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
