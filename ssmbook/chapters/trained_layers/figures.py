"""Figures of *trained-layers*; each returns the figure, or the figure and its alternative text."""

from collections.abc import Mapping, Sequence
from statistics import median

import torch

from ssmbook.display import COLORS, figure, label_line
from ssmbook.display.pictures import medians
from ssmbook.display.style import LINES
from ssmbook.lens import Report
from ssmbook.operators.spectra import tail_energies

LEFT = 0.1  # the share of the energy that heads may leave: a key of `Measures.counts`


def needed(report: Report):
    """Draw for every layer the heads it has, those that leave 10 %, and those with its weights permuted."""
    fig, ax = figure(size="panel")
    places = range(len(report.layers))
    ax.plot(places, [layer.H for layer in report.layers], color=COLORS["gray"], ls="-", lw=3)
    label_line(ax, places[-1], report.layers[-1].H, "has", color=COLORS["gray"])
    rows = (("permuted", "orange", "none", LINES["dashed"]), ("trained", "blue", None, "-"))
    for part, hue, face, line in rows:
        counts = [median(getattr(layer, part).counts[f"{LEFT:g}"]) for layer in report.layers]
        ax.plot(places, counts, "o", color=COLORS[hue], mfc=face, linestyle=line, ms=8)
        label_line(ax, places[-1], counts[-1], part, color=COLORS[hue])
    ax.set(xlabel="layer", ylabel="heads", ylim=(0, 13.5), xlim=(-0.2, len(report.layers) - 0.2))
    ax.set(xticks=list(places))
    return fig


def left_over(curves: Mapping[str, Sequence[float]]):
    """Draw the energy that the best H heads leave of two spectra, the lower first, down to 10 %."""
    fig, ax = figure(size=(3.6, 2.7))
    ax.axhline(LEFT, color=COLORS["gray"], linestyle=LINES["dashed"], lw=1.3)
    words = []
    sides = {"blue": (-1, "right"), "orange": (1, "left")}  # where names stand: below or above
    for (name, values), (hue, (up, side)) in zip(curves.items(), sides.items(), strict=True):
        left = tail_energies(torch.tensor(values, dtype=torch.float64)).tolist()  # by 0, 1, … heads
        count = next(H for H, share in enumerate(left) if share <= LEFT)
        ax.semilogy(range(len(values)), left[:-1], "o-", color=COLORS[hue], ms=4)
        ax.plot(count, left[count], "o", color=COLORS[hue], mfc="none", ms=10, mew=1.6)
        near = {"color": COLORS[hue], "dx": 3 * up, "dy": 14 * up, "ha": side}
        label_line(ax, count, left[count], f"{name}: {count}", **near)
        words.append(f"{name} {', '.join(f'{share:.3f}' for share in left[1:7])}, so {count}")
    label_line(ax, len(values), LEFT, f"{100 * LEFT:g} %", color=COLORS["gray"], dx=0, dy=8, ha="right")
    ax.set(xlabel="heads of the best sum", ylabel="share of the energy left", ylim=(1e-3, 1.5))
    ax.set(xlim=(-0.4, len(values) + 0.4), xticks=range(0, len(values) + 1, 3))
    said = f"Share of the energy left by 1, 2, … heads, and heads that leave {100 * LEFT:g} %"
    return fig, f"{said}: {'; '.join(words)}."


def carried(heads: Mapping[str, Sequence[torch.Tensor]], cut: int):
    """Draw the singular values that join past and future at ``cut``; heads: label -> (n, n) each."""
    fig, ax = figure(size=(3.6, 2.7))
    words = []
    for (name, each), hue in zip(heads.items(), ("blue", "orange"), strict=True):
        for matrix in each:
            sigma = torch.linalg.svdvals(matrix[cut:, :cut].detach())
            sigma = (sigma / sigma[0])[sigma > 1e-12 * sigma[0]].tolist()
            ax.semilogy(range(1, len(sigma) + 1), sigma, "o-", color=COLORS[hue], ms=4, lw=1.2)
        label_line(ax, len(sigma), sigma[-1], name, color=COLORS[hue], dx=6)
        words.append(f"{name} {len(sigma)}, the last {sigma[-1]:.1e} of the first")
    ax.set(xlabel="numbers carried", ylabel="singular value", ylim=(2e-4, 2), xlim=(0.5, 17))
    ax.set(xticks=(1, 4, 8, 12))
    return fig, f"Numbers that past and future share: {'; '.join(words)}."


def spectra(layer, title: str):
    """Draw the singular values of one layer of a report, trained and permuted, relative to the largest."""
    fig, ax = figure(size="panel")
    for part, hue, face in (("permuted", "orange", "none"), ("trained", "blue", None)):
        values = getattr(layer, part).spectrum
        ax.semilogy(range(1, len(values) + 1), values, "o-", color=COLORS[hue], mfc=face, ms=6)
        label_line(ax, len(values), values[-1], part, color=COLORS[hue])
    ax.set(xlabel="head of the best sum", ylabel="singular value", ylim=(0.02, 1.3), title=title)
    ax.set(xlim=(0.5, 14.8), xticks=range(1, 13))
    return fig


def reach(report: Report):
    """Draw the median over heads of the gradient against distance (lines) and of its σ₂ bound (dots)."""
    fig, ax = figure(size="panel")
    for place, hue, line in zip((0, 1, 5), ("blue", "orange", "green"), LINES.values(), strict=False):
        found = report.layers[place].trained.gradient
        norm, floor = (list(map(median, zip(*found[key], strict=True))) for key in ("norm", "floor"))
        ax.loglog(found["distance"], norm, color=COLORS[hue], linestyle=line)
        ax.loglog(found["distance"], floor, ".", color=COLORS[hue], ms=6)
        label_line(ax, found["distance"][-1], norm[-1], f"layer {place}", color=COLORS[hue])
    ax.set(xlabel="distance in tokens", ylabel="size of the gradient", xlim=(0.9, 420))
    return fig


def layer_counts(jobs: Mapping[str, Mapping], model: str, part: str, eps: str) -> list[list[float]]:
    """Heads of every layer of a language model, medians over texts, (layers, seeds); eps "0.1" or "0.01"."""
    seeds = [job[part]["layers"] for name, job in jobs.items() if name.startswith(f"{model}, seed")]
    return [[median(layer["counts"][eps]) for layer in each] for each in zip(*seeds, strict=True)]


def small_models(jobs: Mapping[str, Mapping], models: Sequence[str]):
    """Draw the heads of each layer before training (open) and after, blue for 10 % left, orange for 1 %."""
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
