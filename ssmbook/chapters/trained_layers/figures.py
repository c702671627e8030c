"""Figures of the chapter *trained-layers*: heads that would do, spectra, and weight on the first token."""

from __future__ import annotations

from statistics import median

from ssmbook.display import COLORS, LINES, figure, label_line
from ssmbook.lens import LayerReport, Report


def needed(report: Report, eps: str = "0.1"):
    """Draw for every layer the heads it has, those that would do, and those with its weights permuted.

    eps: the share of the energy given up, a key of ``Measures.counts``. Returns the figure. Introduced in
    *trained-layers*.
    """
    fig, ax = figure(size="wide")
    places = range(len(report.layers))
    ax.plot(places, [layer.H for layer in report.layers], color=COLORS["gray"], ls="-", lw=3)
    label_line(ax, places[-1], report.layers[-1].H, "has", color=COLORS["gray"])
    rows = (("permuted", "orange", "none", LINES["dashed"]), ("trained", "blue", None, "-"))
    for part, hue, fill, line in rows:
        counts = [median(getattr(layer, part).counts[eps]) for layer in report.layers]
        face = COLORS[hue] if fill is None else fill
        ax.plot(places, counts, "o", color=COLORS[hue], mfc=face, linestyle=line, ms=8)
        label_line(ax, places[-1], counts[-1], part, color=COLORS[hue])
    ax.set(xlabel="layer", ylabel="heads", ylim=(0, 13.5), xlim=(-0.2, len(report.layers) - 0.2))
    ax.set(xticks=list(places))
    return fig


def spectra(layer: LayerReport, title: str):
    """Draw the singular values of one layer, trained and permuted, relative to the largest.

    Returns the figure. Introduced in *trained-layers*.
    """
    fig, ax = figure(size="slider")
    for part, hue, fill in (("permuted", "orange", "none"), ("trained", "blue", None)):
        values = getattr(layer, part).spectrum
        face = COLORS[hue] if fill is None else fill
        ax.semilogy(range(1, len(values) + 1), values, "o-", color=COLORS[hue], mfc=face, ms=6)
        label_line(ax, len(values), values[-1], part, color=COLORS[hue])
    ax.set(xlabel="head of the best sum", ylabel="singular value", ylim=(0.02, 1.3), title=title)
    ax.set(xlim=(0.5, 14.8), xticks=range(1, 13))
    return fig


def reach(report: Report, shown=(0, 1, 5)):
    """Draw the median over heads of the gradient against distance (lines) and of its σ₂ bound (dots).

    shown: places of layers. Returns the figure. Introduced in *trained-layers*.
    """
    fig, ax = figure(size="wide")
    for place, hue, line in zip(shown, ("blue", "orange", "green"), LINES.values(), strict=False):
        found = report.layers[place].trained.gradient
        norm, floor = (
            [median(column) for column in zip(*found[key], strict=True)] for key in ("norm", "floor")
        )
        ax.loglog(found["distance"], norm, color=COLORS[hue], linestyle=line)
        ax.loglog(found["distance"], floor, ".", color=COLORS[hue], ms=6)
        label_line(ax, found["distance"][-1], norm[-1], f"layer {place}", color=COLORS[hue])
    ax.set(xlabel="distance in tokens", ylabel="size of the gradient", xlim=(0.9, 420))
    return fig
