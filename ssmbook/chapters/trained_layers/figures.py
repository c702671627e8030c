"""Figures of the chapter *trained-layers*: heads that would do, spectra, and weight on the first token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from ssmbook.display import COLORS, LINES, figure, label_line
from ssmbook.display._pictures import medians
from ssmbook.lens import LayerReport, Report


def needed(report: Report, eps: str = "0.1"):
    """Draw for every layer the heads it has, those that would do, and those with its weights permuted.

    eps: the share of the energy given up, a key of ``Measures.counts``. Returns the figure.
    """
    fig, ax = figure(size="panel")
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

    Returns the figure.
    """
    fig, ax = figure(size="panel")
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

    shown: places of layers. Returns the figure.
    """
    fig, ax = figure(size="panel")
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


def layer_counts(jobs: Mapping[str, Mapping], model: str, part: str, eps: str) -> list[list[float]]:
    """Return the heads of every layer of a language model, medians over the texts: (layers, seeds).

    jobs: of the experiment "language"; part: "untrained" or "trained"; eps: the share of energy left, "0.1"
    or "0.01".
    """
    seeds = [job[part]["layers"] for name, job in jobs.items() if name.startswith(f"{model}, seed")]
    return [[median(layer["counts"][eps]) for layer in each] for each in zip(*seeds, strict=True)]


def small_models(jobs: Mapping[str, Mapping], models: Sequence[str]):
    """Draw the heads of each layer before training (open, dashed) and after (filled, with the seeds' range).

    jobs: of the experiment "language". Blue leaves 10 % of the energy, orange 1 %. Returns the figure.
    """
    fig, axes = figure(ncols=len(models), size=(7.0, 2.9), sharey=True)
    fig.stacks = (2,)
    for ax, model in zip(axes, models, strict=True):
        for eps, hue in (("0.1", "blue"), ("0.01", "orange")):
            before, after = (layer_counts(jobs, model, part, eps) for part in ("untrained", "trained"))
            places = range(1, len(after) + 1)
            old = [median(layer) for layer in before]
            ax.plot(places, old, "o", color=COLORS[hue], mfc="none", linestyle=LINES["dashed"], ms=5)
            medians(ax, places, after, COLORS[hue], "-")
        ax.set(title=model, xlabel="layer", xticks=list(places))
    axes[0].set(ylabel="heads", ylim=(0, axes[0].get_ylim()[1]))
    axes[2].tick_params(labelleft=True)  # where the page is narrow a new row begins here
    return fig
