"""Figures of *heads-as-filters*; each returns the figure and its alternative text."""

from __future__ import annotations

import numpy as np

from headsandstates.chapters._drawn import HEAD, STATE, level
from headsandstates.chapters.heads_as_filters.reductions import decibels, fewest
from ssmbook.display import COLORS, figure, label_line
from ssmbook.display.style import LINES

_CURVES = ("black", "purple", "brown", "sand", HEAD)
LEVELS = {-20: "dotted", -40: "dashed", -60: "solid"}


def two_reductions(table):
    """Draw what heads alone and states alone miss, and beside it the mixes that reach three levels.

    table: (N + 1, p d + 1), the share that r states and h heads miss together.
    """
    fig, (left, right) = figure(ncols=2, size=(7.0, 3.4))
    words = []
    for name, shares, role in (("heads", table[0], HEAD), ("states", table[:, 0], STATE)):
        shown = decibels(shares)
        left.plot(np.arange(len(shares))[shown > -70], shown[shown > -70], color=COLORS[role], ls="-")
        at = int(np.argmax(shown < -25))
        label_line(left, at, shown[at], name, color=COLORS[role])
        words.append(f"{name} {', '.join(str(fewest(shares, down)) for down in LEVELS)}")
    for down in LEVELS:
        level(left, down, lw=0.8)
    left.set(xlabel="kept", ylabel="error (dB)", ylim=(-65, 3), yticks=(0, *LEVELS))
    left.set_title("alone: fewer heads than states")
    for down, look in LEVELS.items():
        states = fewest(table[:, 0], down)
        beside = [fewest(table[r], down) for r in range(states + 1)]
        right.plot(range(states + 1), beside, color="black", ls=LINES[look], drawstyle="steps-mid")
        right.plot([0, states], [beside[0], 0], color=COLORS["gray"], ls=LINES[look], lw=1)
        label_line(right, states // 4, max(beside), f"−{-down} dB", color="black", dx=0, dy=9)
    right.set(xlabel="states kept", ylabel="heads for the rest", ylim=(0, 40))
    right.set(title="together: hardly cheaper")
    return fig, f"Kept for −20, −40 and −60 dB, alone: {'; '.join(words)}."


def bode(omega, responses):
    """Draw the gain of heads against the frequency.

    responses: {name: complex response at each frequency omega}.
    """
    fig, (left, right) = figure(ncols=2, size=(7.0, 3.4))
    words = []
    for (name, response), color, look in zip(responses.items(), _CURVES, LINES.values(), strict=False):
        gain = decibels(response.abs().numpy() ** 2)
        ax = right if name.startswith("rotation") else left
        ax.plot(omega.numpy(), gain, ls=look, color=COLORS[color], label=name)
        words.append(f"{name} {gain.max().round(1) + 0.0:.1f} dB at {float(omega[gain.argmax()]):.2g}")
    for ax, title in ((left, "a penalty is a lag"), (right, "a rotation moves the passband")):
        ax.set(xscale="log", xlabel="frequency (radians per token)", ylabel="gain (dB)", ylim=(-42, 6))
        ax.set_title(title)
        ax.legend(loc="lower left", fontsize=9)
    return fig, f"Largest gain: {'; '.join(words)}."
