"""Figures of the chapter *gates-and-depth*."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import LinearSegmentedColormap

from ssmbook.display import COLORS, LINES, block_heatmap, figure, label_line

_AROUND_ONE = LinearSegmentedColormap.from_list("around one", [COLORS["orange"], "#D9D9D9", COLORS["blue"]])


def gate_strip(lam, n):
    """Return a figure of one decaying channel as two gates around a running sum, and its alternative text.

    Colors are logarithms of the entries. lam a decay in (0, 1), n >= 2 tokens. Four (n, n) tables:
    diag(lam^i), the ones on and below the diagonal, diag(lam^-j), and their product lam^(i-j); the extreme
    entry of each is printed.
    """
    position = np.arange(n)
    gate_out, gate_in = np.diag(lam**position), np.diag(lam**-position)
    ones = np.tri(n)
    tables = {
        "output gate λⁱ": gate_out,
        "× running sum": ones,
        "× input gate λ⁻ʲ": gate_in,
        "= the system": np.tri(n) * lam ** np.maximum(position[:, None] - position, 0),
    }
    fig, axes = figure(ncols=4, size=(7.0, 2.4))
    fig.stacks = (2,)
    top = -np.log10(lam) * (n - 1)
    for ax, (name, table) in zip(axes, tables.items(), strict=True):
        sizes = np.full((n, n), np.nan)
        sizes[table > 0] = np.log10(table[table > 0])
        ax.imshow(sizes, cmap=_AROUND_ONE, vmin=-top, vmax=top, interpolation="nearest")
        ax.set(title=name, xticks=(), yticks=())
        ax.title.set_fontsize(9)
        extreme = table[table > 0].min() if name != "× input gate λ⁻ʲ" else table.max()
        ax.text(n - 1, 0.4, f"{extreme:.2g}", ha="right", va="top", fontsize=9.5)
    alt = (
        f"Three tables and their product for a channel with decay {lam} on {n} tokens: an output gate down "
        f"to {gate_out[-1, -1]:.1e}, a running sum of ones, an input gate up to {gate_in.max():.1e}, and the "
        f"decaying table, from 1 down to {lam ** (n - 1):.1e}."
    )
    return fig, alt


def depth_frame(W, ranks, goal):
    """Return a figure of the operator W of the first layers of a stack beside the rank after each layer.

    ``W`` as for ``block_heatmap``; ``ranks`` the interaction rank after 0, 1, ... layers, of which W has the
    last; ``goal`` the rank of the system, a dashed line. The axes leave room for ``goal`` and for up to four
    layers.
    """
    fig, (picture, bars) = figure(ncols=2, size="slider")
    block_heatmap(W, picture)
    bars.bar(range(len(ranks)), ranks, color=[*["#A9CDF0"] * (len(ranks) - 1), COLORS["blue"]])
    bars.axhline(goal, color=COLORS["orange"], linestyle=LINES["dashed"])
    label_line(bars, -0.6, goal, f"the system: {goal}", color=COLORS["orange"], dx=2, dy=8)
    bars.set(xlabel="layers", ylabel="interaction rank")
    bars.set(xlim=(-0.7, 4.7), ylim=(0, 1.25 * goal), xticks=range(5))
    return fig
