"""The figures of the chapter *gradient-highway* that are longer than a cell."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ssmbook.display import COLORS, LINES, figure, label_line

_HUES = ("blue", "orange", "green", "purple")

# panel title -> curve name -> where its label stands: index of a point, side of it, points above it
_LABELS = {
    r"$\rho$ times orthogonal, and the law $\rho^\tau$": {
        "ρ = 0.5": (52, "right", 4),
        "ρ = 0.9": (240, "right", 8),
        "ρ = 0.99": (800, "left", -9),
        "ρ = 1.0": (600, "right", 8),
    },
    "transients, and a recurrent network": {
        "Jordan block": (560, "right", 3),
        "non-normal": (360, "left", -6),
        "tanh RNN": (90, "right", -8),
    },
    "softmax heads": {"matched": (6, "right", 11), "uniform": (6, "right", 10), "ALiBi": (7, "left", -8)},
    "selective state space model": {"gate held": (6, "right", 11), "gate open": (2, "right", 6)},
}
_CEILINGS = {"tanh RNN": 440, "ALiBi": 2}  # bounds far from their curves are labeled at this point


def flow_panels(curves: Mapping[str, tuple], *, low: float = 1e-24, high: float = 1e5):
    """Draw the chapter's gradient profiles in four panels, norms on a log axis; returns the figure.

    curves: for each of the names "ρ = 0.5", "ρ = 0.9", "ρ = 0.99", "ρ = 1.0", "Jordan block", "non-normal",
    "tanh RNN", "matched", "uniform", "ALiBi", "gate held", "gate open" a triple of tensors (m,): distances,
    measured norms, law or bound. Measurements are lines (dots when few), laws and bounds black and dashed.
    low, high: the ends of the norm axis. Raises ValueError for other names. Introduced in
    *gradient-highway*.
    """
    wanted = [name for labels in _LABELS.values() for name in labels]
    if set(curves) != set(wanted):
        raise ValueError(f"curves must have the names {', '.join(wanted)}; got {', '.join(curves)}")
    fig, axes = figure(ncols=2, nrows=2, size=(7.0, 5.4), sharex=True, sharey=True)
    for ax, (title, labels) in zip(axes.flat, _LABELS.items(), strict=True):
        ax.set_yscale("log")
        ax.set(title=title, ylim=(low, high), xlim=(0, 1060))
        for (name, label), hue in zip(labels.items(), _HUES, strict=False):
            _draw(ax, name, curves[name], label, COLORS[hue])
    for ax in axes[1]:
        ax.set_xlabel(r"distance $\tau$")
    for ax in axes[:, 0]:
        ax.set_ylabel(r"$\|\partial y_n/\partial x_{n-\tau}\|_2$")
    return fig


def _draw(ax, name: str, curve: tuple, label: tuple, color: str) -> None:
    tau, norms, bound = (np.asarray(t.detach().cpu(), dtype=float) for t in curve)
    few = len(tau) < 40
    ax.plot(tau, norms, "o" if few else "-", color=color, markersize=4.5, linewidth=0 if few else 2.6)
    ax.plot(tau, bound, linestyle=LINES["dashed"], color=COLORS["black"], linewidth=1.0)
    if name in _CEILINGS:
        spot = _CEILINGS[name]
        text = f"ceiling ({name.removeprefix('tanh ')})"
        label_line(ax, tau[spot], bound[spot], text, color=COLORS["black"], dx=3, dy=7, fontsize=9)
    spot, side, lift = label
    place = {"dx": 5, "ha": "left"} if side == "right" else {"dx": -5, "ha": "right"}
    label_line(ax, tau[spot], norms[spot], name, color=color, dy=lift, fontsize=9, **place)


def weight_against_length(margin: float, *, longest: int = 2**20):
    """Draw the softmax weight that a fixed margin earns among n keys, against n; returns the figure.

    margin: over the log-mean-exp of the others; longest: right end of the axis. Dots mark where the weight
    is a half, n = 1 + e^margin. Introduced in *gradient-highway*.
    """
    n = np.geomspace(2, longest, 200)
    fig, ax = figure(size="slider")
    ax.semilogx(n, 1 / (1 + (n - 1) * np.exp(-margin)), color=COLORS["blue"], linestyle="-")
    ax.axhline(0.5, color=COLORS["gray"], linewidth=1)
    half = 1 + np.exp(margin)
    if half < longest:
        ax.plot(half, 0.5, "o", color=COLORS["orange"])
        label_line(ax, half, 0.5, f"half at n = {half:.0f}", color=COLORS["orange"], dx=7, dy=8)
    ax.set(xlabel="visible keys n", ylabel="weight α", ylim=(0, 1.02), xlim=(2, longest))
    return fig
