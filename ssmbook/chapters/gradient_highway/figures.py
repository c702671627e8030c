"""Figures of *gradient-highway*; each returns the figure, or the figure and its alternative text."""

import math
from collections.abc import Mapping

import numpy as np
import torch

from ssmbook.display import COLORS, figure, label_line
from ssmbook.display.pictures import equation
from ssmbook.display.style import FAMILIES, LINES

_HUES = ("blue", "orange", "green", "purple")
_NORM = r"$\|\partial y_n/\partial x_{n-\tau}\|_2$"

# panel title -> curve name -> where its label stands: index of a point, side of it, points above it
_REACH = {
    r"linear: $\rho$ times orthogonal": {
        "ρ = 0.5": (8, "left", -8),
        "ρ = 0.9": (32, "left", -8),
        "ρ = 0.99": (300, "left", -9),
        "ρ = 1.0": (1, "right", 9),
    },
    "one softmax head": {
        "asked": (1, "right", 9),
        "all logits 0": (1, "right", 8),
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
_CEILINGS = {"tanh RNN": 440}  # bounds far from their curves are labeled at this point


def paths(distance: int = 1024, *, keep: float = 0.9, weight: float = 0.9):
    """Draw a recurrence as a chain of steps of factor ``keep`` beside a head as one arc of a weight."""
    fig, (chain, arc) = figure(ncols=2, size=(7.0, 2.3))
    names, at = ["0", "1", "…", f"{distance - 1:,}", f"{distance:,}"], [0, 0.9, 1.75, 2.75, 4]
    for ax, title in ((chain, "recurrence: a chain"), (arc, "head: one arc")):
        ax.set(xlim=(-0.5, 4.6), ylim=(-0.75, 1.25), title=title, xticks=[], yticks=[])
        ax.set_axis_off()
        for x, name in zip(at, names, strict=True):
            edge = "none" if name == "…" else COLORS["gray"]
            ax.text(x, 0, name, ha="center", va="center", fontsize=9, bbox={"fc": "white", "ec": edge})
    value, key = COLORS[FAMILIES["value side"]], COLORS[FAMILIES["key side"]]
    arrow = {"arrowstyle": "-|>", "lw": 1.6}
    for start, end, room in zip(at, at[1:], ((11, 11), (11, 8), (8, 22), (22, 22)), strict=False):
        gap = dict(zip(("shrinkA", "shrinkB"), room, strict=True))  # half a box, and a little air
        chain.annotate("", (end, 0), (start, 0), arrowprops=arrow | gap | {"color": value})
        middle = (start + end) / 2
        label_line(chain, middle, 0.42, f"×{keep:g}", color=value, dx=0, ha="center", fontsize=9)
    bend = {"connectionstyle": "arc3,rad=-0.35", "color": key}
    arc.annotate("", (4, 0.15), (0, 0.15), arrowprops=arrow | bend | {"shrinkA": 2, "shrinkB": 2})
    label_line(arc, 2, 1.0, f"× α = {weight:g}, once", color=key, dx=0, ha="center", fontsize=9)
    left = keep**distance
    said = f"{keep:g} taken {distance:,} times: {left:.1e}", f"at least {weight:g} σ₂(V), at any distance"
    for ax, words, color in zip((chain, arc), said, (value, key), strict=True):
        label_line(ax, 2, -0.55, words, color=color, dx=0, ha="center", fontsize=9.5)
    alt = (
        f"Two panels. A recurrence joins token 0 to token {distance:,} by a chain of factors {keep:g}, "
        f"together {left:.1e}. A head joins them by one arc of weight {weight:g}."
    )
    return fig, alt


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
    for (name, size), hue in zip(marks.items(), ("orange", "blue"), strict=True):
        place = math.log10(size)
        ax.plot((place, place), (0, 0.8 * tallest), color=COLORS[hue], ls="-", lw=2.5)
        label_line(ax, place, 0.6 * tallest, name, color=COLORS[hue])
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
    """Draw J (p, d) = V + column rowᵀ entry by entry, on one scale, blue positive."""
    (p, d), bend = V.shape, torch.outer(column, row)
    tables = torch.stack([J, V, bend])
    top, norms = float(tables.abs().max()), torch.linalg.matrix_norm(tables, ord=2).tolist()
    fig, axes = figure(ncols=6, size=(3.6, 1.3), width_ratios=[d, 1, d, 1, 1, d])
    fig.stacks = ()
    parts = (J, "=", V, "+", column[:, None], row[None])
    titles = (r"derivative $/\,\alpha$", "", "$V$", "", r"$v_j-y_i$", r"$g_i^{\mathsf{T}}$")
    equation(axes, parts, titles, sign_size=14, title_size=9.5, top=top)
    rank = torch.linalg.matrix_rank(bend)
    return fig, (
        f"A {p} by {d} table, the derivative over its weight, equals V plus a column times a row, of rank "
        f"{rank}. Norms: {norms[0]:.2f}, {norms[1]:.2f} and {norms[2]:.2f}."
    )


def prices(few: tuple, many: tuple):
    """Draw what softmax, a gate and a pole pay: T, margin, pre-activation and ν, with bars for ``few``."""
    T = few[0]
    fig, axes = figure(ncols=3, size=(7.0, 2.5))
    gap = range(1, T + 1)
    bars = ([0], gap, [T / 2])
    titles = (
        "softmax: one logit,\nover all competitors",
        "gate: every token\nof the gap",
        "pole: once,\nfor all tokens",
    )
    families = ("key side", "gated or mixed", "value side")
    looks = zip(axes, titles, bars, few[1:], many[1:], families, strict=True)
    for ax, title, places, height, later, family in looks:
        color = COLORS[FAMILIES[family]]
        ax.bar(places, height, color=color, alpha=0.7, width=0.8)
        ax.axhline(0, color=COLORS["gray"], lw=1, ls="-")
        ax.axhline(later, color=color, lw=1.3, ls=LINES["dashed"])
        above = height > 0
        up = 9 if above else -9
        label_line(ax, T / 2, later, f"T = {many[0]:,}", color=color, dx=0, dy=up, ha="center")
        ax.set(xlim=(-1, T + 1), ylim=(-1.5, 12) if above else (-12, 1.5))
        ax.set(yticks=(0, 5, 10) if above else (0, -5, -10), xticks=(0, T / 2, T))
        ax.set_title(title, fontsize=10)
    axes[0].set(xlabel=f"answer, then {T} others", ylabel="margin")
    axes[1].set(xlabel=f"source, then {T} tokens", ylabel="pre-activation")
    axes[2].set(xlabel="one parameter", ylabel="ν", xticks=[])
    words = zip(("margin", "pre-activation", "ν"), few[1:], many[1:], strict=True)
    said = "; ".join(f"{name} {a:.2f} and {b:.2f}" for name, a, b in words)
    moves = ", ".join(f"{abs(b - a):.2f}" for a, b in zip(few[1:], many[1:], strict=True))
    return fig, f"Prices for {T} and for {many[0]:,} tokens: {said}. They move by {moves}."


def bracket(t: float, sigma_2: float) -> torch.Tensor:
    """The bracket V + (v_0 - y_1) g^T of x_0 = 0 and x_1 = e_1, V = diag(1, sigma_2), logit t: (2, 2)."""
    alpha = 1 / (1 + math.exp(t))
    return torch.diag(torch.tensor([1 - (1 - alpha) * t, sigma_2], dtype=torch.float64))


def two_lanes(t: float):
    """Draw where the derivative sends the unit circle, V of rank two and one; dashed: V alone."""
    turn = np.linspace(0, 2 * np.pi, 121)
    circle = np.stack([np.cos(turn), np.sin(turn)])
    fig, axes = figure(ncols=2, size="slider")
    for ax, sigma_2 in zip(axes, (0.7, 0.0), strict=True):
        J = bracket(t, sigma_2).numpy()
        ax.plot(*(np.diag([1.0, sigma_2]) @ circle), color=COLORS["gray"], linestyle=LINES["dashed"], lw=1.2)
        ax.plot(*(J @ circle), color=COLORS["blue"], linestyle="-")
        ax.plot((0, J[0, 0]), (0, 0), color=COLORS["orange"], linestyle="-", marker="o", markevery=[1])
        ax.plot((0, 0), (0, J[1, 1]), color=COLORS["green"], linestyle="-", marker="o", markevery=[1])
        norm = max(abs(J[0, 0]), abs(J[1, 1]))
        ax.set_title(f"σ₂ = {sigma_2:g}: norm {norm:.2f} α", fontsize=10)
        ax.set(xlim=(-2.4, 1.5), ylim=(-1.0, 1.15), aspect="equal")
        label_line(ax, J[0, 0], 0, "along g", color=COLORS["orange"], dx=0, dy=-11, ha="center", fontsize=9)
        if sigma_2:
            label_line(ax, 0, J[1, 1], "lane", color=COLORS["green"], dx=0, dy=9, ha="center", fontsize=9)
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
    shade = {"color": COLORS[_HUES[3]], "alpha": 0.18, "lw": 0}
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
        for (name, label), hue in zip(labels.items(), _HUES, strict=False):
            _draw(ax, name, curves[name], label, COLORS[hue])
    axes[0].set_ylabel(_NORM)
    return fig, axes


def _draw(ax, name: str, curve: tuple, label: tuple, color: str) -> None:
    tau, norms, bound = (None if t is None else np.asarray(t.detach().cpu(), dtype=float) for t in curve)
    few = len(tau) < 40
    ax.plot(tau, norms, "o-" if few else "-", color=color, markersize=4, linewidth=1.2 if few else 2.2)
    if bound is not None:
        ax.plot(tau, bound, linestyle=LINES["dashed"], color=COLORS["black"], linewidth=1.0)
    if name in _CEILINGS:
        spot, text = _CEILINGS[name], f"ceiling ({name.removeprefix('tanh ')})"
        label_line(ax, tau[spot], bound[spot], text, color=COLORS["black"], dx=3, dy=7, fontsize=9)
    spot, side, lift = label
    place = {"dx": 5, "ha": "left"} if side == "right" else {"dx": -5, "ha": "right"}
    label_line(ax, tau[spot], norms[spot], name, color=color, dy=lift, fontsize=9, **place)
