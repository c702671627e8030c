"""The pictures of the chapter *structured-dynamics*, read back and held to numbers had by another route."""

import numpy as np
import pytest
import torch
from helpers import crossed, points
from matplotlib.colors import to_rgba

from ssmbook import systems
from ssmbook.chapters.structured_dynamics import figures
from ssmbook.display import COLORS
from ssmbook.operators import RecurrentOperator


def spring_table(n, states):
    """Lags of decaying oscillations in closed form, one for every two states."""
    tau = np.arange(n)
    lags = sum(0.9**tau * np.sin((k + 1) * 0.6 * (tau + 1)) for k in range(states // 2))
    lag = tau[:, None] - tau
    return torch.from_numpy(np.where(lag >= 0, lags[np.abs(lag)], 0.0))


@pytest.mark.parametrize(("states", "m"), [(2, 7), (4, 6)])
def test_wires_carry_the_cut_and_there_are_as_many_as_states(states, m):
    n = 16
    table = spring_table(n, states)
    fig, alt = figures.past_and_future(table, m)
    left, right = fig.axes
    assert np.array_equal(np.asarray(left.get_images()[0].get_array()), table.numpy())
    (frame,) = left.patches
    assert frame.get_bbox().bounds == (-0.5, m - 0.5, m + 1, n - m)
    lines = [line for line in right.get_lines() if line.get_linestyle() == "-"]
    each = n + 2  # a wire has m + 1 lines from the past, itself, n - m lines to the future
    assert len(lines) == states * each

    def signed(line):
        return line.get_linewidth() * (1 if line.get_color() == COLORS["blue"] else -1) / 3

    cut, rebuilt = table[m:, : m + 1].numpy(), 0
    for s in range(states):
        wire = lines[s * each : (s + 1) * each]
        write = np.array([signed(line) for line in wire[: m + 1]])
        read = np.array([signed(line) for line in wire[m + 2 :]])
        rebuilt = rebuilt + np.outer(read, write) * (read @ cut @ write)
    assert np.allclose(rebuilt, cut, atol=1e-9)
    assert f"{m + 1} past tokens and {n - m} outputs joined through {states} wires" in alt


def test_rules_and_modes_show_the_numbers_they_are_given():
    spring = systems.mass_on_spring(1.0, 0.4, 4.0, dtype=torch.float64)
    M = systems.impulse_response(spring.discretize(0.25), 40)
    (ax,) = figures.compared_rules({"exact, radius 0.951": M}, 0.25).axes
    t, q = ax.get_lines()[0].get_xydata().T
    rate, turn = 0.2, np.sqrt(4 - 0.2**2)  # the mass pushed for one step, then free: in closed form
    free = np.exp(-rate * t) * (np.cos(turn * t) + rate / turn * np.sin(turn * t))  # 1 - 4 q after a step
    before = np.concatenate([[1.0], free[:-1]])
    assert np.allclose(q, (before - free) / 4 / 0.25, atol=1e-12)
    lam = torch.complex(-torch.ones(3), torch.tensor([5.0, 0.0, 2.0]))
    left, right = figures.starting_modes(
        {"a": lam, "b": lam, "c": lam}, torch.polar(torch.ones(2), torch.ones(2)), 0.1
    ).axes
    assert left.get_lines()[0].get_ydata().tolist() == [0.0, 2.0, 5.0]
    stepped = np.exp(0.1 * lam.numpy())
    assert np.allclose(right.get_lines()[1].get_xydata(), np.stack([stepped.real, stepped.imag], 1))
    assert to_rgba(left.get_lines()[0].get_color()) == to_rgba(COLORS["blue"])


def test_hankel_spectra_are_drawn_relative_to_their_first_values():
    spectra = {name: top * 0.1 ** torch.arange(5.0) for name, top in (("a", 1.0), ("b", 7.0), ("c", 0.02))}
    (ax,) = figures.hankel_spectra(spectra).axes
    for line in ax.get_lines():
        assert np.allclose(line.get_xdata(), range(1, 6))
        assert np.allclose(line.get_ydata(), 0.1 ** np.arange(5.0))
    assert [text.get_text() for text in ax.texts] == ["a", "b", "c"]


def test_the_path_of_the_spring_its_push_and_its_marks():
    t = torch.linspace(0, 9, 50)
    marks = {"top": (1.2, 0.5), "-0.1 m": (2.6, -0.1)}
    (ax,) = figures.spring_path(t, t.sin(), marks).axes
    path, *dots = (points(line) for line in ax.get_lines())
    assert np.allclose(path, np.stack([t, t.sin()], 1))
    assert np.allclose(np.concatenate(dots), list(marks.values()))
    assert {text.get_text(): text.xy for text in ax.texts} == {"top": (1.2, 0.5), "−0.1 m": (2.6, -0.1)}
    push = ax.patches[0].get_window_extent().transformed(ax.transData.inverted())
    assert np.allclose([push.x0, push.x1], [0, 1])


def test_a_kick_is_answered_one_step_later_and_poles_stand_where_they_are():
    M, poles = torch.arange(1.0, 6.0)[:, None, None], torch.tensor([-1 + 2j, -1 - 2j])
    left, right = figures.kicked_mass(M, 0.5, poles).axes
    assert np.allclose(points(left.get_lines()[0]).T, [[0.5, 1, 1.5, 2, 2.5], [2, 4, 6, 8, 10]])
    assert np.allclose(points(right.get_lines()[0]), [[-1, 2], [-1, -2]])
    assert np.allclose(right.get_lines()[1].get_xdata(), 0)  # the axis that no pole may cross


def test_a_step_shrinks_inside_the_drawn_border():
    modes = torch.tensor([-0.5 + 1j, -2.0 - 1j])
    rules = {"exact": torch.exp, "Euler": lambda z: 1 + z}
    fig = figures.stability_maps(rules, modes)
    assert [ax.get_title() for ax in fig.axes] == list(rules)
    x, y = np.linspace(-3, 1, 120), np.linspace(-2.2, 2.2, 121)
    z = torch.from_numpy(x + 1j * y[:, None])
    for ax, step in zip(fig.axes, rules.values(), strict=True):
        (picture,) = ax.get_images()
        assert np.allclose(picture.get_array(), -step(z).abs().log(), atol=1e-3)
        assert picture.get_extent() == [-3, 1, -2.2, 2.2] and picture.origin == "lower"
        assert np.allclose(points(ax.get_lines()[0]), [[-0.5, 1], [-2, -1]])
        border = np.concatenate([path.vertices for path in ax.collections[0].get_paths()])
        factor = step(torch.from_numpy(border[:, 0] + 1j * border[:, 1])).abs()
        assert len(border) and np.allclose(factor, 1, atol=0.05)


def test_the_gap_lies_between_its_bounds():
    u = torch.logspace(-3, 2, 30, dtype=torch.float64)
    gap = 1 - systems.phi1(-u)
    left, right = figures.mixed_gap(u, gap, (0.001, 1.6)).axes
    upper, drawn, lower = (points(line) for line in left.get_lines())
    assert np.allclose(drawn, np.stack([u, gap], 1))
    assert (lower[:, 1] <= drawn[:, 1] * (1 + 1e-9)).all() and (drawn[:, 1] <= upper[:, 1]).all()
    assert np.allclose(lower[:, 1], u / (2 + u)) and np.allclose(upper[:, 1], np.fmin(u / 2, u / (1 + u)))
    assert [line.get_label() for line in left.get_lines()] == ["upper bound", "1 − φ(−u)", "lower bound"]
    exact, mixed = (points(line) for line in right.get_lines())
    assert np.allclose(exact[:, 1], 1 - np.exp(-exact[:, 0])) and np.allclose(mixed[:, 0], mixed[:, 1])
    assert mixed[-1, 0] == exact[-1, 0] == 4


def test_ranks_of_cuts_stand_over_their_tokens_beside_their_names():
    ranks = {"a": [1, 2, 3, 2, 1], "b": [0, 1, 1]}
    (ax,) = figures.cut_rank_curves(ranks).axes
    for line, values in zip(ax.get_lines(), ranks.values(), strict=True):
        assert points(line).tolist() == [list(point) for point in enumerate(values)]
    assert {text.get_text(): text.xy for text in ax.texts} == {"a": (2, 3), "b": (1, 1)}
    hill = [min(4 * m, 4 * (32 - m)) for m in range(33)]
    plateaus = {f"at most {most}": [min(rank, most) for rank in hill] for most in (64, 52, 16, 6)}
    (ax,) = figures.cut_rank_curves(plateaus).axes
    assert not crossed(ax)


@pytest.mark.parametrize(("j", "i"), [(2, 5), (1, 1)])
def test_the_strong_way_multiplies_out_to_the_block(j, i):
    fig, alt = figures.way_through(j, i, 6)
    (ax,) = fig.axes
    letters = {text.get_text().strip("$"): text for text in ax.texts}
    strong = [name for name, text in letters.items() if text.get_color() == COLORS["blue"]]
    order = sorted(strong, key=lambda name: (letters[name].get_position()[0], "BAC".index(name[0])))
    new = {"generator": torch.Generator().manual_seed(0), "dtype": torch.float64}
    stacks = {"A": torch.randn(7, 3, 3, **new), "B": torch.randn(7, 3, 2, **new)}
    stacks["C"] = torch.randn(7, 4, 3, **new)
    product = torch.eye(2, dtype=torch.float64)
    for name in order:
        product = stacks[name[0]][int(name[2:])] @ product
    W = RecurrentOperator(stacks["A"], stacks["B"], stacks["C"]).to_dense()
    torch.testing.assert_close(product, W[i, j])
    thick = [
        text for text in ax.texts if getattr(text, "arrow_patch", None) and text.arrow_patch.get_lw() > 2
    ]
    assert len(thick) == len(order)
    assert alt.endswith(f"passes {', '.join(name.replace('_', '') for name in order)}.")


def test_a_table_of_answers_is_written_out_and_split():
    see, reach = np.array([[1.0, 0], [0, 1], [1, 1]]), np.array([[1.0, 2, 3], [2, 3, 5]])
    H = see @ reach
    fig, alt = figures.hankel_split(*map(torch.from_numpy, (H, see, reach)))
    answers, _, left, _, right = fig.axes
    pictures = [np.asarray(ax.get_images()[0].get_array()) for ax in (answers, left, right)]
    assert np.array_equal(pictures[0], H) and np.array_equal(pictures[1] @ pictures[2], H)
    written = {text.get_position(): text.get_text() for text in answers.texts}
    assert written == {(c, r): f"{H[r, c]:g}" for r in range(3) for c in range(3)}
    assert "3 by 2 times 2 by 3, off by 0.000" in alt
    assert fig.stacks == ()  # one line on a phone too
    assert "off by 1.000" in figures.hankel_split(*map(torch.from_numpy, (H + 1, see, reach)))[1]


def test_a_dot_stands_at_each_layers_step_and_gap():
    steps, gaps = [0.01, 0.05, 0.02], [0.2, 0.9, 0.4]
    fig, alt = figures.gaps_over_steps(steps, gaps)
    dots, median = fig.axes[0].get_lines()
    assert points(dots).tolist() == [list(pair) for pair in zip(steps, gaps, strict=True)]
    assert set(median.get_ydata()) == {0.4} and "median 0.40" in alt
