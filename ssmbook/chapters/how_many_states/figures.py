"""Figures of *how-many-states*, and the numbers of the committed experiment in the shape that they take."""

from collections.abc import Mapping, Sequence
from statistics import mean

import numpy as np
import torch
from matplotlib.colors import LogNorm
from scipy.stats import spearmanr

from ssmbook.display import COLORS, figure, label_line, number
from ssmbook.display.style import LINES

GRAY, STATE, HEAD, LAG = (COLORS[name] for name in ("gray", "orange", "blue", "green"))
# way -> color, line, and the name beside it
WAYS = {
    "merged for the output": (HEAD, "-", "merged for the output"),
    "merged": (HEAD, LINES["dashed"], "merged"),
    "cut and refitted": (GRAY, LINES["dashed"], "cut, refitted"),
    "cut": (GRAY, "-", "cut"),
}


def by_head(windows: Sequence[Sequence[float]], heads: int = 9) -> torch.Tensor:
    """Means over windows of a number per head, (layers, heads)."""
    return torch.tensor(windows, dtype=torch.float64).mean(0).view(-1, heads)


def rise(results: Mapping[str, Mapping], job: str, base: str = "as it is") -> list[float]:
    """Nats per token that a change adds, window by window."""
    return [a - b for a, b in zip(results[job]["loss"], results[base]["loss"], strict=False)]


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's rank correlation, with ties at their mean rank."""
    return float(spearmanr(a, b).statistic)


def split(matrix: torch.Tensor, t: int):
    """Draw a causal matrix and frame the block that joins the tokens before t to the outputs from t on."""
    fig, ax = figure(size=(3.4, 3.0))
    n = len(matrix)
    shown = torch.where(matrix > 0, matrix, torch.nan)
    ax.imshow(shown.numpy(), cmap="ssmbook-sequential", extent=(-0.5, n - 0.5, n - 0.5, -0.5))
    box = [-0.5, t - 0.5, t - 0.5, -0.5, -0.5], [t - 0.5, t - 0.5, n - 0.5, n - 0.5, t - 0.5]
    ax.plot(*box, color=STATE, lw=2.4, ls="-")
    ax.text(n - 1, 0.5, f"cut before\ntoken {t}", ha="right", va="top", fontsize=9.5)
    ax.set(xlabel="token j that is read", ylabel="output i", xticks=(0, t, n - 1), yticks=(0, t, n - 1))
    ax.grid(False)
    return fig


def atlas(results: Mapping[str, Mapping]):
    """Draw the states of every head, with and without the first key; the heads of a layer are sorted."""
    found = results["atlas"]
    fig, axes = figure(ncols=2, size=(7.0, 3.9))
    norm, words = LogNorm(1, 64), []
    keys = {"with the first key": "widest", "without the first key": "widest without the first key"}
    for ax, (name, key) in zip(axes, keys.items(), strict=True):
        counts = by_head(found[key])
        shown = counts.clamp(min=1).sort(-1).values
        drawn = ax.imshow(shown.numpy(), norm=norm, aspect="auto", cmap="ssmbook-sequential")
        ax.set(title=name, xlabel="heads of the layer, sorted", xticks=(0, 4, 8), xticklabels=(1, 5, 9))
        ax.set(ylabel="layer", yticks=(0, 10, 20, 29))
        bar = fig.colorbar(drawn, ax=ax, ticks=(1, 4, 16, 64))  # one each, so that a phone can stack them
        bar.ax.set_yticklabels(("1", "4", "16", "64"))
        bar.set_label("states")
        ax.grid(False)
        layers = ", ".join(number(row, 2) for row in counts.median(-1).values[[0, 10, 20, 29]].tolist())
        words.append(
            f"{name}: median {number(float(counts.median()), 2)}, least {number(float(counts.min()), 2)}, "
            f"most {number(float(counts.max()), 2)}; median heads of layers 0, 10, 20 and 29: {layers}"
        )
    return fig, f"States of 270 heads, {'; '.join(words)}."


def carried(results: Mapping[str, Mapping], states: Sequence[int]):
    """Draw the loss with every head carried by N states, and with a window of N tokens, window by window."""
    fig, ax = figure(size=(3.7, 3.0))
    base, words = mean(results["as it is"]["loss"][:4]), []
    kinds = {
        "a window of N tokens": ("a window of {}", GRAY, LINES["dashed"]),
        "N states": ("{} states a head", STATE, "-"),
    }
    for name, (job, color, line) in kinds.items():
        rows = [results[job.format(N)]["loss"] for N in states]
        middle = [mean(row) for row in rows]
        ax.plot(states, middle, "o", color=color, ls=line)
        ax.vlines(states, [min(row) for row in rows], [max(row) for row in rows], color=color, lw=1.2)
        label_line(ax, states[2], middle[2], name, color=color, dx=8, dy=8)
        words.append(f"{name}: " + ", ".join(f"{loss:.2f}" for loss in middle))
    ax.axhline(base, color=HEAD, ls="-", lw=1.2)
    label_line(ax, states[-1], base, "as it is", color=HEAD, dx=0, dy=-9, ha="right")
    ax.set(xscale="log", xlabel="N", ylabel="loss, nats per token", xlim=(0.85, 40), ylim=(2.3, 8.4))
    ax.set_xticks(states, [str(N) for N in states])
    ax.minorticks_off()
    counts = ", ".join(map(str, states))
    return fig, f"Loss for N = {counts}. {'; '.join(words)}. As it is: {base:.2f}."


def layer_by_layer(results: Mapping[str, Mapping]):
    """Draw what four states in the heads of one layer do to the predictions, with the layer's states."""
    fig, axes = figure(ncols=2, size=(7.0, 3.0))
    moved = [mean(row) for row in results["one layer, 4 states"]["divergence"]]
    counts = by_head(results["atlas"]["widest"]).mean(-1).tolist()
    axes[0].vlines(range(len(moved)), 0, moved, color=STATE, lw=1.5)
    axes[0].plot(range(len(moved)), moved, "o", color=STATE, ms=4, ls="none")
    axes[0].set(xlabel="layer", ylabel="divergence, nats", xticks=(0, 10, 20, 29), ylim=(0, None))
    axes[0].set_title("one layer with 4 states per head")
    axes[1].loglog(counts, moved, "o", color=STATE, ms=4, ls="none")
    rho = rank_correlation(counts, moved)
    axes[1].set(xlabel="mean states of its heads", ylabel="divergence, nats")
    axes[1].set_title(f"rank correlation {rho:.2f}")
    axes[1].set_xticks((2, 5, 10, 20), ("2", "5", "10", "20"))
    axes[1].set_yticks((0.0002, 0.001, 0.005), ("0.0002", "0.001", "0.005"))
    axes[1].minorticks_off()
    worst = sorted(range(len(moved)), key=lambda layer: -moved[layer])[:3]
    said = ", ".join(f"layer {layer} {moved[layer]:.4f}" for layer in worst)
    return fig, f"Largest divergences: {said}; median {float(np.median(moved)):.4f}. Correlation {rho:.2f}."


def merge_or_cut(results: Mapping[str, Mapping], kept: Sequence[int]):
    """Draw the nats per token that k of nine heads add in all layers at once, made in four ways."""
    fig, ax = figure(size=(3.7, 3.3))
    kept, words = sorted(kept), []
    for way, (color, line, name) in WAYS.items():
        added = [mean(rise(results, f"{way}, {k} heads")) for k in kept]
        ax.semilogy(kept, added, "o", color=color, ls=line, ms=4)
        label_line(ax, kept[-1], added[-1], name, color=color, dx=6)
        words.append(f"{name} " + ", ".join(number(each, 2) for each in reversed(added)))
    ax.set(xlabel="heads left of nine", ylabel="loss added, nats per token", xlim=(0.7, 15))
    ax.set_xticks(kept)
    order = ", ".join(map(str, reversed(kept)))
    return fig, f"Nats added on held-out windows by {order} heads: {'; '.join(words)}."


def predicted(results: Mapping[str, Mapping], k: int, errors: Sequence[str] = ("operator", "output")):
    """Draw the damage of single-layer changes against two of their errors, four ways of each layer."""
    fig, axes = figure(ncols=2, size=(7.0, 3.3), sharey=True)
    words = []
    for ax, error in zip(axes, errors, strict=True):
        found = []
        for way, (color, line, _) in WAYS.items():
            job = results[f"one layer, {way}, {k} heads"]
            damage, lost = [mean(row) for row in job["divergence"]], job["lost on fitted windows"][error]
            filled = color if line == "-" else "white"
            ax.loglog(lost, damage, "o", color=color, mfc=filled, ms=4, ls="none")
            found.append(f"{way} {rank_correlation(lost, damage):.2f}")
        ax.set(xlabel=f"error of the {error}", title=f"error of the {error}")
        words.append(f"{error}: {', '.join(found)}")
    axes[0].set(ylabel="divergence, nats")
    axes[1].tick_params(labelleft=True)
    return fig, f"Rank correlations of damage over 30 layers. Error of the {'; error of the '.join(words)}."
