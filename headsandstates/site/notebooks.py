"""Execute notebooks, write them in one stable form, and edit them as text.

python -m headsandstates.site.notebooks execute                       # every notebook under chapters/
python -m headsandstates.site.notebooks execute chapters/a/b.ipynb    # one of them
python -m headsandstates.site.notebooks normalize chapters/a/b.ipynb  # the stable form, without running it
python -m headsandstates.site.notebooks to-text chapters/a/b.ipynb    # writes .text/a/b.md (md:myst)
python -m headsandstates.site.notebooks from-text chapters/a/b.ipynb  # .text/a/b.md -> notebook, executed
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import nbformat

from headsandstates.site.install_cell import with_install_cell
from headsandstates.site.root import NotebookError, book_root
from headsandstates.site.stable_form import normalize

TIMEOUT_SECONDS = 600
TEXT_FOLDER = ".text"
ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}


def all_notebooks(root):
    """Every notebook under ``chapters/``, sorted, without editor checkpoints."""
    found = (root / "chapters").rglob("*.ipynb")
    return sorted(path for path in found if path.parent.name != ".ipynb_checkpoints")


def pair(path, root):
    """(notebook, text) belonging together, given either of the two paths."""
    path = Path(path).resolve()
    for folder, suffix in (("chapters", ".ipynb"), (TEXT_FOLDER, ".md")):
        if path.is_relative_to(root / folder) and path.suffix == suffix:
            stem = path.relative_to(root / folder).with_suffix("")
            return root / "chapters" / f"{stem}.ipynb", root / TEXT_FOLDER / f"{stem}.md"
    raise NotebookError(f"{path} is neither a notebook under chapters/ nor a text under {TEXT_FOLDER}/.")


def read(path):
    if not path.is_file():
        raise NotebookError(f"{path} does not exist.")
    return nbformat.read(path, as_version=4)


def write(notebook, path):
    """Write the stable form; an unchanged notebook keeps its bytes and its modification time."""
    try:
        text = nbformat.writes(normalize(notebook)) + "\n"
    except ValueError as error:
        raise NotebookError(f"{path}: {error}") from error
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def execute(notebook, folder, name):
    """Run every cell in a fresh kernel whose working directory is ``folder``, on one thread."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    os.environ.update(ONE_THREAD)
    client = NotebookClient(
        notebook,
        timeout=TIMEOUT_SECONDS,
        kernel_name="python3",
        record_timing=False,
        store_widget_state=False,
        resources={"metadata": {"path": str(folder)}},
    )
    try:
        # The kernel's own log; what cells write to stderr arrives as an output.
        client.execute(stderr=subprocess.DEVNULL)
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        raise NotebookError(f"{name} failed while running; nothing was written.\n{error}") from error
    return notebook


def run(notebook_path, text_path, root):
    notebook = with_install_cell(read(notebook_path), root)
    write(execute(notebook, notebook_path.parent, notebook_path.name), notebook_path)


def renew(notebook_path, text_path, root):
    write(with_install_cell(read(notebook_path), root), notebook_path)


def to_text(notebook_path, text_path, root):
    import jupytext

    notebook = normalize(read(notebook_path))
    for cell in notebook.cells:
        # A computed alt text comes back with the outputs: keep it out of what people edit.
        if any(output.get("metadata", {}).get("alt") for output in cell.get("outputs", [])):
            cell.metadata.get("mystnb", {}).pop("image", None)
            if not cell.metadata.get("mystnb", True):
                del cell.metadata["mystnb"]
    notebook.metadata.pop("language_info", None)
    text_path.parent.mkdir(parents=True, exist_ok=True)
    jupytext.write(notebook, text_path, fmt="md:myst")


def from_text(notebook_path, text_path, root):
    import jupytext

    if not text_path.is_file():
        raise NotebookError(f"{text_path} does not exist: write it, or start with `to-text`.")
    notebook = with_install_cell(jupytext.read(text_path, fmt="md:myst"), root)
    notebook_path.parent.mkdir(parents=True, exist_ok=True)
    write(execute(notebook, notebook_path.parent, text_path.name), notebook_path)


COMMANDS = {"execute": run, "normalize": renew, "to-text": to_text, "from-text": from_text}


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m headsandstates.site.notebooks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("paths", nargs="*", help="notebooks (or their texts); none means all under chapters/")
    options = parser.parse_args(arguments)
    root, failures = book_root(options.paths[0] if options.paths else "."), 0
    for path in options.paths or all_notebooks(root):
        try:
            COMMANDS[options.command](*pair(path, root), root)
            print(f"{options.command}: {path}")
        except NotebookError as error:
            failures += 1
            print(f"{options.command}: {error}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
