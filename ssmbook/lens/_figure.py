"""One picture of a layer: what H heads leave, what each head looks at, how far its gradient reaches."""

from __future__ import annotations

from statistics import median

import numpy as np
import torch
from matplotlib.ticker import MaxNLocator

from ssmbook.display import COLORS, figure, number
from ssmbook.display.style import LINES
from ssmbook.lens._measure import MOST_HEADS, LayerReport
from ssmbook.operators.spectra import tail_energies


def layer_figure(layer: LayerReport):
    """Return ``fig, alt`` with three panels for one layer; dashed is the layer with permuted weights."""
    fig, axes = figure(3, size=(9.6, 3.1))
    words = [draw(ax, layer) for draw, ax in zip((_energy, _heads, _gradient), axes, strict=True)]
    fig.suptitle(f"{layer.title}: {layer.family}, {layer.H} heads")
    return fig, f"{layer.title}: " + "; ".join(words)


def _energy(ax, layer: LayerReport) -> str:
    for measures, style, color in _kinds(layer):
        tail = tail_energies(torch.tensor(measures.spectrum, dtype=torch.float64))
        shown = tail[tail > 1e-6]
        ax.semilogy(range(len(shown)), shown, linestyle=style, marker=".", color=color)
    for eps in layer.trained.counts:
        ax.axhline(float(eps), color=COLORS["gray"], linewidth=0.8, linestyle=LINES["dotted"])
    ax.set(xlabel="heads H, common to the texts", ylabel="energy left", ylim=(5e-4, 1.5))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_title("what the best H heads leave")
    counts = ", ".join(f"{heads} for {100 * float(eps):g} %" for eps, heads in layer.trained.common.items())
    return f"heads common to the texts that leave at most that share of the energy: {counts}"


def _heads(ax, layer: LayerReport) -> str:
    for measures, _, color in reversed(_kinds(layer)):
        filled = measures is layer.trained
        ax.plot(
            measures.heads["distance"], measures.heads["first"], "o", color=color,
            markerfacecolor=color if filled else "white",
        )  # fmt: skip
    what = "quantiles of the heads" if layer.H > MOST_HEADS else "one point per head"
    ax.set(xlabel="mean distance in tokens", ylabel="share on the first token", ylim=(-0.03, 1.03))
    ax.set_title(what)
    distance, first = (median(layer.trained.heads[key]) for key in ("distance", "first"))
    return f"median head: mean distance {number(distance)}, {number(first)} of its weight on the first token"


def _gradient(ax, layer: LayerReport) -> str:
    given = layer.trained.gradient
    if given is None:
        ax.set_axis_off()
        return "no gradient taken"
    for measures, style, color in _kinds(layer):
        against = measures.gradient
        norms = np.array(against["norm"], dtype=float)  # None, of a distance without a token, as nan
        if len(norms) > 1 and measures is layer.trained:
            ax.loglog(against["distance"], norms.T, color=color, alpha=0.25, linewidth=0.8, linestyle="-")
        ax.loglog(against["distance"], np.nanmedian(norms, 0), color=color, linestyle=style)
    norms = np.nanmedian(np.array(given["norm"], dtype=float), 0)
    near, far = given["distance"][0], given["distance"][-1]
    words = f"gradient norm {number(norms[0])} at distance {near} and {number(norms[-1])} from {far} on"
    if given["floor"] is not None:
        floor = np.nanmedian(np.array(given["floor"], dtype=float), 0)
        ax.loglog(given["distance"], floor, color=COLORS["state"], linestyle=LINES["dotted"])
        words += f", never below {number(given['ratio'])} times its floor"
    ax.set(xlabel="distance in tokens", ylabel="gradient norm")
    ax.set_ylim(bottom=max(ax.get_ylim()[0], 1e-6 * np.nanmax(norms)))
    ax.set_title(
        "gradient and its floor" if given["floor"] else "gradient" + ("" if given["exact"] else " (at least)")
    )
    return words


def _kinds(layer: LayerReport):
    kinds = [(layer.trained, "-", COLORS["head"])]
    return kinds + [(layer.permuted, LINES["dashed"], COLORS["gray"])] * (layer.permuted is not None)
