"""The pictures of the chapter *structured-dynamics*, read back and held to numbers had by another route."""

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgba

from ssmbook import systems
from ssmbook.chapters.structured_dynamics import figures
from ssmbook.display import COLORS


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
