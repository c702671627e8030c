"""Figures of the chapter *interaction-rank-gap*."""

from __future__ import annotations

import numpy as np

from ssmbook._checks import check_integer
from ssmbook.display import COLORS, LINES, figure, label_line


def clock_frame(theta: float, n: int, shares):
    """Return a figure of the rotation's lag operators in the plane of I and J, beside what one head misses.

    theta: the angle of this frame; n: number of lags; ``shares(theta)`` returns (sigma_1^2, sigma_2^2), each
    relative to the energy of the operator, at any angle. Left: the points (cos tau theta, sin tau theta),
    area in proportion to how often the lag occurs, the line of the best single head, and what it misses.
    Right: both shares against the angle, marked at theta. Raises ``TypeError``/``ValueError`` for n < 1.
    Introduced in *interaction-rank-gap*.
    """
    check_integer("n", n, low=1)
    fig, (plane, values) = figure(ncols=2, size="slider")
    tau = np.arange(n)
    often = n - tau
    mean = np.angle(np.sum(often * np.exp(2j * theta * tau))) / 2  # direction of the best single head
    plane.plot(*(1.25 * np.outer((np.cos(mean), np.sin(mean)), (-1, 1))), color=COLORS["orange"], lw=1.5)
    plane.scatter(np.cos(theta * tau), np.sin(theta * tau), s=3 * often, color=COLORS["blue"])
    plane.set(xlim=(-1.4, 1.4), ylim=(-1.4, 1.4), xticks=(-1, 0, 1), yticks=(-1, 0, 1), aspect="equal")
    plane.set(xlabel="part along I", ylabel="part along J", title=f"one head misses {shares(theta)[1]:.3f}")
    grid = np.linspace(0, np.pi, 181)
    curves = np.array([shares(angle) for angle in grid])
    for column, (color, line) in enumerate((("green", "dashed"), ("blue", "solid"))):
        values.plot(grid, curves[:, column], color=COLORS[color], linestyle=LINES[line])
        values.plot(theta, shares(theta)[column], "o", color=COLORS[color], ms=7)
        label_line(values, np.pi / 2, curves[90, column], f"σ{'₁₂'[column]}²", dx=0, dy=(9, -10)[column])
    values.set(ylim=(-0.05, 1.05), xlabel="angle θ", title="share of the energy")
    values.set_xticks((0, np.pi / 2, np.pi), ("0", "π/2", "π"))
    return fig
