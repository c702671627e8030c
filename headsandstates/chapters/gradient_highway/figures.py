"""Figures of *gradient-highway*; each returns the figure, or the figure and its alternative text."""

import math
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import torch
from matplotlib.patches import Rectangle

from headsandstates.chapters._drawn import FAMILIES, arrow, equation, write
from ssmbook.display import COLORS, figure, label_line
from ssmbook.display.style import LINES, SERIES

_NORM = r"$\|\partial y_n/\partial x_{n-\tau}\|_2$"

# panel title -> curve name -> where its label stands: index of a point, side of it, points above it
_REACH = {
    r"linear recurrences: $\rho^\tau$": {
        "ρ = 0.5": (8, "left", -8),
        "ρ = 0.9": (32, "left", -8),
        "ρ = 0.99": (300, "left", -9),
        "ρ = 1.0": (1, "right", 9),
    },
    "one softmax head": {
        "query matches": (1, "right", 9),
        "equal logits": (1, "right", 8),
        "ALiBi": (9, "left", -8),
        "random tokens": (1, "right", -9),
    },
}
_FLOW = {
    "transients, and a recurrent network": {
        "Jordan block": (560, "right", 3),
        "non-normal": (360, "left", -6),
        "tanh RNN": (90, "right", -8),
    },
    "selective state space model": {"gate held": (6, "right", 11), "gate open": (2, "right", 6)},
}
# bounds far from their curves: the point at which they are labeled, the words, and where these stand
_BOUNDS = {
    "tanh RNN": (440, "ceiling (RNN)", {"dx": 3, "dy": 7}),
    "query matches": (6, "floor", {"dx": 0, "dy": -8, "ha": "center"}),
    "ALiBi": (9, "ceiling", {"dx": 4, "dy": 2}),
}


def paths(distance: int = 1024, *, keep: float = 0.9, weight: float = 0.9):
    """Draw a recurrence as a chain of steps of factor ``keep`` beside a head as one arc of a weight."""
    fig, (chain, arc) = figure(ncols=2, size=(7.0, 2.6))
    names, at = ["0", "1", "…", f"{distance:,}"], [0, 1.25, 2.5, 4]
    ends = {"boxstyle": "round,pad=0.35", "fc": "white", "ec": COLORS["gray"], "lw": 1.5}
    for ax, title in ((chain, "recurrence: a step per token"), (arc, "head: one step")):
        ax.set(xlim=(-0.5, 4.7), ylim=(-1.15, 1.45), xticks=[], yticks=[])
        ax.set_title(title, fontsize=11.5)
        ax.set_axis_off()
        for x, name in zip(at, names, strict=True):
            write(ax, x, 0, name, 11.5, color=COLORS["gray"], bbox=None if name == "…" else ends)
    state, head = COLORS[FAMILIES["value side"]], COLORS[FAMILIES["key side"]]
    look, middle = {"lw": 2.4, "mutation_scale": 15}, {"dx": 0, "ha": "center", "fontsize": 11.5}
    for (start, end), (before, after) in zip(pairwise(at), ((11, 11), (11, 9), (9, 24)), strict=True):
        # the gaps are half a box, and a little air
        arrow(chain, (start, 0), (end, 0), state, shrinkA=before, shrinkB=after, **look)
        label_line(chain, (start + end) / 2, 0.48, f"×{keep:g}", color=state, **middle)
    bend = {"connectionstyle": "arc3,rad=-0.35", "shrinkA": 8, "shrinkB": 8}
    arrow(arc, (0, 0.15), (4, 0.15), head, **bend, **look)
    label_line(arc, 2, 1.12, f"× weight {weight:g}", color=head, **middle)
    left = keep**distance
    power = f"$10^{{{round(math.log10(left))}}}$" if left < 1e-3 else f"{left:.1g}"
    said = f"after {distance:,} steps: about {power}", f"the same weight, {weight:g}, at any distance"
    for ax, words, color in zip((chain, arc), said, (state, head), strict=True):
        label_line(ax, 2.1, -0.85, words, color=color, dx=0, ha="center", fontsize=11)
    return fig, (
        f"Two panels. A recurrence joins token 0 to token {distance:,} by a chain of factors {keep:g}, "
        f"together {left:.1e}. A head joins them by one arc of weight {weight:g}."
    )


def spread(sizes: torch.Tensor, marks: Mapping[str, float]):
    """Draw a histogram of gradient sizes (m,), nine in ten shaded, and single sizes as named lines."""
    exponents = sizes.log10()
    low, middle, high = exponents.quantile(torch.tensor([0.05, 0.5, 0.95], dtype=sizes.dtype)).tolist()
    fig, ax = figure(size=(3.6, 2.3))
    bars = np.arange(math.floor(float(exponents.min())), math.ceil(float(exponents.max())) + 1)
    ax.hist(exponents.numpy(), bins=bars, color=COLORS["purple"], alpha=0.6)
    tallest = ax.get_ylim()[1]
    ax.axvspan(low, high, color=COLORS["purple"], alpha=0.15, lw=0)
    label_line(ax, low, 0.9 * tallest, "random tokens", color=COLORS["purple"], dx=2, fontsize=9)
    for (name, size), hue in zip(marks.items(), ("state", "head"), strict=True):
        place = math.log10(size)
        ax.plot((place, place), (0, 0.8 * tallest), color=COLORS[hue], ls="-", lw=2.5)
        label_line(ax, place, 0.6 * tallest, name.replace(" ", "\n"), color=COLORS[hue])
    ticks = range(-50, 1, 10)
    ax.set(xticks=ticks, xticklabels=[f"$10^{{{e}}}$" if e else "1" for e in ticks])
    ax.set(xlabel="gradient at the same distance", ylabel=f"of {len(sizes):,} draws")
    ax.set(xlim=(-50, 14), ylim=(0, tallest))
    said = ", ".join(f"{name} {size:.2e}" for name, size in marks.items())
    return fig, (
        f"Gradients of {len(sizes):,} draws of random tokens, median {10**middle:.0e}, nine in ten from "
        f"{10**low:.0e} to {10**high:.0e}; {said}."
    )


def derivative_parts(J: torch.Tensor, V: torch.Tensor, column: torch.Tensor, row: torch.Tensor):
    """Draw J (p, d) = V + column rowᵀ entry by entry, on one scale, signs in color."""
    (p, d), bend = V.shape, torch.outer(column, row)
    matrices = torch.stack([J, V, bend])
    top, norms = float(matrices.abs().max()), torch.linalg.matrix_norm(matrices, ord=2).tolist()
    fig, axes = figure(ncols=6, size=(3.6, 1.3), width_ratios=[d, 1, d, 1, 1, d])
    fig.stacks = ()
    parts = (J, "=", V, "+", column[:, None], row[None])
    titles = (r"derivative $/\,\alpha$", "", "$V$", "", r"$v_j-y_i$", r"$g_i^{\mathsf{T}}$")
    equation(axes, parts, titles, sign_size=14, title_size=9.5, top=top)
    rank = torch.linalg.matrix_rank(bend)
    return fig, (
        f"A {p} by {d} matrix, the derivative over its weight, equals V plus a column times a row, of rank "
        f"{rank}. Norms: {norms[0]:.2f}, {norms[1]:.2f} and {norms[2]:.2f}."
    )


def prices(few: tuple, many: tuple):
    """Draw who pays, and what, to hold over T tokens: tuples of T, a head's margin, a gate's and a pole's."""
    fig, ax = figure(size=(3.6, 3.7))
    rows = (
        ("attention: one token raises its logit", "key side", "its margin"),
        ("gate: every token of the gap holds", "gated or mixed", "the z of each"),
        ("fixed pole: one ν for all tokens", "value side", "the one ν"),
    )
    places = [*range(5), *range(6, 9)]  # the source, seven tokens of the gap, some left out in between
    for row, (title, family, name) in enumerate(rows):
        color, y = COLORS[FAMILIES[family]], -2.9 * row
        pays = ({0}, places[1:], ())[row]
        for x in places:
            face, edge = (color, color) if x in pays else ("white", COLORS["gray"])
            ax.add_patch(Rectangle((x + 0.1, y), 0.8, 0.8, fc=face, ec=edge, lw=1.4))
        label_line(ax, 5.5, y + 0.4, "…", color=COLORS["gray"], dx=0, ha="center", fontsize=11)
        if row == 2:
            ax.plot((0.1, 8.9), (y - 0.18, y - 0.18), color=color, ls="-", lw=4, solid_capstyle="butt")
        label_line(ax, 0, y + 1.22, title, color=color, dx=0, fontsize=10.5)
        first, later = (f"{value:.2f}".replace("-", "−") for value in (few[row + 1], many[row + 1]))
        words = f"{name}: {first} → {later}"
        label_line(ax, 0, y - 0.62, words, color=COLORS["black"], dx=0, fontsize=10.5)
    ax.set(xlim=(-0.1, 9.3), ylim=(-6.9, 1.7), xticks=[], yticks=[])
    ax.set_title(f"to keep 0.9 over {few[0]} → over {many[0]:,} tokens", fontsize=10.5)
    ax.set_axis_off()
    words = zip(("margin", "pre-activation", "ν"), few[1:], many[1:], strict=True)
    said = "; ".join(f"{name} {a:.2f} and {b:.2f}" for name, a, b in words)
    moves = ", ".join(f"{abs(b - a):.2f}" for a, b in zip(few[1:], many[1:], strict=True))
    return fig, f"Prices for {few[0]} and for {many[0]:,} tokens: {said}. They move by {moves}."


def bracket(t: float, sigma_2: float) -> torch.Tensor:
    """The bracket V + (v_0 - y_1) g^T of x_0 = 0 and x_1 = e_1, V = diag(1, sigma_2), logit t: (2, 2)."""
    alpha = 1 / (1 + math.exp(t))
    return torch.diag(torch.tensor([1 - (1 - alpha) * t, sigma_2], dtype=torch.float64))


def two_lanes(t: float):
    """Draw where the derivative sends the unit circle, V of rank two and one; dashed: V alone."""
    turn = np.linspace(0, 2 * np.pi, 121)
    circle = np.stack([np.cos(turn), np.sin(turn)])
    fig, axes = figure(ncols=2, size=(6.0, 3.1))
    for ax, sigma_2 in zip(axes, (0.7, 0.0), strict=True):
        J = bracket(t, sigma_2).numpy()
        ax.plot(*(np.diag([1.0, sigma_2]) @ circle), color=COLORS["gray"], linestyle=LINES["dashed"], lw=1.4)
        ax.plot(*(J @ circle), color=COLORS["head"], linestyle="-", lw=2.2)
        for end, hue in (((J[0, 0], 0), "purple"), ((0, J[1, 1]), "brown")):
            look = {"ls": "-", "lw": 2.6, "marker": "o", "markevery": [1], "ms": 8}
            ax.plot((0, end[0]), (0, end[1]), color=COLORS[hue], **look)
        norm = max(abs(J[0, 0]), abs(J[1, 1]))
        ax.set_title(f"σ₂ = {sigma_2:g}: gradient {norm:.2f} × weight", fontsize=10.5)
        ax.set(xlim=(-1.15, 1.15), ylim=(-1.0, 1.0), xticks=[], yticks=[], aspect="equal")
        ax.spines[:].set_visible(False)
        side = 0 if abs(J[0, 0]) < 0.35 else -4 * np.sign(J[0, 0])
        below = {"dx": side, "dy": -14, "ha": "center", "fontsize": 10.5}
        label_line(ax, J[0, 0], 0, "along g", color=COLORS["purple"], **below)
        if sigma_2:
            label_line(ax, 0, J[1, 1], "across g: kept", color=COLORS["brown"], dx=0, dy=12, ha="center")
        else:
            words = "V sends nothing across g"
            label_line(ax, 0, 0.3, words, color=COLORS["brown"], dx=0, ha="center", fontsize=10.5)
    return fig


def two_lanes_alt(t: float) -> str:
    """What :func:`two_lanes` shows, with its numbers."""
    along, lane = bracket(t, 0.7).diag().tolist()
    return (
        f"Logit {t:g}, weight {1 / (1 + math.exp(t)):.3f}: along g the bracket is {along:.2f}; across, the "
        f"lane stays {lane:g}. Norm over weight {max(abs(along), lane):.2f} with two lanes, "
        f"{abs(along):.2f} with one."
    )


def reach_lines(curves: Mapping[str, tuple], band: tuple):
    """Draw gradient against distance; curves: name -> (distances, norms, law or None); band: two (m,)."""
    fig, axes = _panels(curves, _REACH, (1e-12, 30.0))
    for ax in axes:
        ax.set(xscale="log", xlim=(0.9, 1200))
    tau = np.asarray(curves["random tokens"][0], dtype=float)
    shade = {"color": COLORS["purple"], "alpha": 0.18, "lw": 0}
    axes[1].fill_between(tau, *(np.asarray(edge, dtype=float) for edge in band), **shade)
    return fig


def flow_panels(curves: Mapping[str, tuple]):
    """Draw transients and a recurrent network beside a selective model, as ``reach_lines`` takes them."""
    fig, axes = _panels(curves, _FLOW, (1e-24, 1e5))
    for ax in axes:
        ax.set_xlim(0, 1060)
    return fig


def _panels(curves, panels, ylim):
    fig, axes = figure(ncols=2)
    for ax, (title, labels) in zip(axes, panels.items(), strict=True):
        ax.set(title=title, yscale="log", ylim=ylim, xlabel=r"distance $\tau$")
        for (name, label), hue in zip(labels.items(), SERIES, strict=False):
            _draw(ax, name, curves[name], label, COLORS[hue])
    axes[0].set_ylabel(_NORM)
    return fig, axes


def _draw(ax, name: str, curve: tuple, label: tuple, color: str) -> None:
    tau, norms, bound = (None if t is None else np.asarray(t.detach().cpu(), dtype=float) for t in curve)
    few = len(tau) < 40
    ax.plot(tau, norms, "o-" if few else "-", color=color, markersize=4, linewidth=1.2 if few else 2.2)
    if bound is not None:
        ax.plot(tau, bound, linestyle=LINES["dashed"], color=COLORS["black"], linewidth=1.0)
    if name in _BOUNDS and bound is not None:
        spot, text, place = _BOUNDS[name]
        label_line(ax, tau[spot], bound[spot], text, color=COLORS["black"], fontsize=9, **place)
    spot, side, lift = label
    place = {"dx": 5, "ha": "left"} if side == "right" else {"dx": -5, "ha": "right"}
    label_line(ax, tau[spot], norms[spot], name, color=color, dy=lift, fontsize=9, **place)
