"""Pictures of *interaction-operator*: block matrices, the tall table, the best heads."""

import numpy as np
import pytest
import torch
from helpers import like, shown

from ssmbook.chapters.interaction_operator import figures
from ssmbook.operators import DenseOperator


def blocks(n, p, d, H, seed=0):
    """A causal operator (n, n, p, d) that is a sum of H heads."""
    new = like(seed)
    return torch.einsum("hij,hpd->ijpd", torch.randn(H, n, n, **new).tril(), torch.randn(H, p, d, **new))


@pytest.mark.parametrize("H", [1, 3])
def test_a_block_matrix_shows_every_block_in_its_place_and_counts_them(H):
    W = blocks(4, 2, 3, H)
    fig, alt = figures.block_matrices({"one": W, "two": 2 * W})
    for ax, scale in zip(fig.axes, (1, 2), strict=True):
        for i in range(4):
            for j in range(4):
                part = shown(ax)[2 * i : 2 * i + 2, 3 * j : 3 * j + 3]
                assert np.allclose(part, scale * W[i, j])
        assert ax.get_xlabel().startswith(f"{DenseOperator(W).interaction_rank()} independent matri")
    assert f"one, {H}; two, {H}" in alt


@pytest.mark.parametrize(("H", "words"), [(2, "below 1e-12"), (1, "relative error 0.")])
def test_the_tall_table_is_coefficients_times_maps(H, words):
    W = blocks(5, 2, 3, 2)
    fig, alt = figures.tall_table(W, H)
    rows, coefficients, maps = (shown(ax) for ax in fig.axes if ax.get_images())
    kept = [W[i, j].flatten().numpy() for i in range(5) for j in range(i + 1)]
    assert np.allclose(rows, kept)
    missed = np.linalg.norm(rows - coefficients @ maps)
    sigma = np.linalg.svd(np.array(kept), compute_uv=False)
    assert missed == pytest.approx(np.linalg.norm(sigma[H:]), abs=1e-10)
    assert words in alt and f"15 by {H} coefficients" in alt


def test_the_best_heads_and_what_they_miss():
    W = DenseOperator(blocks(6, 3, 2, 4))
    for H in range(5):
        left, right = figures.best_heads(W, H).axes
        missed = (shown(right) ** 2).sum() / (shown(left) ** 2).sum()
        assert missed == pytest.approx(figures.share_missed(W, H), abs=1e-12)
        assert f"H = {H}: {missed:.3f}" in right.get_title()
        assert left.get_images()[0].get_clim() == right.get_images()[0].get_clim()


def test_alike_each_block_is_drawn_at_its_own_scale():
    W = blocks(4, 2, 2, 1)
    (ax,) = figures.block_matrices({"one": W, "two": W}, alike=True)[0].axes[:1]
    patterns = [shown(ax)[2 * i : 2 * i + 2, 2 * j : 2 * j + 2] for i in range(4) for j in range(i + 1)]
    assert all(np.abs(pattern).max() == pytest.approx(1) for pattern in patterns)
    assert all(
        np.allclose(pattern * np.sign(pattern[0, 0]), patterns[0] * np.sign(patterns[0][0, 0]))
        for pattern in patterns
    )
