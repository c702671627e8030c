"""Figures of the chapter *gates-and-depth*."""

from __future__ import annotations

from ssmbook.display import COLORS, LINES, block_heatmap, figure, label_line


def channel_ratios(lines):
    """Return a figure of the logarithm of the ratio of two channels against the lag, twice, with chords.

    ``lines`` maps two labels to (n,) values, n >= 2, the steeper first; a dashed chord joins the first value
    to the last, so a line that is straight covers its chord. Introduced in *gates-and-depth*.
    """
    fig, ax = figure(size=(7.0, 3.0))
    sides = ({"dx": -8, "dy": 8, "ha": "right"}, {"dx": 8, "dy": -10})  # above the first, below the second
    for color, side, (name, values) in zip(("blue", "orange"), sides, lines.items(), strict=True):
        last, middle = len(values) - 1, (len(values) - 1) // 2
        chord = [float(values[0]), float(values[-1])]
        ax.plot([0, last], chord, color=COLORS["gray"], linestyle=LINES["dashed"], lw=1.2)
        ax.plot(range(last + 1), values, "o", linestyle="none", color=COLORS[color], ms=4)
        label_line(ax, middle, float(values[middle]), name, color=COLORS[color], **side)
    ax.set(xlabel="lag τ", ylabel="log of the ratio of two channels")
    return fig


def depth_frame(W, ranks, goal):
    """Return a figure of the operator W of the first layers of a stack beside the rank after each layer.

    ``W`` as for ``block_heatmap``; ``ranks`` the interaction rank after 0, 1, ... layers, of which W has
    the last; ``goal`` the rank of the system, a dashed line. The axes leave room for ``goal`` and for up to
    four layers. Introduced in *gates-and-depth*.
    """
    fig, (picture, bars) = figure(ncols=2, size="slider")
    block_heatmap(W, picture, colorbar=False)
    bars.bar(range(len(ranks)), ranks, color=[*["#A9CDF0"] * (len(ranks) - 1), COLORS["blue"]])
    bars.axhline(goal, color=COLORS["orange"], linestyle=LINES["dashed"])
    label_line(bars, -0.6, goal, f"the system: {goal}", color=COLORS["orange"], dx=2, dy=8)
    bars.set(xlabel="layers", ylabel="interaction rank")
    bars.set(xlim=(-0.7, 4.7), ylim=(0, 1.25 * goal), xticks=range(5))
    return fig
