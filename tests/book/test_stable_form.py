"""Executing, normalizing and converting notebooks: unchanged code leaves an unchanged file."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from headsandstates.site.notebooks import main
from headsandstates.site.stable_form import WIDGET_VIEW, is_stable, normalize

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


def picture(alt):
    return new_output("display_data", {"image/png": PNG, "text/plain": alt}, metadata={"alt": alt})


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
    written = nbformat.read(notebook, as_version=4)
    assert is_stable(written)
    install, printed, shown, raised = [cell for cell in written.cells if cell.cell_type == "code"]
    assert install.source.startswith("try:\n    import ssmbook\n") and "remove-cell" in install.metadata.tags
    assert [output.text for output in printed.outputs] == ["one\ntwo\n"]
    assert shown.metadata.mystnb.image.alt == "A dot at 1.50"
    assert shown.metadata.mystnb.figure.name == "fig-a"
    assert raised.outputs[0].traceback == ["ValueError: no"]


def test_a_failing_cell_writes_nothing(book, capsys):
    (book / ".text/1-part/a.md").write_text("# A\n\n```{code-cell}\n1 / 0\n```\n", encoding="utf-8")
    assert main(["from-text", "chapters/1-part/a.ipynb"]) == 1
    assert not (book / "chapters/1-part/a.ipynb").exists()
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_what_differs_between_machines_goes():
    metadata = {"execution": {"a": "1"}, "tags": ["t"], "collapsed": True}
    cell, shown = new_code_cell("x", execution_count=7, metadata=metadata), {WIDGET_VIEW: {"model_id": "f00"}}
    cell.outputs = [
        new_output("execute_result", {"text/plain": "3", **shown}, execution_count=7),
        new_output("stream", name="stdout", text="a"),
        new_output("stream", name="stdout", text="b"),
    ]
    dirty = new_notebook(cells=[cell, new_markdown_cell("")], metadata={"widgets": {"x": 1}, "colab": {}})
    dirty.metadata.language_info = {"name": "python", "version": "3.11.7"}
    clean = normalize(dirty)
    assert "version" not in clean.metadata.language_info and not {"widgets", "colab"} & set(clean.metadata)
    [cell] = clean.cells
    result, printed = cell.outputs
    assert cell.metadata == {"tags": ["t"]} and cell.execution_count == result.execution_count == 1
    assert result.data == {"text/plain": "3"} and printed.text == "ab"
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
