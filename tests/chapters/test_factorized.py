"""Pictures of *factorized*: dots, lines and bars against the same quantities found by another route."""

import math

import numpy as np
import pytest
import torch
from helpers import F64, randn

from ssmbook.chapters.factorized import figures
from ssmbook.chapters.two_ways_to_mix.figures import operator_as_heads


@pytest.mark.parametrize("phi", [0.2, 1.0, 1.4, 1.8, 2.4, 3.0])
def test_the_line_is_the_best_of_all_directions_and_the_dot_what_it_misses(phi):
    left, right = figures.turning(phi).axes
    dots, line = (drawn.get_xydata() for drawn in left.get_lines())
    np.testing.assert_allclose(np.hypot(*dots.T), 1, atol=1e-12)
    assert abs(np.arctan2(*dots.T[::-1])).max() < phi
    theta = np.linspace(-phi, phi, 20001)
    misses = [np.mean(np.sin(theta - beta) ** 2) for beta in (0, math.pi / 2)]  # along I and along J
    best = int(np.argmin(misses))
    np.testing.assert_allclose(line[:, 1 - best], 0, atol=1e-6)
    assert abs(np.ptp(line[:, best])) > 2
    curve, dot = (drawn.get_xydata() for drawn in right.get_lines())
    np.testing.assert_allclose(dot, [[phi, misses[best]]], atol=2e-4)
    np.testing.assert_allclose(np.interp(phi, *curve.T), misses[best], atol=2e-3)
    assert f"lies along {'IJ'[best]} and misses {dot[0, 1]:.3f}" in figures.describe_turning(phi)


def test_shares_missed_are_tails_over_all_inputs_together():
    blocks = randn(3, 7, 4, seed=0)
    own = figures.missed(torch.linalg.svdvals(blocks))
    for H, share in enumerate(own):
        left_over = 0.0
        for rows in blocks:  # by the Gram matrix instead of a singular value decomposition
            left_over += torch.linalg.eigvalsh(rows.T @ rows)[: 4 - H].sum()
        assert share == pytest.approx(float(left_over / blocks.square().sum()), abs=1e-12)


def test_the_thick_lines_are_the_medians_of_the_thin_ones():
    shares = {"a": [([1.0, 0.1], [1.0, 0.5]), ([1.0, 0.3], [1.0, 0.9]), ([1.0, 0.2], [1.0, 0.6])]}
    shares["b"] = [([1.0, 0.0], [1.0, 0.7])]
    fig, alt = figures.common_heads(shares)
    for ax, middle in zip(fig.axes, ((0.2, 0.6), (0.0, 0.7)), strict=True):
        thick = [line.get_ydata() for line in ax.get_lines() if line.get_linewidth() > 2]
        np.testing.assert_allclose(thick, [[1, middle[0]], [1, middle[1]]])
        assert [text.get_text() for text in ax.texts] == ["own", "common"]
    assert "a, common value maps: one head misses 0.600" in alt


def test_the_row_of_features_stands_over_the_row_of_softmax():
    exact, near = torch.tensor([0.5, 0.2, 0.3], dtype=F64), torch.tensor([0.4, 0.4, 0.2], dtype=F64)
    left, right = figures.feature_row(exact, near, [1, 6, 15], [0.5, 0.2, 0.1], 1, 8).axes
    assert [bar.get_height() for bar in left.patches] == exact.tolist()
    assert left.get_lines()[0].get_ydata().tolist() == near.tolist()
    curve, dot, wall = right.get_lines()
    np.testing.assert_allclose(curve.get_xydata(), [[1, 0.5], [6, 0.2], [15, 0.1]])
    np.testing.assert_allclose(dot.get_xydata(), [[6, 0.2]])
    assert set(wall.get_xdata()) == {8} and "6 features" in left.get_title()


@pytest.mark.parametrize(("n", "article"), [(4, "a 4"), (8, "an 8")])
def test_a_table_has_its_article(n, article):
    alpha, V = torch.ones(2, n, n, dtype=F64).tril(), torch.eye(2, dtype=F64).expand(2, 2, 2)
    assert f"each {article} by {n} table" in operator_as_heads(alpha, V)[1]


def test_each_value_map_is_the_product_of_its_two_blocks():
    W_O, W_V = randn(3, 5, 2), randn(3, 2, 4, seed=1)
    fig, alt = figures.narrow_heads(W_O, W_V)
    for h in range(3):
        tall, _, wide, _, product = fig.axes[5 * h : 5 * h + 5]
        tall, wide, product = (np.asarray(ax.get_images()[0].get_array()) for ax in (tall, wide, product))
        np.testing.assert_allclose(tall @ wide, product, atol=1e-12)
        np.testing.assert_allclose(wide, W_V[h])
    assert "3 value maps of size 5 by 4, of rank 2, 2, 2." in alt
    assert len({ax.get_images()[0].get_clim() for ax in fig.axes if ax.get_images()}) == 1


def test_the_prices_of_heads_are_drawn_and_told():
    heads, span, rank, split, free = (
        [1, 2, 8, 16],
        [1, 2, 8, 16],
        [16, 8, 2, 1],
        [512] * 4,
        [256, 512, 2048, 4096],
    )
    fig, alt = figures.head_prices(heads, span, rank, split, free)
    drawn = [[line.get_xydata().tolist() for line in ax.get_lines()] for ax in fig.axes]
    wanted = [
        [[list(pair) for pair in zip(heads, values, strict=True)] for values in panel]
        for panel in ((span, rank), (free, split))
    ]
    assert drawn == wanted
    names = [[text.get_text() for text in ax.texts] for ax in fig.axes]
    assert names == [["span of the maps", "rank of each"], ["any matrices", "split in H"]]
    assert "1: 1 and 16; 2: 2 and 8" in alt and alt.endswith("any matrices from 256 to 4,096.")


def test_no_head_misses_all_and_each_of_four_equal_ones_a_quarter_less():
    assert figures.missed(torch.ones(4)) == [1, 0.75, 0.5, 0.25]
    assert figures.missed(torch.tensor([[2.0, 0], [0, 1]]), most=1) == [1, 0.2]
