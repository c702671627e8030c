"""Pictures of *two-ways-to-mix*: their curves, dots and tables are the mathematics they stand for."""

import io
import math

import numpy as np
import pytest
import torch
from helpers import crossed, gen, points, randn
from PIL import Image

from ssmbook.chapters.two_ways_to_mix import figures
from ssmbook.display import _png
from ssmbook.operators import LagOperator
from ssmbook.systems import System, rotation


@pytest.mark.parametrize("theta", [0.0, 0.3, 0.7, 2.2, math.pi])
def test_dots_lie_where_the_lag_operators_are_and_gray_is_what_the_best_head_misses(theta):
    n = 20
    left, right = figures.plane_of_lags(theta, n).axes
    axis, *gray, dots = left.get_lines()
    R = rotation(torch.tensor(theta, dtype=torch.float64))
    for tau, (x, y) in enumerate(points(dots)):
        lag = math.sqrt(n - tau) * np.linalg.matrix_power(R.numpy(), tau)
        assert np.allclose([x, y], [lag[0, 0], lag[1, 0]], atol=1e-12)
    assert all(np.allclose(points(line)[0], dot) for line, dot in zip(gray, points(dots), strict=True))
    direction = points(axis)[1] - points(axis)[0]
    assert all(abs((points(line)[1] - points(line)[0]) @ direction) < 1e-9 for line in gray)
    eye = torch.eye(2, dtype=torch.float64)
    sigma2 = LagOperator(System(R, eye, eye).lags(n)).spectrum() ** 2
    share = float(sigma2[1:].sum() / sigma2.sum())
    lengths = sum(((points(line)[1] - points(line)[0]) ** 2).sum() for line in gray)
    assert lengths / (points(dots) ** 2).sum() == pytest.approx(share, abs=1e-12)
    assert f"{share:.3f}" in left.get_title()
    curve, mark = right.get_lines()
    assert points(mark)[0] == pytest.approx([theta, share], abs=1e-12)
    assert np.interp(theta, *points(curve).T) == pytest.approx(share, abs=2e-3)


@pytest.mark.parametrize("a", [0.5, 0.8])
def test_the_bars_are_the_state_and_the_framed_row_times_the_inputs_is_the_last(a):
    x = torch.tensor([1.0, 0, 0, 2.0, 0], dtype=torch.float64)
    fig, alt = figures.average_twice(x, a)
    bars, table = fig.axes
    h, states = 0.0, []
    for value in x.tolist():
        h = a * h + (1 - a) * value
        states.append(h)
    tops = [bar.get_y() + bar.get_height() for bar in bars.patches]
    assert np.allclose(tops[5:], states) and np.allclose(tops[:5], [(1 - a) * a**i for i in range(5)])
    weights = np.asarray(table.get_images()[0].get_array())
    assert np.allclose(weights @ x.numpy(), states) and table.patches[0].get_y() == 3.5
    numbers = {text.get_position(): float(text.get_text()) for text in table.texts}
    assert (
        numbers == pytest.approx({(j, i): weights[i, j] for j, i in numbers}, abs=5.1e-4)
        and len(numbers) == 15
    )
    assert f"{(1 - a) * a**4:.3f} plus {2 * (1 - a) * a:.3f}" in alt
    fig.canvas.draw()
    boxes = [bar.get_window_extent() for bar in bars.patches]
    assert not any(text.get_window_extent().overlaps(box) for text in bars.texts for box in boxes)


def test_the_names_of_the_costs_lie_on_nothing():
    lengths = [2**e for e in range(4, 17)]
    fig, _ = figures.costs(lengths, [32 * n * n for n in lengths], [8256 * n for n in lengths], 258)
    assert crossed(fig.axes[0]) == set()


@pytest.mark.parametrize("a", [0.2, 0.5, 0.95, 0.999])
def test_memory_shows_the_weights_of_the_recurrence(a):
    left, right = figures.memory(a).axes
    pulse, h = [], 0.0
    for i in range(figures.LAGS + 1):
        h = a * h + (1 - a) * (i == 0)
        pulse.append(h / (1 - a))
    assert np.allclose(points(right.get_lines()[0])[:, 1], pulse)
    assert np.allclose(np.asarray(left.get_images()[0].get_array())[23], pulse[23::-1])
    assert left.get_images()[0].get_clim() == (0, 1)
    reach = figures.hundredth(a)
    assert a**reach <= 0.01 < a ** (reach - 1)


def test_one_operator_equals_its_two_heads():
    alpha = randn(2, 5, 5, seed=0)
    V = randn(2, 2, 3, seed=1)
    fig, alt = figures.operator_as_heads(alpha, V)
    whole, A_1, V_1, A_2, V_2 = (
        np.asarray(ax.get_images()[0].get_array()) for ax in fig.axes if ax.get_images()
    )
    assert np.allclose(whole, np.kron(A_1, V_1) + np.kron(A_2, V_2))
    assert "5 by 5 blocks of size 2 by 3" in alt
    lines = [points(line) for line in fig.axes[0].get_lines()]
    assert sorted(y[0, 1] for y in lines if np.ptp(y[:, 1]) == 0) == [1.5, 3.5, 5.5, 7.5]  # p = 2
    assert sorted(x[0, 0] for x in lines if np.ptp(x[:, 0]) == 0) == [2.5, 5.5, 8.5, 11.5]  # d = 3
    assert {ax.get_images()[0].get_clim() for ax in fig.axes if ax.get_images()} == {
        (-abs(whole).max(), abs(whole).max())
    }


@pytest.mark.parametrize(("a", "lag"), [(0.5, 7), (0.9, 44), (0.999, None)])
def test_a_dot_marks_the_first_weight_of_a_hundredth_if_it_is_drawn(a, lag):
    right = figures.memory(a).axes[1]
    assert np.allclose(right.get_lines()[0].get_ydata(), a ** np.arange(figures.LAGS + 1.0))
    dots = [points(line) for line in right.get_lines() if line.get_marker() == "o"]
    assert [text.get_text() for text in right.texts] == (["1 %"] if lag is None else ["1 %", f"lag {lag}"])
    assert len(dots) == (lag is not None) and all(np.allclose(dot, [[lag, a**lag]]) for dot in dots)
    assert lag is None or a**lag <= 0.01 < a ** (lag - 1)


def test_two_tables_stand_with_their_letters_and_framed_last_rows():
    letters = ["a", "b", "c", "a", "c"]
    average = torch.ones(5, 5).tril() / torch.arange(1, 6)[:, None]
    softmax = torch.rand(5, 5, generator=gen(0)).tril()
    fig, alt = figures.two_tables({"average": average, "softmax": softmax}, letters)
    for ax, (title, table) in zip(fig.axes, (("average", average), ("softmax", softmax)), strict=True):
        assert np.array_equal(ax.get_images()[0].get_array(), table.numpy()) and ax.get_title() == title
        assert ax.get_images()[0].get_clim()[0] == 0
        (frame,) = ax.patches
        assert frame.get_xy() == (-0.5, 3.5) and (frame.get_width(), frame.get_height()) == (5, 1)
        for axis in (ax.xaxis, ax.yaxis):
            assert [label.get_text() for label in axis.get_ticklabels()] == letters
            assert list(axis.get_ticklocs()) == list(range(5))
    assert "Two 5 by 5 weight tables" in alt and "0.20 on the main one" in alt
    row = softmax[-1].tolist()
    assert f"{row[2]:.2f} on each of the 2 letters c, {row[0]:.3f} elsewhere" in alt


def test_costs_cross_where_the_line_stands():
    lengths = [1, 10, 100]
    fig, alt = figures.costs(lengths, [2, 200, 20_000], [40, 400, 4000], 20)
    table, state, crossing = (points(line) for line in fig.axes[0].get_lines())
    assert table.tolist() == [[1, 2], [10, 200], [100, 20_000]]
    assert state.tolist() == [[1, 40], [10, 400], [100, 4000]] and (crossing[:, 0] == 20).all()
    said = {text.get_text(): text.xy for text in fig.axes[0].texts}
    assert said == {"table": (100, 20_000), "state": (100, 4000), "n = 20": (20, 2)}
    assert "crossing at n = 20" in alt


@pytest.mark.parametrize("theta", [0, 0.02, 0.1, 0.3, 0.7, 1.2, math.pi / 2, 2.2, 3.0, 3.1, math.pi])
def test_the_names_of_the_first_lags_lie_on_nothing(theta):
    fig = figures.plane_of_lags(theta)
    plane = fig.axes[0]
    assert {text.get_text() for text in plane.texts} >= {"lag 0"}
    assert not crossed(plane)
    picture = io.BytesIO()
    fig.savefig(picture, format="png", dpi=100, facecolor="white")
    assert _png.panel_cuts(fig, Image.open(picture).convert("RGB"))  # nothing stands between the panels
