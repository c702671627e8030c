"""Pictures of *head-count*: their tiles, ranks and circles are the mathematics they stand for."""

import numpy as np
import pytest
import torch
from helpers import F64, like, shown

from ssmbook.chapters.head_count import figures
from ssmbook.operators import LagOperator
from ssmbook.systems import random_stable


@pytest.mark.parametrize(("k", "p", "d", "lags"), [(1, 2, 3, 4), (5, 3, 4, 9), (2, 1, 1, 8)])
def test_the_tiles_on_the_left_are_the_table_times_the_tiles_on_the_right(k, p, d, lags):
    V, c = torch.randn(k, p, d, **like(0)), torch.randn(lags, k, **like(1))
    M = torch.einsum("tk,kpd->tpd", c, V)
    fig, alt = figures.heads_as_kernels(M, c, V)
    left, table, right = (shown(fig.axes[i]) for i in (0, 2, 4))
    rows = min(lags, 8)
    assert left.shape == (rows * (p + 1) - 1, d) and table.shape == (rows, k)
    tile = [right[h * (p + 1) : h * (p + 1) + p] for h in range(k)]
    for t in range(rows):
        made = sum(table[t, h] * tile[h] for h in range(k))
        np.testing.assert_allclose(left[t * (p + 1) : t * (p + 1) + p], made, atol=1e-12)
    gaps = [row for row in range(len(left)) if row % (p + 1) == p]
    assert np.isnan(left[gaps]).all() and len(gaps) == rows - 1
    assert f"{int((c[:rows] < 0).sum())} of the {rows * k} coefficients are negative" in alt


def test_the_past_ends_with_the_cut():
    W = torch.zeros(3, 3, 1, 2, dtype=F64)
    W[1, 1, 0, 1] = 1.0
    assert "rank 1" in figures.two_ranks(W, cut=1)[0].axes[0].get_title()


@pytest.mark.parametrize(("poles", "rank"), [(1, 1), (2, 2), (2, 3), (3, 1)])
def test_the_framed_block_counts_states_and_the_tall_table_heads(poles, rank):
    R = torch.randn(poles, 3, rank, **like(2)) @ torch.randn(poles, rank, 3, **like(3))
    z = torch.tensor([0.9, -0.6, 0.3], dtype=F64)[:poles]
    W = LagOperator(torch.einsum("st,spd->tpd", z[:, None] ** torch.arange(9), R)).to_dense()
    fig, alt = figures.two_ranks(W, cut=4)
    left, right = fig.axes
    assert f"rank {poles * rank}" in left.get_title() and f"rank {poles}" in right.get_title()
    frame = left.patches[0]
    (x, y), matrix = frame.get_xy(), shown(left)
    rows = slice(round(y + 0.5), round(y + 0.5 + frame.get_height()))
    columns = slice(round(x + 0.5), round(x + 0.5 + frame.get_width()))
    W = W.numpy()
    np.testing.assert_allclose(
        matrix[rows, columns], np.block([[W[i, j] for j in range(5)] for i in range(4, 9)])
    )
    assert np.linalg.matrix_rank(matrix[rows, columns], rtol=1e-9) == poles * rank
    np.testing.assert_allclose(shown(right), [W[i, j].ravel() for i in range(9) for j in range(i + 1)])
    assert f"rank {poles * rank}." in alt and f"of rank {poles}." in alt


def test_a_rectangle_has_a_square_for_every_state():
    layers = {"head": (4, 6, 1, 1), "apart": (4, 2, 4, 4), "full": (6, 1, 1, 6)}
    fig, alt = figures.state_rectangles(layers)
    for ax, (values, keys, parts, _) in zip(fig.axes, layers.values(), strict=True):
        assert len(ax.patches) == values * keys
        hues = [ax.patches[row * keys].get_facecolor() for row in range(values)]
        assert sum(a != b for a, b in zip(hues, hues[1:], strict=False)) == parts - 1
    assert [[text.get_text() for text in ax.texts] for ax in fig.axes] == [["keys →"], ["keys →"], []]
    assert [ax.get_ylabel() for ax in fig.axes] == ["← values", "← values", "← states"]
    assert "apart, 4 by 2: 8 states and 4 heads" in alt and "full, a column: 6 states and 6 heads" in alt


def test_two_pictures_of_lags_share_the_numbers_at_their_side():
    M, y = torch.randn(6, 2, 2, generator=torch.Generator().manual_seed(0)), torch.arange(6.0)
    left, middle, right = figures.approximation(M, M / 2, y, y / 2, "one head", 0.25).axes
    for ax, named in ((left, True), (middle, False), (right, True)):
        assert any(label.get_text() for label in ax.get_yticklabels()) == named


def test_students_of_one_count_stand_side_by_side_around_it():
    floor, heads = torch.tensor([1.0, 0.1, 0.01, 0.0]), torch.arange(4).repeat_interleave(3)
    error = floor[heads] + 1e-12
    history = error.expand(5, -1)
    left, right = figures.error_curve(floor, heads, error, torch.arange(5), history, least=1e-10).axes
    line, circles = left.get_lines()
    np.testing.assert_allclose(line.get_ydata(), floor[:3])
    x = np.asarray(circles.get_xdata()).reshape(4, 3)
    np.testing.assert_allclose(x.mean(1), range(4), atol=1e-6)
    assert (np.diff(x) > 0).all() and (abs(x - np.arange(4)[:, None]) < 0.5).all()
    words = [text.get_text() for text in right.texts]
    assert words == ["H = 0", "H = 1", "H = 2", "H = 3"]


def test_the_slider_shows_lags_and_outputs_of_the_best_heads():
    M = random_stable(4, 2, 3, rho=0.9, **like(4)).lags(7)
    best = LagOperator(M).best_heads(1).to_dense()[:, 0]
    y, near = (LagOperator(lags).apply(torch.ones(7, 2, dtype=F64))[:, 0] for lags in (M, best))
    left, middle, right = figures.approximation(M, best, y, near, "H = 1", 0.25).axes
    np.testing.assert_allclose(shown(left), M.flatten(1))
    np.testing.assert_allclose(shown(middle), best.flatten(1))
    assert left.get_images()[0].get_clim() == middle.get_images()[0].get_clim()
    for line, values in zip(right.get_lines(), (y, near), strict=True):
        np.testing.assert_allclose(line.get_ydata(), values)
    assert "misses 0.25 of the energy" in right.get_title()


def test_families_of_systems_end_in_their_last_count():
    N, counts = [1, 2, 4, 8], {"full": [1, 2, 4, 8], "channels": [1, 2, 3, 3]}
    (ax,) = figures.epsilon_counts(N, counts, "title").axes
    drawn = [(list(line.get_xdata()), list(line.get_ydata())) for line in ax.get_lines()]
    assert drawn == [(N, N), *((N, values) for values in counts.values())]
    assert [text.get_text() for text in ax.texts] == ["N", "full: 8", "channels: 3"]
    assert [text.xy for text in ax.texts] == [(8, 8), (8, 8), (8, 3)]
