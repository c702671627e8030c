"""Figures of *interaction-operator*; each returns the figure, or the figure and its alternative text."""

from statistics import median

import torch

from headsandstates.chapters._drawn import blocks, equation
from ssmbook.display import COLORS, block_heatmap, figure, label_line, number
from ssmbook.display.style import LINES
from ssmbook.numerics import numerical_rank


def heads_of_a_model(rows, layer):
    """Draw how many heads hold 90 % of each layer of a trained model, from a row of texts for each layer."""
    fig, ax = figure(size=(3.6, 2.6))
    middle, layers, color = [median(row) for row in rows], range(len(rows)), COLORS["head"]
    ax.vlines(layers, [min(row) for row in rows], [max(row) for row in rows], color=color, lw=1.5)
    ax.plot(layers, middle, "o", color=color, ms=4)
    ax.plot(layer, middle[layer], "o", color=color, mfc="none", ms=10, mew=1.6)
    label_line(
        ax, layer, middle[layer], f"layer {layer}: {middle[layer]:g}", color=color, dx=0, dy=22, ha="right"
    )
    ax.set(
        xlabel="layer", ylabel="heads for 90 %", ylim=(0, 9.3), yticks=(0, 3, 6, 9), xticks=(0, 10, 20, 28)
    )
    few = f"layer {layer} {middle[layer]:g}, all {min(middle):g} to {max(middle):g}"
    return (
        fig,
        f"Heads that hold 90 % of {len(rows)} layers of nine heads, medians of {len(rows[0])} texts: {few}.",
    )


def block_matrices(named, *, alike=False):
    """Draw operators {title: (n, n, p, d)} as block matrices; with ``alike`` each block has its own scale."""
    fig, axes = figure(ncols=len(named), size=(7.0, 0.5 + 7.0 / len(named)))
    words = []
    for ax, (title, W) in zip(axes, named.items(), strict=True):
        W = W.detach()
        k = numerical_rank(torch.linalg.svdvals(W.flatten(0, 1).flatten(1)), 1e-10)
        if alike:
            W = W / W.abs().amax(dim=(2, 3), keepdim=True).clamp(min=1e-300)
        blocks(ax, W, 0.4)
        ax.set(title=title, xlabel=f"{k} independent matri{'x' if k == 1 else 'ces'}")
        words.append(f"{title}, {k}")
    n, _, p, d = W.shape
    return fig, (
        f"{len(named)} block matrices of {n} by {n} blocks of size {p} by {d}, zero above the diagonal. "
        f"Number of independent blocks: {'; '.join(words)}."
    )


def tall_matrix(W, H):
    """Draw the blocks of a causal W (n, n, p, d) as rows of a matrix: coefficients times H value maps."""
    n, _, p, d = W.shape
    rows = W.detach()[torch.ones(n, n).tril().bool()].reshape(-1, p * d)
    U, S, Vh = torch.linalg.svd(rows, full_matrices=False)
    coefficients, maps = U[:, :H] * S[:H], Vh[:H]
    fig, axes = figure(ncols=5, size=(3.6, 4.6), width_ratios=[p * d, 2.5, H, 2.5, p * d])
    fig.stacks = ()
    parts = (rows, "=", coefficients, "×", maps)
    titles = (f"{len(rows)} blocks,\n{p * d} numbers each", "", "coeffi-\ncients", "", f"{H} value\nmaps")
    equation(axes, parts, titles, sign_size=14, title_size=9)
    missed = float((rows - coefficients @ maps).norm() / rows.norm())
    return fig, (
        f"A matrix of {len(rows)} rows, one for each block with j up to i, and {p * d} columns equals a "
        f"matrix of {len(rows)} by {H} coefficients times {H} rows, the value maps; relative error "
        f"{'below 1e-12' if missed < 1e-12 else number(missed)}."
    )


def best_heads(W, H):
    """Draw the block norms of the operator ``W`` and of what its best ``H`` heads miss, with its share."""
    fig, axes = figure(ncols=2, size="slider")
    top = float(W.block_norms().detach().max())
    rest = W - W.best_heads(H)
    block_heatmap(W, axes[0], vmax=top)
    block_heatmap(rest, axes[1], vmax=top)
    axes[0].set_title("target W")
    axes[1].set_title(f"missed with H = {H}: {W.floor(H):.3f}")
    for ax in axes:
        ax.set(xticks=[], yticks=[], xlabel="input →", ylabel="← output")
    return fig


def way_from_zero(t, values, slope):
    """Draw one output at tX, t (m,) from 0 to 1, with its chord and the tangent at X of this ``slope``."""
    fig, ax = figure(size=(3.6, 2.6))
    end = float(values[-1])
    ax.plot([0, 1], [end - slope, end], linestyle=LINES["dashed"], color=COLORS["purple"])
    ax.plot([0, 1], [0, end], linestyle=LINES["solid"], color=COLORS["gray"])
    ax.plot(t, values, linestyle=LINES["solid"], color=COLORS["black"], lw=2.6)
    ax.plot([0, 1], [0, end], "o", linestyle="none", color=COLORS["black"])
    middle = values[len(values) // 2]
    label_line(ax, 0.4, end - 0.6 * slope, "slope at X", color=COLORS["purple"], dx=6, dy=-6)
    label_line(ax, 0.5, end / 2, "mean slope", color=COLORS["gray"], dx=-16, dy=8, ha="right")
    label_line(ax, 0.5, middle, "the output at tX", color=COLORS["black"], dx=-14, dy=-21, ha="right")
    ax.set(xlabel="t, from 0 to X", ylabel="one entry of the output")
    return fig, (
        f"An output that goes from 0 to {end:.3f}, its mean slope. Its slope at X is {slope:.3f}, and the "
        f"tangent there misses 0 by {end - slope:.3f}."
    )


def spectra_of_one_output(named):
    """Draw the singular values over the first of several operators (n, n, p, d), as many as are not zero."""
    fig, ax = figure(size=(3.6, 2.6))
    looks = {"ms": 11, "mfc": "none"}, {"ms": 7.5, "mfc": "none"}, {"ms": 4}  # nested at 1
    words = []
    for (name, W), look in zip(named.items(), looks, strict=True):
        sigma = torch.linalg.svdvals(W.flatten(0, 1).flatten(1))
        k = numerical_rank(sigma, 1e-10)
        ax.semilogy(range(1, k + 1), sigma[:k] / sigma[0], "o", linestyle="none", **look)
        label_line(ax, k, sigma[k - 1] / sigma[0], f"{name}, {k}", dx=7 if k > 1 else 0, dy=9 // k)
        words.append(f"{name}, {k}")
    ax.set(xlabel="direction", ylabel="size over the first", xlim=(0, 52), ylim=(None, 2.5))
    return fig, f"Singular values of operators with one output; independent matrices: {'; '.join(words)}."
