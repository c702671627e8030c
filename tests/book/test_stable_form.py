"""Executing, normalizing and converting notebooks: unchanged code leaves an unchanged file."""

import copy

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from ssmbook._book.install_cell import install_source, with_install_cell
from ssmbook._book.notebooks import main
from ssmbook._book.stable_form import WIDGET_VIEW, is_stable, normalize

PNG = "iVBORw0KGgo=\n"
CONFIG = "repository:\n  url: https://example.org/a/b\n  branch: main\n"
TEXT = """# Title

```{code-cell}
import sys
print("one", flush=True)
print("two")
```

+++ {"a": 1}

Text.

```{code-cell}
---
tags: [checks-thm-a]
mystnb:
  figure:
    name: fig-a
    caption: A caption.
---
from IPython.display import display
alt = "A dot at 1.50"
display({"image/png": "iVBORw0KGgo=", "text/plain": alt}, metadata={"alt": alt}, raw=True)
```

```{code-cell}
:tags: [raises-exception]
raise ValueError("no")
```
"""


def picture(alt=None, **data):
    bundle = {"image/png": PNG, "text/plain": alt or "<Figure>", **data}
    return new_output("display_data", bundle, metadata={"alt": alt} if alt else {})


def only_code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.fixture
def book(tmp_path, monkeypatch):
    (tmp_path / "chapters/1-part").mkdir(parents=True)
    (tmp_path / ".text/1-part").mkdir(parents=True)
    (tmp_path / "_config.yml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "CHANGELOG.md").write_text("## 0.1.0 (in the making)\n", encoding="utf-8")
    (tmp_path / ".text/1-part/a.md").write_text(TEXT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_second_run_and_a_trip_through_text_leave_the_same_bytes(book):
    notebook = book / "chapters/1-part/a.ipynb"
    assert main(["from-text", "chapters/1-part/a.ipynb"]) == 0
    first = notebook.read_bytes()
    assert main(["execute", "chapters/1-part/a.ipynb"]) == 0
    assert notebook.read_bytes() == first
    assert main(["to-text", str(notebook)]) == 0
    text = (book / ".text/1-part/a.md").read_text(encoding="utf-8")
    assert "A dot" not in text.split("alt = ")[0] and "alt:" not in text
    assert main(["from-text", ".text/1-part/a.md"]) == 0
    assert notebook.read_bytes() == first
    assert is_stable(nbformat.read(notebook, as_version=4))
    check_contents(nbformat.read(notebook, as_version=4))


def check_contents(notebook):
    nbformat.validate(notebook)
    install, printed, shown, raised = only_code(notebook)
    assert install.source.startswith("try:\n    import ssmbook\n") and install.metadata.tags == [
        "remove-cell"
    ]
    assert [output.text for output in printed.outputs] == ["one\ntwo\n"]
    assert shown.metadata.mystnb.image.alt == "A dot at 1.50"
    assert shown.metadata.mystnb.figure.name == "fig-a"
    assert raised.outputs[0].traceback == ["ValueError: no"]
    assert [cell.execution_count for cell in only_code(notebook)] == [1, 2, 3, 4]


def test_a_failing_cell_writes_nothing(book, capsys):
    (book / ".text/1-part/a.md").write_text("# A\n\n```{code-cell}\n1 / 0\n```\n", encoding="utf-8")
    assert main(["from-text", "chapters/1-part/a.ipynb"]) == 1
    assert not (book / "chapters/1-part/a.ipynb").exists()
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_what_differs_between_machines_goes():
    cell = new_code_cell(
        "x", execution_count=7, metadata={"execution": {"a": "1"}, "tags": ["t"], "collapsed": True}
    )
    cell.outputs = [
        new_output(
            "execute_result", {"text/plain": "3", WIDGET_VIEW: {"model_id": "f00"}}, execution_count=7
        ),
        new_output("stream", name="stdout", text="a"),
        new_output("stream", name="stdout", text="b"),
    ]
    dirty = new_notebook(cells=[cell, new_markdown_cell("")], metadata={"widgets": {"x": 1}, "colab": {}})
    dirty.metadata.language_info = {"name": "python", "version": "3.11.7"}
    before = copy.deepcopy(dirty)
    clean = normalize(dirty)
    assert dirty == before
    assert (
        set(clean.metadata) == {"kernelspec", "language_info"}
        and "version" not in clean.metadata.language_info
    )
    [cell] = clean.cells
    assert cell.metadata == {"tags": ["t"]} and cell.execution_count == 1
    assert [output.output_type for output in cell.outputs] == ["execute_result", "stream"]
    assert cell.outputs[0].data == {"text/plain": "3"} and cell.outputs[0].execution_count == 1
    assert cell.outputs[1].text == "ab"
    assert is_stable(clean) and not is_stable(dirty)


def test_ids_come_from_the_source_and_are_unique():
    cells = [new_code_cell("a"), new_code_cell("b"), new_code_cell("a"), new_markdown_cell("a")]
    first = [cell.id for cell in normalize(new_notebook(cells=cells)).cells]
    again = [cell.id for cell in normalize(new_notebook(cells=cells[1:])).cells]
    assert len(set(first)) == 4 and first[2] == first[0] + "-2"
    assert first[1] == again[0]


def test_an_alternative_text_follows_its_picture():
    cell = new_code_cell("a", execution_count=1, outputs=[picture("old 1.0")])
    [once] = normalize(new_notebook(cells=[cell])).cells
    once.outputs = [picture("new 2.0")]
    [twice] = normalize(new_notebook(cells=[once])).cells
    assert twice.metadata.mystnb.image.alt == "new 2.0"
    assert twice.outputs[0].data["image/png"] == PNG.strip()


def test_the_install_cell_is_put_once_and_renewed(book):
    notebook = new_notebook(cells=[new_markdown_cell("# T"), new_code_cell("x = 1")])
    for _ in range(2):
        notebook = with_install_cell(notebook, book)
        assert [cell.source for cell in only_code(notebook)] == [install_source(book), "x = 1"]
    (book / "_config.yml").write_text(CONFIG.replace("a/b", "c/d"), encoding="utf-8")
    assert "c/d" in only_code(with_install_cell(notebook, book))[0].source


def test_a_notebook_that_imports_numba_asks_for_the_library_with_it(book):
    for line, library in {"import numba": "ssmbook[fast]", "print('import numba')": "ssmbook"}.items():
        notebook = with_install_cell(new_notebook(cells=[new_code_cell(f"import math\n{line}\n")]), book)
        assert f'"{library} @ git+' in only_code(notebook)[0].source
