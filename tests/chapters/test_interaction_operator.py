"""Pictures of *interaction-operator*: block matrices, the tall table, the best heads."""

import numpy as np
import pytest
import torch
from helpers import F64, like, shown

from ssmbook.chapters.head_count import figures as head_count
from ssmbook.chapters.interaction_operator import figures
from ssmbook.chapters.scans import figures as scans
from ssmbook.chapters.structured_dynamics import figures as structured_dynamics
from ssmbook.chapters.zoo import figures as zoo
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
        assert missed == pytest.approx(float(W.floor(H)), abs=1e-12)
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


def test_the_tangent_at_the_end_misses_zero_and_the_chord_does_not():
    t = torch.linspace(0, 1, 101)
    fig, alt = figures.way_from_zero(t, t**3, 3.0)
    tangent, chord, curve, _ = (line.get_xydata() for line in fig.axes[0].get_lines())
    assert tangent.tolist() == [[0, -2], [1, 1]] and chord.tolist() == [[0, 0], [1, 1]]
    assert np.allclose(curve[:, 1], curve[:, 0] ** 3, atol=1e-6)
    assert "0 to 1.000, its mean slope. Its slope at X is 3.000" in alt and "misses 0 by -2.000" in alt


def test_spectra_end_where_the_independent_matrices_end():
    named = {"one": blocks(5, 2, 3, 1), "four": blocks(5, 2, 3, 4, seed=1)}
    fig, alt = figures.spectra_of_one_output(named)
    for line, (name, W) in zip(fig.axes[0].get_lines(), named.items(), strict=True):
        sigma = np.linalg.svd(W.reshape(25, 6).numpy(), compute_uv=False)
        k = {"one": 1, "four": 4}[name]
        assert line.get_xdata().tolist() == list(range(1, k + 1))
        assert np.allclose(line.get_ydata(), sigma[:k] / sigma[0])
    assert [text.get_text() for text in fig.axes[0].texts] == ["one, 1", "four, 4"]
    assert alt.endswith("independent matrices: one, 1; four, 4.")


def test_matrices_below_one_in_ten_billion_of_the_first_are_rounding():
    sizes = torch.diag(torch.tensor([1.0, 2e-10, 5e-11], dtype=F64))
    blocks, table = torch.zeros(3, 3, 1, 3, dtype=F64), torch.zeros(5, 5, dtype=F64)
    blocks[2, :, 0], table[2:, :3] = sizes, sizes
    assert figures.independent(blocks) == head_count.rank(sizes) == 2
    assert figures.spectra_of_one_output({"one": blocks})[1].endswith("one, 2.")
    assert structured_dynamics.past_and_future(table, 2)[1].endswith("joined through 2 wires.")
    assert zoo.block_patterns({"one": blocks, "two": blocks})[1].endswith("one, 2 and 2; two, 2 and 2.")
    assert "blocks on the diagonal have rank 2," in scans.chunk_blocks(sizes, 3)[1]
