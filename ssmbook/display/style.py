"""Figure style: palette, line styles, sizes and direct labels."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib import cycler, patheffects
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Annotation

LIGHT, DARK = (
    dict(re.findall(r"--ssm-(\w+): (#\w{6})", block))
    for block in (Path(__file__).parent / "palette.css").read_text("utf-8").split("}")[:2]
)
"""The palette of pages in light and in dark mode, as ``palette.css`` has it."""

COLORS = {name: color for name, color in LIGHT.items() if name not in ("faint", "paper")}
"""Colors of figures by what they mean: the signs "plus" and "minus", the roles "head" and "state", "gray" for
what is given, "black"; and "purple", "brown" and "sand" for lines without a role.

Contrast at least 3:1 on white, told apart under protanopia, deuteranopia and tritanopia.
"""

SERIES = ("black", "purple", "brown", "sand", "head", "state")
"""The order in which lines that are neither heads nor states take their colors."""

LINES = {
    "solid": "-",
    "dashed": (0, (5, 2)),
    "dotted": (0, (1, 1.4)),
    "dashdot": (0, (6, 2, 1, 2)),
    "long": (0, (10, 3)),
    "dashdotdot": (0, (6, 2, 1, 2, 1, 2)),
}
"""Line styles, in the order in which the default cycle pairs them with the colors."""

Size = Literal["panel", "wide", "slider"]
SIZES = {
    "panel": (3.6, 3.0),
    "wide": (7.0, 3.3),
    "slider": (6.0, 3.0),
}
"""Figure sizes in inches; the text column is PAGE_WIDTH inches wide, a phone as wide as one panel."""

PAGE_WIDTH = 7.0
SMALLEST_PT = 9.0

SEQUENTIAL = LinearSegmentedColormap.from_list(
    "ssmbook-sequential", ["#FFFFFF", "#C3D6F3", "#5B90DE", LIGHT["plus"], "#001438"]
)
"""Colormap for quantities that start at zero: white to dark blue."""
DIVERGING = LinearSegmentedColormap.from_list(
    "ssmbook-diverging", [LIGHT["minus"], "#FFFFFF", LIGHT["plus"]], N=257
)
"""Colormap for signed quantities: orange where negative, white at zero, navy where positive."""

_STYLE = {
    "axes.edgecolor": "#444444",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 10.5,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.prop_cycle": cycler(color=[COLORS[c] for c in SERIES], linestyle=list(LINES.values())),
    "figure.constrained_layout.use": True,
    "figure.figsize": SIZES["wide"],
    "figure.titlesize": 11,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "image.cmap": "ssmbook-sequential",
    "legend.fontsize": 9.5,
    "legend.frameon": False,
    "lines.linewidth": 1.9,
    "lines.markersize": 5,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
}


def use_style() -> None:
    """Make the book's figure style the default of matplotlib for this process.

    White background, the bundled DejaVu fonts at 9 points and more, a color cycle safe for
    color-blind eyes in which every line also has its own style.
    """
    for cmap in (SEQUENTIAL, DIVERGING):
        if cmap.name not in matplotlib.colormaps:
            matplotlib.colormaps.register(cmap)
    matplotlib.rcParams.update(_STYLE)


def figure(
    ncols: int = 1, nrows: int = 1, size: Size | tuple[float, float] = "wide", **options: Any
) -> tuple[Figure, Any]:
    """Return ``fig, axes`` of a new figure in the book's style that no notebook shows by itself.

    Parameters
    ----------
    ncols, nrows : int, default 1
        The panels.
    size : {"wide", "panel", "slider"} or tuple of float
        One of ``SIZES``, or (width, height) in inches.
    options
        For ``Figure.subplots``.

    Returns
    -------
    Figure, and Axes or an array of them
        Of shape (ncols,), (nrows,) or (nrows, ncols) where there are several.

    Examples
    --------
    >>> fig, axes = figure(ncols=2)
    >>> len(axes)
    2
    """
    inches = size if isinstance(size, tuple) else SIZES[size]
    with matplotlib.rc_context(_STYLE):
        fig = Figure(figsize=inches, layout="constrained")
        FigureCanvasAgg(fig)
        return fig, fig.subplots(nrows, ncols, **options)


def label_line(
    ax: Axes,
    x: float,
    y: float,
    text: str,
    *,
    color: str | None = None,
    dx: float = 5,
    dy: float = 0,
    **text_options: Any,
) -> Annotation:
    """Write ``text`` beside the point (x, y) in the color of its line, as its legend; returns the artist.

    Parameters
    ----------
    ax : Axes
        Where to write.
    x, y : float
        The point.
    text : str
        What to write.
    color : str, optional
        By default that of the line drawn last; darkened until its contrast on white is
        4.5:1.
    dx, dy : float
        The shift of the text in points.
    text_options
        For ``Axes.annotate``.

    Returns
    -------
    Annotation
        The artist.

    Examples
    --------
    >>> fig, ax = figure()
    >>> label_line(ax, 1.0, 0.5, "rotation", color="black").get_text()
    'rotation'
    """
    if color is None:
        color = ax.get_lines()[-1].get_color()
    options = {"ha": "left", "va": "center", "fontsize": 9.5, "annotation_clip": False, **text_options}
    options["path_effects"] = [patheffects.withStroke(linewidth=2.5, foreground="white")]
    return ax.annotate(text, (x, y), (dx, dy), textcoords="offset points", color=readable(color), **options)


def readable(color: str) -> str:
    """Return ``color`` darkened just enough for text on white: a contrast of 4.5 by the guidelines (WCAG)."""
    rgb = np.array(to_rgb(color))
    for shade in np.arange(1, 0, -0.02):
        linear = np.where(shade * rgb <= 0.04045, shade * rgb / 12.92, ((shade * rgb + 0.055) / 1.055) ** 2.4)
        if 1.05 / (0.05 + linear @ (0.2126, 0.7152, 0.0722)) >= 4.5:
            return to_hex(shade * rgb)
    return to_hex((0, 0, 0))
