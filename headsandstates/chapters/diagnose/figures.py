"""Figures of *diagnose*; each returns the figure and its alternative text."""

from collections.abc import Mapping, Sequence

from headsandstates.chapters._drawn import level, ticks
from ssmbook.display import COLORS, figure, label_line
from ssmbook.display.style import LINES

HUES = {"as it is": "black", "no penalty": "head"}


def right(distances: Sequence[int], shares: Mapping[str, Sequence[Sequence[float]]]):
    """Draw the share of right answers against distance; shares: change -> one line per seed."""
    fig, ax = figure(size="panel")
    level(ax, 1 / 8, 1)
    label_line(ax, distances[0], 1 / 8, "chance", color=COLORS["gray"], dx=0, dy=-8)
    words = []
    for name, rows in shares.items():
        for row in rows:
            ax.plot(distances, row, "o-", color=COLORS[HUES[name]], ms=4)
        ends = [row[-1] for row in rows]
        label_line(ax, distances[-1], sum(ends) / len(ends), name, color=COLORS[HUES[name]])
        words.append(f"{name} {min(ends):.2f} to {max(ends):.2f}")
    _axes(ax, distances, "share of right answers")
    return fig, f"Share of right answers at {distances[-1]} characters, three seeds: {', '.join(words)}."


def horizons(layers: Mapping[str, Sequence[float]], marks: Sequence[int]):
    """Draw the distance at which each head has lost half; layers: name -> distances, one per head."""
    fig, ax = figure(size="panel")
    for place, (name, heads) in enumerate(layers.items()):
        hue = COLORS["state" if "state" in name else "head"]
        ax.plot([place] * len(heads), heads, "o", color=hue, alpha=0.6, ms=6)
    for mark in marks:
        level(ax, mark, 1)
        label_line(ax, len(layers) - 0.5, mark, f"{mark:,}", color=COLORS["gray"], dx=2)
    ax.set(yscale="log", ylabel="characters until half is lost", xlim=(-0.5, len(layers) - 0.5))
    ax.set_xticks(range(len(layers)), layers)
    words = "; ".join(f"{name.replace(chr(10), ' ')} {max(heads):.0f}" for name, heads in layers.items())
    return fig, f"Distances at which the heads of a layer have lost half; the longest: {words}."


def foretold(distances: Sequence[int], lines: Mapping[str, tuple[Sequence[float], Sequence[float]]]):
    """Draw weights on the note, measured (dots) and computed from the first (lines), by change."""
    fig, ax = figure(size="panel")
    words = []
    for name, (measured, computed) in lines.items():
        hue = COLORS[HUES[name]]
        ax.plot(distances, computed, color=hue, linestyle=LINES["dashed"])
        ax.plot(distances, measured, "o", color=hue, ms=5)
        label_line(ax, distances[-1], measured[-1], name, color=hue)
        words.append(f"{name} {measured[-1]:.2f}, computed {computed[-1]:.2f}")
    _axes(ax, distances, "weight on the note")
    return fig, f"Largest weight on the note at {distances[-1]} characters: {'; '.join(words)}."


def _axes(ax, distances, label):
    ax.set_xscale("log", base=2)
    ticks(ax, distances)
    ax.set(xlabel="characters since the note", ylabel=label, ylim=(-0.03, 1.06))
    ax.set_xlim(distances[0] * 0.85, distances[-1] * 3.2)
