"""Pictures of *interaction-rank-gap*: targets are where equations put them, gray is what a head misses."""

import math

import numpy as np
import pytest
import torch
from helpers import F64, crossed, points

from ssmbook.chapters.interaction_rank_gap import figures
from ssmbook.operators import LagOperator
from ssmbook.systems import System


def turn(theta):
    c, s = math.cos(theta), math.sin(theta)
    return np.array([[c, -s], [s, c]])


def share(theta, n):
    eye = torch.eye(2, dtype=F64)
    sigma2 = LagOperator(System(torch.from_numpy(turn(theta)), eye, eye).lags(n)).spectrum() ** 2
    return float(sigma2[1:].sum() / sigma2.sum())


@pytest.mark.parametrize("theta", [0.0, 0.3, 0.7, 2.2, math.pi])
def test_the_clock_frame(theta):
    plane, values = figures.clock_frame(theta).axes
    axis, *gray, dots = plane.get_lines()
    for tau, dot in enumerate(points(dots)):
        lag = math.sqrt(20 - tau) * np.linalg.matrix_power(turn(theta), tau)
        assert np.allclose(dot, [lag[0, 0], lag[1, 0]], atol=1e-12)
    direction = points(axis)[1] - points(axis)[0]
    assert all(abs((points(line)[1] - points(line)[0]) @ direction) < 1e-9 for line in gray)
    lengths = sum(((points(line)[1] - points(line)[0]) ** 2).sum() for line in gray)
    assert lengths / (points(dots) ** 2).sum() == pytest.approx(share(theta, 20), abs=1e-12)
    assert f"{share(theta, 20):.3f}" in plane.get_title()
    curves, marks = values.get_lines()[::2], values.get_lines()[1::2]
    for n, curve, mark in zip((5, 20, 200), curves, marks, strict=True):
        assert points(mark)[0] == pytest.approx([theta, share(theta, n)], abs=1e-12)
        for angle, value in points(curve)[::45]:
            assert value == pytest.approx(share(angle, n), abs=1e-12)


@pytest.mark.parametrize("theta", [0.7, 1.9])
def test_the_parallelogram_ends_in_the_target(theta):
    fig, alt = figures.two_tokens(theta)
    for ax, second in zip(fig.axes, ((-0.5, 0.9), (1.45, 0.62), None), strict=True):
        lines = [points(line) for line in ax.get_lines()]
        x_0 = lines[0][1]
        target = turn(theta) @ x_0 + (0 if second is None else np.array(second))
        corners = next((line for line in lines if len(line) == 5), None)
        if second is None:
            ray, gap = next(
                pair for pair in zip(lines, lines[1:], strict=False) if np.allclose(pair[1][0], target)
            )
            assert abs((gap[1] - gap[0]) @ (ray[1] - ray[0])) < 1e-12  # perpendicular, from the target
            distance = np.linalg.norm(x_0) * abs(math.sin(theta))
            assert np.linalg.norm(gap[1] - gap[0]) == pytest.approx(distance)
            assert f"off by {distance:.3f}" in ax.get_title() and f"off by {distance:.3f}" in alt
            continue
        x_1 = lines[2][1]
        assert np.allclose(x_1, second) and np.allclose(corners[2], target)
        assert np.allclose(corners[1] + corners[3], target)
        sides = [(corners[1] @ x_0) / (x_0 @ x_0), (corners[3] @ x_1) / (x_1 @ x_1)]
        assert np.allclose(corners[1], sides[0] * x_0) and np.allclose(corners[3], sides[1] * x_1)
        assert f"{sides[0]:.1f}, {sides[1]:.1f}".replace("-", "−") in ax.get_title()


def test_three_tokens_test_a_head():
    fig, alt = figures.three_tests(0.9, 0.5)
    off = []
    for ax, x in zip(fig.axes, ((1, 0), (0, 1), (1, 1)), strict=True):
        _, gap, token, target = (points(line) for line in ax.get_lines())
        assert np.allclose(token[1], x) and np.allclose(target[1], np.array([0.9, 0.5]) * x)
        assert np.allclose(gap[0], target[1]) and abs((gap[1] - gap[0]) @ x) < 1e-12
        off.append(np.linalg.norm(gap[1] - gap[0]))
    assert off == pytest.approx([0, 0, 0.4 / math.sqrt(2)])
    titles = [ax.get_title().splitlines()[1] for ax in fig.axes]
    assert titles == ["Mx = 0.900 x", "Mx = 0.500 x", f"Mx is off by {off[2]:.3f}"]
    assert all(title in alt for title in titles)


def test_the_price_is_drawn_over_its_bound():
    sizes, needed = torch.logspace(-2, 0, 5, dtype=F64), torch.rand(5, 7, dtype=F64) + 100
    fig, alt = figures.price(sizes, needed, 0.7)
    *dots, bound, ceiling = fig.axes[0].get_lines()
    assert np.allclose(np.stack([points(line)[:, 1] for line in dots], 1), needed)
    kept = [(size, math.sin(0.7) / size - 1) for size in sizes.tolist() if size < math.sin(0.7)]
    assert np.allclose(points(bound), kept)
    assert np.allclose(points(ceiling)[:, 1], 1) and "1 at ε = 0.322" in alt


def test_the_names_of_two_tokens_lie_on_nothing():
    fig, _ = figures.two_tokens(0.7)
    assert [crossed(ax) for ax in fig.axes] == [set()] * 3


@pytest.mark.guards("thm-single-head")
def test_the_lonely_clock_leaves_the_line_by_the_sine():
    fig, alt = figures.lonely_clock(0.7, 20, (1, 11))
    circle, values = fig.axes
    outputs = [np.linalg.matrix_power(turn(0.7), lag) @ [1, 0] for lag in range(20)]
    assert np.allclose(points(circle.get_lines()[-1]), outputs)
    assert np.allclose(points(values.get_lines()[-1])[:, 1], np.abs(np.array(outputs)[:, 1]))
    for ax in (circle, values):
        orange = [line for line in ax.get_lines() if line.get_color() == figures.COLORS["orange"]]
        assert [abs(points(line)[1, 1]) for line in orange] == pytest.approx([math.sin(0.7), math.sin(7.7)])
        assert crossed(ax) == set()
    assert "0.644 at lag 1, 0.988 at lag 11, at most 0.988" in alt


def test_the_tail_of_the_price_follows_its_law():
    t = math.sin(0.7) * (((torch.arange(400, dtype=F64) + 0.5) / 400) ** -2 - 1).sqrt()
    fig, alt = figures.tail(t, 0.7)
    law, dots = fig.axes[0].get_lines()
    assert np.allclose(points(law)[:, 1], 1 / np.sqrt(1 + (points(law)[:, 0] / math.sin(0.7)) ** 2))
    assert all((t >= price).double().mean() == pytest.approx(share) for price, share in points(dots))
    assert f"at least 10 on {float((t >= 10).double().mean()):.3f}" in alt and crossed(fig.axes[0]) == set()


def test_the_names_of_the_lengths_lie_on_nothing():
    assert crossed(figures.clock_frame(0.7).axes[1]) == set()
