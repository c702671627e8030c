"""The figure pack: every figure of the pages, at twice their density, with caption and address."""

import base64
import struct
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from ssmbook._book.built import soup
from ssmbook._book.edition import with_notebook
from ssmbook._book.figures import DENSITY, captions, dense, named
from ssmbook._book.notebooks import execute, read
from ssmbook._book.stable_form import KERNEL
from ssmbook.display._png import FIGURE_DPI, PIXELS, panels, pixel_size
from ssmbook.display._slider import FRAME_DPI
from ssmbook.display._style import SMALLEST_PT

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


@pytest.mark.parametrize("docname", with_notebook(ROOT))
def test_on_a_phone_no_letter_is_lower_than_eleven_pixels(docname):
    """A page of 390 pixels leaves 342 for a picture; a slider's frames are drawn a little larger."""
    for cell in read(ROOT / f"{docname}.ipynb").cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            dpi = FRAME_DPI if "ssm-slider" in data.get("text/html", "") else FIGURE_DPI
            for panel in panels(base64.b64decode(data["image/png"])) if "image/png" in data else []:
                width = pixel_size(panel)[0] / PIXELS
                letters = SMALLEST_PT / 72 * dpi / PIXELS * min(1, 342 / width)
                assert letters >= 11, f"cell {cell.id}: a panel {width:g} pixels wide"
