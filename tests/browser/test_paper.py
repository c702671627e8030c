"""On paper: the PDF names its pages, pages print the same from either mode, and two keep to a length."""

import io
import re
from pathlib import Path

import pytest
from pypdf import PdfReader

from headsandstates.site.paper import ARTICLE_TARGET, TARGET, assemble_article, print_book, print_document

ROOT = Path(__file__).resolve().parents[2]
# The zoo ends at the foot of a page.
SOME = ["chapters/preface"] + [
    f"chapters/1-one-operator/{name}" for name in ("two-ways-to-mix", "zoo", "zoo-deeper")
]
A4 = (595, 842)


def sheet(visit):
    return PdfReader(io.BytesIO(visit.page.pdf(prefer_css_page_size=True, print_background=True)))


def strokes(printed):
    """What each page draws, its resources named in the order of use (their numbers differ)."""
    pages = [page.get_contents().get_data() for page in printed.pages]
    names = [[*dict.fromkeys(re.findall(rb"/[A-Z]\d+", page))] for page in pages]
    return [
        re.sub(rb"/[A-Z]\d+", lambda one, used=used: b"/%d" % used.index(one[0]), page)
        for page, used in zip(pages, names, strict=True)
    ]


def words(text):
    """Its letters and digits: what a PDF says of a line without its spaces."""
    return re.sub(r"\W", "", text)


@pytest.fixture(scope="module")
def some_chapters(browser, built):
    target = (ROOT / TARGET).with_name("some-chapters.pdf")
    print_book(ROOT, target, SOME, browser)
    return PdfReader(target)


def test_the_contents_name_the_page_of_every_section(some_chapters):
    pages = [page.extract_text() for page in some_chapters.pages]
    lines = re.findall(r"^(.*\D) (\d+)$", "\n".join(pages[1:2]), re.M)
    assert len(lines) >= 12
    for title, number in lines:
        assert words(title) in words(pages[int(number) - 1]), title
    assert len({number for _, number in lines}) > 5


def test_the_book_is_a4_with_an_outline_and_numbered_pages_and_none_is_blank(some_chapters):
    assert {tuple(map(round, page.mediabox[2:])) for page in some_chapters.pages} == {A4}
    assert some_chapters.outline
    for number, page in enumerate(some_chapters.pages, start=1):
        text = page.extract_text()
        assert len(words(text)) > 30 and (number == 1 or str(number) in text.split()), number


def test_a_page_prints_the_same_from_the_dark_mode(open_page, disk):
    address = f"{disk}chapters/1-one-operator/two-ways-to-mix.html"
    visits = [open_page(address, view) for view in ("light", "dark")]
    light, dark = map(sheet, visits)
    assert visits[1].page.evaluate("document.documentElement.dataset.theme") == "dark", "back after printing"
    assert len(light.pages) > 3
    assert strokes(light) == strokes(dark)


def test_solutions_are_printed_and_signs_of_folding_are_not(open_page, disk):
    visit = open_page(f"{disk}chapters/1-one-operator/zoo.html")
    text = words(" ".join(page.extract_text() for page in sheet(visit).pages))
    assert "Clickto" not in text and "Showcode" not in text
    visit.page.emulate_media(media="print")
    seen = visit.page.locator("div.solution > section").evaluate_all(
        "(all) => all.map((one) => one.checkVisibility() && one.getBoundingClientRect().height)"
    )
    assert len(seen) == text.count("SolutiontoExercise") >= 3 and min(seen) > 20


def test_the_cheat_sheet_is_one_page_of_a4(open_page, disk):
    printed = sheet(open_page(f"{disk}chapters/appendix/cheat-sheet.html"))
    assert [tuple(map(round, page.mediabox[2:])) for page in printed.pages] == [A4]
    assert "Recall" in printed.pages[0].extract_text()


def test_the_paper_alone_takes_at_most_eight_pages(browser, built):
    target = (ROOT / ARTICLE_TARGET).with_name("paper-alone.pdf")
    print_document(assemble_article(ROOT), target, browser)
    pages = PdfReader(target).pages
    assert len(pages) <= 8 and {tuple(map(round, page.mediabox[2:])) for page in pages} == {A4}
    assert "Abstract" in pages[0].extract_text() and "References" in pages[-1].extract_text()
