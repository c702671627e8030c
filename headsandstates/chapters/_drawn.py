"""What the figures of several chapters draw alike: words, arrows, blocks, weights, marks of axes."""

from collections.abc import Sequence

import torch

from ssmbook.display import COLORS
from ssmbook.display.pictures import part_blocks, signed
from ssmbook.display.style import LINES, SEQUENTIAL

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
