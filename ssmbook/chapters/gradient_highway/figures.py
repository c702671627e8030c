"""The figures of the chapter *gradient-highway* that are longer than a cell."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch

from ssmbook.display import COLORS, FAMILIES, LINES, figure, label_line

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
    """Draw a recurrence as a chain of steps beside a head as one arc; returns ``fig, alt``.

    distance: steps between the first and the last token; keep: factor of each step; weight: of the arc.
    """
    fig, (chain, arc) = figure(ncols=2, size=(7.0, 2.3))
    names = ["0", "1", "…", f"{distance - 1:,}", f"{distance:,}"]
    for ax, title in ((chain, "recurrence: a chain"), (arc, "head: one arc")):
        ax.set(xlim=(-0.5, 4.5), ylim=(-0.75, 1.25), title=title, xticks=[], yticks=[])
        ax.set_axis_off()
        for x, name in enumerate(names):
            edge = "none" if name == "…" else COLORS["gray"]
            ax.text(x, 0, name, ha="center", va="center", fontsize=9, bbox={"fc": "white", "ec": edge})
    value, key = COLORS[FAMILIES["value side"]], COLORS[FAMILIES["key side"]]
    arrow = {"arrowstyle": "-|>", "shrinkA": 18, "shrinkB": 18, "lw": 1.6}
    for x in range(4):
        chain.annotate("", (x + 1, 0), (x, 0), arrowprops=arrow | {"color": value})
        label_line(chain, x + 0.5, 0.3, f"×{keep:g}", color=value, dx=0, ha="center", fontsize=9)
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


def bracket(t: float, sigma_2: float) -> torch.Tensor:
    """The bracket V + (v_0 - y_1) g^T of two tokens, x_0 = 0 and x_1 = e_1: (2, 2), float64.

    V = diag(1, sigma_2), and t is the logit of x_1 with itself.
    """
    alpha = 1 / (1 + math.exp(t))
    return torch.diag(torch.tensor([1 - (1 - alpha) * t, sigma_2], dtype=torch.float64))


def two_lanes(t: float):
    """Draw where the derivative of two tokens sends the unit circle, for value maps of rank two and one.

    Returns the figure. t: logit of the asking token with itself. Dashed: V alone; solid: V and the moving
    weights.
    """
    turn = np.linspace(0, 2 * np.pi, 121)
    circle = np.stack([np.cos(turn), np.sin(turn)])
    fig, axes = figure(ncols=2, size="slider", sharex=True, sharey=True)
    for ax, sigma_2 in zip(axes, (0.7, 0.0), strict=True):
        J = bracket(t, sigma_2).numpy()
        ax.plot(*(np.diag([1.0, sigma_2]) @ circle), color=COLORS["gray"], linestyle=LINES["dashed"], lw=1.2)
        ax.plot(*(J @ circle), color=COLORS["blue"], linestyle="-")
        ax.plot((0, J[0, 0]), (0, 0), color=COLORS["orange"], linestyle="-", marker="o", markevery=[1])
        ax.plot((0, 0), (0, J[1, 1]), color=COLORS["green"], linestyle="-", marker="o", markevery=[1])
        norm = max(abs(J[0, 0]), abs(J[1, 1]))
        ax.set_title(f"σ₂ = {sigma_2:g}: norm {norm:.2f} α", fontsize=10)
        ax.set(xlim=(-2.4, 1.5), ylim=(-1.0, 1.15), aspect="equal")
        ax.tick_params(labelleft=True)  # on a phone the panels stand below each other
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
    """Draw gradient against distance, both on log axes: linear systems left, one softmax head right.

    curves: for each of "ρ = 0.5", "ρ = 0.9", "ρ = 0.99", "ρ = 1.0", "asked", "all logits 0", "ALiBi", "random
    tokens" a triple of tensors (m,): distances, measured norms, law or bound (or None). band: two tensors
    (m,) beside "random tokens". On these axes a power is a straight line and an exponential bends down.
    Returns the figure.
    """
    fig, axes = _panels(curves, _REACH, (1e-12, 30.0))
    for ax in axes:
        ax.set(xscale="log", xlim=(0.9, 1200))
    tau = np.asarray(curves["random tokens"][0], dtype=float)
    shade = {"color": COLORS[_HUES[3]], "alpha": 0.18, "lw": 0}
    axes[1].fill_between(tau, *(np.asarray(edge, dtype=float) for edge in band), **shade)
    return fig


def flow_panels(curves: Mapping[str, tuple]):
    """Draw transients and a recurrent network left, a selective model right, norms on a log axis.

    curves: for each of "Jordan block", "non-normal", "tanh RNN", "gate held", "gate open" a triple of tensors
    (m,): distances, measured norms, law or bound. Measurements are lines (dots when few), laws and bounds
    black and dashed. Returns the figure.
    """
    fig, axes = _panels(curves, _FLOW, (1e-24, 1e5))
    for ax in axes:
        ax.set_xlim(0, 1060)
    return fig


def _panels(curves, panels, ylim):
    fig, axes = figure(ncols=2, sharey=True)
    for ax, (title, labels) in zip(axes, panels.items(), strict=True):
        ax.set(title=title, yscale="log", ylim=ylim, xlabel=r"distance $\tau$")
        ax.tick_params(labelleft=True)  # on a phone the panels stand below each other
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
