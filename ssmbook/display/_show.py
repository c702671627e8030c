"""One figure into a notebook, with its words."""

from __future__ import annotations

import matplotlib.pyplot as plt
from IPython.display import display
from matplotlib.figure import Figure

from ssmbook.display._png import FIGURE_BYTES, FIGURE_DPI, check_alt, check_figure, encode, page_size, render


def show(fig: Figure, *, alt: str) -> None:
    """Put a figure into the notebook once, as a PNG whose text form is its alternative text, and close it.

    ``fig`` is a matplotlib Figure (from ``figure`` or pyplot); ``alt`` says in one line what it shows, with
    its numbers, computed: the notebook test compares the text form, so a number that moves is found.
    Returns None. Raises ``TypeError`` or ``ValueError`` for an ``alt`` that says nothing, text under 9
    points at page width, a picture over 150,000 bytes; nothing is shown then, and the figure is closed all
    the same. Introduced in *two-ways-to-mix*.
    """
    try:
        check_alt("alt", alt)
        check_figure("fig", fig)
        png = render("fig", fig, dpi=FIGURE_DPI, limit=FIGURE_BYTES)
    finally:
        if isinstance(fig, Figure):
            plt.close(fig)
    metadata = {"alt": alt, "image/png": page_size(png)}  # else Jupyter shows every pixel, twice too large
    display({"image/png": encode(png), "text/plain": alt}, metadata=metadata, raw=True)
