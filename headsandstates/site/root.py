"""Where the book lies."""

from pathlib import Path


class NotebookError(Exception):
    """A notebook that cannot be executed, converted or written; the message is meant for its author."""


def book_root(start="."):
    """The folder that holds ``chapters/``, looked for from ``start`` upwards."""
    start = Path(start).resolve()
    for folder in (start, *start.parents):
        if (folder / "chapters").is_dir():
            return folder
    raise NotebookError(f"No chapters/ folder found in {start} or above it: run this inside the repository.")
