"""What the figures of several chapters draw alike: words, arrows, matrices, weights, medians, axes."""

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from numpy.typing import ArrayLike

from ssmbook.display import COLORS
from ssmbook.display.style import DIVERGING, LINES, SEQUENTIAL

FAMILIES = {
    "token by token": "gray",
    "by position": "brown",
    "key side": "head",
    "value side": "state",
    "gated or mixed": "purple",
}
"""The families of layers and their colors, in every chapter: the side of the keys has that of heads."""

HEAD, STATE, LAG = "head", "state", "black"
"""The colors of attention heads, of states, and of what is given: lags, and the layer that they belong to."""


def write(ax, x: float, y: float, words: str, size: float = 10, **look) -> None:
    """Write words around a point."""
    ax.text(x, y, words, **{"ha": "center", "va": "center", "fontsize": size, **look})


def arrow(ax, start, end, color, **look) -> None:
    """Draw an arrow from point to point, without gaps at its ends unless ``look`` has them."""
    look = {"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0, "color": color, **look}
    ax.annotate("", end, start, arrowprops=look)


def unit_circle(ax) -> None:
    """Draw the unit circle, pale, for what rotates on it."""
    around = torch.linspace(0, 2 * torch.pi, 121)
    ax.plot(around.cos().numpy(), around.sin().numpy(), color="#D9D9D9", ls="-", lw=1)


def level(ax, height: float, lw: float = 1.3) -> None:
    """Draw a dashed gray line across, at a height to compare with."""
    ax.axhline(height, color=COLORS["gray"], linestyle=LINES["dashed"], lw=lw)


def signed(ax: Axes, values: ArrayLike, top: float | None = None, aspect: str | None = None) -> None:
    """Show a table on a symmetric scale, its own or up to ``top``: blue positive, framed, without ticks.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    values : array (rows, columns)
        What to draw.
    top : float, optional
        The end of the scale; by default the largest size.
    aspect : str, optional
        Of the cells, as for ``Axes.imshow``.
    """
    values = np.asarray(values)
    top = (float(np.nanmax(np.abs(values))) if top is None else top) or 1.0
    ax.imshow(values, cmap=DIVERGING, norm=Normalize(-top, top), aspect=aspect, interpolation="nearest")
    ax.set(xticks=[], yticks=[])
    ax.grid(False)
    ax.spines[:].set_visible(True)


def part_blocks(ax: Axes, n: int, p: int, d: int, width: float) -> None:
    """Draw the lines between the n by n blocks (p, d) of a picture.

    Parameters
    ----------
    ax : Axes
        Where the picture is.
    n, p, d : int
        How many blocks there are along each side, and their size.
    width : float
        Of the lines, in points.
    """
    for edge in range(1, n):
        ax.axhline(p * edge - 0.5, color=COLORS["gray"], lw=width, ls="-")
        ax.axvline(d * edge - 0.5, color=COLORS["gray"], lw=width, ls="-")


def equation(
    axes: Sequence[Axes], parts: Sequence[ArrayLike | str], titles: Sequence[str], *,
    sign_size: float, title_size: float, **scale: Any,
) -> None:  # fmt: skip
    """Show tables as ``signed`` does and the signs between them (str), panel by panel.

    Parameters
    ----------
    axes : sequence of Axes
        One for each part.
    parts : sequence of array or str
        The tables, and the signs between them.
    titles : sequence of str
        Above the tables.
    sign_size, title_size : float
        Font sizes in points.
    scale
        What `signed` takes.
    """
    for ax, part, title in zip(axes, parts, titles, strict=True):
        if isinstance(part, str):
            ax.axis("off")
            ax.text(0.5, 0.5, part, ha="center", va="center", fontsize=sign_size, transform=ax.transAxes)
        else:
            signed(ax, part, **scale)
            ax.set_title(title, fontsize=title_size)


def medians(
    ax: Axes,
    places: Iterable[float],
    rows: Sequence[Sequence[float]],
    color: str,
    linestyle: str | tuple[float, tuple[float, ...]] = "none",
) -> list[float]:
    """Draw the median of each row with bars to its least and its largest entry; returns the medians.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    places : sequence of float
        Where each row stands.
    rows : sequence of sequences of float
        Their numbers.
    color, linestyle : str, or as matplotlib takes
        Of the marks, and of the line through them.

    Returns
    -------
    list of float
        The medians.
    """
    middle = [median(row) for row in rows]
    low, high = [min(row) for row in rows], [max(row) for row in rows]
    bars = np.array([np.subtract(middle, low), np.subtract(high, middle)])
    ax.errorbar(list(places), middle, bars, fmt="o", color=color, linestyle=linestyle, ms=5, capsize=3)
    return middle


def blocks(ax, W: torch.Tensor, width: float, top: float | None = None) -> None:
    """Show an operator W (n, n, p, d) block by block, signs in color, with lines of a width between."""
    n, _, p, d = W.shape
    signed(ax, W.transpose(1, 2).reshape(n * p, n * d), top)
    part_blocks(ax, n, p, d, width)


def weights(ax, alpha: torch.Tensor, letters: Sequence[str] = (), *, top: float = 1.0, cmap=SEQUENTIAL):
    """Show attention weights alpha (n, n), between n letters, from white at zero to ``top``."""
    ax.imshow(alpha.numpy(), cmap=cmap, vmin=0, vmax=top)
    ax.grid(False)
    if letters:
        n = range(len(letters))
        ax.set(xticks=n, yticks=n, xticklabels=letters, yticklabels=letters)


def ticks(ax, x: Sequence[float] = (), y: Sequence[float] = ()) -> None:
    """Mark these places on the axes of x and y, as they are written, and none between."""
    for axis, places in ((ax.xaxis, x), (ax.yaxis, y)):
        if places:
            axis.set_ticks(places, [str(place) for place in places])
    ax.minorticks_off()


def unmarked(ax) -> None:
    """Take ticks and frame from axes whose units say nothing."""
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
