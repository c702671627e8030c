"""Pictures of *gates-and-depth*: the gates multiply to the system, and the stack to its operator."""

import numpy as np
import pytest
import torch
from helpers import crossed, like, points

from ssmbook.chapters.gates_and_depth import figures
from ssmbook.chapters.gates_and_depth.stacks import residual_stack_operator


def shown(ax):
    """The table behind a picture of logarithms, with zeros where nothing is drawn."""
    return np.nan_to_num(10.0 ** np.ma.filled(ax.get_images()[0].get_array(), np.nan), nan=0.0)


@pytest.mark.guards("thm-gates")
@pytest.mark.parametrize(("lam", "n"), [(0.3, 16), (0.9, 7)])
def test_the_three_tables_multiply_to_the_fourth(lam, n):
    fig, alt = figures.gate_strip(lam, n)
    gate_out, ones, gate_in, system = (shown(ax) for ax in fig.axes)
    assert np.allclose(gate_out @ ones @ gate_in, system, rtol=1e-9, atol=0)
    assert np.allclose(ones, np.tri(n))
    steps = torch.full((n, n), 1.0, dtype=torch.float64).tril().numpy()
    for _ in range(n):  # the table by recurrence: a row is the one above, decayed, and a new one
        steps = np.vstack([steps[:1], lam * steps[:-1] + np.eye(n)[1:]])
    assert np.allclose(system, np.tril(steps))
    assert f"up to {lam ** (1 - n):.1e}" in alt and f"from 1 down to {lam ** (n - 1):.1e}" in alt
    assert len({ax.get_images()[0].get_clim() for ax in fig.axes}) == 1


def test_the_extreme_entry_stands_in_each_panel():
    fig, _ = figures.gate_strip(0.3, 16)
    assert [ax.texts[0].get_text() for ax in fig.axes] == ["1.4e-08", "1", "7e+07", "1.4e-08"]


def test_a_frame_of_the_stack_shows_the_operator_and_the_ranks():
    new = like(0)
    W = residual_stack_operator(torch.randn(2, 1, 6, 6, **new).tril(), torch.randn(2, 1, 3, 3, **new))
    picture, bars = figures.depth_frame(W, [1, 2, 4], 8).axes
    norms = W.to_dense().square().sum((2, 3)).sqrt().numpy()
    assert np.allclose(np.asarray(picture.get_images()[0].get_array()), norms)
    assert [bar.get_height() for bar in bars.patches] == [1, 2, 4]
    assert np.allclose(bars.get_lines()[0].get_ydata(), 8)


@pytest.mark.guards("thm-gates")
def test_the_line_of_two_lags_goes_through_the_pair_that_gates_can_make_and_no_other():
    tau, c = torch.arange(9, dtype=torch.float64), torch.rand(9, **like(1)) + 0.1
    pairs = {"gated": (c * 0.9**tau, c * 0.4**tau), "two": (0.9**tau + 0.5**tau, 0.8**tau)}
    fig, alt = figures.log_ratios(pairs)
    for ax, (title, (first, second)) in zip(fig.axes, pairs.items(), strict=True):
        line, dots = (np.asarray(curve.get_ydata()) for curve in ax.get_lines())
        assert np.allclose(dots, (first / second).log().numpy()) and np.allclose(line[:2], dots[:2])
        assert np.allclose(np.diff(line, 2), 0)
        assert np.allclose(dots, line) == (title == "gated")
        assert f"{title}: {abs(dots[-1] - line[-1]):.2f} off" in alt


@pytest.mark.guards("prop-depth-heads")
@pytest.mark.parametrize("L", [1, 2, 3])
def test_the_ways_through_a_stack_end_in_as_many_matrices_as_its_rank(L):
    fig, alt = figures.stack_paths(L)
    new = like(3)
    alpha, V = torch.randn(L, 1, 12, 12, **new).tril(), torch.randn(L, 1, 4, 4, **new)
    for ax, values in zip(fig.axes, (V, V[:1].expand(L, 1, 4, 4).contiguous()), strict=True):
        rank = residual_stack_operator(alpha, values).interaction_rank()
        ends = {tuple(text.xy): text.get_text() for text in ax.texts}
        drawn = {(line.get_xdata()[1], line.get_ydata()[1]) for line in ax.get_lines()}
        assert {end for end in drawn if end[0] == L} == set(ends) and len(set(ends.values())) == rank
        assert f"{rank} matrices" in ax.get_title() and f" {rank}" in alt
        blue = [line for line in ax.get_lines() if line.get_color() == figures.COLORS["blue"]]
        assert all(np.diff(line.get_ydata()) > 0 for line in blue) and 2 * len(blue) == len(ax.get_lines())
    assert {text.get_text() for text in fig.axes[0].texts} >= {"I", f"V{'₁₂₃'[L - 1]}"}


@pytest.mark.guards("prop-doubling-heads")
@pytest.mark.parametrize(("L", "lag"), [(3, 5), (4, 11)])
def test_every_token_has_one_way_to_the_last_output_and_each_head_its_step(L, lag):
    fig, alt = figures.doubling_tree(L, lag)
    n, edges = 2**L, {}
    for line in fig.axes[0].get_lines()[:-1]:
        (start, layer), (end, above) = points(line)
        assert above == layer + 1 and end - start in (0, 2**layer)
        edges.setdefault((end, above), set()).add((start, layer))
        if line.get_color() != figures.COLORS["orange"]:
            assert (line.get_color() == figures.COLORS["blue"]) == (end > start)
    below = [(n - 1, L)]
    for _ in range(L):
        below = [place for each in below for place in edges[each]]
    assert sorted(token for token, _ in below) == list(range(n))
    orange = [
        points(line) for line in fig.axes[0].get_lines() if line.get_color() == figures.COLORS["orange"]
    ]
    assert orange[0][0, 0] == n - 1 - lag and orange[-1][1, 0] == n - 1
    steps = [int(way[1, 0] - way[0, 0]) for way in orange if way[1, 0] > way[0, 0]]
    assert sum(steps) == lag and fig.axes[0].get_title() == f"{lag} places back = " + " + ".join(
        map(str, steps)
    )
    assert " and ".join(map(str, steps)) in alt


def test_prices_stand_at_the_counts():
    systems = {"eight decays": (8, True), "rotation": (2, False), "register": (16, False), "four": (4, False)}
    fig, alt = figures.prices(systems, 16)
    ax = fig.axes[0]
    marks = {
        marker: [points(line) for line in ax.get_lines() if line.get_marker() == marker] for marker in "|os"
    }
    assert [place[0, 0] for place in marks["o"]] == [8, 2, 16, 4] and len(marks["s"]) == 1
    assert [place[:, 0].tolist() for place in marks["|"]] == [[3, 4], [1, 4], [4, 4], [2, 4]]
    assert "rotation: 2 heads, none between gates, 1 to 4 layers" in alt and crossed(ax) == set()


def test_the_range_of_a_gate_ends_where_numbers_do():
    ends = {
        name: (torch.finfo(dtype).tiny, 1 - round(np.log2(torch.finfo(dtype).tiny)))
        for name, dtype in (("single", torch.float32), ("double", torch.float64))
    }
    fig, alt = figures.gate_range((0.95, 0.5, 0.3), ends)
    ax = fig.axes[0]
    gates = [
        points(line) for line in ax.get_lines() if len(line.get_xdata()) == 2 and line.get_linestyle() == "-"
    ]
    assert [round(10 ** (gate[1, 1] / gate[1, 0]), 9) for gate in gates] == [0.95, 0.5, 0.3]
    dots = [points(line)[0] for line in ax.get_lines() if line.get_marker() == "o"]
    for (last, power), (smallest, most) in zip(dots, ends.values(), strict=True):
        assert last == most - 1 and 10.0**power == pytest.approx(smallest, rel=1e-9)
        assert last * np.log10(0.5) == pytest.approx(power) and f"{most:,} tokens" in alt
    assert crossed(ax) == set()
