"""Figures of the chapter *interaction-operator*: block matrices, a tall table, the best heads."""

from __future__ import annotations

import torch

from ssmbook.display import block_heatmap, figure, number
from ssmbook.display._pictures import equation, part_blocks, signed
from ssmbook.numerics import numerical_rank


def block_matrices(named, *, alike=False):
    """Draw operators (n, n, p, d), {title: tensor}, as block matrices side by side; each has its own scale.

    With ``alike`` each block has, so that only its pattern is seen. Blue is positive, orange negative; a gray
    grid parts the blocks. Returns ``fig, alt``; the words count the independent matrices of each.
    """
    fig, axes = figure(ncols=len(named), size=(7.0, 0.5 + 7.0 / len(named)))
    words = []
    for ax, (title, W) in zip(axes, named.items(), strict=True):
        W, (n, _, p, d) = W.detach(), W.shape
        k = independent(W)
        if alike:
            W = W / W.abs().amax(dim=(2, 3), keepdim=True).clamp(min=1e-300)
        signed(ax, W.transpose(1, 2).reshape(n * p, n * d))
        part_blocks(ax, n, p, d, 0.4)
        ax.set(title=title, xlabel=f"{k} independent matri{'x' if k == 1 else 'ces'}")
        words.append(f"{title}, {k}")
    n, _, p, d = next(iter(named.values())).shape
    return fig, (
        f"{len(named)} block matrices of {n} by {n} blocks of size {p} by {d}, zero above the diagonal. "
        f"Number of independent blocks: {'; '.join(words)}."
    )


def independent(W) -> int:
    """The number of independent matrices among the blocks of a tensor (n, n, p, d)."""
    return numerical_rank(torch.linalg.svdvals(W.flatten(0, 1).flatten(1)), 1e-10)


def tall_table(W, H):
    """Draw the blocks of a causal W (n, n, p, d) as rows of one tall table, equal to coefficients times maps.

    The rows are those with j <= i, in order; the H maps are the first right singular vectors. Returns ``fig,
    alt``.
    """
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
    alt = (
        f"A table of {len(rows)} rows, one for each block with j up to i, and {p * d} columns equals a table "
        f"of {len(rows)} by {H} coefficients times {H} rows, the value maps; relative error "
        f"{'below 1e-12' if missed < 1e-12 else number(missed)}."
    )
    return fig, alt


def best_heads(W, H):
    """Draw the block norms of the operator ``W`` and of what its best ``H`` heads miss, with its share.

    Returns the figure.
    """
    fig, axes = figure(ncols=2, size="slider")
    top = float(W.block_norms().detach().max())
    rest = W - W.best_heads(H)
    block_heatmap(W, axes[0], vmax=top)
    block_heatmap(rest, axes[1], vmax=top)
    axes[0].set_title("target W")
    axes[1].set_title(f"missed with H = {H}: {share_missed(W, H):.3f}")
    for ax in axes:
        ax.set(xticks=[], yticks=[], xlabel="input →", ylabel="← output")
    return fig


def share_missed(W, H) -> float:
    """The share of the energy of ``W`` that its best ``H`` heads miss."""
    energy = W.spectrum() ** 2
    return float(energy[H:].sum() / energy.sum())
