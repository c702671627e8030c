"""The notebooks and pages as they are committed."""

import re
from pathlib import Path

import nbformat
import numpy as np
import pytest
import yaml

from headsandstates.chapters.preface.figures import LENGTH, RHO, rotating_blocks
from headsandstates.site.install_cell import TAG, install_source
from headsandstates.site.notebooks import all_notebooks
from headsandstates.site.page import page_file, page_names
from headsandstates.site.stable_form import PNG, is_stable

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = all_notebooks(ROOT)
CITATION = re.compile(r"\{cite(?::[a-z]+)?\}`([^`]+)`")


def name(path):
    return path.relative_to(ROOT).as_posix()


@pytest.fixture(params=NOTEBOOKS, ids=name)
def notebook(request):
    return nbformat.read(request.param, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_the_notebook_is_valid_and_in_the_stable_form(notebook):
    nbformat.validate(notebook)
    assert is_stable(notebook), "run `make notebooks ONLY=<this notebook>`"


def test_the_first_code_cell_is_the_hidden_install_cell_and_all_ran_without_complaint(notebook):
    first = code_cells(notebook)[0]
    assert first.source == install_source(ROOT, notebook) and TAG in first.metadata.tags
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


def test_every_picture_has_its_alternative_text(notebook):
    for cell in code_cells(notebook):
        pictures = [output for output in cell.outputs if PNG in output.get("data", {})]
        if pictures:
            assert len(pictures) == 1, f"one cell, one picture:\n{cell.source}"
            alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
            assert len(alt) > 10 and "<Figure" not in alt, cell.source


def test_directives_with_prose_have_colon_fences(notebook):
    """Plain Jupyter and Colab typeset what stands in a colon fence; a backtick fence is a gray block."""
    prose = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    assert not [line for source in prose for line in source.splitlines() if line.startswith("```{")]


def test_the_first_picture_is_described_by_its_own_numbers():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    alt = re.search(r"!\[([^\]]+)\]\(chapters/assets/card\.png\)", text).group(1)
    blocks = rotating_blocks(0.55).reshape(LENGTH**2, 4)
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


def test_the_bibliography_holds_what_is_cited_and_nothing_else():
    works = (ROOT / "chapters/references.bib").read_text(encoding="utf-8")
    cited = set()
    for page in page_names(ROOT):
        for keys in CITATION.findall(page_file(ROOT, page).read_text(encoding="utf-8")):
            cited |= {key.split("<")[-1].strip("> ") for key in keys.split(",")}
    assert cited == set(re.findall(r"^@\w+\{([^,\s]+)", works, re.M))
