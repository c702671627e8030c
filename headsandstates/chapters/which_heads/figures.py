"""Figures of *which-heads*; each returns the figure and its alternative text."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ssmbook.display import COLORS, figure, label_line
from ssmbook.display.style import SEQUENTIAL, SERIES


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


def atlas(damages: Mapping[str, np.ndarray], kept: Iterable[int]):
    """Draw the damage of each group of each layer, a panel for each kind of text, with dots where it is kept.

    damages: kind -> nats of shape (layers, groups); kept: numbers of groups, counted through the layers.
    """
    fig, axes = figure(len(damages), size=(7.2, 2.1))
    words = []
    for ax, (kind, nats) in zip(axes, damages.items(), strict=True):
        top, total = float(nats.max()), float(nats.sum())
        drawn = ax.imshow(np.maximum(nats.T, 0), cmap=SEQUENTIAL, vmin=0, vmax=top, aspect="auto")
        fig.colorbar(drawn, ax=ax, label="nats", ticks=[0, top / 2, top], format="%.2f", pad=0.01)
        largest = f"{100 * np.sort(nats, axis=None)[-6:].sum() / total:.0f} % of {total:.1f} nats"
        ax.set_title(f"{kind}: six of {nats.size} groups\nhave {largest}")
        ax.set(xlabel="layer", ylabel="group", yticks=range(nats.shape[1]))
        ax.grid(visible=False)
        layer, group = np.unravel_index(nats.argmax(), nats.shape)
        words.append(f"{kind}, six have {largest}, group {group} of layer {layer} alone {top:.2f}")
    layers, groups = np.divmod(list(kept), nats.shape[1])
    axes[0].plot(layers, groups, "o", ms=4.5, mfc=COLORS["head"], mec="white", mew=0.9)
    return fig, f"Damage of each group: {'; '.join(words)}. Dots mark {len(layers)} groups."
