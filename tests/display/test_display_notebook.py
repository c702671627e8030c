"""The whole way: a notebook runs, loses its widget views as committed ones do, and passes strict nbval."""

import copy
import os
import subprocess
import sys

import nbformat
import pytest
from nbclient import NotebookClient

from ssmbook import display

CELLS = [
    "from ssmbook import display\nimport matplotlib.pyplot as plt\ndisplay.use_style()",
    "fig, ax = plt.subplots()\nline = ax.plot([0, 1])\ndisplay.show(fig, alt=f'a line from {0} to {1:.3f}')",
    "def draw(k):\n    fig, ax = display.figure(size='slider')\n    ax.bar([0], [k])\n    return fig",
    "display.Slider('k', [1, 2, 3], draw, lambda k: f'one bar of height {k:.1f}', name='bars')",
    "display.table([['a', 0.5]], ['name', 'value'])",
]
VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    path = tmp_path_factory.mktemp("book") / "tiny.ipynb"
    cells = [nbformat.v4.new_code_cell(source, id=f"cell-{i}") for i, source in enumerate(CELLS)]
    book = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(
        book, kernel_name="python3", timeout=120, resources={"metadata": {"path": str(path.parent)}}
    ).execute()
    return path, book


def test_each_cell_shows_what_it_should(notebook):
    _, book = notebook
    outputs = [cell.outputs for cell in book.cells]
    assert [len(output) for output in outputs] == [0, 1, 0, 1, 1]
    shown, slider, table = outputs[1][0], outputs[3][0], outputs[4][0]
    assert shown.output_type == "display_data" and set(shown.data) == {"image/png", "text/plain"}
    assert shown.data["text/plain"] == shown.metadata["alt"] == "a line from 0 to 1.000"
    assert set(slider.data) == {"text/plain", "text/html", "image/png", VIEW}
    assert slider.data["text/plain"].splitlines()[2] == "k = 2: one bar of height 2.0"
    assert set(table.data) == {"text/plain", "text/html", "text/markdown"}


def run_nbval(path):
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--nbval",
        "--nbval-current-env",
        "-q",
        "-p",
        "no:cacheprovider",
        str(path),
    ]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=path.parent, env={**os.environ, "PYTHONHASHSEED": "1"}
    )


def test_strict_nbval_passes_and_sees_a_number_that_moved(notebook):
    path, ran = notebook
    book = copy.deepcopy(ran)  # the other tests see what ran
    for cell in book.cells:
        for output in cell.outputs:
            output.data.pop(VIEW, None)
    book.metadata.pop("widgets", None)
    nbformat.write(book, path)
    good = run_nbval(path)
    assert good.returncode == 0, good.stdout
    text = path.read_text(encoding="utf-8")
    moved = text.replace("a line from 0 to 1.000", "a line from 0 to 1.001").replace(
        "height 2.0", "height 2.1"
    )
    path.write_text(moved, encoding="utf-8")
    bad = run_nbval(path)
    assert bad.returncode == 1 and "2 failed" in bad.stdout


def test_the_package_loads_display_on_first_use_only():
    code = "import sys, ssmbook; assert not {'matplotlib', 'ipywidgets'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    assert callable(display.show)
