"""The signs of *primer*: tokens, states, heads, operations and vectors, on panels that are ten units wide.

A token is a gray square, a state a red circle, a head a teal box, and what belongs to a lag is black. A
panel is as wide as a phone, and a unit is 0.35 inches.
"""

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.patches import Circle, FancyBboxPatch, Rectangle

from headsandstates.chapters import _drawn
from headsandstates.chapters._drawn import HEAD, STATE
from ssmbook.display import COLORS, figure
from ssmbook.display.style import readable

TOKEN = "gray"
LOW = "₀₁₂₃₄₅₆₇₈₉"


def sheets(height, titles=("",)):
    """A figure of one panel for each title, ten units wide and ``height`` high, without axes."""
    fig, axes = figure(ncols=len(titles), size=(3.5 * len(titles), 0.35 * height + 0.3 * any(titles)))
    for ax, title in zip(np.atleast_1d(axes), titles, strict=True):
        ax.set(xlim=(-0.3, 10.3), ylim=(0, height), aspect="equal", title=title)
        ax.set_axis_off()
    return fig, axes


def look(hue):
    """How a sign of this color is filled and framed."""
    pale = tuple(1 - 0.16 * (1 - part) for part in to_rgb(COLORS[hue]))
    return {"facecolor": pale, "edgecolor": COLORS[hue], "linewidth": 1.4}


def write(ax, x, y, words, hue="black", size=10, **options):
    """Write words around a point in a color that can be read."""
    _drawn.write(ax, x, y, words, size, **{"color": readable(COLORS[hue]), **options})


def token(ax, x, y, words="", hue=TOKEN, side=0.8):
    """Draw a square."""
    ax.add_patch(Rectangle((x - side / 2, y - side / 2), side, side, **look(hue)))
    write(ax, x, y, words)


def state(ax, x, y, words="", radius=0.5):
    """Draw a circle."""
    ax.add_patch(Circle((x, y), radius, **look(STATE)))
    write(ax, x, y, words)


def box(ax, x, y, words, hue=HEAD, width=2.0, height=0.8):
    """Draw a box with round corners."""
    shape = "round,pad=0,rounding_size=0.18"
    corner = x - width / 2, y - height / 2
    ax.add_patch(FancyBboxPatch(corner, width, height, boxstyle=shape, **look(hue)))
    write(ax, x, y, words)


def sign(ax, x, y, words):
    """Draw a sign of an operation in a ring."""
    ax.add_patch(Circle((x, y), 0.38, facecolor="white", edgecolor="black"))
    write(ax, x, y, words, size=12)


def arrow(ax, start, end, hue=TOKEN, width=1.4, gap=0.0, bend=0.0):
    """Draw an arrow that keeps a gap, in units, at both ends."""
    looks = {"lw": width, "shrinkA": 25 * gap, "shrinkB": 25 * gap, "connectionstyle": f"arc3,rad={bend}"}
    _drawn.arrow(ax, start, end, COLORS[hue], **looks)


def vectors(ax, places, each, color, pivot="mid"):
    """Draw vectors (m, 2) as arrows with their middle, or their tail, at places (m, 2)."""
    size = {"angles": "xy", "scale_units": "xy", "scale": 1, "pivot": pivot, "width": 0.01}
    size |= {"headwidth": 3.4, "headlength": 3.0, "headaxislength": 2.8, "minlength": 2.4}
    ax.quiver(*np.asarray(places, dtype=float).T, *np.asarray(each, dtype=float).T, color=color, **size)
