"""Figures of *trade-off*; each returns the figure, or the figure and its alternative text."""

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.patches import Rectangle

from headsandstates.chapters._drawn import FAMILIES, arrow, ticks, write
from ssmbook.display import COLORS, figure, label_line
from ssmbook.display.style import LINES

FLOOR = 1e-5  # smaller shares, and zeros, are drawn on this line
HOLDS = 0.99  # from this best reach on a layer counts as one that can hold its gradient
FIXED = ("LTI SSM", "S4D", "convolution", "RetNet")
JOINED = ("hybrid, sum", "hybrid, stack", "residual attention")


def _color(name: str) -> str:
    """That of heads, of states whose decay depends on the tokens, of fixed decay, or of several joined."""
    if name in FIXED:
        return COLORS["brown"]
    return COLORS["purple" if name in JOINED else "head" if "attention" in name else "state"]


def strip_and_bucket(weights: Sequence[float], asked: int):
    """Draw recall as a strip of pairs with arcs of weights (m,) from a question, beside a state."""
    m, weights = len(weights), [float(weight) for weight in weights]
    fig, panels = figure(ncols=2, size=(7.0, 2.5))
    for ax, title in zip(panels, ("a head keeps the strip", "a state is a bucket"), strict=True):
        ax.set(xlim=(-0.6, m + 0.6), ylim=(-1.9, 1.7), title=title)
        ax.set_axis_off()
        for t in range(m):
            write(ax, t, 0, f"κ{t + 1} v{t + 1}", 9, bbox={"fc": "white", "ec": COLORS["gray"]})
        write(ax, m, 0, f"? κ{asked + 1}", 9, bbox={"fc": "white", "ec": COLORS["black"]})
    strip, bucket = panels
    for t, weight in enumerate(weights):
        if weight > 1e-3:
            bow = {"arrowstyle": "-|>", "connectionstyle": "arc3,rad=0.45", "color": COLORS["head"]}
            strip.annotate("", (t, 0.3), (m, 0.3), arrowprops=bow | {"lw": 4 * weight})
    answer = f"weight {weights[asked]:.3f}: answers v{asked + 1}"
    label_line(strip, m / 2, -1.1, answer, color=COLORS["head"], dx=0, ha="center", fontsize=9)
    down = {"arrowstyle": "-|>", "color": COLORS["gray"], "lw": 1}
    for t in range(m):
        bucket.annotate("", (m / 2 + (t - m / 2) / 4, -0.95), (t, -0.3), arrowprops=down)
    sides = [m / 2 + x for x in (-1, -0.8, 0.8, 1)]
    bucket.plot(sides, [-0.9, -1.75, -1.75, -0.9], "-", color=COLORS["state"])
    label_line(bucket, m / 2, -1.4, "64 numbers", color=COLORS["state"], dx=0, ha="center", fontsize=9)
    return fig, (
        f"Two panels of {m} pairs and a question for pair {asked + 1}. The head's arc to that pair has "
        f"weight {weights[asked]:.3f}; a state pours all pairs into 64 numbers."
    )


def stack_path(kept: float, lost: float, distance: int):
    """Draw the way of a gradient through a stack; kept, lost: what crosses with the head and without it."""
    fig, ax = figure(size=(3.6, 2.9))
    ax.set(xlim=(-1.3, 6.6), ylim=(-1.05, 3.75))
    ax.set_axis_off()
    blue, gray = COLORS[FAMILIES["key side"]], COLORS["gray"]
    for height, name in enumerate(("state space", "attention", "state space")):
        ax.add_patch(Rectangle((-0.5, 1.2 * height - 0.3), 6.6, 0.8, fc="#F0F0F0", ec=gray))
        label_line(ax, 2.8, 1.2 * height + 0.3, name, color=gray, dx=0, ha="center", fontsize=9)
    way = np.array([(0, -0.55), (0, 1.15), (5.6, 1.15), (5.6, 3.0)])
    ax.plot(*way.T, "-", color=blue, lw=2.2, solid_joinstyle="round")
    arrow(ax, way[-1] - (0, 0.1), (5.6, 3.25), blue, lw=2.2)
    for y in (-0.1, 2.3):
        arrow(ax, (0.25, y), (4.4, y), COLORS["state"], lw=1.3, ls=LINES["dashed"])
    label_line(ax, -0.5, 0.1, "$G_{1,0}$", color=blue, ha="right", dx=-4)
    label_line(ax, 5.6, 2.5, "$G_{2,0}$", color=blue, ha="right", dx=-6)
    label_line(ax, 2.8, 0.68, f"$V$: {kept:.2f} of the limit", color=blue, dx=0, ha="center", fontsize=9)
    low = f"without the head $10^{{{round(math.log10(lost))}}}$"
    label_line(ax, 2.8, -0.55, low, color=COLORS["state"], dx=0, ha="center", fontsize=9)
    for x, y, name in ((0, -0.85, "$x_0$"), (5.6, -0.85, "$x_τ$"), (5.6, 3.5, "$y_τ$")):
        write(ax, x, y, name)
    return fig, (
        f"A stack of a state space model, a head and a state space model. Up at token 0, along the head, up "
        f"at token {distance}: {kept:.2f} of the limit. Without the head about 10^{round(math.log10(lost))}."
    )


def quadrants(places: Mapping[str, Sequence]):
    """Sort layers by span and reach: name -> (k in one output, best reach, the best reach in words)."""
    fig, ax = figure(size=(3.6, 3.7))
    ax.set(xlim=(0, 2), ylim=(0, 2), xticks=(0.5, 1.5), xticklabels=("one", "more than one"))
    ax.set(yticks=(0.5, 1.5), xlabel="matrices in one output")
    ax.set_yticklabels(("fades", "can be held"), rotation=90, va="center")
    ax.set_ylabel("gradient over 64 tokens")
    ax.grid(False)
    ax.tick_params(length=0)
    ax.axhline(1, color=COLORS["gray"], lw=1)
    ax.axvline(1, color=COLORS["gray"], lw=1)
    words = []
    for column, across in enumerate(("one matrix", "more than one")):
        for row, upward in enumerate(("fades", "can be held")):
            inside = [
                name for name, (k, best, _) in places.items() if (k > 1, best >= HOLDS) == (column, row)
            ]
            for line, name in enumerate(inside):
                height = row + 0.86 - 0.72 * line / max(5, len(inside) - 1)
                color = _color(name)
                label_line(ax, column + 0.06, height, name, color=color, dx=0, fontsize=9)
                if not row:
                    kept = re.sub(r"([\d.]+)e-0*(\d+)", r"$\1\\cdot10^{-\2}$", places[name][2])
                    ax.text(column + 0.96, height, kept, color=color, ha="right", va="center", fontsize=9)
            named = ", ".join(name if row else f"{name} {places[name][2]}" for name in inside)
            words.append(f"{across}, {upward}: {named or 'none'}")
    return fig, f"Layers by span and by the best reach over 64 tokens. {'; '.join(words)}."


def reach_lines(distances: Sequence[int], shares: Mapping[str, Sequence[float]]):
    """Draw the typical share kept against distance, a labeled line per map, down to 1e-5."""
    fig, ax = figure(size=(3.6, 3.4))
    ends = []
    for (name, values), line in zip(shares.items(), [*LINES.values()] * 2, strict=False):
        color = _color(name)
        seen = [(t, float(v)) for t, v in zip(distances, values, strict=True) if float(v) >= FLOOR]
        ax.plot(*zip(*seen, strict=True), color=color, linestyle=line, lw=1.6)
        ends.append((*seen[-1], name, color))
    ax.plot(distances, [1 / t for t in distances], linestyle=LINES["dotted"], color=COLORS["black"], lw=1)
    height = math.inf
    for t, share, name, color in sorted(ends, key=lambda end: (-end[0], -end[1])):
        if t == distances[-1]:  # names at the right end are pushed apart
            share = height = min(share, height / 1.75)
        label_line(ax, t, share, name, color=color, dx=6, fontsize=9)
    ax.set(xscale="log", yscale="log", xlim=(1, distances[-1] * 12), ylim=(FLOOR, 1.6))
    ax.set(xlabel="distance in tokens", ylabel="share of the gradient kept, typical")
    ticks(ax, distances[::2])
    last = ", ".join(f"{name} {float(values[-1]):.1e}" for name, values in shares.items())
    return fig, f"Typical share kept at distance {distances[-1]}, lines from distance {distances[0]}: {last}."


def mix_frame(weight: float, distances: Sequence[int], hybrid, floor, alone):
    """Draw the gradient of a sum hybrid against distance, over its floor and beside its SSM."""
    fig, ax = figure(size="panel")
    curves = (("SSM alone", alone, "state", "dotted"), ("floor", floor, "gray", "dashed"))
    shifts = {"floor": -10, "hybrid": 10} if weight == 1 else {"floor": -7, "hybrid": 7}
    for name, values, color, line in (*curves, ("hybrid", hybrid, "purple", "solid")):
        seen = [(t, float(v)) for t, v in zip(distances, values, strict=True) if 1e-7 < float(v)]
        if not seen:
            continue
        ax.plot(*zip(*seen, strict=True), color=COLORS[color], linestyle=LINES[line])
        label_line(ax, *seen[-1], name, dy=shifts.get(name, 0))
    ax.set(yscale="log", ylim=(1e-7, 10), xlim=(0, distances[-1] * 1.22), xlabel="distance in tokens")
    ax.set(ylabel="‖∂y/∂x‖", title=f"weight of the SSM: {weight:g}")
    return fig


def recall(counts: Sequence[int], lines: Mapping[str, Sequence[float]]):
    """Draw the share missed against the number of pairs, a labeled line per entry."""
    fig, ax = figure(size="panel")
    placed = []
    colors = ("black", "state", "purple", "brown", "head")
    for (name, shares), color, line in zip(lines.items(), colors, LINES.values(), strict=False):
        ax.plot(counts, shares, marker="o", color=COLORS[color], linestyle=line)
        placed.append((float(shares[-1]), name, COLORS[color]))
    top = max(max(shares) for shares in lines.values())
    height = math.inf
    for end, name, color in sorted(placed, key=lambda entry: -entry[0]):
        height = min(end, height - 0.085 * top)
        label_line(ax, counts[-1], height, name.replace(": ", ":\n"), color=color, dx=7, fontsize=9)
    ax.set_xscale("log", base=2)
    ax.set_xticks(counts, [str(count) for count in counts])
    ax.set(xlim=(counts[0] * 0.9, counts[-1] * 6), xlabel="pairs to remember", ylabel="share missed")
    return fig
