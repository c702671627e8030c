"""Figures of *zoo*; each returns the figure, or the figure and its alternative text."""

import math
from functools import cache

import torch
from matplotlib.colors import Normalize

from headsandstates.chapters._drawn import FAMILIES, LAG, arrow, blocks, signed, unit_circle, unmarked
from ssmbook.display import COLORS, block_heatmap, figure
from ssmbook.display.style import DIVERGING, readable
from ssmbook.maps import zoo
from ssmbook.numerics import toeplitz

REASONS = {
    "token by token": "no mixing: one in each output",
    "by position": "one per tap",
    "key side": "one per value map",
    "value side": "one per channel or state",
    "gated or mixed": "gates multiply, sums add",
}
"""Why the layers of a family have the interaction rank that they have, in the words of the pictures."""

ONE_CHANNEL = "SSM, one channel"


@cache
def families() -> dict[str, list[str]]:
    """The layers of the ruler, family by family: those of the zoo, and one channel of an SSM."""
    names = {family: [ONE_CHANNEL] if family == "value side" else [] for family in REASONS}
    for name, layer in zoo(4, 4, 1, generator=torch.Generator().manual_seed(0)).items():
        names[layer.family].append(name)
    return names


def family_of(name) -> str:
    """The family of a layer of the ruler."""
    return next(family for family, names in families().items() if name in names)


def sides(v, b, G, A):
    """Draw what a token wrote, v (p,) times b (m,), and what G (m, m) or A (p, p) makes of it."""
    written = v[:, None] * b[None, :]
    parts = {"written: v bᵀ": written, "key side: v bᵀ G": written @ G, "value side: A v bᵀ": A @ written}
    below = ("the value is v", "the value is still v", "the value is another, A v")
    hues = ("black", FAMILIES["key side"], FAMILIES["value side"])
    fig, axes = figure(ncols=3, size=(7.0, 2.5))
    top = max(float(part.abs().max()) for part in parts.values())
    for ax, (title, part), words, hue in zip(axes, parts.items(), below, hues, strict=True):
        signed(ax, part, top)
        ax.set(title=title, ylabel="value entries")
        ax.set_xlabel(f"key entries\n{words}", color=COLORS[hue])
        ax.spines[:].set(color=COLORS[hue], linewidth=1.5)
    turned = [f"{title}, {_angle(v, part):.0f} degrees" for title, part in parts.items()]
    return fig, (
        f"Three matrices of {len(v)} value entries by {len(b)} key entries. Angle between the columns and v: "
        f"{', '.join(turned)}."
    )


def _angle(v, part) -> float:
    """Degrees between the line of ``v`` and the line of the columns of a matrix of rank one."""
    column = part[:, part.norm(dim=0).argmax()]
    cosine = float((v @ column).abs() / v.norm() / column.norm())
    return math.degrees(math.acos(min(1.0, cosine)))


def fate(layer, x):
    """Return what the first token of x (n, 2) adds to each later output of a layer, (n - 1, 2)."""
    return (layer.interaction(x).to_dense()[1:, 0] @ x[0]).detach()


def fates(named):
    """Draw what becomes of one token in layers, {name: (n, 2)}: arrows from one point, paler with time."""
    fig, axes = figure(ncols=len(named), size=(7.0, 2.1))
    fig.stacks = (2,)
    words = []
    for ax, (name, arrows) in zip(axes, named.items(), strict=True):
        unit_circle(ax)
        ends = arrows / arrows.norm(dim=1).max()
        for step, end in reversed(list(enumerate(ends.tolist()))):
            arrow(ax, (0, 0), end, COLORS[LAG], alpha=1 - 0.8 * step / len(ends), lw=1.8)
        ax.set(title=name, aspect="equal", xlim=(-1.1, 1.1), ylim=(-1.1, 1.1))
        unmarked(ax)
        ax.grid(False)
        off = max(_angle(ends[0], end[:, None]) for end in ends if end.norm() > 1e-9)
        words.append(f"{name} {off:.0f}")
    return fig, (
        f"{len(named)} times {len(ends)} arrows, what one token adds to later outputs. Largest angle, in "
        f"degrees, between the line of the first arrow and another: {', '.join(words)}."
    )


def coefficients(alphas):
    """Draw matrices of coefficients (n, n), {name: tensor}, each on its own scale."""
    fig, axes = figure(ncols=len(alphas), size=(7.0, 2.2))
    fig.stacks = (2,)  # two and two where the page is narrow
    words = []
    for ax, (name, alpha) in zip(axes, alphas.items(), strict=True):
        n, top = len(alpha), float(alpha.abs().max())
        ax.imshow(alpha.numpy(), cmap=DIVERGING, norm=Normalize(-top, top), interpolation="nearest")
        ax.set(title=name, xticks=[], yticks=[])
        negative = float((alpha < 0).sum()) / (n * (n + 1) / 2)
        words.append(f"{name}: {100 * negative:.0f} % of the visible entries negative")
    return fig, f"{len(alphas)} matrices of coefficients, zero above the diagonal. {'; '.join(words)}."


def by_position(kernels):
    """Draw the matrix of coefficients of each kernel, {name: (n,)}: lag τ on the τ-th diagonal."""
    fig, axes = figure(ncols=len(kernels), size=(7.0, 2.5))
    words = []
    for ax, (name, kernel) in zip(axes, kernels.items(), strict=True):
        signed(ax, toeplitz(kernel))
        ax.set(title=name, xlabel="input →", ylabel="← output")
        words.append(f"{name}, {', '.join(f'{float(v):.2f}' for v in kernel[:3])}")
    return fig, f"Matrices with one number on each diagonal; at lags 0, 1, 2: {'; '.join(words)}."


def block_patterns(operators):
    """Draw the blocks of operators {name: (n, n, p, d)} over their largest entries: multiples look alike."""
    fig, axes = figure(ncols=len(operators), size=(7.0, 3.0))
    words = []
    for ax, (name, W) in zip(axes, operators.items(), strict=True):
        rows = W.flatten(2)
        largest = rows.gather(2, rows.abs().argmax(2, keepdim=True))
        blocks(ax, torch.where(largest == 0, 0.0, rows / largest).reshape(W.shape), 0.8, top=1.0)
        k = int(torch.linalg.matrix_rank(rows.flatten(0, 1), rtol=1e-10))
        one = int(torch.linalg.matrix_rank(rows, rtol=1e-10).max())
        ax.set(title=f"{name}: k = {k}, in a row {one}", xlabel="input →", ylabel="← output")
        words.append(f"{name}, {k} and {one}")
    alt = f"Blocks of {len(W)} tokens; independent ones in the whole matrix and in a row: {'; '.join(words)}."
    return fig, alt


def ruler(counts, ceiling):
    """Draw {layer: (k, k in one output)} by family, as dots and rings, with a line at the ceiling pd."""
    fig, axes = figure(ncols=2, size=(7.0, 5.2))  # legible on one slide
    beside = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "center", "fontsize": 9.5}
    beside["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    others = [family for family in REASONS if family != "key side"]
    for ax, column in zip(axes, (["key side"], others), strict=True):
        place, ticks, labels = 0, [], []
        for family in column:
            color = COLORS[FAMILIES[family]]
            words = f"{family}: {REASONS[family]}"
            heading = ax.annotate(words, (0.94, place), color=readable(color), **beside)
            heading.set_in_layout(False)  # it reaches over the names, where its line has none
            for name in families()[family]:
                place += 1
                whole, row = counts[name]
                ax.plot([row, whole], [place, place], "-", color=color, lw=1.2)
                ax.plot(row, place, "o", mfc="white", color=color, ms=8)
                ax.plot(whole, place, "o", color=color, ms=4.5)
                ticks.append(place)
                labels.append(name)
            place += 1.4
        ax.axvline(ceiling, color=COLORS["gray"], linestyle="--", lw=1)
        ax.set(yticks=ticks, yticklabels=labels, xlim=(0, ceiling + 1), ylim=(place - 0.6, -0.7))
        ax.set(xlabel="independent matrices", xticks=range(0, ceiling + 1, 4))
        ax.grid(axis="y", visible=False)
    words = []
    for family, names in families().items():
        whole = sorted({counts[name][0] for name in names})
        words.append(f"{family} {whole[0]}" + (f" to {whole[-1]}" if len(whole) > 1 else ""))
    apart = [name for name in counts if counts[name][0] != counts[name][1]]
    return fig, (
        f"{len(counts)} layers by interaction rank, ceiling {ceiling}: {'; '.join(words)}. "
        f"Fewer in one output than in the whole matrix: {', '.join(apart)}."
    )


def layer(name, W, top):
    """Draw the block norms of a layer's operator and ``top`` singular values, in its family's color."""
    fig, (left, right) = figure(ncols=2, size="slider")
    block_heatmap(W.to_dense().detach(), left)
    left.set(xticks=[], yticks=[], xlabel="input →", ylabel="← output", title=name)
    sigma = W.spectrum()[:top] / W.spectrum()[0]
    right.bar(range(1, len(sigma) + 1), sigma.tolist(), color=COLORS[FAMILIES[family_of(name)]])
    right.set(xlim=(0.3, top + 0.7), ylim=(0, 1.05), xlabel="direction", title=f"k = {W.interaction_rank()}")
    right.set(ylabel="size, relative to the first", xticks=[1, *range(4, top + 1, 4)])
    return fig
