"""The face of the book: its typefaces are small and bear no reserved name, each chapter shows its own W."""

from types import SimpleNamespace

import pytest
import torch
from fontTools.ttLib import TTFont

from headsandstates.site.built import chapters, soup
from headsandstates.site.mosaics import MOSAICS, SIDE, chapter, mosaic, sign_sidebars


def test_fonts_are_small_renamed_and_licensed(built):
    cut = sorted((built / "_static/fonts").glob("*.woff2"))
    assert len(cut) == 4 and sum(path.stat().st_size for path in cut) <= 250_000
    for path in cut:
        names = TTFont(path)["name"]
        assert names.getDebugName(1).startswith("Heads ")
        assert not [number for number in (1, 3, 4, 6, 16) if "Source" in (names.getDebugName(number) or "")]
        assert "Open Font License" in names.getDebugName(13)
    assert len(list((built / "_static/fonts").glob("OFL-*.txt"))) == 2


@pytest.mark.parametrize("name", MOSAICS)
def test_a_mosaic_is_a_causal_matrix_of_its_chapter(name):
    W = MOSAICS[name][0]()
    assert W.shape == (SIDE, SIDE) and W.isfinite().all() and W.abs().max() > 0
    assert torch.equal(W.triu(2), torch.zeros_like(W))  # a block of two numbers may lie across the diagonal
    assert mosaic(name, SIDE).count("<path") >= 1


def test_signs_are_given_once(tmp_path):
    """A second build leaves most pages of the first as they are, and goes over all of them."""
    app = SimpleNamespace(outdir=tmp_path, builder=SimpleNamespace(format="html"))
    link = '<a class="reference internal" href="zoo.html">The zoo</a>'
    (tmp_path / "page.html").write_text(f'<nav class="bd-links">{link}</nav>', encoding="utf-8")
    for _ in range(2):
        sign_sidebars(app)
        assert (tmp_path / "page.html").read_text(encoding="utf-8").count("<svg") == 1


def test_every_chapter_shows_its_mosaic_and_every_page_the_signs(built):
    for path in chapters(built):
        page, name = soup(path), chapter(path.name)
        shown = page.select("article .chapter-head svg.mosaic")
        assert len(shown) == (name not in (None, "preface", "laboratory")), path.name
        assert len(page.select(".bd-links svg.mosaic")) == len(MOSAICS), path.name


def test_a_lost_address_is_answered_with_every_page_at_hand(built):
    page = soup(built / "404.html")
    assert page.base["href"].startswith("/") and page.base["href"].endswith("/")
    listed = page.find_all("script")[-1].get_text()
    assert all(f"{path.relative_to(built).as_posix()}" in listed for path in chapters(built))


def test_a_work_is_named_once_in_the_margin(built):
    notes = soup(built / "chapters/1-one-operator/two-ways-to-mix.html").select(".margin-note > span")
    works = [note.get_text() for note in notes]
    assert len(works) == len(set(works)) >= 3 and any("Mamba: " in work for work in works)
