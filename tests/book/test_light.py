"""A page asks for few things, and its pictures and icons are what they were."""

import re

from fontTools.ttLib import TTFont

from headsandstates.site.built import chapters, soup

ASKED = re.compile(r'<link[^>]*rel="stylesheet"[^>]*>|<script[^>]*src=[^>]*>')


def test_a_page_asks_for_one_style_sheet_and_one_script(built):
    for page in chapters(built):
        text = page.read_text(encoding="utf-8")
        assert len(ASKED.findall(text)) == 2, page.name
        assert "data:image/png" not in text, page.name


def test_the_fonts_of_icons_have_what_the_style_sheets_write(built):
    fonts = (built / "_static/vendor/fontawesome").rglob("*.woff2")
    signs = {sign for font in fonts for sign in TTFont(font).getBestCmap() or {}}
    assert {0xF107, 0xF303} <= signs and len(signs) < 40  # a chevron that unfolds, the pen of an exercise


def test_each_chapter_names_a_card_of_its_own(built):
    page = soup(built / "chapters/1-one-operator/two-ways-to-mix.html")
    name = page.select_one('meta[property="og:image"]')["content"].rpartition("/")[2]
    assert name != "card.png" and (built / "_static/cards" / name).exists()
