"""Figures of *which-heads*; each returns the figure and its alternative text."""

from collections.abc import Mapping, Sequence

from ssmbook.display import COLORS, figure, label_line
from ssmbook.display.style import SERIES


def frontier(budgets: Sequence[float], rows: Mapping[str, Mapping[str, Sequence[float]]]):
    """Draw nats against the cache that is kept, a panel for each kind of text; rows: name -> kind -> nats."""
    kinds = [*next(iter(rows.values()))]
    fig, axes = figure(len(kinds), size=(7.2, 3))
    words = []
    for ax, kind in zip(axes, kinds, strict=True):
        for hue, (name, nats) in zip(SERIES, rows.items(), strict=False):
            ax.plot(budgets, nats[kind], "o-", color=COLORS[hue], ms=4)
            if kind == kinds[0]:
                label_line(ax, max(budgets), nats[kind][0], name, color=COLORS[hue])
            words.append(f"{kind}, {name} {nats[kind][0]:.2f} to {nats[kind][-1]:.2f}")
        ax.axhline(0, color=COLORS["gray"], lw=0.8)
        ax.set_title(kind)
        ax.set(xlabel="share of the cache", ylabel="nats added")
        ax.set_xlim(min(budgets) - 0.03, max(budgets) + (0.35 if kind == kinds[0] else 0.03))
        ax.set_xticks(budgets, [f"{100 * budget:.0f} %" for budget in budgets])
    return fig, "Nats added from the largest cache to the smallest: " + "; ".join(words) + "."
