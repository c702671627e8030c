"""Figures of *how-many-states*, and the numbers of the committed experiment in the shape that they take."""

from collections.abc import Mapping, Sequence
from statistics import mean, median

import numpy as np
import torch
from matplotlib.colors import LogNorm
from scipy.stats import spearmanr

from headsandstates.chapters import _drawn
from headsandstates.chapters._drawn import ticks
from ssmbook.display import COLORS, figure, label_line, number
from ssmbook.display.style import LINES

GRAY, STATE, HEAD = COLORS["gray"], COLORS[_drawn.STATE], COLORS[_drawn.HEAD]
# way -> color, line, and the name beside it
WAYS = {
    "merged for the output": (HEAD, "-", "merged for the output"),
    "merged": (HEAD, LINES["dashed"], "merged"),
    "cut and refitted": (GRAY, LINES["dashed"], "cut, refitted"),
    "cut": (GRAY, "-", "cut"),
}


def by_head(windows: Sequence[Sequence[float]]) -> torch.Tensor:
    """Means over windows of a number per head, (layers, 9)."""
    return torch.tensor(windows, dtype=torch.float64).mean(0).view(-1, 9)


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
    ticks(ax, states)
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
    ticks(axes[1], (2, 5, 10, 20), (0.0002, 0.001, 0.005))
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


def by_prediction(results: Mapping[str, Mapping], kept: Sequence[int], error: str = "output"):
    """Every change of all layers as (text, way, median error of the layers, nats added)."""
    found = []
    for way in WAYS:
        lost = {k: median(results[f"{way}, {k} heads"]["lost on fitted windows"][error]) for k in kept}
        found += [("manual", way, lost[k], mean(rise(results, f"{way}, {k} heads"))) for k in kept]
        for text in ("source", "license"):
            added = rise(results, f"{text}, {way}, 4 heads", f"{text}, as it is")
            found.append((text, way, lost[4], mean(added)))
    return found


def predicted(results: Mapping[str, Mapping], kept: Sequence[int]):
    """Draw the damage of every change of all layers, on three texts, against the error of its output."""
    fig, ax = figure(size=(3.7, 3.4))
    points = by_prediction(results, kept)
    for text, marker in {"manual": "o", "source": "s", "license": "^"}.items():
        for way, (color, line, _) in WAYS.items():
            own = [point[2:] for point in points if point[:2] == (text, way)]
            face = color if line == "-" else "white"
            ax.loglog(*zip(*own, strict=True), marker, color=color, mfc=face, ms=5, ls="none")
    rho = rank_correlation(*zip(*(point[2:] for point in points), strict=True))
    ax.set(xlabel="share of the output lost on the fitted windows", ylabel="nats per token added")
    ax.set_title(f"rank correlation {rho:.2f}")
    words = "; ".join(
        f"{name} " + ", ".join(f"{lost:.2f} {added:.2f}" for text, w, lost, added in points if w == way)
        for way, (_, _, name) in WAYS.items()
    )
    return fig, f"Error of the output and nats added, {len(points)} changes. {words}. Correlation {rho:.2f}."


def added_alone(results: Mapping[str, Mapping]) -> dict[str, list[list[float]]]:
    """Nats added on repeated random tokens by each head alone, layers as rows, "cut" or "carried"."""
    found = results["prompt, head by head"]
    (base,) = found["as it is"]
    return {way: [[loss - base for loss in row] for row in found[way]] for way in ("cut", "carried")}


def copying(results: Mapping[str, Mapping], states: Sequence[int]):
    """Draw what single heads add on repeated random tokens: cut against 4 states, then by their states."""
    fig, axes = figure(ncols=2, size=(7.0, 3.3))
    found, added = results["prompt, head by head"], added_alone(results)
    pairs = [sum(added[way], []) for way in ("cut", "carried")]
    axes[0].plot(*pairs, "o", color=GRAY, ms=3.5, ls="none")
    axes[0].set(xlabel="nats added when it is cut", ylabel="with 4 states", title="one head of 270 at a time")
    words = []
    for place, ((layer, head), losses) in enumerate(zip(found["shown"], found["copying"], strict=True)):
        first, name = place < len(found["shown"]) // 2, f"head {head} of layer {layer}"
        rise = [loss - found["as it is, new"][0] for loss in losses]
        axes[1].semilogx(states, rise, "o", color=STATE if first else GRAY, ls="-", ms=4)
        at = added["cut"][layer][head], added["carried"][layer][head]
        if first:
            axes[0].plot(*at, "o", color=STATE, ms=5, ls="none")
            label_line(axes[0], *at, name, color=STATE, dx=7, dy=(0, 6, -6)[place % 3])
        words.append(f"{name} " + ", ".join(f"{round(each, 2) + 0.0:.2f}" for each in rise))
    axes[1].set(xlabel="states of this head", ylabel="nats added", title="copying needs a state per token")
    ticks(axes[1], states)
    most = ", ".join(f"{max(part):.2f}" for part in pairs)
    counts = ", ".join(map(str, states))
    return fig, f"Most nats added, cut and with 4 states: {most}. With {counts} states: {'; '.join(words)}."


def spread(values: Sequence[float]) -> str:
    """Mean, least and largest of a few numbers."""
    middle, low, high = (round(each, 3) + 0.0 for each in (mean(values), min(values), max(values)))  # no -0.0
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def shares(atlas: Mapping[str, Sequence]) -> str:
    """The counts with the first key and without it, in lines."""
    lines = []
    for name, key in (("with", "widest"), ("without", "widest without the first key")):
        counts = by_head(atlas[key]).flatten()
        few, many = (float((counts <= N).double().mean()) for N in (4, 16))
        windows = [median(window) for window in atlas[key]]
        lines.append(f"{name} the first key: median {float(counts.median()):.1f}")
        lines.append(f"   medians of the four windows {min(windows):g} to {max(windows):g}")
        lines.append(f"   at most 4 states {few:.0%}, at most 16 states {many:.0%}")
    sink = by_head(atlas["sink"])
    lines.append(f"weight on the first key: {sink[:3].mean():.2f} in layers 0 to 2,")
    return "\n".join([*lines, f"   {sink[14:].mean():.2f} in layers 14 to 29"])


def on_other_texts(results: Mapping[str, Mapping]) -> str:
    """The counts on two other texts, and how they agree with those on the manual, in lines."""
    lines = []
    for other in ("source", "license"):
        words = []
        for key in ("widest", "widest without the first key"):
            here, there = (by_head(results[job][key]).flatten() for job in ("atlas", f"{other}, atlas"))
            rho = rank_correlation(here.tolist(), there.tolist())
            words.append(f"{float(there.median()):.1f} (rank correlation {rho:.2f})")
        lines.append(f"{other}: median with the first key {words[0]},")
        lines.append(f"{'':{len(other)}}  without it {words[1]}")
    keys = ("distance", "widest without the first key")
    far, counts = (by_head(results["atlas"][key]).flatten().tolist() for key in keys)
    return "\n".join([*lines, f"mean distance against states: {rank_correlation(far, counts):.2f}"])


def layer_errors(results: Mapping[str, Mapping], k: int) -> dict[str, dict[str, float]]:
    """Rank correlation of an error and the damage over single layers: error -> way -> number, and "all"."""
    found = {}
    for error in ("operator", "uncorrelated", "output"):
        pairs = {}
        for way in WAYS:
            job = results[f"one layer, {way}, {k} heads"]
            pairs[way] = job["lost on fitted windows"][error], [mean(row) for row in job["divergence"]]
        pairs["all"] = [sum(parts, []) for parts in zip(*pairs.values(), strict=True)]
        found[error] = {way: rank_correlation(*pair) for way, pair in pairs.items()}
    return found


def savings(k: int, N: int, n: int) -> list[list]:
    """Rows (change, parameters of a layer of SmolLM2, score matrices, numbers cached for n tokens)."""
    d, H, groups, r = 576, 9, 3, 64
    queries, keys, token = d * H * r, d * groups * r, groups * r
    gates = H * N * 2 * (d + 1)
    whole = 2 * queries + 2 * keys
    shared = queries + keys + 2 * k * r * d + k * H
    return [
        ["as it is", whole, H, 2 * n * token],
        [f"merged to {k}", whole + k * H, H, 2 * n * token],
        [f"merged to {k}, width {r}", shared, H, n * (token + k * r)],
        [f"cut to {k}, refitted or not", whole - 2 * (H - k) * r * d, k, 2 * n * token],
        [f"converted, {N} states", queries + keys + gates, 0, H * N * (r + 1)],
    ]
