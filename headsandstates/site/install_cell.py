"""The hidden first code cell of a notebook: on Colab it installs the library, elsewhere it does nothing."""

import re

import yaml
from nbformat.v4 import new_code_cell

from headsandstates.site.release import in_the_making, tag

TAG = "remove-cell"
START = "try:\n    import ssmbook\nexcept ModuleNotFoundError:\n"  # of every edition's install cell
NUMBA = re.compile(r"^import numba$", re.M)


def repository(root):
    """(url, branch) of the published book: ``_config.yml`` is their only place."""
    settings = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))["repository"]
    return settings["url"], settings["branch"]


def install_source(root, notebook=None):
    """The cell's text. It names this version's tag, which stays what it is.

    Where a cell of the notebook imports Numba, the library comes with it; Colab's own is kept as it is.

    A version in the making has no tag yet: until it is released, its cell falls back to the branch.
    (``!pip``, because ``%pip`` prints that the kernel may need a restart.)
    """
    url, branch = repository(root)
    pip = f'!pip install -q "{{book}}@{tag()}"'
    if in_the_making(root):
        pip += f' 2> /dev/null || pip install -q "{{book}}@{branch}"'
    cells = notebook.cells if notebook else ()
    extras = "book,fast" if any(NUMBA.search(cell.source) for cell in cells) else "book"
    return f'{START}    book = "ssmbook[{extras}] @ git+{url}"\n    {pip}'


def with_install_cell(notebook, root):
    """Put the install cell in front of the first code cell, in place of an older one."""
    position = next((i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"), None)
    if position is None:
        return notebook
    if not notebook.cells[position].source.startswith(START):
        notebook.cells.insert(position, new_code_cell())
    cell = notebook.cells[position]
    cell.source, cell.metadata = install_source(root, notebook), {"tags": [TAG]}
    return notebook
