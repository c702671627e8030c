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

SLIDE = """import matplotlib.pyplot as plt
from ssmbook import display
def draw(value):
    fig, axes = plt.subplots(figsize=(4, 3))
    axes.plot([0, value], [0, 1])
    return fig
display.Slider("ρ", [1, 2], draw, lambda value: f"A straight line from 0 to {value}.")"""


def size(picture):
    return struct.unpack(">II", picture[16:24])


def test_a_figure_is_drawn_again_at_twice_the_density(tmp_path):
    cells = [
        new_code_cell(source, metadata={"mystnb": {"figure": {"name": name, "caption": "A line."}}})
        for name, source in {"fig-line": DRAW, "fig-slider": SLIDE}.items()
    ]
    notebook = new_notebook(cells=cells, metadata={"kernelspec": KERNEL})
    nbformat.write(notebook, tmp_path / "chapter.ipynb")
    plain = named(execute(read(tmp_path / "chapter.ipynb"), tmp_path, "chapter.ipynb"))
    twice = dense(tmp_path, "chapter")
    assert list(plain) == list(twice) == ["fig-line", "fig-slider"]
    for name in plain:
        assert size(twice[name]) == tuple(DENSITY * side for side in size(plain[name]))


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


def test_every_slider_of_the_pages_has_a_number_and_a_caption(built):
    pages = [soup(built / f"{docname}.html") for docname in with_notebook(ROOT)]
    sliders = [slider for page in pages for slider in page.select("article figure.ssm-slider")]
    assert len(sliders) > 20
    for slider in sliders:
        caption = slider.find_parent("figure").find("figcaption", recursive=False)
        assert caption.select_one(".caption-number") and len(caption.get_text()) > 80, slider["id"]
