"""Figures of the chapter *how-many-heads-really*."""

from __future__ import annotations

import numpy as np

from ssmbook.display import COLORS, LINES, figure, label_line

_KINDS = ("separating", "dependency")


def certificate_frame(M, certificate):
    """Return a figure of 2 x 2 lags in the plane of I and J beside the certificate of their sink count.

    M (n, 2, 2) tensor in the span of I and J; ``certificate`` that of ``softmax_head_count``. Left: one
    dot for each lag; a separating U as an arrow with its half-plane shaded, or the hull of the lags that
    carry a positive dependency. Right: <U, M_tau> for each lag, or the weights. Raises ``ValueError`` for
    any other certificate. Introduced in *how-many-heads-really*.
    """
    if certificate.kind not in _KINDS:
        raise ValueError(f"certificate must be one of {', '.join(_KINDS)}; got {certificate.kind}")
    points = _plane(M)
    fig, (plane, bars) = figure(ncols=2, size="slider")
    if certificate.kind == "separating":
        values = _draw_half_plane(plane, _plane(certificate.U[None])[0], points)
        bars.set(ylabel="⟨U, M⟩", title=f"all positive: {certificate.k} heads")
    else:
        values = certificate.weights.numpy()
        corners = points[values > 1e-6]
        corners = corners[np.argsort(np.arctan2(corners[:, 1], corners[:, 0]))]
        plane.fill(*corners.T, color=COLORS["orange"], alpha=0.25, lw=0)
        plane.plot(0, 0, "x", color=COLORS["orange"], ms=8, mew=2)
        bars.set(ylabel="weight λ", title=f"0 is in the hull: {certificate.k + 1} heads")
    plane.plot(*points.T, "o", color=COLORS["blue"])
    plane.set(
        xlim=(-1.3, 1.3), ylim=(-1.3, 1.3), aspect="equal", xlabel="part along I", ylabel="part along J"
    )
    plane.set(xticks=(-1, 0, 1), yticks=(-1, 0, 1))
    bars.bar(range(len(values)), values, color=COLORS["blue"])
    bars.set(xlabel="lag τ", xlim=(-0.7, 10.7), ylim=(0, 1.05), xticks=range(0, 11, 2))
    return fig


def fit_curves(curves, floors):
    """Return a figure of fitting errors on logarithmic axes with the floors they may not cross.

    ``curves`` maps a label to (steps,) errors, ``floors`` a label to a number drawn as a dashed line.
    Introduced in *how-many-heads-really*.
    """
    fig, ax = figure()
    right, left = {"dx": 7, "dy": 7}, {"dx": -6, "dy": -6, "ha": "right"}  # the third curve falls first
    looks = zip(("blue", "green", "purple", "brown"), (right, right, left, right), strict=True)
    for (color, side), (name, curve) in zip(looks, curves.items(), strict=False):
        curve = np.asarray(curve)
        steps = np.arange(1, len(curve) + 1)
        ax.loglog(steps, curve, color=COLORS[color], linestyle=LINES["solid"])
        middle = int(np.argmax(curve <= np.sqrt(curve[0] * curve[-1])))
        label_line(ax, steps[middle], curve[middle], name, **side)
    for name, height in floors.items():
        ax.axhline(height, color=COLORS["orange"], linestyle=LINES["dashed"])
        label_line(ax, 1, height, name, dx=2, dy=-8, ha="left")
    lowest = min([*floors.values(), *(float(curve[-1]) for curve in curves.values())])
    ax.set(ylim=(0.55 * lowest, 1.5))
    ax.set(xlabel="evaluations of the optimizer", ylabel="error ÷ energy")
    return fig


def divergence(path, families):
    """Return a figure of error against the largest coefficient: an optimizer's path beside explicit families.

    ``path`` is a pair (coefficient, error) of equal-length arrays, ``families`` maps a label to such a pair.
    Introduced in *how-many-heads-really*.
    """
    fig, ax = figure()
    for (name, pair), style in zip(families.items(), ("dashed", "dotted"), strict=False):
        ax.loglog(*pair, color=COLORS["orange"], linestyle=LINES[style])
        middle = len(pair[0]) // 2
        label_line(ax, pair[0][middle], pair[1][middle], name, dx=8, dy=8)
    ax.loglog(*path, "o", color=COLORS["blue"], ms=4)
    label_line(ax, path[0][-1], path[1][-1], "two heads, fitted", dx=-6, dy=-12, ha="right")
    ax.set(xlabel="largest coefficient", ylabel="relative error (amplitude)")
    return fig


def tails(survivals, bound):
    """Return a figure of P(|coefficient| > t) for two constructions, a slope of -1 and a proved bound.

    ``survivals`` maps a label to samples of |coefficient|; ``bound`` is drawn as a dashed vertical line.
    Introduced in *how-many-heads-really*.
    """
    fig, ax = figure()
    sides = ({"ha": "left", "dx": 12, "dy": 0}, {"ha": "right", "dx": -8, "dy": -4})
    for color, side, (name, samples) in zip(("blue", "green"), sides, survivals.items(), strict=True):
        ordered = np.sort(np.asarray(samples))
        grid = np.geomspace(1e-2, ordered[-1], 300)
        above = 1 - np.searchsorted(ordered, grid, side="right") / len(ordered)
        grid, above = grid[above > 0], above[above > 0]
        ax.loglog(grid, above, color=COLORS[color], linestyle=LINES["solid"])
        place = int(np.argmax(above < 0.03))
        label_line(ax, grid[place], above[place], name, **side)
    t = np.geomspace(10, 1e4, 50)
    ax.loglog(t, 6 / t, color=COLORS["gray"], linestyle=LINES["dotted"])
    label_line(ax, 300, 6 / 300, "slope −1", dx=4, dy=12)
    ax.axvline(bound, color=COLORS["orange"], linestyle=LINES["dashed"])
    label_line(ax, bound, 2e-5, "proved bound", dx=4)
    ax.set(xlabel="t", ylabel="share above t", ylim=(8e-6, 1.5))
    return fig


def _plane(M):
    """Coordinates along I and J of 2 x 2 matrices."""
    return np.stack([(M[:, 0, 0] + M[:, 1, 1]) / 2, (M[:, 1, 0] - M[:, 0, 1]) / 2], axis=1)


def _draw_half_plane(plane, U, points):
    """Shade the side where U is positive, draw U and return the heights of the points over its edge."""
    U = U / np.linalg.norm(U)
    edge = np.array([-U[1], U[0]])
    plane.fill(*np.stack([-2 * edge, 2 * edge, 2 * edge + 4 * U, -2 * edge + 4 * U]).T,
               color=COLORS["sky"], alpha=0.15, lw=0)  # fmt: skip
    plane.annotate("", U, (0, 0), arrowprops={"arrowstyle": "->", "color": COLORS["orange"], "lw": 2})
    label_line(plane, *(1.15 * U), "U", color=COLORS["orange"], dx=0, ha="center")
    return points @ U
