"""Formulas are typeset once, at build time, and a page can be read as it was."""

from types import SimpleNamespace

import pytest

from headsandstates.site.built import source
from headsandstates.site.formulas import typeset, typeset_pages

PAGE = r'<p><span class="math notranslate nohighlight">\(0\le i&lt;n,\ \text{"x"}\)</span></p>'


def test_a_page_is_typeset_once_and_keeps_its_tex(tmp_path):
    (tmp_path / "_static").mkdir()
    (tmp_path / "chapters").mkdir()
    page = tmp_path / "chapters/page.html"
    page.write_text(PAGE, encoding="utf-8")
    app = SimpleNamespace(outdir=tmp_path, builder=SimpleNamespace(format="html"))
    typeset_pages(app)
    made = page.read_text(encoding="utf-8")
    assert "<mjx-math" in made and "<mjx-assistive-mml" in made
    assert source(page).replace("&quot;", '"') == PAGE
    typeset_pages(app)
    assert page.read_text(encoding="utf-8") == made


def test_a_formula_that_cannot_be_read_fails_the_build():
    with pytest.raises(ValueError, match="frac"):
        typeset([(r"\frac{1", False)])
