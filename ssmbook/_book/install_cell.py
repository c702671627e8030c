"""The hidden first code cell of a notebook: on Colab it installs the library, elsewhere it does nothing."""

import nbformat
import yaml

TAG = "remove-cell"


def repository(root):
    """(url, branch) of the published book: they stand once, in ``_config.yml``."""
    settings = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))["repository"]
    return settings["url"], settings["branch"]


def install_source(root):
    """The cell's text."""
    url, branch = repository(root)
    return (
        "try:\n"
        "    import ssmbook\n"
        "except ModuleNotFoundError:\n"
        f'    %pip install --quiet "ssmbook @ git+{url}@{branch}"'
    )


def with_install_cell(notebook, root):
    """Put the install cell in front of the first code cell, in place of an older one."""
    position = next((i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"), None)
    if position is None:
        return notebook
    source = install_source(root)
    if "%pip install" in notebook.cells[position].source:
        cell = notebook.cells[position]
        cell.source = source
    else:
        cell = nbformat.v4.new_code_cell(source)
        notebook.cells.insert(position, cell)
    cell.metadata = nbformat.from_dict({"tags": [TAG]})
    return notebook
