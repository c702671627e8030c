"""The voice of the book: phrases that were replaced, and that no good sentence needs, do not come back."""

import re
from pathlib import Path

import pytest

from headsandstates.site.page import read_page

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("chapters/**/*.md"), *ROOT.glob("chapters/**/*.ipynb"), *ROOT.glob("*.md")]
TEXTS = [
    *PAGES,
    ROOT / "chapters/statements.yml",
    *ROOT.glob("ssmbook/**/*.py"),
    *ROOT.glob("headsandstates/**/*.py"),
]
QUOTING = {"errata.md", "CHANGELOG.md"}  # these quote what an earlier version said

INSTEAD = {  # what to write
    "turning state": "rotating state",
    "state that turns": "rotating state",
    "states that turn": "rotating states",
    "attention table": "attention matrix",
    "softmax table": "attention matrix",
    "softmax tables": "attention matrices",
    "interaction table": "interaction matrix",
    "table of attention weights": "attention matrix",
    "table of weights": "attention matrix",
    "number a token": "number per token",
    "numbers a token": "numbers per token",
    "degree a token": "degree per token",
    "as close as one likes": "as close as you like",
    "as often as one likes": "as often as you like",
    "for ever": "forever",
    "on sale": "say what can be represented",
    "so much for": "say what was shown",
    "whose is what": "Attribution",
    "more than everything": "say what the error exceeds",
    "not ours to choose": "say what is fitted",
    "weight and says nothing": "absorbs attention and contributes nothing",
    "goes on and back": "name the keys and what they do",
    "held against": "compared with",
    "made from the content": "computed from the tokens",
}


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_replaced_phrases_stay_out(path):
    text = "" if path.name in QUOTING else path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        page = read_page(ROOT, path.relative_to(ROOT).with_suffix("").as_posix())
        text = " ".join(f"{cell.text} {cell.metadata}" for cell in page.cells)
    text = re.sub(r"[\s>#]+", " ", text).lower()
    assert {old: new for old, new in INSTEAD.items() if re.search(rf"\b{old}\b", text)} == {}
