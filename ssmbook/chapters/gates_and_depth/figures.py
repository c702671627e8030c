"""Figures of the chapter *gates-and-depth*."""

from __future__ import annotations

import math
from itertools import product

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


def log_ratios(pairs):
    """Draw the logarithm of the ratio of two channels at each lag, and the line that the first two lags set.

    pairs: title -> (first, second), positive tensors (n,). Returns ``fig, alt``.
    """
    fig, axes = figure(ncols=len(pairs), size=(7.0, 2.7))
    words = []
    for ax, (title, (first, second)) in zip(axes, pairs.items(), strict=True):
        logs = (first / second).log()
        line = [float(logs[0] + tau * (logs[1] - logs[0])) for tau in range(len(logs))]
        ax.plot(line, color=COLORS["orange"], linestyle=LINES["dashed"])
        ax.plot(logs, "o", color=COLORS["blue"], linestyle="none", ms=4)
        off = abs(float(logs[-1]) - line[-1])
        ax.set(title=title, xlabel="lag τ", ylabel="log of the ratio")
        words.append(f"{title}: {off:.2f} off the line of the first two lags at lag {len(logs) - 1}")
    return fig, f"Logarithm of the ratio of two channels. {'; '.join(words)}."


def stack_paths(L):
    """Draw the ways through L residual layers of one head: each its own value map, or all the same.

    Blue goes through a head, gray along the skip. Left every way ends in a matrix of its own; right the ways
    with equally many heads meet. Returns ``fig, alt``.
    """
    fig, (tree, merged) = figure(ncols=2, size=(7.0, 3.2))
    for word in product((0, 1), repeat=L):
        ends = [0.0]
        for layer, head in enumerate(word):
            ends.append(ends[-1] + (head - 0.5) / 2**layer)
        _way(tree, word, ends)
        label_line(tree, L, ends[-1], _value_map(word), color=COLORS["black"])
        _way(merged, word, [sum(word[:layer]) - layer / 2 for layer in range(L + 1)])
    for m in range(L + 1):
        power = ("I", "V")[m] if m < 2 else f"V{'⁰¹²³⁴⁵⁶⁷⁸⁹'[m]}"
        ways = f", {math.comb(L, m)} ways" if 0 < m < L else ""
        label_line(merged, L, m - L / 2, power + ways, color=COLORS["black"])
    for ax, title in ((tree, f"own value maps: {2**L} matrices"), (merged, f"one V: {L + 1} matrices")):
        ax.set(title=title, xticks=range(L + 1), yticks=[], xlim=(-0.1, L + 1), xlabel="layers")
        ax.grid(False)
        ax.spines["left"].set_visible(False)
    return fig, (
        f"{L} residual layers of one head, {2**L} ways of heads and skips. With their own value maps they "
        f"end in {2**L} matrices, with one V in {L + 1}, the powers 0 to {L}."
    )


def _way(ax, word, heights):
    """Draw one way through the layers, blue where it goes through a head."""
    for layer, head in enumerate(word):
        color, width = (COLORS["blue"], 2.2) if head else (COLORS["gray"], 1.2)
        ax.plot(
            (layer, layer + 1),
            heights[layer : layer + 2],
            color=color,
            linestyle="-",
            lw=width,
            zorder=2 + head,
        )


def _value_map(word):
    """The value map at the end of a way, the last layer first: (1, 0, 1) is V₃V₁."""
    return "".join(f"V{'₁₂₃₄₅₆₇₈₉'[i]}" for i in reversed(range(len(word))) if word[i]) or "I"


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
