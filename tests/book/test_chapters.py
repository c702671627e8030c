"""The notebooks and pages as they are committed."""

import re
from pathlib import Path

import nbformat
import numpy as np
import pytest
import yaml

from ssmbook._book.claims import collect, page_names
from ssmbook._book.install_cell import TAG, install_source
from ssmbook._book.notebooks import all_notebooks
from ssmbook._book.stable_form import IMAGES, is_stable
from ssmbook.chapters.preface.figures import LENGTH, RHO, turning_blocks

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = all_notebooks(ROOT)
# A place that a phone does not have, where panels stand one below the other; multiplication keeps its sides.
SIDE = re.compile(
    r"\b(Left|Middle|Right)\b|(?<!ultiplied )on the (left|right)\b|\b(left|right) (panel|table)\b"
)
CITATION = re.compile(r"\{cite(?::[a-z]+)?\}`([^`]+)`")


def name(path):
    return path.relative_to(ROOT).as_posix()


@pytest.fixture(params=NOTEBOOKS, ids=name)
def notebook(request):
    return nbformat.read(request.param, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_there_are_notebooks():
    assert NOTEBOOKS


def test_the_notebook_is_valid_and_in_the_stable_form(notebook):
    nbformat.validate(notebook)
    assert is_stable(notebook), "run `make notebooks ONLY=<this notebook>`"


def test_the_first_code_cell_is_the_hidden_install_cell(notebook):
    first = code_cells(notebook)[0]
    assert first.source == install_source(ROOT, notebook)
    assert TAG in first.metadata.tags


def test_every_cell_ran_without_complaint(notebook):
    for cell in code_cells(notebook):
        assert cell.execution_count is not None, cell.source
        allowed = "raises-exception" in cell.metadata.get("tags", [])
        for output in cell.outputs:
            assert output.output_type != "error" or allowed, cell.source
            assert output.get("name") != "stderr", cell.source


def test_printed_lines_fit_the_page(notebook):
    """A box of output is 80 letters wide; what is longer scrolls out of sight."""
    said = [o for cell in code_cells(notebook) for o in cell.outputs if o.output_type == "stream"]
    assert [line for o in said for line in o.text.splitlines() if len(line) > 80] == []


def test_no_widget_state_is_stored(notebook):
    assert "widgets" not in notebook.metadata


def test_every_picture_has_its_alternative_text(notebook):
    for cell in code_cells(notebook):
        pictures = [
            output for output in cell.outputs if any(kind in output.get("data", {}) for kind in IMAGES)
        ]
        if pictures:
            assert len(pictures) == 1, f"one cell, one picture:\n{cell.source}"
            alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
            assert len(alt) > 10 and "<Figure" not in alt, cell.source


def test_captions_name_panels_by_what_they_show_and_not_by_their_side(notebook):
    captions = [
        cell.metadata.get("mystnb", {}).get("figure", {}).get("caption", "") for cell in notebook.cells
    ]
    assert not [caption for caption in captions if SIDE.search(caption)]


def test_directives_with_prose_have_colon_fences(notebook):
    """Plain Jupyter and Colab typeset what stands in a colon fence; a backtick fence is a gray block."""
    prose = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    assert not [line for source in prose for line in source.splitlines() if line.startswith("```{")]


def test_the_first_picture_is_described_by_its_own_numbers():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    alt = re.search(r"!\[([^\]]+)\]\(chapters/assets/card\.png\)", text).group(1)
    blocks = turning_blocks(0.55).reshape(LENGTH**2, 4)
    energy = np.linalg.svd(blocks, compute_uv=False) ** 2
    assert energy[2:].sum() < 1e-12 * energy.sum()
    missed = f"misses {energy[1:].sum() / energy.sum():.3f} of"
    for words in (f"{LENGTH} by {LENGTH} blocks", "0.55 and", f"{RHO} at", missed):
        assert words in alt


def test_every_page_is_in_the_table_of_contents():
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    chapters = [entry for part in toc["parts"] for entry in part["chapters"]]
    companions = [section for entry in chapters for section in entry.get("sections", [])]
    assert sorted([toc["root"]] + [entry["file"] for entry in chapters + companions]) == page_names(ROOT)


def test_every_statement_is_checked_and_every_check_names_a_statement():
    claims, problems = collect(ROOT)
    assert not problems
    assert claims


def test_the_bibliography_holds_what_is_cited_and_nothing_else():
    keys = set(
        re.findall(r"^@\w+\{([^,\s]+)", (ROOT / "chapters/references.bib").read_text(encoding="utf-8"), re.M)
    )
    cited = {key for _, key in citations()}
    assert not cited - keys, "cited, but not in references.bib"
    assert not keys - cited, "in references.bib, but cited nowhere"


def citations():
    """(page, key) of every citation."""
    for path in sorted((ROOT / "chapters").rglob("*")):
        if path.suffix in (".md", ".ipynb") and ".ipynb_checkpoints" not in path.parts:
            for keys in CITATION.findall(path.read_text(encoding="utf-8")):
                for key in keys.split(","):
                    yield path, key.split("<")[-1].strip("> ")
