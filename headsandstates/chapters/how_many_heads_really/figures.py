"""Figures of *how-many-heads-really*; each returns the figure, or the figure and its alternative text."""

import numpy as np
import torch
from scipy.optimize import linprog
from scipy.spatial import ConvexHull

from ssmbook.display import COLORS, figure, label_line
from ssmbook.display.style import LINES
from ssmbook.heads import head_count, sinkless_plateau


def flip_heads(c, alpha):
    """Draw kernels c (2, n) of values +1 and −1, their sum, and rows (n, n) of a head with a sink."""
    fig, (bars, rows) = figure(ncols=2, size="wide")
    up, down, lags = c[0].numpy(), -c[1].numpy(), np.arange(min(8, c.shape[1]))
    bars.bar(lags, up[lags], color=COLORS["head"], alpha=0.6)
    bars.bar(lags, down[lags], color=COLORS["brown"], alpha=0.6)
    bars.plot(lags, (up + down)[lags], "o", color=COLORS["black"], ms=5)
    label_line(bars, 0.5, up[0], "head 1, value +1", color=COLORS["head"])
    label_line(bars, 1.5, down[1], "head 2, value −1", color=COLORS["brown"])
    label_line(bars, 2.5, (up + down)[2] + 0.12, "dots: their sum", color=COLORS["black"])
    bars.set(xlabel="lag τ", ylabel="coefficient")
    taken = _draw_rows(rows, alpha.numpy(), min(6, len(alpha)))
    largest = float(c[0].sub(c[1]).abs().max())
    words = ", ".join(f"{value:.3f}" for value in (up + down)[:4])
    return fig, (
        f"Positive coefficients of two heads; their difference at lags 0 to 3 is {words}, at most "
        f"{largest:.0f} in size. Rows of head 1: the sink takes {taken[0]:.2f} of the first row and "
        f"{taken[-1]:.2f} of the last one shown."
    )


def _draw_rows(ax, alpha, count):
    """Draw the first rows as bars of length one, weight by weight, and return what is left for the sink."""
    sink = 1 - alpha.sum(1)[:count]
    for i in range(count):
        left = 0.0
        for j in range(i + 1):
            shade = 0.75 if (i - j) % 2 == 0 else 0.3
            ax.barh(i, alpha[i, j], left=left, color=COLORS["head"], alpha=shade)
            left += alpha[i, j]
        ax.barh(i, sink[i], left=left, color=COLORS["gray"], alpha=0.35)
    label_line(ax, 0.97, -0.85, "sink", color=COLORS["gray"], dx=0, ha="right")
    label_line(ax, 0.0, -0.85, "tokens", color=COLORS["head"], dx=0)
    ax.set(xlabel="weight in a row of head 1", ylabel="position i", xlim=(0, 1), ylim=(count - 0.5, -1.4))
    ax.set_yticks(range(count))
    return sink


def certificate_frame(M, certificate):
    """Draw the lags M (n, 2, 2) of a rotation and the cone of their sink heads, and the certificate."""
    points = _plane(M)
    fig, (plane, bars) = figure(ncols=2, size="slider")
    _draw_cone(plane, sink_value_maps(points))
    if certificate.kind == "separating":
        U = _plane(certificate.U[None])[0]
        values = points @ (U / np.linalg.norm(U))
        bars.set(ylabel="⟨U, M⟩", title=f"all positive: {certificate.k} heads")
    else:
        values = even_weights(points)
        bars.set(ylabel="weight λ", title=f"Σ λ M = 0: {certificate.k + 1} heads")
    plane.plot(*points.T, "o", color=COLORS["black"])
    plane.set(xlim=(-1.6, 1.6), ylim=(-1.6, 1.6), aspect="equal", xticks=(-1, 0, 1), yticks=(-1, 0, 1))
    plane.set(xlabel="part along I", ylabel="part along J")
    bars.bar(range(len(values)), values, color=COLORS["black"])
    bars.set(xlabel="lag τ", xlim=(-0.7, 10.7), ylim=(0, 1.05), xticks=range(0, 11, 2))
    return fig


def even_weights(points):
    """Return the weights of points (n, 2) with sum 1 and weighted sum zero whose least is the largest."""
    equations = np.vstack([points.T, np.ones(len(points))])
    sums = np.hstack([equations, equations.sum(1, keepdims=True)])  # of what each has more, and of the least
    found = linprog(-np.eye(len(points) + 1)[-1], A_eq=sums, b_eq=[0, 0, 1])
    return found.x[:-1] + found.x[-1]


def sink_value_maps(points):
    """Return two unit vectors just outside an arc of points (n, 2), or three around the circle."""
    angles = np.unwrap(np.arctan2(points[:, 1], points[:, 0]))
    middle, arc = (angles[0] + angles[-1]) / 2, abs(angles[-1] - angles[0])
    half = (np.pi + arc) / 4  # between arc / 2 and pi / 2
    at = [middle - half, middle + half] if arc < np.pi else middle + 2 * np.pi / 3 * np.arange(3)
    return np.stack([np.cos(at), np.sin(at)], axis=1)


def _draw_cone(plane, V):
    """Shade the open cone of two unit vectors, or the plane, and draw the two or three vectors as arrows."""
    color = COLORS["head"]
    first, last = np.unwrap(np.arctan2(V[:, 1], V[:, 0]))[[0, 1]]
    turn = np.linspace(first, last if len(V) == 2 else first + 2 * np.pi, 100)
    fan = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    plane.fill(*np.concatenate([np.zeros((1, 2)), 4 * fan]).T, color=color, alpha=0.15, lw=0)
    arrow = {"arrowstyle": "->", "color": color, "lw": 2}
    for h, (x, y) in enumerate(V):
        plane.annotate("", (1.25 * x, 1.25 * y), (0, 0), arrowprops=arrow)
        label_line(plane, 1.42 * x, 1.42 * y, f"V{'₁₂₃'[h]}", color=color, dx=0, ha="center")


def row_sums(flip, turning):
    """Draw the partial sums of two systems of lags around the row sum T; a larger dot weighs more."""
    fig, (line, plane) = figure(ncols=2, size=(7.0, 2.9))
    shown, gray, blue = 9, COLORS["gray"], COLORS["head"]
    dots = {"s": 60 / np.arange(1, shown + 1), "color": COLORS["state"], "zorder": 3}
    plateaus = {"alternating signs": sinkless_plateau(flip), "rotation by 0.7": sinkless_plateau(turning)}
    first, second = (plateau.value_sum for plateau in plateaus.values())

    sums, T, places = flip[:shown, 0, 0].cumsum(0), float(first), range(shown)
    line.vlines(places, T, sums, color=gray, lw=1.2)
    line.scatter(places, sums, **dots)
    line.axhline(T, color=blue, ls="-")
    label_line(line, shown - 1, T, "T", color=blue, dx=0, dy=9, ha="center")
    line.set(xlabel="position i", ylabel="$S_i$", ylim=(0.4, 1.1), xlim=(-0.5, shown - 0.5))

    sums, (center,) = _plane(turning[:shown].cumsum(0)), _plane(second[None])
    for dot in sums:
        plane.plot(*np.stack([center, dot]).T, color=gray, ls="-", lw=1.2)
    plane.scatter(*sums.T, **dots)
    plane.plot(*center, "X", color=blue, ms=9, zorder=4)
    label_line(plane, *center, "T", color=blue, dx=15, dy=16, ha="center")
    for i, (dx, side) in enumerate(((-7, "right"), (6, "left"), (6, "left"))):
        label_line(plane, *sums[i], f"$S_{i}$", color=COLORS["state"], dx=dx, ha=side)
    plane.set(xlabel="part along I", ylabel="part along J", aspect="equal", xlim=(-1.6, 2.6))

    shares = [f"{plateau.relative:.4f}" for plateau in plateaus.values()]
    for ax, name, share in zip((line, plane), plateaus, shares, strict=True):
        ax.set_title(f"{name}: misses {share}", fontsize=10)
    words = f"alternating signs T = {T:.3f}; rotation T = {center[0]:.3f} I + {center[1]:.3f} J"
    return fig, f"Partial sums of two systems around one row sum: {words}. Missed: {' and '.join(shares)}."


def pole_planes(pairs, n):
    """Draw the lags (a**τ, b**τ) of pairs of poles, and the half-plane or hull that certifies the count."""
    fig, axes = figure(ncols=len(pairs), size=(7.0, 2.7))
    words = []
    for ax, poles in zip(axes, pairs, strict=True):
        points = np.asarray(poles) ** np.arange(n)[:, None]
        count = head_count(torch.diag_embed(torch.from_numpy(points)), coefficients="softmax")
        if count.evidence.kind == "separating":
            U = count.evidence.U.diagonal().numpy()
            edge = 4 * np.array([-U[1], U[0]]) / np.linalg.norm(U)
            inside = np.stack([edge, edge + 4 * U, -edge + 4 * U, -edge])
        else:
            inside = points[ConvexHull(points).vertices]
        ax.fill(*inside.T, color=COLORS["gray"], alpha=0.2, lw=0)
        ax.plot(*points.T, "o", color=COLORS["black"], ms=5)
        ax.plot(0, 0, "+", color=COLORS["black"], ms=10, mew=1.5)
        said = "poles " + " and ".join(f"{pole:g}" for pole in poles).replace("-", "−")
        ax.set_title(f"{said}:\n{count.value} heads", fontsize=10)
        ax.set(xlim=(-1.15, 1.15), ylim=(-1.15, 1.15), aspect="equal", xticks=(-1, 0, 1), yticks=(-1, 0, 1))
        ax.set(xlabel="first pole, to the power τ", ylabel="second pole, to the power τ")
        held = "in a half-plane" if count.evidence.kind == "separating" else "around zero"
        words.append(f"{said} {held}, {count.value} heads")
    return fig, f"Lags of diagonal systems: {'; '.join(words)}."


def fit_curves(panels):
    """Draw fitting errors with their floors; panels: title -> (label -> (steps,), label -> number)."""
    fig, axes = figure(ncols=len(panels), size="wide", sharey=True)
    ends = []
    sides = {"head": {"dx": 0, "dy": 8, "ha": "right"}, "black": {"dx": 7, "dy": 0}}  # of the names
    sides["purple"] = {"dx": -6, "dy": 0, "ha": "right"}
    for ax, (title, (curves, floors)) in zip(axes, panels.items(), strict=True):
        for (color, side), (name, curve) in zip(sides.items(), curves.items(), strict=False):
            curve = np.asarray(curve)
            steps = np.arange(1, len(curve) + 1)
            ax.loglog(steps, curve, color=COLORS[color], linestyle=LINES["solid"])
            low = curve <= np.cbrt(curve[0] * curve[-1] ** 2)
            place = len(curve) - 1 if color == "head" else np.argmax(low)
            label_line(ax, steps[place], curve[place], name, **side)
        for name, height in floors.items():
            ax.axhline(height, color=COLORS["gray"], linestyle=LINES["dashed"])
            label_line(ax, 1, height, name, dx=2, dy=-8, ha="left")
        ax.set(title=title, xlabel="evaluations of the optimizer", ylabel="error ÷ energy")
        ax.tick_params(labelleft=True)  # on a phone the panels stand below each other
        ends += [*floors.values(), *(curve[-1] for curve in curves.values())]
    axes[0].set(ylim=(0.3 * float(min(ends)), 2.0))
    return fig


def divergence(path, families):
    """Draw (largest coefficient, error) along an optimizer's path beside explicit families."""
    fig, ax = figure(size="panel")
    for (name, pair), style in zip(families.items(), ("dashed", "dotted"), strict=False):
        ax.loglog(*pair, color=COLORS["state"], linestyle=LINES[style])
        middle = len(pair[0]) // 2
        label_line(ax, pair[0][middle], pair[1][middle], name, dx=8, dy=8)
    ax.loglog(*path, "o", color=COLORS["head"], ms=4)
    label_line(ax, path[0][-1], path[1][-1], "two heads, fitted", dx=-6, dy=-12, ha="right")
    ax.set(xlabel="largest coefficient", ylabel="relative error (amplitude)")
    return fig


def tails(survivals, bound):
    """Draw P(|coefficient| > t) of samples (name -> samples), a slope of -1 and a proved bound."""
    fig, ax = figure(size="panel")
    looks = ("head", 1e-3), ("black", 3e-2)  # and the share that stands beside the name
    for (color, share), (name, samples) in zip(looks, survivals.items(), strict=True):
        ordered = np.sort(np.asarray(samples))
        grid = np.geomspace(1e-2, ordered[-1], 300)
        above = 1 - np.searchsorted(ordered, grid, side="right") / len(ordered)
        grid, above = grid[above > 0], above[above > 0]
        ax.loglog(grid, above, color=COLORS[color], linestyle=LINES["solid"])
        place = np.argmax(above < share)
        label_line(ax, grid[place], above[place], name, ha="right", dx=-8, dy=-4)
    t = np.geomspace(10, 1e4, 50)
    ax.loglog(t, 6 / t, color=COLORS["gray"], linestyle=LINES["dotted"])
    label_line(ax, 2000, 6 / 2000, "slope −1", dx=4, dy=8)
    ax.axvline(bound, color=COLORS["state"], linestyle=LINES["dashed"])
    label_line(ax, bound, 2e-5, "proved bound", dx=4)
    ax.set(xlabel="t", ylabel="share above t", ylim=(8e-6, 1.5))
    return fig


def _plane(M):
    """Coordinates along I and J of 2 x 2 matrices."""
    return np.stack([(M[:, 0, 0] + M[:, 1, 1]) / 2, (M[:, 1, 0] - M[:, 0, 1]) / 2], axis=1)


def classes(counts, chosen, proof):
    """Draw the heads of a system for each class, {name: (full width, width one)}, None where impossible."""
    fig, ax = figure(size=(3.6, 3.7))
    for place, (name, pair) in enumerate(reversed(counts.items())):
        color, shade = COLORS["head"] if name == chosen else COLORS["gray"], 1.0 if name == chosen else 0.4
        for count, shift, faint in zip(pair, (0, -0.28), (1.0, 0.5), strict=True):
            ax.barh(place + shift, count or 0, height=0.26, color=color, alpha=shade * faint)
            if count is not None:
                ax.text(count + 1, place + shift, count, va="center")
        if None in pair:
            ax.text(0.7, place - 0.08, "no number is enough", va="center", alpha=0.5 + shade / 2)
        ax.text(0.7, place + 0.3, name, va="center", weight="bold" if name == chosen else None)
    ax.grid(visible=False, axis="y")
    ax.set(xlim=(0, 75), ylim=(-0.5, len(counts) - 0.4), yticks=[], xlabel="heads (lower bar: of width one)")
    ax.set_title(proof, loc="left", fontsize=10)
    return fig
