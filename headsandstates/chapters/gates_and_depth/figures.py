"""Figures of *gates-and-depth*; each returns the figure, or the figure and its alternative text."""

import math
from itertools import pairwise, product

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle

from headsandstates.chapters._drawn import write
from ssmbook.display import COLORS, block_heatmap, figure, label_line
from ssmbook.display.style import LINES

_AROUND_ONE = LinearSegmentedColormap.from_list("around one", [COLORS["minus"], "#D9D9D9", COLORS["plus"]])


def three_ways(heads, layers):
    """Draw one map as a layer of several heads, as one head between two gates, as residual layers."""
    fig, axes = figure(ncols=3, size=(7.0, 2.9))
    box = {"boxstyle": "round,pad=0.3", "ec": "none"}
    head, gate = ({"color": "white", "bbox": box | {"fc": face}} for face in (COLORS["head"], "#8347C9"))
    titles = (f"one layer, {heads} heads", "one head, two gates", f"{layers} layers, one head each")
    line = {"color": COLORS["gray"], "lw": 1.6, "ls": "-", "zorder": 0}
    for ax, title in zip(axes, titles, strict=True):
        ax.set(xlim=(-2.4, 2.4), ylim=(-0.6, 5.2), xticks=[], yticks=[])
        ax.set_title(title, fontsize=10.5)
        ax.set_axis_off()
        write(ax, 0, -0.3, "tokens", color=COLORS["gray"])
        write(ax, 0, 5.0, "outputs", color=COLORS["gray"])
    side, between, deep = axes
    for h in range(heads):
        x = 4.2 * (h + 0.5) / heads - 2.1
        side.plot((0, x, x, 0), (0.1, 1.6, 3.1, 4.6), **line)
        side.add_patch(Rectangle((x - 0.2, 1.75), 0.4, 1.2, fc=COLORS["head"], ec="none"))
    between.plot((0, 0), (0.1, 4.6), **line)
    for y, name, look in ((1.0, "gate", gate), (2.35, "head", head), (3.7, "gate", gate)):
        write(between, 0, y, name, **look)
    deep.plot((0, 0), (0.1, 4.6), **line)
    for step in range(layers):
        y = 0.45 + 4.0 * step / layers
        deep.plot((0, 0.95, 0.95, 0), (y, y + 0.2, y + 0.55, y + 0.8), **line)
        write(deep, 1.15, y + 0.38, "head", 9, **head)
    write(deep, -0.15, 2.35, "skip", color=COLORS["gray"], ha="right")
    return fig, (
        f"Three networks with the same outputs: a layer of {heads} heads side by side; one head between an "
        f"input and an output gate; {layers} layers of one head, each beside a skip."
    )


def gate_strip(lam, n):
    """Draw one decaying channel as two gates around a running sum, in logarithms, extremes printed."""
    position = np.arange(n)
    gate_out, gate_in = np.diag(lam**position), np.diag(lam**-position)
    matrices = {
        "output gate λⁱ": gate_out,
        "× running sum": np.tri(n),
        "× input gate λ⁻ʲ": gate_in,
        "= the system": np.tri(n) * lam ** np.maximum(position[:, None] - position, 0),
    }
    fig, axes = figure(ncols=4, size=(7.0, 2.4))
    fig.stacks = (2,)
    top = -np.log10(lam) * (n - 1)
    for ax, (name, matrix) in zip(axes, matrices.items(), strict=True):
        sizes = np.full((n, n), np.nan)
        sizes[matrix > 0] = np.log10(matrix[matrix > 0])
        ax.imshow(sizes, cmap=_AROUND_ONE, vmin=-top, vmax=top, interpolation="nearest")
        ax.set(title=name, xticks=(), yticks=())
        ax.title.set_fontsize(10)
        extreme = matrix[matrix > 0].min() if name != "× input gate λ⁻ʲ" else matrix.max()
        digits, power = f"{extreme:.1e}".split("e")
        words = f"${digits}\\times10^{{{int(power)}}}$" if int(power) else f"{extreme:g}"
        ax.text(n - 1, 0.4, words, ha="right", va="top", fontsize=11)
    return fig, (
        f"Three matrices and their product for a channel with decay {lam} on {n} tokens: an output gate down "
        f"to {gate_out[-1, -1]:.1e}, a running sum of ones, an input gate up to {gate_in.max():.1e}, and the "
        f"decaying matrix, from 1 down to {lam ** (n - 1):.1e}."
    )


def doubling_tree(L, lag):
    """Draw the ways of 2^L tokens to the last output through L layers that read 1, 2, 4, ... back."""
    fig, ax = figure(size="panel")
    n = 2**L
    for token in range(n):
        ends = [token + (n - 1 - token) % 2**layer for layer in range(L + 1)]
        way = {"color": COLORS["purple"], "lw": 2.6, "zorder": 4} if token == n - 1 - lag else {}
        for layer, (start, end) in enumerate(pairwise(ends)):
            color, width = (COLORS["head"], 1.6) if end > start else (COLORS["gray"], 1.0)
            options = {"color": color, "lw": width, "zorder": 2 + (end > start)} | way
            ax.plot((start, end), (layer, layer + 1), ls="-", **options)
    ax.plot(range(n), [0] * n, "o", color=COLORS["black"], ls="none", ms=3, zorder=5)
    steps = [2**layer for layer in range(L) if lag >> layer & 1]
    ax.set(xlabel="token", ylabel="after layer", yticks=range(L + 1), xticks=range(0, n, 3))
    ax.set_title(f"{lag} places back = " + " + ".join(map(str, steps)))
    ax.grid(False)
    return fig, (
        f"The {n} tokens below, the last output on top, {L} layers between. From every token one way leads "
        f"up: layers step {', '.join(str(2**layer) for layer in range(L))} places or none. {lag} places are "
        f"the steps {' and '.join(map(str, steps))}."
    )


def log_ratios(pairs):
    """Draw the log of the ratio of two channels (n,) and the line of its first two lags, by title."""
    fig, axes = figure(ncols=len(pairs), size=(7.0, 2.7))
    words = []
    for ax, (title, (first, second)) in zip(axes, pairs.items(), strict=True):
        logs = (first / second).log()
        line = [float(logs[0] + tau * (logs[1] - logs[0])) for tau in range(len(logs))]
        ax.plot(line, color=COLORS["state"], linestyle=LINES["dashed"])
        ax.plot(logs, "o", color=COLORS["head"], linestyle="none", ms=4)
        off = abs(float(logs[-1]) - line[-1])
        ax.set(title=title, xlabel="lag τ", ylabel="log of the ratio")
        words.append(f"{title}: {off:.2f} off the line of the first two lags at lag {len(logs) - 1}")
    return fig, f"Logarithm of the ratio of two channels. {'; '.join(words)}."


def stack_paths(L):
    """Draw the ways through L residual layers of one head, each its own value map, or all the same."""
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
    """Draw one way through the layers, in the color of heads where it goes through one."""
    for layer, head in enumerate(word):
        color, width = (COLORS["head"], 2.2) if head else (COLORS["gray"], 1.2)
        ends = heights[layer : layer + 2]
        ax.plot((layer, layer + 1), ends, color=color, linestyle="-", lw=width, zorder=2 + head)


def _value_map(word):
    """The value map at the end of a way, the last layer first: (1, 0, 1) is V₃V₁."""
    return "".join(f"V{'₁₂₃₄₅₆₇₈₉'[i]}" for i in reversed(range(len(word))) if word[i]) or "I"


def depth_frame(W, ranks, goal):
    """Draw W after some layers, and the rank after each of 0, 1, ... layers; goal: that of the system."""
    fig, (picture, bars) = figure(ncols=2, size="slider")
    block_heatmap(W, picture)
    bars.bar(range(len(ranks)), ranks, color=[*["#A5CFDA"] * (len(ranks) - 1), COLORS["head"]])
    bars.axhline(goal, color=COLORS["state"], linestyle=LINES["dashed"])
    label_line(bars, -0.6, goal, f"the system: {goal}", color=COLORS["state"], dx=2, dy=8)
    bars.set(xlabel="layers", ylabel="interaction rank")
    bars.set(xlim=(-0.7, 4.7), ylim=(0, 1.25 * goal), xticks=range(5))
    return fig
