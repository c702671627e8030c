"""Figures of *two-ways-to-mix*; each returns the figure, or the figure and its alternative text."""

import math

import numpy as np
import torch
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Circle, Rectangle

from headsandstates.chapters._drawn import (
    HEAD,
    STATE,
    arrow,
    equation,
    level,
    part_blocks,
    unit_circle,
    weights,
    write,
)
from ssmbook.display import COLORS, figure, label_line, number
from ssmbook.display.style import DIVERGING, LINES, readable
from ssmbook.numerics import toeplitz
from ssmbook.operators import FactorizedOperator
from ssmbook.operators.spectra import row_directions
from ssmbook.systems import rotation

_FADING = LinearSegmentedColormap.from_list("steps", ["#3D0719", COLORS["state"], "#DDA9B7"])
_LAGS = LinearSegmentedColormap.from_list("lags", ["#333333", "#C4C4C4"])
_FRAME = {"fill": False, "edgecolor": COLORS["black"], "linewidth": 2, "clip_on": False}
LAGS = 120  # that the picture of a memory shows


def two_ways(n=5):
    """Draw how the last of n outputs is computed: from all tokens, or from a state that is carried on."""
    fig, axes = figure(ncols=2, size=(7.0, 2.3))
    names = {"attention looks back at every token": HEAD, "a state keeps one summary of them": STATE}
    pale = {"color": "#D4D4D4", "ls": "-", "lw": 0.8, "zorder": 0}  # the ways to other outputs
    for ax, (title, hue) in zip(axes, names.items(), strict=True):
        strong = {"color": COLORS[hue], "lw": 1.6}
        for j in range(n):
            last = j == n - 1
            face = COLORS[hue] if last else "white"
            ax.add_patch(Rectangle((j - 0.2, -0.2), 0.4, 0.4, color="#B5B5B5"))
            write(ax, j, -0.5, f"$x_{j}$", 10.5)
            ax.add_patch(Circle((j, 2), 0.2, facecolor=face, edgecolor=COLORS[hue]))
            write(ax, j, 2.48, f"$y_{j}$", 10.5)
            if hue == HEAD:
                for i in range(j, n - 1):
                    ax.plot([j, i], [0.2, 1.8], **pale)
                arrow(ax, (j, 0.2), (n - 1, 1.8), **strong)
            else:
                ax.add_patch(Rectangle((j - 0.24, 0.76), 0.48, 0.48, facecolor=COLORS[hue], edgecolor="none"))
                write(ax, j, 1, f"$h_{j}$", 10.5, color="white")
                arrow(ax, (j, 0.2), (j, 0.76), **strong)
                if last:
                    arrow(ax, (j, 1.24), (j, 1.8), **strong)
                else:
                    ax.plot([j, j], [1.24, 1.8], **pale)
                    arrow(ax, (j + 0.24, 1), (j + 0.76, 1), **strong)
        ax.set(xlim=(-0.6, n - 0.4), ylim=(-0.75, 2.75), title=title, aspect="equal")
        ax.set_axis_off()
    return fig, (
        f"Two ways to compute the last of {n} outputs. Left: {n} lines, one from each token to the output. "
        f"Right: {n} boxes in a row; each passes one state on to the next, and the last gives the output."
    )


def average_twice(x, a):
    """Draw the average, 0 < a < 1, of two pulses in x (n,) as a state and as a matrix of weights."""
    fig, (bars, matrix) = figure(ncols=2, size=(7.0, 3.2))
    n = len(x)
    alpha = toeplitz((1 - a) * a ** torch.arange(n))
    below, pulses = torch.zeros(n), x.nonzero()[:, 0].tolist()
    for at, color in zip(pulses, ("brown", "purple"), strict=True):
        left = x[at] * alpha[:, at]
        bars.bar(range(n), left.numpy(), 0.7, bottom=below.numpy(), color=COLORS[color])
        below = below + left
        label_line(bars, at - 0.35, float(below[at]), f"{x[at]:g} comes in", dx=0, dy=8, color=COLORS[color])
    bars.set(xlabel="position i", ylabel="state h", title="one number, updated")
    bars.set_ylim(0, 1.2 * float(below.max()))
    weights(matrix, alpha)
    for i, j in torch.ones(n, n).tril().nonzero().tolist():
        write(matrix, j, i, f"{float(alpha[i, j]):.3f}".strip("0"), 9)
    matrix.add_patch(Rectangle((-0.5, n - 1.5), n, 1, **_FRAME))
    matrix.set(xticks=range(n), xlabel="input j", ylabel="output i", title="one weight for each pair")
    first, second = (float(x[at] * alpha[-1, at]) for at in pulses)
    return fig, (
        f"Left, the state after each of {n} numbers: {x[pulses[0]]:g} comes in at {pulses[0]} and fades, "
        f"{x[pulses[1]]:g} comes in at {pulses[1]}; the last bar is {first:.3f} plus {second:.3f}. "
        f"Right, {n} by {n} weights, {alpha[0, 0]:g} on the diagonal, {a:g} of it a step back, zero above."
    )


def memory(a):
    """Draw the weights of an average with memory 0 < a < 1, as a matrix and against the lag, the newest 1."""
    fig, (left, right) = figure(ncols=2, size="slider")
    weights(left, toeplitz(a ** torch.arange(24)))
    left.set(xlabel="input →", ylabel="← output", xticks=[], yticks=[], title=f"the weights, a = {a}")
    right.semilogy(range(LAGS + 1), [a**tau for tau in range(LAGS + 1)], color=COLORS["black"])
    level(right, 0.01, 1.2)
    label_line(right, LAGS, 0.01, "1 %", dx=-2, dy=7, ha="right")
    reach = hundredth(a)
    if reach <= LAGS:
        right.plot(reach, a**reach, "o", color=COLORS["black"])
        label_line(right, reach, 0.01, f"lag {reach}", dx=6, dy=-9 if reach > 80 else 9, ha="left")
    right.set(xlim=(0, LAGS), ylim=(1e-3, 1.3), title="one row of it")
    right.set(xlabel="lag", ylabel="weight over the newest")
    return fig


def hundredth(a) -> int:
    """The first lag at which a weight has fallen to one hundredth of the newest."""
    return math.ceil(math.log(0.01) / math.log(a))


def two_matrices(matrices, letters):
    """Draw two n by n attention matrices, {title: matrix}, between n letters, the last row of each framed."""
    fig, axes = figure(ncols=2, size=(7.0, 3.5))
    top, n = max(float(alpha.max()) for alpha in matrices.values()), len(letters)
    for ax, (title, alpha) in zip(axes, matrices.items(), strict=True):
        weights(ax, alpha, letters, top=top)
        ax.add_patch(Rectangle((-0.5, n - 1.5), n, 1, **_FRAME))
        ax.set(title=title, xlabel="input →", ylabel="← output")
    position, content = matrices.values()
    alike = [letter == letters[-1] for letter in letters]
    last, other = alike.index(True), alike.index(False)
    return fig, (
        f"Two {n} by {n} attention matrices. Left, the average: constant along diagonals, "
        f"{position[-1, -1]:.2f} on the main one. Right, softmax: the last row puts {content[-1, last]:.2f} "
        f"on each of the {sum(alike)} letters {letters[-1]}, {content[-1, other]:.3f} elsewhere."
    )


def rotating_state(theta):
    """Draw one token in a state that rotates by theta, up to three steps later, and its lag operators."""
    fig, (circle, matrices) = figure(ncols=2, size=(7.0, 3.0))
    unit_circle(circle)
    for tau, words in enumerate(("0 steps", "1 step later", "2 steps later", "3 steps later")):
        tip = np.array([math.cos(theta * tau), math.sin(theta * tau)])
        arrow(circle, (0, 0), tip, _FADING(0.8 * tau / 3), lw=2.4)
        write(circle, *(1.1 * tip), words, 9.5, ha="left" if tip[0] > -0.2 else "right")
        left, down = 2.9 * (tau % 2), 3.1 * (tau // 2)
        for (row, column), value in np.ndenumerate(rotation(theta * tau, dtype=torch.float64).numpy() + 0.0):
            x, y = left + column, -down - row
            look = {"facecolor": DIVERGING((value + 1) / 2), "edgecolor": COLORS["gray"], "lw": 0.6}
            matrices.add_patch(Rectangle((x, y), 1, 1, **look))
            ink = "white" if value > 0.6 else "black"
            write(matrices, x + 0.5, y + 0.5, f"{value:.2f}".replace("-", "−"), 9, color=ink)
        write(matrices, left + 1, 1.3 - down, f"$M_{tau}$", 10.5)
    circle.set(xlim=(-1.75, 1.75), ylim=(-1.1, 1.35), aspect="equal", title="one token in the state")
    matrices.set(xlim=(-0.3, 5.2), ylim=(-4.3, 1.7), aspect="equal", title="what has been done to it")
    for ax in (circle, matrices):
        ax.set_axis_off()
    angles = ", ".join(f"{theta * tau:g}" for tau in range(4))
    return fig, (
        f"Left, a token of length 1 in the state at 4 steps, rotated by {angles}, always of length 1. Right, "
        f"the 4 matrices that do this; the first is the identity, the last has {math.cos(theta * 3):.2f} on "
        f"its diagonal and {math.sin(theta * 3):.2f} below it."
    )


def state_space_model():
    """Draw a state space model over a few tokens: B writes, A carries on, C reads."""
    fig, ax = figure(size=(3.6, 2.3))
    box = {"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": "#8A8A8A"}
    state = box | {"facecolor": COLORS[STATE], "edgecolor": COLORS[STATE]}
    for t, name in enumerate(("i-1", "i", "i+1")):
        for height, letter in ((0, "x"), (1, "h"), (2, "y")):
            look = {"bbox": state, "color": "white"} if letter == "h" else {"bbox": box}
            write(ax, t, height, f"${letter}_{{{name}}}$", 10.5, **look)
        for (start, end), letter, beside in (
            (((t, 0.24), (t, 0.74)), "B", (t + 0.13, 0.48)),
            (((t, 1.26), (t, 1.76)), "C", (t + 0.13, 1.5)),
            (((t - 0.68, 1), (t - 0.29, 1)), "A", (t - 0.49, 1.2)),
        ):
            arrow(ax, start, end, COLORS[STATE], lw=1.6)
            write(ax, *beside, f"${letter}$", 10.5)
    ax.set(xlim=(-0.8, 2.4), ylim=(-0.3, 2.3))
    ax.set_axis_off()
    return fig, (
        "3 states in a row. B leads from each token up to its state, A from each state to the next, C from "
        "each state up to its output."
    )


def plane_of_lags(theta, n=20):
    """Draw the n lag operators of the rotation by theta in the plane of I and J, and the best single head."""
    fig, (left, right) = figure(ncols=2, size="slider", width_ratios=[1.25, 1])
    best_single_head(left, theta, n)
    left.set_title(f"one head misses {missed(theta, n):.3f}")
    angles = torch.linspace(0, math.pi, 201, dtype=torch.float64)
    right.plot(angles, [missed(t, n) for t in angles.tolist()], color=COLORS[HEAD])
    right.plot(theta, missed(theta, n), "o", color=COLORS[HEAD], markersize=7)
    right.set(ylim=(0, 0.55), xlabel="angle θ", title="share missed at every angle")
    right.set(xticks=[0, math.pi / 2, math.pi], xticklabels=["0", "π/2", "π"])
    return fig


def best_single_head(ax, theta, n):
    """Draw the n lag operators as dots of a spiral, the line of the best head, and what it misses of each.

    The axes I and J cross in the origin. The dots are numbered by their lag, as far as there is room.
    """
    dots = lag_dots(theta, n)
    direction = row_directions(dots, 1)[0]  # of the line closest to them: the best value map
    direction = direction * (1 if direction[0] >= 0 else -1)
    feet = (dots @ direction)[:, None] * direction
    reach = 1.2 * math.sqrt(n)
    line = 0.9 * reach * torch.stack([-direction, direction])
    ax.plot(*line.T, color=COLORS[HEAD], linestyle="-", lw=2.4)
    ax.plot(*lag_dots(theta, n, n * 12).T, color="#C9C9C9", linestyle="-", lw=1, zorder=1)
    for dot, foot in zip(dots, feet, strict=True):
        ax.plot(*torch.stack([dot, foot]).T, color=COLORS["gray"], linestyle=LINES["dotted"], linewidth=1.1)
    ax.scatter(*dots.T.numpy(), s=26, c=_LAGS(np.linspace(0, 1, n)), zorder=3)
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=[], yticks=[])
    for side in ("left", "bottom"):
        ax.spines[side].set_position("zero")
    ax.grid(False)
    ax.text(0.01, 0.01, "— one head", transform=ax.transAxes, color=readable(COLORS[HEAD]), fontsize=9.5)
    label_line(ax, reach, 0, "$I$", color="black", dx=-3, dy=-8, ha="right")
    label_line(ax, 0, reach, "$J$", color="black", dx=5, dy=-6)
    _number_dots(ax, dots.numpy(), reach)


def _number_dots(ax, dots, reach):
    """Write its lag beside each of the first dots and the last, where there is room.

    Room is a box of 11 points, on square axes of 160, that is clear of lines, dots and labels.
    """
    scale, half = 160 / (2 * reach), 5.5
    drawn = [np.asarray(line.get_xydata()) for line in ax.get_lines()]
    drawn += [np.array([[-reach, 0.0], [reach, 0.0]]), np.array([[0.0, -reach], [0.0, reach]])]
    taken = [np.linspace(*points, 80) if len(points) == 2 else points for points in drawn] + [dots]
    taken.append(reach * np.array([[0.93, -0.09], [0.07, 0.93]]))  # the names of the axes and of the line
    taken.append(reach * np.linspace((-1, -0.93), (-0.3, -0.93), 20))
    corners = np.array([(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1)])
    places = [
        (a * (half + gap) * math.cos(t), b * (half + gap) * math.sin(t))
        for gap in (3, 5, 8)
        for t in (0.0, 0.5, 0.8, 1.1, math.pi / 2)
        for a in (1, -1)
        for b in (1, -1)
    ]
    for lag in [*range(min(9, len(dots))), len(dots) - 1]:
        near = (np.concatenate(taken) - dots[lag]) * scale
        for place in sorted(places, key=lambda place: -np.dot(place, dots[lag])):  # outside if possible
            if np.hypot(*(np.abs(near - place) - half).clip(min=0).T).min() > 1.5:
                beside = {"dx": place[0], "dy": place[1], "ha": "center", "color": "black"}
                label = label_line(ax, *dots[lag], str(lag), **beside)
                label.set(fontsize=9, in_layout=False)  # the panels stay where they are
                taken.append(dots[lag] + (np.array(place) + half * corners) / scale)
                break


def lag_dots(theta, n, points=None):
    """The n lag operators in the plane of I and J, (n, 2), as long as the root of how often each occurs.

    With ``points``, as many points of the spiral through them.
    """
    tau = torch.linspace(0, n - 1, points or n, dtype=torch.float64)
    return torch.sqrt(n - tau)[:, None] * torch.stack([torch.cos(theta * tau), torch.sin(theta * tau)], 1)


def missed(theta, n=20) -> float:
    """The share of the energy that the best single head misses."""
    sigma2 = torch.linalg.svdvals(lag_dots(theta, n)) ** 2
    return float(sigma2[1] / sigma2.sum())


def operator_as_heads(alpha, V, names=("", "")):
    """Draw the operator of heads alpha (2, n, n), V (2, p, d) as α_1 ⊗ V_1 + α_2 ⊗ V_2, on one scale.

    ``names`` are written above the matrices of coefficients.
    """
    W = torch.einsum("hij,hpd->ipjd", alpha, V).flatten(2).flatten(0, 1)
    top = float(W.abs().max())
    ratios = [2.6, 0.35, 1.7, 0.3, 0.6, 0.3, 1.7, 0.3, 0.6]
    fig, axes = figure(ncols=9, size=(7.0, 2.75), width_ratios=ratios)
    fig.stacks = (1, 5)
    parts = [W, "=", alpha[0], "⊗", V[0], "+", alpha[1], "⊗", V[1]]
    first, second = (f"$\\alpha_{h}${name and f': {name}'}" for h, name in enumerate(names, start=1))
    titles = ["$W$", "", first, "", "$V_1$", "", second, "", "$V_2$"]
    equation(axes, parts, titles, top=top, sign_size=15, title_size=12)
    n, (p, d) = alpha.shape[-1], V.shape[1:]
    part_blocks(axes[0], n, p, d, 0.5)
    article = "an" if str(n).startswith("8") else "a"
    return fig, (
        f"A block matrix W of {n} by {n} blocks of size {p} by {d}, zero above the diagonal. It equals the "
        f"sum of two terms, each {article} {n} by {n} matrix of numbers times one {p} by {d} matrix. The "
        f"best single term misses {number(FactorizedOperator(alpha, V).floor(1))} of its energy."
    )


def costs(lengths, explicit, implicit, crossing):
    """Draw the multiplications of both ways against the lengths, and the length at which they cross."""
    fig, ax = figure(size="panel")
    for name, color, values in (("attention matrix", HEAD, explicit), ("state", STATE, implicit)):
        ax.loglog(lengths, values, color=COLORS[color], linestyle="-")
        label_line(ax, lengths[-3], values[-3], name, dx=-6, dy=4, ha="right")
    ax.axvline(crossing, color=COLORS["gray"], linestyle=LINES["dashed"], linewidth=1.2)
    label_line(ax, crossing, explicit[0], f"n = {crossing}", dx=5)
    ax.set(xlabel="tokens n", ylabel="multiplications")
    words = "slope 2 for the attention matrix, slope 1 for the state"
    return fig, f"Multiplications against length on logarithmic axes: {words}, crossing at n = {crossing}."
