"""A page asks for few things, and its pictures and icons are what they were."""

import io
import re

import pytest
from fontTools.ttLib import TTFont
from PIL import Image

from headsandstates.site.built import chapters, soup
from headsandstates.site.dark import darkened
from headsandstates.site.light import used_rules
from ssmbook.display.style import DARK, LIGHT

ASKED = re.compile(r'<link[^>]*rel="stylesheet"[^>]*>|<script[^>]*src=[^>]*>')


def test_a_page_asks_for_one_style_sheet_and_one_script(built):
    for page in chapters(built):
        text = page.read_text(encoding="utf-8")
        assert len(ASKED.findall(text)) == 2, page.name
        assert "data:image/png" not in text, page.name
        waits, sheet, script = (text.index(one) for one in ('add("waiting")', "stylesheet", "<script defer"))
        assert waits < sheet < script, page.name


def color(palette, name, share):
    """A color of a palette over the paper."""
    ink, paper = (bytes.fromhex(palette[each][1:]) for each in (name, "paper"))
    return tuple(round(share * a + (1 - share) * b) for a, b in zip(ink, paper, strict=True))


@pytest.mark.parametrize("share", [1, 0.5])
@pytest.mark.parametrize("name", LIGHT)
def test_a_dark_figure_has_the_dark_palette_and_its_blends(name, share):
    png = io.BytesIO()
    Image.new("RGB", (3, 3), color(LIGHT, name, share)).quantize(4).save(png, "PNG")
    found = Image.open(io.BytesIO(darkened(png.getvalue()))).convert("RGB").getpixel((1, 1))
    assert max(abs(a - b) for a, b in zip(found, color(DARK, name, share), strict=True)) <= 6


def test_every_picture_of_a_page_has_a_dark_form_and_waits_in_both(built):
    for page in chapters(built):
        shown = re.findall(
            r'<img [^>]*src="([^"]*_images/[^"]*\.png)"[^>]*>', page.read_text(encoding="utf-8")
        )
        light, dark = shown[::2], shown[1::2]
        assert [one.replace(".png", ".dark.png") for one in light] == dark, page.name
        assert all((page.parent / one).exists() for one in shown), page.name


def test_the_fonts_of_icons_have_what_the_style_sheets_write(built):
    fonts = (built / "_static/vendor/fontawesome").rglob("*.woff2")
    signs = {sign for font in fonts for sign in TTFont(font).getBestCmap() or {}}
    assert {0xF107, 0xF303} <= signs and len(signs) < 40  # a chevron that unfolds, the pen of an exercise


def test_each_chapter_names_a_card_of_its_own(built):
    page = soup(built / "chapters/1-one-operator/two-ways-to-mix.html")
    name = page.select_one('meta[property="og:image"]')["content"].rpartition("/")[2]
    assert name != "card.png" and (built / "_static/cards" / name).exists()


@pytest.mark.parametrize(
    ("rules", "kept"),
    [
        (".gone{a:b}.here{a:b}", ".here{a:b}"),
        (".gone,p .here{a:b}", ".gone,p .here{a:b}"),
        ("@media x{.gone{a:b}.here:not(.gone){a:b}}", "@media x{.here:not(.gone){a:b}}"),
        ('.gone::before{content:"}";a:b}.here{a:b}', ".here{a:b}"),
        ('a[href$=".pdf"]{a:b}', 'a[href$=".pdf"]{a:b}'),
        (".lab-plane{a:b}", ".lab-plane{a:b}"),
        ("/* .gone{} */@font-face{a:b}", "@font-face{a:b}"),
    ],
)
def test_rules_that_nothing_can_meet_are_left_out(rules, kept):
    assert used_rules(rules, {"here"}, ("lab-",)) == kept


def test_the_laboratory_has_its_places(built):
    sheets = soup(built / "chapters/laboratory.html").select('link[rel="stylesheet"]')
    text = (built / "chapters" / sheets[0]["href"]).read_text(encoding="utf-8")
    assert all(f".lab-{panel}" in text for panel in ("plane", "matrix", "heads", "spectrum"))
