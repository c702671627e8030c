"""What figures draw, held to the mathematics by another route; each figures.txt has the labels."""

import math

import numpy as np
import pytest
import torch
from helpers import F64, clock, crossed, like, points, randn, rotation
from scipy.optimize import nnls

from headsandstates.chapters.gates_and_depth import figures as gates
from headsandstates.chapters.gates_and_depth.stacks import residual_stack_operator
from headsandstates.chapters.how_many_heads_really import figures as really
from headsandstates.chapters.interaction_rank_gap import figures as gap
from headsandstates.chapters.linear_algebra import figures as linear
from headsandstates.chapters.two_ways_to_mix import figures as mixing
from ssmbook.display import COLORS
from ssmbook.heads import head_count
from ssmbook.operators import LagOperator
from ssmbook.systems import System


def unlogged(ax):
    """The table behind a picture of logarithms, with zeros where nothing is drawn."""
    return np.nan_to_num(10.0 ** np.ma.filled(ax.get_images()[0].get_array(), np.nan), nan=0.0)


@pytest.mark.guards("thm-gates")
@pytest.mark.parametrize(("lam", "n"), [(0.3, 16), (0.9, 7)])
def test_the_three_tables_multiply_to_the_fourth(lam, n):
    fig, _ = gates.gate_strip(lam, n)
    gate_out, ones, gate_in, system = (unlogged(ax) for ax in fig.axes)
    assert np.allclose(gate_out @ ones @ gate_in, system, rtol=1e-9, atol=0)
    assert np.allclose(ones, np.tri(n))
    steps = torch.full((n, n), 1.0, dtype=F64).tril().numpy()
    for _ in range(n):  # the table by recurrence: a row is the one above, decayed, and a new one
        steps = np.vstack([steps[:1], lam * steps[:-1] + np.eye(n)[1:]])
    assert np.allclose(system, np.tril(steps))


@pytest.mark.guards("thm-gates")
def test_the_line_of_two_lags_goes_through_the_pair_that_gates_can_make_and_no_other():
    tau, c = torch.arange(9, dtype=F64), torch.rand(9, **like(1)) + 0.1
    pairs = {"gated": (c * 0.9**tau, c * 0.4**tau), "two": (0.9**tau + 0.5**tau, 0.8**tau)}
    fig, _ = gates.log_ratios(pairs)
    for ax, (title, (first, second)) in zip(fig.axes, pairs.items(), strict=True):
        line, dots = (np.asarray(curve.get_ydata()) for curve in ax.get_lines())
        assert np.allclose(dots, (first / second).log().numpy()) and np.allclose(line[:2], dots[:2])
        assert np.allclose(np.diff(line, 2), 0)
        assert np.allclose(dots, line) == (title == "gated")


@pytest.mark.guards("prop-depth-heads")
@pytest.mark.parametrize("L", [1, 2, 3])
def test_the_ways_through_a_stack_end_in_as_many_matrices_as_its_rank(L):
    fig, alt = gates.stack_paths(L)
    new = like(3)
    alpha, V = torch.randn(L, 1, 12, 12, **new).tril(), torch.randn(L, 1, 4, 4, **new)
    for ax, values in zip(fig.axes, (V, V[:1].expand(L, 1, 4, 4).contiguous()), strict=True):
        rank = residual_stack_operator(alpha, values).interaction_rank()
        ends = {tuple(text.xy): text.get_text() for text in ax.texts}
        drawn = {(line.get_xdata()[1], line.get_ydata()[1]) for line in ax.get_lines()}
        assert {end for end in drawn if end[0] == L} == set(ends) and len(set(ends.values())) == rank
        assert f"{rank} matrices" in ax.get_title() and f" {rank}" in alt
        rising = [line for line in ax.get_lines() if line.get_color() == gates.COLORS["head"]]
        assert all(np.diff(line.get_ydata()) > 0 for line in rising) and 2 * len(rising) == len(
            ax.get_lines()
        )
    assert {text.get_text() for text in fig.axes[0].texts} >= {"I", f"V{'₁₂₃'[L - 1]}"}


@pytest.mark.guards("prop-doubling-heads")
@pytest.mark.parametrize(("L", "lag"), [(3, 5), (4, 11)])
def test_every_token_has_one_way_to_the_last_output_and_each_head_its_step(L, lag):
    fig, _ = gates.doubling_tree(L, lag)
    n, edges = 2**L, {}
    for line in fig.axes[0].get_lines()[:-1]:
        (start, layer), (end, above) = points(line)
        assert above == layer + 1 and end - start in (0, 2**layer)
        edges.setdefault((end, above), set()).add((start, layer))
        if line.get_color() != gates.COLORS["purple"]:
            assert (line.get_color() == gates.COLORS["head"]) == (end > start)
    below = [(n - 1, L)]
    for _ in range(L):
        below = [place for each in below for place in edges[each]]
    assert sorted(token for token, _ in below) == list(range(n))
    marked = [points(line) for line in fig.axes[0].get_lines() if line.get_color() == gates.COLORS["purple"]]
    assert marked[0][0, 0] == n - 1 - lag and marked[-1][1, 0] == n - 1
    steps = [int(way[1, 0] - way[0, 0]) for way in marked if way[1, 0] > way[0, 0]]
    assert sum(steps) == lag and fig.axes[0].get_title() == f"{lag} places back = " + " + ".join(
        map(str, steps)
    )


@pytest.mark.guards("thm-sink-count")
@pytest.mark.parametrize("theta", [0.7, -0.4, 2.5])
def test_the_open_cone_of_the_drawn_heads_holds_every_lag(theta):
    for n in range(2, 12):
        M = clock(theta, n=n)
        points = M[:, :, 0].numpy()
        V = really.sink_value_maps(points)
        assert (
            len(V)
            == head_count(M, coefficients="softmax").value
            == (2 if (n - 1) * abs(theta) < math.pi else 3)
        )
        for point in points:
            if len(V) == 2:
                assert np.linalg.solve(V.T, point).min() > 0
            else:
                assert nnls(V.T, point)[1] < 1e-12 and np.allclose(V.sum(0), 0)


@pytest.mark.guards("thm-single-head")
def test_the_lonely_clock_leaves_the_line_by_the_sine():
    fig, alt = gap.lonely_clock(0.7, 20, (1, 11))
    circle, values = fig.axes
    outputs = [np.linalg.matrix_power(rotation(0.7), lag) @ [1, 0] for lag in range(20)]
    assert np.allclose(points(circle.get_lines()[-1]), outputs)
    assert np.allclose(points(values.get_lines()[-1])[:, 1], np.abs(np.array(outputs)[:, 1]))
    for ax in (circle, values):
        marked = [line for line in ax.get_lines() if line.get_color() == COLORS["black"]]
        assert [abs(points(line)[1, 1]) for line in marked] == pytest.approx([math.sin(0.7), math.sin(7.7)])
        assert crossed(ax) == set()
    assert "0.644 at lag 1, 0.988 at lag 11, at most 0.988" in alt


@pytest.mark.guards("prop-weyl")
def test_no_ellipse_fits_into_the_circle_and_no_dot_leaves_its_bar():
    P = torch.tensor([[1.5, 0.7], [-0.2, 1.0]], dtype=F64)
    changes = randn(4, 2, 1, seed=1) @ randn(4, 1, 2, seed=2)
    R, rank_one = randn(5, 5, seed=3), randn(9, 5, 1, seed=4) @ randn(9, 1, 5, seed=5)
    fig, alt = linear.weyl(P, changes, R, rank_one)
    plane, values = fig.axes
    *ellipses, of_P, circle = (np.linalg.norm(points(line), axis=1) for line in plane.get_lines())
    assert np.allclose(circle, of_P.min(), rtol=3e-3) and len(ellipses) == 4
    assert min(ellipse.max() for ellipse in ellipses) >= circle[0] * (1 - 1e-3)
    sigma = np.linalg.svd(R.numpy(), compute_uv=False)
    for r in range(5):
        bar, dots, mark = (points(line)[:, 1] for line in values.get_lines()[3 * r : 3 * r + 3])
        assert np.allclose(mark, sigma[r]) and len(dots) == 9
        assert bar[0] - 1e-12 <= dots.min() and dots.max() <= bar[1] + 1e-12
        assert bar[0] == pytest.approx([*sigma[1:], 0][r], abs=1e-12)
        assert r == 0 or bar[1] == pytest.approx(sigma[r - 1])
    assert "4 ellipses" in alt and "9 spectra of 5 values" in alt


@pytest.mark.parametrize("theta", [0.0, 0.3, 0.7, 2.2, math.pi])
def test_dots_lie_where_the_lag_operators_are_and_gray_is_what_the_best_head_misses(theta):
    n = 20
    left, right = mixing.plane_of_lags(theta, n).axes
    axis, spiral, *gray = left.get_lines()
    dots = left.collections[0].get_offsets()
    assert np.allclose(points(spiral)[0], dots[0]) and np.allclose(points(spiral)[-1], dots[-1])
    R = rotation(theta)
    for tau, (x, y) in enumerate(dots):
        lag = math.sqrt(n - tau) * np.linalg.matrix_power(R.numpy(), tau)
        assert np.allclose([x, y], [lag[0, 0], lag[1, 0]], atol=1e-12)
    assert all(np.allclose(points(line)[0], dot) for line, dot in zip(gray, dots, strict=True))
    direction = points(axis)[1] - points(axis)[0]
    assert all(abs((points(line)[1] - points(line)[0]) @ direction) < 1e-9 for line in gray)
    eye = torch.eye(2, dtype=torch.float64)
    sigma2 = LagOperator(System(R, eye, eye).lags(n)).spectrum() ** 2
    share = float(sigma2[1:].sum() / sigma2.sum())
    lengths = sum(((points(line)[1] - points(line)[0]) ** 2).sum() for line in gray)
    assert lengths / (dots**2).sum() == pytest.approx(share, abs=1e-12)
    assert f"{share:.3f}" in left.get_title()
    curve, mark = right.get_lines()
    assert points(mark)[0] == pytest.approx([theta, share], abs=1e-12)
    assert np.interp(theta, *points(curve).T) == pytest.approx(share, abs=2e-3)


def test_names_lie_on_no_line():
    lengths = [2**e for e in range(4, 17)]
    costs, _ = mixing.costs(lengths, [32 * n * n for n in lengths], [8256 * n for n in lengths], 257)
    figures = [costs, gap.two_tokens(0.7)[0], gap.lonely_clock(0.7, 20, (1, 11))[0]]
    figures += [mixing.plane_of_lags(theta) for theta in (0.1, 2.2)]
    for fig in figures:
        assert not crossed(fig.axes[0])
