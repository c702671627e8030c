"""Figures of *two-ways-to-mix*; each returns the figure, or the figure and its alternative text."""

import math

import numpy as np
import torch
from matplotlib.patches import Rectangle

from ssmbook.display import COLORS, figure, label_line, number
from ssmbook.display.pictures import equation, part_blocks
from ssmbook.display.style import LINES, SEQUENTIAL, readable
from ssmbook.numerics import toeplitz
from ssmbook.operators import FactorizedOperator
from ssmbook.operators.spectra import leading_row_directions

_FRAME = {"fill": False, "edgecolor": COLORS["orange"], "linewidth": 2, "clip_on": False}
LAGS = 120  # that the picture of a memory shows


def average_twice(x, a):
    """Draw the average, 0 < a < 1, of two pulses in x (n,) as a state and as a table of weights."""
    fig, (bars, table) = figure(ncols=2, size=(7.0, 3.2))
    n = len(x)
    weights = toeplitz((1 - a) * a ** torch.arange(n))
    below, pulses = torch.zeros(n), x.nonzero()[:, 0].tolist()
    for at, color in zip(pulses, ("blue", "orange"), strict=True):
        left = x[at] * weights[:, at]
        bars.bar(range(n), left.numpy(), 0.7, bottom=below.numpy(), color=COLORS[color])
        below = below + left
        label_line(bars, at - 0.35, float(below[at]), f"{x[at]:g} comes in", dx=0, dy=8, color=COLORS[color])
    bars.set(xlabel="position i", ylabel="state h", title="one number, updated")
    bars.set_ylim(0, 1.2 * float(below.max()))
    table.imshow(weights.numpy(), cmap=SEQUENTIAL, vmin=0, vmax=1)
    for i, j in torch.ones(n, n).tril().nonzero().tolist():
        table.text(j, i, f"{float(weights[i, j]):.3f}".strip("0"), ha="center", va="center", fontsize=9)
    table.add_patch(Rectangle((-0.5, n - 1.5), n, 1, **_FRAME))
    table.grid(False)
    table.set(xticks=range(n), xlabel="input j", ylabel="output i", title="one weight for each pair")
    first, second = (float(x[at] * weights[-1, at]) for at in pulses)
    alt = (
        f"Left, the state after each of {n} numbers: {x[pulses[0]]:g} comes in at {pulses[0]} and fades, "
        f"{x[pulses[1]]:g} comes in at {pulses[1]}; the last bar is {first:.3f} plus {second:.3f}. "
        f"Right, {n} by {n} weights, {weights[0, 0]:g} on the diagonal, {a:g} of it a step back, zero above."
    )
    return fig, alt


def memory(a):
    """Draw the weights of an average with memory 0 < a < 1, as a table and against the lag, the newest 1."""
    fig, (left, right) = figure(ncols=2, size="slider")
    left.imshow(toeplitz(a ** torch.arange(24)).numpy(), cmap=SEQUENTIAL, vmin=0, vmax=1)
    left.set(xlabel="input →", ylabel="← output", xticks=[], yticks=[], title=f"the table, a = {a}")
    right.semilogy(range(LAGS + 1), [a**tau for tau in range(LAGS + 1)], color=COLORS["green"])
    right.axhline(0.01, color=COLORS["gray"], linestyle=LINES["dashed"], linewidth=1.2)
    label_line(right, LAGS, 0.01, "1 %", dx=-2, dy=7, ha="right")
    reach = hundredth(a)
    if reach <= LAGS:
        right.plot(reach, a**reach, "o", color=COLORS["green"])
        label_line(right, reach, 0.01, f"lag {reach}", dx=6, dy=-9 if reach > 80 else 9, ha="left")
    right.set(xlim=(0, LAGS), ylim=(1e-3, 1.3), xlabel="lag", title="one row of it")
    return fig


def hundredth(a) -> int:
    """The first lag at which a weight has fallen to one hundredth of the newest."""
    return math.ceil(math.log(0.01) / math.log(a))


def two_tables(tables, letters):
    """Draw two n by n tables of weights, {title: table}, between n letters, the last row of each framed."""
    fig, axes = figure(ncols=2, size=(7.0, 3.5))
    for ax, (title, table) in zip(axes, tables.items(), strict=True):
        n = len(table)
        ax.imshow(table.numpy(), cmap=SEQUENTIAL, vmin=0)
        ax.add_patch(Rectangle((-0.5, n - 1.5), n, 1, **_FRAME))
        ax.grid(False)
        ax.set(title=title, xticks=range(n), yticks=range(n), xlabel="input →", ylabel="← output")
        ax.set(xticklabels=letters, yticklabels=letters)
    position, content = tables.values()
    alike = [letter == letters[-1] for letter in letters]
    last, other = alike.index(True), alike.index(False)
    alt = (
        f"Two {n} by {n} weight tables. Left, the average: constant along diagonals, {position[-1, -1]:.2f} "
        f"on the main one. Right, softmax: the last row puts {content[-1, last]:.2f} on each of the "
        f"{sum(alike)} letters {letters[-1]}, {content[-1, other]:.3f} elsewhere."
    )
    return fig, alt


def plane_of_lags(theta, n=20):
    """Draw the n lag operators of the rotation by theta in the plane of I and J, and the best single head."""
    fig, (left, right) = figure(ncols=2, size="slider")
    dots = best_single_head(left, theta, n)
    # The dots fill a disc, so the corners are free.
    key = {"transform": left.transAxes, "color": readable(COLORS["orange"]), "fontsize": 9.5}
    left.text(0.02, 0.03, "— one head", **key)
    for tau in (0, 1) if abs(math.sin(theta)) > 0.2 else (0,):
        dx, dy = _free_place(left, dots[tau])
        label = label_line(left, *dots[tau], f"lag {tau}", dx=dx, dy=dy, ha="center", color=COLORS["blue"])
        label.set_in_layout(False)  # the panels stay where they are
    left.set_title(f"one head misses {missed(theta, n):.3f}")
    angles = torch.linspace(0, math.pi, 201, dtype=torch.float64)
    right.plot(angles, [missed(t, n) for t in angles.tolist()], color=COLORS["orange"])
    right.plot(theta, missed(theta, n), "o", color=COLORS["orange"], markersize=7)
    right.set(ylim=(0, 0.55), xlabel="angle θ", title="share of the energy missed")
    right.set(xticks=[0, math.pi / 2, math.pi], xticklabels=["0", "π/2", "π"])
    return fig


def _free_place(ax, dot, side=150, half=(15.0, 6.0)):
    """Where a label (2 half across and up), from a dot of square axes (side), is clearest; all in points."""
    half, scale = np.array(half), side / np.ptp(ax.get_xlim())
    drawn = []
    for line in ax.get_lines():
        points = np.asarray(line.get_xydata())
        drawn.append(np.linspace(*points, 60) if len(points) == 2 else points)
    dot = np.asarray(dot)
    around = (np.concatenate(drawn) - dot) * scale

    def clear(place):
        edge = np.abs(dot * scale + place) + half
        outside = edge[0] > side / 2 + 16 or edge[1] > side / 2
        near = (np.abs(around - place) - half).clip(min=0)
        return -1.0 if outside else np.hypot(*near.T).min()

    around_it = ((0, 12), (0, 17), (22, 0), (18, 10), (12, 14), (8, 17), (10, 20))
    return max(((a * x, b * y) for x, y in around_it for a in (1, -1) for b in (-1, 1)), key=clear)


def best_single_head(ax, theta, n):
    """Draw the lag operators, the line of one head and what it misses of each; returns the dots (n, 2)."""
    dots = lag_dots(theta, n)
    direction = leading_row_directions(dots, 1)[0]  # of the line closest to them: the best value map
    feet = (dots @ direction)[:, None] * direction
    reach = 1.12 * math.sqrt(n)
    ax.plot(*(reach * torch.stack([-direction, direction])).T, color=COLORS["orange"], linestyle="-")
    for dot, foot in zip(dots, feet, strict=True):
        ax.plot(*torch.stack([dot, foot]).T, color=COLORS["gray"], linestyle="-", linewidth=1)
    ax.plot(*dots.T, "o", color=COLORS["blue"], linestyle="none", markersize=5)
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=[], yticks=[])
    ax.set(xlabel="part along I", ylabel="part along J")
    return dots


def lag_dots(theta, n):
    """The n lag operators in the plane of I and J, (n, 2), as long as the root of how often each occurs."""
    tau = torch.arange(n, dtype=torch.float64)
    return torch.sqrt(n - tau)[:, None] * torch.stack([torch.cos(theta * tau), torch.sin(theta * tau)], 1)


def missed(theta, n=20) -> float:
    """The share of the energy that the best single head misses."""
    sigma2 = torch.linalg.svdvals(lag_dots(theta, n)) ** 2
    return float(sigma2[1] / sigma2.sum())


def operator_as_heads(alpha, V):
    """Draw the operator of heads alpha (2, n, n), V (2, p, d) as A_1 ⊗ V_1 + A_2 ⊗ V_2, on one scale."""
    W = torch.einsum("hij,hpd->ipjd", alpha, V).flatten(2).flatten(0, 1)
    top = float(W.abs().max())
    ratios = [2.6, 0.35, 1.7, 0.3, 0.6, 0.3, 1.7, 0.3, 0.6]
    fig, axes = figure(ncols=9, size=(7.0, 2.75), width_ratios=ratios)
    fig.stacks = (1, 5)
    parts = [W, "=", alpha[0], "⊗", V[0], "+", alpha[1], "⊗", V[1]]
    titles = ["$W$", "", "$A_1$", "", "$V_1$", "", "$A_2$", "", "$V_2$"]
    equation(axes, parts, titles, top=top, sign_size=15, title_size=12)
    n, (p, d) = alpha.shape[-1], V.shape[1:]
    part_blocks(axes[0], n, p, d, 0.5)
    article = "an" if str(n).startswith("8") else "a"
    alt = (
        f"A block matrix W of {n} by {n} blocks of size {p} by {d}, zero above the diagonal. It equals the "
        f"sum of two terms, each {article} {n} by {n} table of numbers times one {p} by {d} matrix. The best "
        f"single term misses {number(FactorizedOperator(alpha, V).floor(1))} of its energy."
    )
    return fig, alt


def costs(lengths, explicit, implicit, crossing):
    """Draw the multiplications of both ways against the lengths, and the length at which they cross."""
    fig, ax = figure(size="panel")
    for name, color, values in (("table", "blue", explicit), ("state", "orange", implicit)):
        ax.loglog(lengths, values, color=COLORS[color], linestyle="-")
        label_line(ax, lengths[-1], values[-1], name)
    ax.axvline(crossing, color=COLORS["gray"], linestyle=LINES["dashed"], linewidth=1.2)
    label_line(ax, crossing, explicit[0], f"n = {crossing}", dx=5)
    ax.set(xlabel="tokens n", ylabel="multiplications", xlim=(None, 12 * lengths[-1]))
    words = "slope 2 for the table, slope 1 for the state"
    return fig, f"Multiplications against length on logarithmic axes: {words}, crossing at n = {crossing}."
