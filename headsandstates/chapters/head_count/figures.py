"""Figures of *head-count*; each returns the figure, or the figure and its alternative text."""

import math
from itertools import cycle

import numpy as np
import torch
from matplotlib.colors import Normalize
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from headsandstates.chapters._drawn import HEAD, STATE, equation, signed, unmarked, weights, write
from ssmbook.display import COLORS, figure, label_line, number
from ssmbook.display.style import DIVERGING, LINES, SERIES, readable

_FRAME = {"fill": False, "edgecolor": COLORS[STATE], "lw": 2.5, "clip_on": False}  # of a past and its future


def three_ranks(alpha, V, letters, cut):
    """Draw the attention matrix (n, n) of a head and its value map V (p, d); i >= cut >= j is framed."""
    n, (p, d) = len(alpha), V.shape
    patterns, across, width = (int(torch.linalg.matrix_rank(M)) for M in (alpha, alpha[cut:, : cut + 1], V))
    fig, (left, right) = figure(ncols=2, size=(6.4, 3.4), width_ratios=[1.5, 1])
    weights(left, alpha, letters)
    left.add_patch(Rectangle((-0.5, cut - 0.5), cut + 1, n - cut, **_FRAME))
    words = f"past to future: rank {across}\n× {width} = {across * width} state variables"
    left.text(n - 0.6, 1.0, words, color=readable(COLORS[STATE]), fontsize=9.5, ha="right")
    left.set(xlabel="input →", ylabel="← output", title=f"attention matrix: {patterns} patterns")
    signed(right, V)
    for (row, column), entry in np.ndenumerate(V.numpy()):
        write(right, column, row, f"{entry:g}", color="white" if entry else "black")
    right.set(title="value map: 1 matrix", xticks=range(d), xticklabels=sorted({*letters}))
    right.set(yticks=range(p), yticklabels=("vowel", "consonant"))
    right.tick_params(length=0)
    return fig, (
        f"A head as two matrices. Left, its {n} by {n} attention matrix over {letters}, of rank "
        f"{patterns}; the framed part, outputs from {cut} on and inputs up to it, has rank {across}. "
        f"Right, its {p} by {d} value map, of rank {width}. One matrix, {patterns} patterns, "
        f"{across * width} state variables."
    )


def heads_as_kernels(M, c, V):
    """Draw eight lags (n, p, d) as a tile column: coefficients c (n, k) times value maps V (k, p, d)."""
    (k, p, d), shown = V.shape, min(8, len(M))
    fig, axes = figure(ncols=5, size=(3.6, 4.9), width_ratios=[d + 1, 1, 1.1 * k, 1, d + 1])
    fig.stacks = ()
    parts = (tiles(M[:shown]), "=", c[:shown], "×", tiles(V))
    titles = ("lags $M_τ$", "", "coefficients\n$c_h(τ)$", "", "value\nmaps $V_h$")
    equation(axes, parts, titles, aspect="auto", sign_size=14, title_size=9.5)
    for ax, count, word in ((axes[0], shown, "τ = {}"), (axes[4], k, "{}")):
        ax.spines[:].set_visible(False)
        ax.set_yticks([(p + 1) * t + (p - 1) / 2 for t in range(count)])
        ax.set_yticklabels([word.format(t + (ax is axes[4])) for t in range(count)])
        ax.tick_params(length=0)
        ax.set_ylim((p + 1) * count - 1, -1)  # half a gap above and below, so that rows stand side by side
    axes[2].set(xticks=range(k), xticklabels=range(1, k + 1))
    negative = int((c[:shown] < 0).sum())
    return fig, (
        f"A column of {shown} lag operators of {p} by {d} entries equals a matrix of {shown} by {k} "
        f"coefficients times a column of {k} value maps of the same size. {negative} of the {shown * k} "
        f"coefficients are negative, the largest is {number(float(c[:shown].abs().max()))}."
    )


def tiles(matrices):
    """A stack (m, p, d) as one picture (m (p + 1) - 1, d): a matrix below the other, gaps of NaN between."""
    gap = torch.full_like(matrices[:, :1], float("nan"))
    return torch.cat([matrices, gap], 1).flatten(0, 1)[:-1]


def two_ranks(W, cut):
    """Draw a causal W (n, n, p, d) as blocks, those with i >= cut >= j framed, and as one row per block."""
    n, _, p, d = W.shape
    matrix, rows = W.transpose(1, 2).reshape(n * p, n * d), W[torch.ones(n, n).tril().bool()].flatten(1)
    counted = matrix[cut * p :, : (cut + 1) * d], rows
    states, heads = (int(torch.linalg.matrix_rank(each, rtol=1e-10)) for each in counted)
    fig, (left, right) = figure(ncols=2, size=(6.4, 3.4), width_ratios=[1.5, 1])
    signed(left, matrix)
    signed(right, rows, aspect="auto")
    corner, size = (-0.5, cut * p - 0.5), ((cut + 1) * d, (n - cut) * p)
    left.add_patch(Rectangle(corner, *size, **_FRAME))
    left.set(title=f"future × past: rank {states}", xlabel="past: input tokens →", ylabel="← future: outputs")
    right.set(title=f"times × channels: rank {heads}", xlabel=f"the {p * d} entries", ylabel="pairs of times")
    return fig, (
        f"Left, a block matrix of {n} by {n} blocks of size {p} by {d}; the framed block, outputs from token "
        f"{cut} on and inputs up to it, has rank {states}. Right, the same {len(rows)} "
        f"blocks as rows of a matrix with {p * d} columns, of rank {heads}."
    )


def error_curve(floor, heads, error, steps, history, least):
    """Draw floor (K,) and errors (S,) against H, and history (R, S) over steps (R,), at least ``least``."""
    fig, (left, right) = figure(ncols=2, size="wide", width_ratios=[1.0, 1.15])
    above, counts, last = floor[floor > least], heads.unique().tolist(), float(steps[-1])
    left.semilogy(range(len(above)), above, color=COLORS["gray"], linestyle="-", lw=2.5)
    label_line(left, 2.5, float(floor[2:4].prod()) ** 0.5, "floor", dx=8, dy=8)
    alike = heads[:, None] == heads  # students with as many heads stand side by side
    beside = heads + 0.16 * (alike.tril(-1).sum(1) - (alike.sum(1) - 1) / 2)
    left.semilogy(beside, error.clamp(min=least), "o", color=COLORS[HEAD], mfc="none", ms=5)
    left.set(xlabel="heads H", ylabel="error, share of the energy", ylim=(least / 10, 6))
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    hues = dict(zip(counts, cycle(map(COLORS.get, SERIES)), strict=False))
    for H, errors in zip(heads.tolist(), history.clamp(min=least).T, strict=True):
        right.semilogy(steps, errors, color=hues[H], lw=1, ls="-")
    apart, levels = [H for H in counts if H < len(above)], floor.log10()
    for H in apart:  # names of levels less than half a decade apart step aside
        up = sum(math.copysign(3, H_ - H) for H_ in apart if 0 < abs(levels[H_] - levels[H]) < 0.55)
        label_line(right, last, float(floor[H]), f"H = {H}", color=hues[H], dy=up)
    exact = ", ".join(str(H) for H in counts if H not in apart)
    label_line(right, last, least, f"H = {exact}", color=COLORS["gray"])
    right.set(xlabel="step of training", ylim=(least / 10, 6), xlim=(0, 1.3 * last))
    right.set_yticklabels([])
    return fig


def approximation(M, best, y, y_best, title, missing):
    """Draw lags M (n, p, d) beside those of ``best``, row by row, and one output (n,) with its own."""
    fig, (left, middle, right) = figure(ncols=3, size="slider", width_ratios=[0.6, 0.6, 1.5])
    top = float(M.abs().max())
    scale = {"cmap": DIVERGING, "norm": Normalize(-top, top), "aspect": "auto", "interpolation": "nearest"}
    for ax, lags, name in ((left, M, "target"), (middle, best, title)):
        ax.imshow(lags.flatten(1).numpy(), **scale)
        ax.set(title=name, xticks=[], xlabel="entry of $M_τ$")
        ax.grid(False)
    left.set_ylabel("lag τ")
    middle.set_yticklabels([])
    right.plot(y, color=COLORS["gray"], linestyle="-", lw=3)
    right.plot(y_best, color=COLORS[HEAD], linestyle="-", lw=1.5)
    for place, name, color in ((0.03, "target", "gray"), (0.25, "heads", HEAD)):
        right.text(place, 0.04, name, color=COLORS[color], transform=right.transAxes)
    low, high = float(y.min()), float(y.max())
    right.xaxis.set_major_locator(MaxNLocator(integer=True))
    right.set(xlabel="position i", title=f"misses {missing:.3g} of the energy")
    right.set_ylim(1.25 * low - 0.25 * high, 1.25 * high - 0.25 * low)
    return fig


def epsilon_counts(N, counts, title):
    """Draw counts (name -> the draws of each N, sorted) against N: medians in a band of all draws."""
    fig, ax = figure(size="panel")
    ax.loglog(N, N, color=COLORS["gray"], linestyle=LINES["dotted"], base=2)
    label_line(ax, N[-1], N[-1], "N")
    for (name, draws), hue, line in zip(counts.items(), SERIES, LINES.values(), strict=False):
        values = [found[len(found) // 2] for found in draws]
        least, most = ([found[at] for found in draws] for at in (0, -1))
        ax.fill_between(N, least, most, color=COLORS[hue], alpha=0.15, linewidth=0)
        ax.loglog(N, values, color=COLORS[hue], linestyle=line, marker="o", base=2)
        label_line(ax, N[-1], values[-1], f"{name}: {values[-1]:g}")
    ax.set(xlabel="state variables N", ylabel="heads", title=title, xlim=(N[0] * 0.9, N[-1] * 2.2))
    ticks = [2**e for e in range(int(N[-1]).bit_length())]
    ax.set(xticks=N, xticklabels=N, yticks=ticks, yticklabels=ticks)
    ax.minorticks_off()
    return fig


def state_rectangles(layers):
    """Draw state variables as squares; layers: title -> (values down, keys across, parts, heads)."""
    widest = max(keys for _, keys, _, _ in layers.values())
    tallest = max(values for values, _, _, _ in layers.values())
    fig, axes = figure(ncols=len(layers), size=(6.6, 2.7))
    words = []
    for ax, (title, (values, keys, parts, heads)) in zip(axes, layers.items(), strict=True):
        for row in range(values):
            shade = 0.6 if row * parts // values % 2 == 0 else 0.3
            look = {"facecolor": COLORS[STATE], "alpha": shade, "edgecolor": "white"}
            for column in range(keys):
                ax.add_patch(Rectangle((column, row), 1, 1, **look))
        ax.set(xlim=(-0.3, widest + 0.3), ylim=(tallest + 1.2, -0.2), aspect="equal")
        unmarked(ax)
        states, plural = values * keys, "" if heads == 1 else "s"
        ax.set_title(f"{title}\n{states} state variables\n{heads} head{plural}", fontsize=10)
        if keys > 1:
            ax.text(0, values + 0.2, "keys →", va="top", fontsize=9.5)
        ax.set_ylabel("← values" if keys > 1 else "← state variables")
        shape = f"{values} by {keys}" if keys > 1 else "a column"
        words.append(f"{title}, {shape}: {states} state variables and {heads} head{plural}")
    return fig, f"States as rectangles of values by keys. {'; '.join(words)}."
