"""Every page over file://, in light, in dark and on a phone: silent, whole, inside the window, accessible."""

from importlib.resources import files
from pathlib import Path

import pytest

from ssmbook._book.claims import page_names

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*page_names(ROOT), "search"]
VIEWS = ("light", "dark", "phone")
# What axe finds and the book did not write: rule -> elements.
THEIRS = {
    "region": ("img.logo__image",),  # the theme's sidebar is no landmark
    "aria-allowed-role": ("div.citation[role=doc-biblioentry]",),  # docutils
    "aria-deprecated-role": ("div.citation[role=doc-biblioentry]",),
    # The book's own: headers that hold nothing but a formula. To go as soon as they have a word.
    "empty-table-header": ("th.head",),
    "aria-required-children": ("div.citation-list[role=list]",),
}
# Contrast costs most: with everything else in light, alone in dark; the phone's colors are those of light.
RULES = {
    "light": {},
    "dark": {"runOnly": ["color-contrast"]},
    "phone": {"rules": {"color-contrast": {"enabled": False}}},
}
FIND_VIOLATIONS = """async ([allowed, exclude, rules]) => {
  const found = await axe.run({ exclude }, { resultTypes: ["violations"], ...rules });
  return found.violations.flatMap(({ id, nodes }) => nodes.map(({ target, html }) => {
    const node = document.querySelector(target[0]);
    const excuse = (allowed[id] || []).find((selector) => node && node.matches(selector));
    return { rule: id, excuse: excuse || null, target: target.join(" "), html: html.slice(0, 160) };
  }));
}"""

each_page = pytest.mark.parametrize(
    ("name", "view"),
    [
        pytest.param(name, view, marks=pytest.mark.xdist_group(name), id=f"{name.split('/')[-1]}-{view}")
        for name in PAGES
        for view in VIEWS
    ],
    scope="session",
)
axe = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


def violations(page, rules=None, exclude=("mjx-container", "pre")):
    """What axe finds; a formula's inside is MathJax's, and the colors of code are looked at on one page."""
    page.evaluate(axe)
    return page.evaluate(FIND_VIOLATIONS, [THEIRS, exclude, rules or {}])


@each_page
def test_nothing_is_asked_of_another_host(visit, name, view):
    assert visit.requests
    assert not [url for url in visit.requests if not url.startswith(("file:", "data:", "blob:"))]


@each_page
def test_the_console_is_silent(visit, name, view):
    assert not visit.messages


@each_page
def test_every_formula_is_typeset(visit, name, view):
    assert not visit.facts["untypeset"] and not visit.facts["errors"]


@each_page
def test_nothing_sticks_out_of_the_window(visit, name, view):
    assert visit.facts["width"] <= 0
    assert not visit.facts["outside"]


@each_page
def test_the_page_wears_the_mode_that_was_asked_for(visit, name, view):
    assert visit.facts["theme"] == ("dark" if view == "dark" else "light")


@each_page
def test_axe_finds_nothing_but_the_themes_own(visit, name, view):
    found = violations(visit.page, RULES[view])
    assert not [one for one in found if not one["excuse"]]


@pytest.mark.parametrize("view", VIEWS)
def test_the_preface_does_not_jump_while_it_loads(open_page, web, view):
    """Scripts and pictures come late here; from 0.1 (window times way) on a shift counts as poor."""
    facts = open_page(f"{web}chapters/preface.html", view, late=("tex-chtml.js", "theme.js", ".png")).facts
    assert facts["shift"] < 0.1


@pytest.mark.parametrize("view", ["light", "dark"])
def test_the_colors_of_code_keep_their_contrast(open_page, disk, view):
    page = open_page(f"{disk}chapters/1-one-operator/two-ways-to-mix.html", view).page
    page.locator("details").evaluate_all("(all) => all.forEach((one) => { one.open = true; })")
    assert page.locator("pre span").count() > 100
    assert not violations(page, {"runOnly": ["color-contrast"]}, exclude=("mjx-container",))


def test_every_excuse_is_still_needed(open_page, disk):
    """An entry of the list that no page needs any more has to go."""
    used = set()
    for name in ("1-one-operator/zoo", "appendix/bibliography"):
        found = violations(open_page(f"{disk}chapters/{name}.html").page)
        used |= {(one["rule"], one["excuse"]) for one in found}
    assert {(rule, selector) for rule, selectors in THEIRS.items() for selector in selectors} <= used
