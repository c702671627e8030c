"""The page of a report in a browser: sorting, values under finger and key, LaTeX, SVG, paper."""

import re

import pytest
import torch
from axe_playwright_python.sync_playwright import Axe
from browser.visit import VIEWS

from ssmbook import lens, maps


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    generator = torch.Generator().manual_seed(0)
    layers = [maps.Attention(6, 6, H=3, head_width=2, generator=generator) for _ in range(2)]
    with torch.no_grad():
        layers[0].W_Q *= 9
    found = lens.report(torch.nn.Sequential(*layers).eval(), torch.randn(2, 16, 6, generator=generator))
    path = tmp_path_factory.mktemp("report") / "report.html"
    found.to_html(path)
    return path.as_uri()


def column(table, at):
    return table.locator(f"tbody tr > :nth-child({at + 1})").all_inner_texts()


def test_a_table_is_sorted_by_click_and_by_key(open_page, address):
    visit = open_page(address)
    table = visit.page.locator("table").first  # the heads to change first
    head = table.locator("th[scope=col]").nth(6)
    before = [float(cell) for cell in column(table, 6)]
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert [float(cell) for cell in column(table, 6)] == sorted(before)
    head.locator("button").focus()
    visit.page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert [float(cell) for cell in column(table, 6)] == sorted(before, reverse=True)
    table.locator("th[scope=col] button").first.click()  # names
    assert head.get_attribute("aria-sort") is None
    assert column(table, 0) == sorted(column(table, 0))
    assert not visit.messages and visit.requests == [address]


def test_a_table_is_copied_as_latex(open_page, address):
    page = open_page(address, permissions=["clipboard-read", "clipboard-write"]).page
    table = page.locator("table").nth(1)  # all layers
    page.get_by_role("button", name="Copy as LaTeX").nth(1).click()
    page.get_by_role("button", name="Copied").wait_for()
    lines = page.evaluate("navigator.clipboard.readText()").strip().split("\n")
    rows, columns = table.locator("tr").count(), table.locator("th[scope=col]").count()
    assert lines[0].startswith("% Heads that leave")
    assert re.fullmatch(rf"\\begin\{{tabular\}}\{{ll[r]{{{columns - 2}}}\}}", lines[1])
    assert [lines[2], lines[4], *lines[-2:]] == ["\\toprule", "\\midrule", "\\bottomrule", "\\end{tabular}"]
    body = [line for line in lines if line.endswith("\\\\")]
    assert len(body) == rows and all(line.count(" & ") == columns - 1 for line in body)
    assert "10~\\% left" in body[0] and body[1].startswith("0 & map of the book & 3 & ")
    assert not re.search(r"(?<!\\)[%#_$]", "".join(body))


def test_a_heat_map_says_its_values_to_mouse_finger_and_key(open_page, address):
    page = open_page(address, "phone").page
    picture, said = page.locator('svg[aria-label="head 1"]').first, page.locator("#say")
    rows = [row.split(",") for row in picture.get_attribute("data-values").split(";")]
    picture.scroll_into_view_if_needed()
    box = picture.bounding_box()
    places = [
        (box["x"] + (j + 0.5) * box["width"] / 16, box["y"] + (i + 0.5) * box["height"] / 16)
        for i, j in ((3, 1), (9, 4))
    ]
    page.touchscreen.tap(*places[0])
    assert f": {rows[3][1]} (weight in percent)" in said.inner_text()
    page.mouse.move(*places[1])
    assert f": {rows[9][4]} (weight in percent)" in said.inner_text()
    page.mouse.move(1, 1)  # off the picture, which scrolls under it
    page.locator('svg[aria-label="head 0"]').first.focus()
    page.keyboard.press("Tab")  # its button
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowLeft")
    assert said.is_visible() and f": {rows[10][3]} (weight in percent)" in said.inner_text()
    page.keyboard.press("Escape")
    assert said.is_hidden()


def test_a_picture_is_saved_as_svg_in_its_colors(open_page, address):
    page = open_page(address).page
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as SVG").first.click()
    text = download.value.path().read_text("utf-8")
    assert download.value.suggested_filename.startswith("Heads-of-each-layer")
    assert text.startswith("<svg") and 'fill="rgb(' in text and "var(" not in text and "<style" not in text
    assert text.count("<g data-say") == 2


@pytest.mark.parametrize("view", ["light", "dark", "phone", "small"])
def test_the_page_fits_and_is_open_to_all(open_page, address, view):
    visit = open_page(address, view)
    assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert not Axe().run(visit.page).response["violations"]
    assert not visit.messages


def test_it_reads_without_a_script_and_on_paper(browser, address):
    context = browser.new_context(java_script_enabled=False, **VIEWS["paper"])
    page = context.new_page()
    page.goto(address)
    assert page.locator(".verdict p").count() == 3 and page.locator("button").count() == 0
    page.emulate_media(media="print")
    shut = page.locator("details:not([open]) table")
    assert shut.count() == 1 and shut.bounding_box()["height"] > 40
    context.close()
