"""Figures of *trained-layers*, and the numbers of two experiments in the shape that they take."""

from collections.abc import Mapping, Sequence
from statistics import median

import torch

from headsandstates.chapters import _drawn
from headsandstates.chapters._drawn import level, medians, ticks
from headsandstates.chapters.how_many_states import figures as how_many_states
from ssmbook.display import COLORS, figure, label_line, number
from ssmbook.display.style import LINES
from ssmbook.lens import Report

GRAY, STATE, HEAD, LAG = (COLORS[hue] for hue in ("gray", _drawn.STATE, _drawn.HEAD, _drawn.LAG))
LEFT = 0.1  # the share of the energy that heads may leave: a key of `Measures.counts`
KINDS = ("manual", "source", "license", "calendar")
FIRST_KEY = ", without the first key"
# variant -> color, line, filling of its dots, and the name beside it
VARIANTS = {
    "magnitude-matched": (GRAY, LINES["dashed"], GRAY, "matched"),
    "permuted": (GRAY, LINES["dotted"], "white", "permuted"),
    "trained": (HEAD, "-", HEAD, "trained"),
    "re-initialized": (GRAY, "-", GRAY, "re-initialized"),
}


def heads_needed(results: Mapping[str, Mapping], variant: str, rest: str = "") -> list[list[int]]:
    """Heads of each layer (rows) that leave 10 % of its energy, on all windows of all kinds of text."""
    windows = [row for kind in KINDS for row in results[kind][f"{variant}, {100 * LEFT:g} %{rest}"]]
    return [list(layer) for layer in zip(*windows, strict=True)]


def by_head(states: Mapping[str, Mapping], results: Mapping[str, Mapping], key: str) -> torch.Tensor:
    """Means over the windows of four kinds of text of a number per head, (layers, heads)."""
    windows = [states[job][key] for job in ("atlas", "source, atlas", "license, atlas")]
    return torch.stack([how_many_states.by_head(each) for each in (*windows, [results["atlas"][key]])]).mean(
        0
    )


def atlas(states: Mapping[str, Mapping], results: Mapping[str, Mapping]):
    """Draw the heads that each layer uses, and the states, distance and reach of each of its heads."""
    fig, axes = figure(ncols=5, size=(7.2, 4.1), sharey=True)
    fig.stacks = (2, 4)
    words, layers = [], range(30)
    for rest, face in ((FIRST_KEY, "white"), ("", HEAD)):
        rows = heads_needed(results, "trained", rest)
        middle = [median(row) for row in rows]
        axes[0].plot(middle, layers, "o", color=HEAD, mfc=face, ms=3.5, mew=0.8, ls="none")
        words.append(f"heads used{rest} {min(middle):g} to {max(middle):g}, mean {sum(middle) / 30:.1f}")
    axes[0].hlines(layers, [min(row) for row in rows], [max(row) for row in rows], color=HEAD, lw=1)
    axes[0].set(title="heads used\nof nine", xlim=(0, 9.5), xticks=(0, 3, 6, 9), ylabel="layer")
    kinds = {
        "states": ("widest", STATE, (1, 4, 16, 64)),
        "states without\nthe first key": ("widest without the first key", STATE, (1, 4, 16, 64)),
        "mean distance\nin tokens": ("distance", LAG, (2, 10, 50)),
        "90 % of weight\nwithin, tokens": ("reach", LAG, (3, 20, 150)),
    }
    dots = {"ms": 2.6, "ls": "none", "alpha": 0.75, "mew": 0}
    for ax, (name, (key, color, marks)) in zip(axes[1:], kinds.items(), strict=True):
        found = by_head(states, results, key)
        for layer in layers:
            ax.plot(found[layer].tolist(), [layer] * 9, "o", color=color, **dots)
        ax.set(title=name, xscale="log")
        ticks(ax, marks)
        low, high = number(float(found.min()), 2), number(float(found.max()), 2)
        said = name.replace("\n", " ")
        words.append(f"{said}: median {number(float(found.median()), 2)}, {low} to {high}")
    axes[0].set(yticks=(0, 10, 20, 29), ylim=(29.7, -0.7))
    for ax in (axes[2], axes[4]):
        ax.tick_params(labelleft=True)
    return fig, f"30 layers of nine heads. {'; '.join(words)}."


def left_over(curves: Mapping[str, Sequence[float]]):
    """Draw the energy that the best H heads leave in two layers, what 1, 2, … heads leave for each name."""
    fig, ax = figure(size=(3.6, 2.7))
    level(ax, LEFT)
    words = []
    looks = ((HEAD, "-", -1, "right"), ("white", LINES["dashed"], 1, "left"))  # names below or above
    for (name, left), (face, line, up, side) in zip(curves.items(), looks, strict=True):
        count = next(H for H, share in enumerate(left, 1) if share <= LEFT)
        ax.semilogy(range(len(left) + 1), [1, *left], "o", ls=line, color=HEAD, mfc=face, ms=4)
        ax.plot(count, left[count - 1], "o", color=HEAD, mfc="none", ms=10, mew=1.6)
        near = {"color": HEAD, "dx": 4 * up, "dy": 12 * up, "ha": side}
        label_line(ax, count, left[count - 1], f"{name}: {count}", **near)
        words.append(f"{name} {', '.join(f'{share:.3f}' for share in left[:6])}, so {count}")
    label_line(ax, len(left) + 0.5, LEFT, f"{100 * LEFT:g} %", color=GRAY, dx=0, dy=8, ha="right")
    ax.set(xlabel="heads of the best sum", ylabel="share of the energy left", ylim=(8e-4, 1.5))
    ax.set(xlim=(-0.4, len(left) + 0.6), xticks=range(0, len(left) + 2, 3))
    said = f"Share of the energy left by 1, 2, … heads, and heads that leave {100 * LEFT:g} %"
    return fig, f"{said}: {'; '.join(words)}."


def controls(results: Mapping[str, Mapping]):
    """Draw the heads that each layer uses as trained, with the range over windows, and in controls."""
    fig, ax = figure(size=(3.7, 3.4))
    words = []
    kinds = [(name, "", *look) for name, look in VARIANTS.items()]
    kinds.append(("trained", FIRST_KEY, HEAD, LINES["dashed"], "white", "no first key"))
    for name, rest, color, line, face, label in kinds:
        rows = heads_needed(results, name, rest)
        middle = [median(row) for row in rows]
        ax.plot(range(len(rows)), middle, "o", color=color, ls=line, mfc=face, ms=3, lw=1)
        if label == "trained":
            ends = [min(row) for row in rows], [max(row) for row in rows]
            ax.vlines(range(len(rows)), *ends, color=color, lw=1.5)
        place = {"dy": 11 * (name == "permuted")} if not rest else {"dx": 0, "dy": 9, "ha": "center"}
        at = 24 if rest else len(rows) - 1
        label_line(ax, at, middle[at], label, color=color, **{"dx": 7, **place})
        words.append(f"{label} {min(middle):g} to {max(middle):g}, mean {sum(middle) / len(middle):.1f}")
    ax.set(xlabel="layer", ylabel="heads for 90 %", ylim=(0, 9.3), xlim=(-0.7, len(rows) + 11))
    ax.set(xticks=(0, 10, 20, 29), yticks=range(0, 10, 3))
    return fig, f"Heads for 90 % of the energy, medians of each layer: {'; '.join(words)}."


def curves(results: Mapping[str, Mapping], place: int, layer: int):
    """Draw what 1, 2, … heads leave of one of the drawn layers, as trained and in three controls."""
    fig, ax = figure(size="panel")
    level(ax, LEFT, 1)
    words, ends = [], {}
    for name, (color, line, face, label) in VARIANTS.items():
        rows = [results[kind][f"{name}, left"][place] for kind in KINDS]
        left = [sum(row) / len(row) for row in zip(*rows, strict=True)]
        heads = range(1, len(left) + 1)
        ax.semilogy(heads, [max(share, 1e-4) for share in left], "o", color=color, ls=line, mfc=face, ms=4)
        words.append(f"{label} {left[0]:.2f} and {left[2]:.3f}")
        ends[label] = left[-1], color
    for label, (end, color) in ends.items():
        other, _ = ends[{"matched": "permuted", "permuted": "matched"}.get(label, label)]
        aside = (end > other) - (end < other)  # where the two would cover each other
        label_line(ax, 8, max(end, 1e-4), label, color=color, dy=7 * aside)
    ax.set(xlabel="heads of the best sum", ylabel="share of the energy left", title=f"layer {layer}")
    ax.set(xlim=(0.6, 12.2), ylim=(6e-5, 1.3), xticks=range(1, 9))
    return fig, f"Layer {layer}, left by one head and by three: {', '.join(words)}."


def needed(report: Report):
    """Draw for every layer the heads it has, those that leave 10 %, and those with its weights permuted."""
    fig, ax = figure(size="panel")
    places = range(len(report.layers))
    ax.plot(places, [layer.H for layer in report.layers], color=GRAY, ls="-", lw=3)
    label_line(ax, places[-1], report.layers[-1].H, "has", color=GRAY)
    for part in ("permuted", "trained"):
        color, line, face, _ = VARIANTS[part]
        counts = [median(getattr(layer, part).counts[f"{LEFT:g}"]) for layer in report.layers]
        ax.plot(places, counts, "o", color=color, mfc=face, linestyle=line, ms=7)
        label_line(ax, places[-1], counts[-1], part, color=color)
    ax.set(xlabel="layer", ylabel="heads for 90 %", ylim=(0, 13.5), xlim=(-0.2, len(report.layers) + 0.6))
    ax.set(xticks=list(places))
    return fig


def carried(heads: Mapping[str, Sequence[torch.Tensor]], cut: int):
    """Draw the singular values that join past and future at ``cut``; heads: label -> (n, n) each."""
    fig, ax = figure(size=(3.6, 2.7))
    words = []
    for (name, each), color in zip(heads.items(), (HEAD, STATE), strict=True):
        for matrix in each:
            sigma = torch.linalg.svdvals(matrix[cut:, :cut].detach())
            sigma = (sigma / sigma[0])[sigma > 1e-12 * sigma[0]].tolist()
            ax.semilogy(range(1, len(sigma) + 1), sigma, "o-", color=color, ms=4, lw=1.2)
        label_line(ax, len(sigma), sigma[-1], name, color=color, dx=6)
        words.append(f"{name} {len(sigma)}, the last {sigma[-1]:.1e} of the first")
    ax.set(xlabel="numbers carried", ylabel="singular value", ylim=(2e-4, 2), xlim=(0.5, 17))
    ax.set(xticks=(1, 4, 8, 12))
    return fig, f"Numbers that past and future share: {'; '.join(words)}."


def reach(found: Mapping[str, Sequence], layers: Sequence[int]):
    """Draw the gradient over its bound against distance: median of the heads of each layer, and the least."""
    fig, axes = figure(ncols=len(layers), size=(7.0, 2.8), sharey=True)
    words = []
    for ax, layer in zip(axes, layers, strict=True):
        ratio = torch.tensor(found["ratio"][f"layer {layer}"])
        low, middle = ratio.min(0).values.tolist(), ratio.median(0).values.tolist()
        level(ax, 1)
        ax.fill_between(found["distance"], low, ratio.max(0).values.tolist(), color=LAG, alpha=0.18, lw=0)
        ax.loglog(found["distance"], middle, "o-", color=LAG, ms=4)
        ax.set(title=f"layer {layer}", xlabel="distance in tokens")
        ticks(ax, (1, 10, 100), (1, 2, 5, 10))
        words.append(f"layer {layer} median {min(middle):.2f} to {max(middle):.2f}, least {min(low):.2f}")
    axes[0].set(ylabel="gradient / bound")
    for ax in axes[1:]:  # where the page is narrow they are below each other
        ax.tick_params(labelleft=True)
    return fig, f"Gradient over its bound: {'; '.join(words)}."


def layer_counts(jobs: Mapping[str, Mapping], model: str, part: str, eps: str) -> list[list[float]]:
    """Heads of every layer of a language model, medians over texts, (layers, seeds); eps "0.1" or "0.01"."""
    seeds = [job[part]["layers"] for name, job in jobs.items() if name.startswith(f"{model}, seed")]
    return [[median(layer["counts"][eps]) for layer in each] for each in zip(*seeds, strict=True)]


def small_models(jobs: Mapping[str, Mapping], models: Sequence[str]):
    """Draw for each layer of four models the heads for 90 % before and after training, joined by a line."""
    fig, axes = figure(ncols=len(models), size=(7.0, 2.9), sharey=True)
    fig.stacks = (2,)
    for ax, model in zip(axes, models, strict=True):
        before, after = (layer_counts(jobs, model, part, f"{LEFT:g}") for part in ("untrained", "trained"))
        ends = {}
        for place, (start, end) in enumerate(zip(before, after, strict=True), 1):
            aside = 0.05 * (place - 2.5)  # so that lines do not cover each other
            medians(ax, [1 + aside], [end], HEAD)
            ax.plot([aside, 1 + aside], [median(start), median(end)], "o-", color=HEAD, ms=4, lw=1.3)
            ends.setdefault(median(end), []).append(str(place))
        for height, places in ends.items():
            label_line(ax, 1, height, ", ".join(places), color=HEAD, dx=12)
        ax.set(title=model, xlim=(-0.25, 1.75))
        ax.set_xticks((0, 1), ("before", "after"))
    axes[0].set(ylabel="heads for 90 %", ylim=(0, 5.5))
    axes[2].tick_params(labelleft=True)  # where the page is narrow a new row begins here
    return fig
