"""The status page, and what the publishing workflow writes into the pages."""

from datetime import date
from pathlib import Path

import pytest

from ssmbook._book.built import soup
from ssmbook._book.edition import with_notebook
from ssmbook._book.status import HEADER, MARK, PAGE, PLACE, contents, runs, write

ROOT = Path(__file__).resolve().parents[2]
REPORT = """<?xml version="1.0"?><testsuites><testsuite timestamp="2026-03-04T05:06:07.8+00:00">
<testcase classname="chapters.1-a.fine.ipynb" name="Cell 0" time="1.5" />
<testcase classname="chapters.1-a.fine.ipynb" name="Cell 1" time="2.25" />
<testcase classname="chapters.1-a.broken.ipynb" name="Cell 0" time="1" />
<testcase classname="chapters.1-a.broken.ipynb" name="Cell 1" time="1"><failure message="x" /></testcase>
<testcase classname="_build.edition.chapters.1-a.fine.ipynb" name="Cell 0" time="9" />
</testsuite></testsuites>"""


@pytest.fixture
def report(tmp_path):
    path = tmp_path / "report.xml"
    path.write_text(REPORT, encoding="utf-8")
    return path


@pytest.fixture
def site(tmp_path):
    names = ("chapters/1-a/fine", "chapters/1-a/broken")
    listed = "".join(PLACE.format(name) for name in names)
    for name in (*names, PAGE):
        page = tmp_path / f"{name}.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(f"<p>{listed if name == PAGE else name}</p>{MARK}", encoding="utf-8")
    return tmp_path


def test_a_report_tells_seconds_of_what_ran_without_a_failure(report):
    ran, day = runs(report)
    assert ran == {"chapters/1-a/fine": 3.75, "_build/edition/chapters/1-a/fine": 9}
    assert day == date(2026, 3, 4)


def test_pages_and_list_say_when_they_ran_and_a_broken_one_does_not(report, site):
    write(site, report, "2.13.0")
    words = "run on 4 March 2026 with PyTorch 2.13.0 in 4 s, every output as printed"
    assert words in (site / "chapters/1-a/fine.html").read_text(encoding="utf-8")
    assert (site / "chapters/1-a/broken.html").read_text(encoding="utf-8").endswith(f"</p>{MARK}")
    listing = (site / f"{PAGE}.html").read_text(encoding="utf-8")
    assert listing.startswith(f"<p>{words}") and PLACE.format("chapters/1-a/broken") in listing
    with pytest.raises(ValueError, match="marked before"):
        write(site, report, "2.13.0")


def test_the_built_page_lists_every_notebook_and_each_has_a_place_in_its_footer(built):
    docnames = with_notebook(ROOT)
    table = soup(built / f"{PAGE}.html").select_one(".chapter-status table")
    assert tuple(cell.get_text() for cell in table.select("th")) == HEADER
    rows = table.select("tbody tr")
    assert [row.select_one("span[data-run]")["data-run"] for row in rows] == docnames
    for docname, row in zip(docnames, rows, strict=True):
        counted = tuple(int(cell.get_text()) for cell in row.select("td")[1:5])
        assert counted == contents(ROOT / f"{docname}.ipynb")
        article = soup(built / f"{docname}.html").select_one("article")
        assert counted[2] == len(article.select("figure.ssm-slider"))
        assert counted[3] == len(article.select("div.exercise"))
        assert MARK in (built / f"{docname}.html").read_text(encoding="utf-8")
