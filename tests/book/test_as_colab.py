"""The runner of the edition: what it compares, and where it lets git look."""

import ast
import copy
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from ssmbook._book.as_colab import REQUIREMENTS, differences, redirect
from ssmbook._book.install_cell import repository
from ssmbook._book.notebooks import read
from ssmbook._book.release import in_the_making, tag

ROOT = Path(__file__).resolve().parents[2]
SLIDER = {"text/plain": "Slider k: 2 values", "text/html": "<figure>", "image/png": "AAAA"}


@pytest.fixture
def expected():
    shown = [
        new_output("stream", name="stdout", text="k = 3\n"),
        new_output("display_data", {"text/plain": "a line to 1.5", "image/png": "AAAA"}),
        new_output("execute_result", {"text/plain": "x", "text/html": "<b>x</b>"}, execution_count=1),
    ]
    cells = [new_code_cell("1", outputs=[output], execution_count=1) for output in shown]
    return new_notebook(cells=[*cells, new_code_cell("2", outputs=[new_output("display_data", SLIDER)])])


def test_pictures_and_pieces_of_a_stream_make_no_difference(expected):
    got = copy.deepcopy(expected)
    got.cells[1].outputs[0].data["image/png"] = "BBBB"
    got.cells[0].outputs = [new_output("stream", name="stdout", text=text) for text in ("k = ", "3\n")]
    got.cells[3].outputs[0].data = {"text/plain": "Slider k: 2 values"}
    assert differences(expected, got) == []


@pytest.mark.parametrize(
    ("cell", "change"),
    [
        (0, lambda output: output.update(text="k = 4\n")),
        (0, lambda output: output.update(name="stderr")),
        (1, lambda output: output.data.update({"text/plain": "a line to 1.6"})),
        (2, lambda output: output.data.update({"text/html": "<b>y</b>"})),
        (2, lambda output: output.data.pop("text/html")),
        (3, lambda output: output.data.update({"text/plain": "Slider k: 3 values"})),
    ],
)
def test_a_text_that_changed_is_named(expected, cell, change):
    got = copy.deepcopy(expected)
    change(got.cells[cell].outputs[0])
    (line,) = differences(expected, got)
    assert line.startswith(f"cell {cell}: ")
    got.cells[cell].outputs = []
    assert len(differences(expected, got)) == 1


def test_git_finds_this_checkout_at_the_published_address(tmp_path):
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    if head.returncode:
        pytest.skip("not a git checkout")
    url, branch = repository(ROOT)
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": str(redirect(ROOT, tmp_path))}
    name = f"refs/heads/{branch}" if in_the_making(ROOT) else f"refs/tags/{tag()}"
    command = ["git", "ls-remote", url, name]
    found = subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout
    assert found.split()[0] == head.stdout.strip()


def imported(source):
    """The packages that a cell imports; its lines for the shell are left out."""
    code = "\n".join(line for line in source.splitlines() if not line.lstrip().startswith(("!", "%")))
    for node in ast.walk(ast.parse(code)) if "pip install" not in source else ():
        named = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        named += [node.module] if isinstance(node, ast.ImportFrom) else []
        yield from (name.partition(".")[0] for name in named)


def test_colab_has_every_package_that_a_chapter_imports():
    there = set(re.findall(r"^[a-z]+", (ROOT / REQUIREMENTS).read_text(encoding="utf-8"), re.MULTILINE))
    there |= {"ssmbook", "sympy", *sys.stdlib_module_names}  # installed by the first cell; comes with PyTorch
    pages = sorted((ROOT / "chapters").rglob("*.ipynb"))
    cells = {
        (page.name, cell.source) for page in pages for cell in read(page).cells if cell.cell_type == "code"
    }
    missing = {(page, name) for page, source in cells for name in imported(source) if name not in there}
    assert len(cells) > 300 and not missing
    assert list(imported("!ls\nimport numpy.fft, os\nfrom scipy.signal import lti")) == [
        "numpy",
        "os",
        "scipy",
    ]
