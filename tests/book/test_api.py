"""The API page: every public name with a sentence, and docstrings made reST without a change of meaning."""

import re
from pathlib import Path

import pytest
from sphinx.errors import SphinxError

import ssmbook
from ssmbook._book.api import constant_docstring, kind, public_modules, public_names, reference, rest
from ssmbook._book.built import HTML, soup

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / HTML / "chapters/appendix/api.html"
FOLDERS = [*ssmbook._SUBPACKAGES, "scans.distributed"]
CHAPTERS = {"zoo": "chapters/1-one-operator/zoo"}


def everything():
    return [
        (module, name)
        for folder in FOLDERS
        for module in public_modules(folder)
        for name in public_names(module)
    ]


def test_every_folder_offers_names():
    assert {module.__name__.split(".")[1] for module, _ in everything()} == set(ssmbook._SUBPACKAGES)
    assert [module.__name__ for module in public_modules("scans.distributed")] == [
        "ssmbook.scans.distributed"
    ]
    assert [module.__name__ for module in public_modules("scans")] == ["ssmbook.scans"]
    assert "ssmbook.experiments.counting" in {module.__name__ for module in public_modules("experiments")}


@pytest.mark.parametrize(
    ("module", "name"), everything(), ids=lambda value: getattr(value, "__name__", value)
)
def test_a_public_name_has_a_docstring(module, name):
    value = getattr(module, name)
    assert kind(value) == "data" or (value.__doc__ or "").strip(), f"{module.__name__}.{name}"


@pytest.mark.parametrize(
    ("plain", "wanted"),
    [
        ("of *words*, |a| and *batch", r"of *words*, \|a\| and \*batch"),
        ("``a * b | c`` a * b", r"``a * b | c`` a \* b"),
        (
            "After {cite}`gu2024mamba` (`miller2023attention`).",
            "After :cite:`gu2024mamba` (:cite:`miller2023attention`).",
        ),
        ("as :func:`zoh` and :cite:`gu2024mamba`", "as :func:`zoh` and :cite:`gu2024mamba`"),
        ("the default `alpha`", "the default ``alpha``"),
        ("x. Introduced\nin *zoo*.", "x. Introduced in :doc:`zoo </chapters/1-one-operator/zoo>`."),
        (r"a \ b", r"a \\ b"),
        ("a * b\n\n>>> f(*a) | b\n... # `x`\n\na | b", "a \\* b\n\n>>> f(*a) | b\n... # `x`\n\na \\| b"),
    ],
)
def test_a_plain_docstring_becomes_rest(plain, wanted):
    assert rest(plain, CHAPTERS) == wanted


def test_a_chapter_that_does_not_exist_fails_the_build():
    with pytest.raises(SphinxError, match="'zoos', which is no page"):
        rest("Introduced in *zoos*.", CHAPTERS)


def test_every_docstring_names_a_chapter_that_exists():
    named = {path.stem for path in (ROOT / "chapters").rglob("*.ipynb")}
    for module, name in everything():
        for chapter in re.findall(r"Introduced\s+in\s+\*([^*]+)\*", getattr(module, name).__doc__ or ""):
            assert chapter in named, f"{module.__name__}.{name} is introduced in {chapter}"


def test_constants_and_their_sentence():
    assert "contrast" in constant_docstring("ssmbook.display.COLORS", ssmbook.display.COLORS)[0]
    assert constant_docstring("ssmbook.display.NONE", (1,)) == ["A ``tuple``."]
    assert ".. autodata:: COLORS" in reference(ssmbook.display)


def test_the_page_lists_every_public_name_with_a_sentence():
    if not PAGE.is_file():
        pytest.skip("The book is not built: run `make book` first.")
    entries = {node["id"]: node for node in soup(PAGE).select("dl.py > dt[id]")}
    sentences = {}
    for line in soup(PAGE).select("table.autosummary tr"):
        link, words = line.find("a"), line.find_all("td")[-1].get_text(strip=True)
        sentences[link["href"].removeprefix("#")] = words
    for module, name in everything():
        full = f"{module.__name__}.{name}"
        assert full in entries, f"{full} is missing"
        assert len(sentences.get(full, "")) > 5, f"{full} has no sentence"
    assert len(sentences) == len(everything())
