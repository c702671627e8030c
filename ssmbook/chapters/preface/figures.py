"""Figures of *preface* and *one-hour*; each returns the figure, or the figure and its alternative text."""

import torch

from ssmbook.display import COLORS, figure, label_line
from ssmbook.display.pictures import part_blocks, signed
from ssmbook.display.style import FAMILIES
from ssmbook.operators import DenseOperator, LagOperator
from ssmbook.systems import System, rotation

LENGTH, RHO = 8, 0.93
"""Tokens, and how much of the state is left after each, of the state that the preface turns."""


def turning_blocks(theta):
    """The operator (n, n, 2, 2) of a state that turns by ``theta`` and shrinks at each token."""
    eye = torch.eye(2, dtype=torch.float64)
    system = System(RHO * rotation(theta, dtype=torch.float64), eye, eye)
    return LagOperator(system.lags(LENGTH)).to_dense()


def best_head(W):
    """The single head nearest to ``W``, as a tensor like ``W``, and the share of energy it misses."""
    W = DenseOperator(W)
    return W.best_heads(1).to_dense(), W.floor(1)


def turning_state(theta):
    """Draw the turning state's operator beside its best head, lines between blocks."""
    W = turning_blocks(theta)
    head, missed = best_head(W)
    fig, axes = figure(ncols=2, size="slider")
    titles = ("a state that turns", f"the best head misses {missed:.3f} of it")
    for ax, operator, title in zip(axes, (W, head), titles, strict=True):
        signed(ax, operator.transpose(1, 2).reshape(2 * LENGTH, 2 * LENGTH), top=1.0)
        part_blocks(ax, LENGTH, 2, 2, 0.6)
        ax.set(title=title, xlabel="input →", ylabel="← output")
    return fig


def gradients(distances, state, asked, random):
    """Draw what a token that far back still moves: by a state, by a head with its query, by one at random.

    ``random`` has a lower quartile, a median and an upper quartile for each distance.
    """
    fig, ax = figure(size="panel")
    names = ("head that asks", "random tokens", "state, 0.9")
    colors = (FAMILIES["key side"], "gray", FAMILIES["value side"])
    least, median, most = zip(*random, strict=True)
    ax.fill_between(distances, least, most, color=COLORS["gray"], alpha=0.15, linewidth=0)
    for name, hue, values in zip(names, colors, (asked, median, state), strict=True):
        ax.loglog(distances, values, color=COLORS[hue], linestyle="-" if hue != "gray" else "--")
        shown = sum(value > 1e-11 for value in values)
        place = len(values) // 2 - 1 if hue == "gray" else shown - 1  # clear of the other lines
        label_line(ax, distances[place], values[place], name, dx=-5, dy=-12, ha="right")
    ax.set(xlabel="distance in tokens", ylabel="derivative", ylim=(1e-12, 20))
    far = distances[-1]
    return fig, (
        f"Derivative of an output by the value of the token {distances[0]} to {far} steps before. At {far}: "
        f"a state that keeps nine tenths {state[-1]:.0e}, a head that asks for the token {asked[-1]:.2f}, "
        f"the same head on random tokens, half of the draws, from {least[-1]:.0e} to {most[-1]:.0e}."
    )
