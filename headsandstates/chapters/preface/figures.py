"""Figures of *preface* and *one-hour*; each returns the figure, or the figure and its alternative text."""

import torch
from matplotlib.colors import LinearSegmentedColormap

from headsandstates.chapters._drawn import FAMILIES, arrow, blocks, unit_circle, write
from ssmbook.display import COLORS, figure, label_line
from ssmbook.display.style import LINES
from ssmbook.operators import DenseOperator, LagOperator
from ssmbook.systems import System, rotation

LENGTH, RHO = 8, 0.93
"""Tokens, and how much of the rotating state of the preface is left after each."""


def rotating_blocks(theta):
    """The operator (n, n, 2, 2) of a state that rotates by ``theta`` and shrinks at each token."""
    eye = torch.eye(2, dtype=torch.float64)
    system = System(RHO * rotation(theta, dtype=torch.float64), eye, eye)
    return LagOperator(system.lags(LENGTH)).to_dense()


def best_head(W):
    """The single head nearest to ``W``, as a tensor like ``W``, and the share of energy it misses."""
    W = DenseOperator(W)
    return W.best_heads(1).to_dense(), W.floor(1)


def rotating_state(theta):
    """Draw the rotating state and its best head: one token in later outputs, and all matrices."""
    W = rotating_blocks(theta)
    head, missed = best_head(W)
    fig, axes = figure(ncols=4, size=(6.0, 1.95))
    _clock(axes[0], W[:, 0], "state", "a rotating state")
    _mosaic(axes[1], W, "its matrices")
    _clock(axes[2], head[:, 0], "head", "the best head")
    _mosaic(axes[3], head, f"misses {missed:.3f}")
    return fig


def _clock(ax, matrices, hue, title):
    """What ``matrices`` (n, 2, 2) make of the token (0, 1): hands, paler for later outputs."""
    unit_circle(ax)
    shades = LinearSegmentedColormap.from_list("hands", [COLORS[hue], "#FFFFFF"])
    hands = matrices[:, :, 1]
    for lag in reversed(range(LENGTH)):
        arrow(ax, (0, 0), hands[lag].numpy(), shades(0.8 * lag / LENGTH), lw=1.8, mutation_scale=8)
    if hue == "head":  # the line of the head
        ends = 1.25 * hands[0] / hands[0].norm()
        ax.plot(*torch.stack([-ends, ends]).T, color=COLORS[hue], ls=LINES["dotted"], lw=1, zorder=1)
    beyond = hands * (1 + 0.22 / hands.norm(dim=1, keepdim=True).clamp(min=1e-9))
    for lag in (0, 1, 2) if hue == "state" else ():
        if all((beyond[lag] - beyond[other]).norm() > 0.3 for other in range(lag)):
            write(ax, *beyond[lag].tolist(), str(lag), 9)
    ax.set(xlim=(-1.3, 1.3), ylim=(-1.3, 1.3), aspect="equal", title=title)
    ax.set_axis_off()


def _mosaic(ax, W, title):
    blocks(ax, W, 0.5, top=1.0)
    ax.set(title=title, xlabel="input →", ylabel="← output")


def gradients(distances, state, matched, random):
    """Draw what a token that far back still moves: by a state, by a head whose query matches, by random keys.

    ``random`` has a lower quartile, a median and an upper quartile for each distance.
    """
    fig, ax = figure(size="panel")
    names = ("matching query", "random keys", "state, 0.9")
    colors = (FAMILIES["key side"], "gray", FAMILIES["value side"])
    least, median, most = zip(*random, strict=True)
    ax.fill_between(distances, least, most, color=COLORS["gray"], alpha=0.15, linewidth=0)
    for name, hue, values in zip(names, colors, (matched, median, state), strict=True):
        ax.loglog(distances, values, color=COLORS[hue], linestyle="-" if hue != "gray" else "--")
        shown = sum(value > 1e-11 for value in values)
        place = len(values) // 2 - 1 if hue == "gray" else shown - 1  # clear of the other lines
        label_line(ax, distances[place], values[place], name, dx=-5, dy=-12, ha="right")
    ax.set(xlabel="distance in tokens", ylabel="derivative", ylim=(1e-12, 20))
    far = distances[-1]
    return fig, (
        f"Derivative of an output by the value of the token {distances[0]} to {far} steps before. At {far}: "
        f"a state that keeps nine tenths {state[-1]:.0e}, a head whose query matches the token "
        f"{matched[-1]:.2f}, the same head with random keys, half of the draws, from {least[-1]:.0e} to "
        f"{most[-1]:.0e}."
    )
