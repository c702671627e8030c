"""The figure pack: every figure of the pages, at twice their density, with caption and address."""

import struct
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_notebook

from ssmbook._book.built import soup
from ssmbook._book.edition import with_notebook
from ssmbook._book.figures import DENSITY, captions, dense, named
from ssmbook._book.notebooks import execute, read
from ssmbook._book.stable_form import KERNEL

ROOT = Path(__file__).resolve().parents[2]
DRAW = """import matplotlib.pyplot as plt
from ssmbook import display
fig, axes = plt.subplots(figsize=(4, 3))
axes.plot([0, 1], [0, 1])
display.show(fig, alt="A straight line from 0 to 1, with slope 1.")"""


def size(picture):
    return struct.unpack(">II", picture[16:24])


def test_a_figure_is_drawn_again_at_twice_the_density(tmp_path):
    cell = new_code_cell(DRAW, metadata={"mystnb": {"figure": {"name": "fig-line", "caption": "A line."}}})
    notebook = new_notebook(cells=[cell], metadata={"kernelspec": KERNEL})
    nbformat.write(notebook, tmp_path / "chapter.ipynb")
    plain = named(execute(read(tmp_path / "chapter.ipynb"), tmp_path, "chapter.ipynb"))
    twice = dense(tmp_path, "chapter")
    assert list(plain) == list(twice) == ["fig-line"]
    assert size(twice["fig-line"]) == tuple(DENSITY * side for side in size(plain["fig-line"]))


def test_every_figure_of_the_pages_is_in_it_with_number_caption_and_address(built):
    found = 0
    for docname in with_notebook(ROOT):
        there, words = named(read(ROOT / f"{docname}.ipynb")), captions(ROOT, docname)
        assert set(there) <= set(words)
        numbers = soup(built / f"{docname}.html").select("article .cell_output figcaption .caption-number")
        assert len(there) == len(numbers)
        for name in there:
            assert words[name].startswith("**[Fig. ") and f"{docname}.html#{name})" in words[name]
            assert len(words[name].partition(".** ")[2]) > 20
        found += len(there)
    assert found > 20
