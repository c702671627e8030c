"""Addresses of pages that moved."""

from types import SimpleNamespace

import pytest
from bs4 import BeautifulSoup
from docutils import nodes

from ssmbook._book.built import chapters, pages
from ssmbook._book.moved import MovedError, check, redirect, write_redirects


def test_an_old_address_leads_to_the_page_and_keeps_the_place():
    page = BeautifulSoup(redirect("chapters/a/old", "chapters/b/new", "Heads & states"), "html.parser")
    assert page.find("meta", {"http-equiv": "refresh"})["content"] == "0; url=../b/new.html"
    assert page.a["href"] == page.find("link", rel="canonical")["href"] == "../b/new.html"
    assert page.a.get_text() == page.title.get_text() == "Heads & states"
    assert '"../b/new.html" + (false ? "" : location.hash)' in page.script.get_text()


def test_a_place_on_the_new_page_comes_first():
    page = BeautifulSoup(redirect("chapters/a/old", "chapters/a/new#there", "T"), "html.parser")
    assert page.a["href"] == "new.html#there"
    assert "(true ?" in page.script.get_text()


def test_redirects_that_lead_nowhere_are_refused():
    check({"a": "b#c"}, {"b"})
    with pytest.raises(MovedError, match="a leads to b, which is no page"):
        check({"a": "b"}, {"c"})
    with pytest.raises(MovedError, match="a is still a page"):
        check({"a": "b"}, {"a", "b"})


def test_they_are_written_and_are_no_chapters(tmp_path):
    titles = {"chapters/b/new": nodes.title(text="New")}
    app = SimpleNamespace(
        builder=SimpleNamespace(format="html"),
        config=SimpleNamespace(moved_pages={"chapters/a/old": "chapters/b/new"}),
        env=SimpleNamespace(found_docs=set(titles), titles=titles),
        outdir=str(tmp_path),
    )
    (tmp_path / "chapters/b").mkdir(parents=True)
    (tmp_path / "chapters/b/new.html").write_text("<!doctype html><p>text</p>", encoding="utf-8")
    write_redirects(app, None)
    assert [path.name for path in pages(tmp_path)] == ["old.html", "new.html"]
    assert [path.name for path in chapters(tmp_path)] == ["new.html"]
    write_redirects(app, RuntimeError("the build failed"))
