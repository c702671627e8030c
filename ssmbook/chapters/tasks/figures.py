"""Figures of the chapter *tasks*: accuracies of five models, and a clock whose angle is a little off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ssmbook.display import COLORS, LINES, figure, label_line
from ssmbook.display._pictures import medians

# color and line of each model, and by how many points its label moves
STYLES = (
    ("blue", "-", 6),
    ("orange", LINES["dashed"], 0),
    ("green", LINES["dotted"], 0),
    ("purple", LINES["dashdot"], -6),
    ("sky", LINES["long"], 0),
)


def accuracies(found: Mapping[str, Mapping[str, Mapping]], guessing: Mapping[str, float]):
    """Draw the accuracy of every seed: filled at the length of training, open at twice that length.

    found: task -> model -> job of the experiment; guessing: task -> accuracy of chance (dashed). Seeds that
    diverged are left out. Returns the figure.
    """
    fig, axes = figure(ncols=len(found), size=(7.0, 3.0), sharey=True)
    fig.stacks = (2,)
    for ax, (task, models) in zip(axes, found.items(), strict=True):
        ax.axvline(guessing[task], color=COLORS["gray"], linestyle=LINES["dashed"], lw=1.3)
        for row, job in enumerate(models.values()):
            height = len(models) - 1 - row
            for place, shift, hue, fill in ((1, 0.14, "blue", None), (2, -0.14, "orange", "none")):
                shares = [share for share in job["right"][place] if share is not None]
                face = COLORS[hue] if fill is None else fill
                ax.plot(shares, [height + shift] * len(shares), "o", color=COLORS[hue], mfc=face, ms=6)
        ax.set(title=task, xlabel="share right", xlim=(0, 1.07), xticks=(0, 0.5, 1))
        ax.set(yticks=range(len(models)), yticklabels=list(models)[::-1], ylim=(-0.5, len(models) - 0.5))
    axes[2].tick_params(labelleft=True)  # where the page is narrow a new row begins here
    return fig


def by_length(found: Mapping[str, Mapping[int, Mapping]], guess: float):
    """Draw the share right at the length of training against that length: median and range of the seeds.

    found: model -> length -> job of the experiment; guess: the accuracy of chance. Returns the figure.
    """
    fig, ax = figure(size="panel")
    ax.axhline(guess, color=COLORS["gray"], linestyle=LINES["dashed"], lw=1.3)
    for (model, jobs), (hue, line, height) in zip(found.items(), STYLES, strict=True):
        rows = [[share for share in job["right"][1] if share is not None] for job in jobs.values()]
        middle = medians(ax, jobs, rows, COLORS[hue], line)
        label_line(ax, list(jobs)[-1], middle[-1], model, color=COLORS[hue], dy=height)
    lengths = list(jobs)
    ax.set(xlabel="symbols to copy", ylabel="share right", ylim=(0, 1.08))
    ax.set(xticks=lengths, xlim=(lengths[0] - 0.7, lengths[-1] + 4.2))
    return fig


def by_test(found: Mapping[str, Mapping[str, Mapping]], guess: float):
    """Draw the share right against the length of the test, a panel for each task: median and range.

    found: task -> model -> job of the experiment, at most five models; guess: the accuracy of chance. The
    length of training is marked. Returns the figure.
    """
    fig, axes = figure(ncols=len(found), size=(7.0, 3.0), sharey=True)
    for ax, (task, models) in zip(axes, found.items(), strict=True):
        ax.axhline(guess, color=COLORS["gray"], linestyle=LINES["dashed"], lw=1.3)
        for (model, job), (hue, line, _) in zip(models.items(), STYLES, strict=False):
            middle = medians(ax, job["tested"], job["right"], COLORS[hue], line)
            label_line(ax, job["tested"][1], middle[1], model, color=COLORS[hue], dx=8)
        ax.set_xscale("log", base=2)
        ax.minorticks_off()
        ax.set(title=task, xlabel="symbols in the test", ylim=(0, 1.08), xticks=job["tested"])
        ax.set_xticklabels([f"{n}*" if n == job["L"] else n for n in job["tested"]])
        ax.tick_params(labelleft=True)  # on a phone the panels stand below each other
    axes[0].set_ylabel("share right")
    return fig


def by_span(shares: Mapping[str, Sequence[float]], spans: Sequence[str], guess: float):
    """Draw the share right in each span of tokens: the last model by its name, all others in gray.

    shares: model -> one share for each of the spans. Returns the figure.
    """
    fig, ax = figure(size="panel")
    ax.axhline(guess, color=COLORS["gray"], linestyle=LINES["dashed"], lw=1.3)
    *others, turning = shares
    for model in others:
        ax.plot(spans, shares[model], "o-", color=COLORS["orange"], lw=1.2, ms=4)
    label_line(ax, 1, shares[others[0]][1], "the others", color=COLORS["orange"], dy=8)
    ax.plot(spans, shares[turning], "o-", color=COLORS["blue"])
    label_line(ax, 1, shares[turning][1], turning, color=COLORS["blue"], dx=0, dy=-12, ha="center")
    ax.set(xlabel="tokens", ylabel="share right", ylim=(0, 1.08))
    return fig


def clock(right: Sequence[float], angle: float):
    """Draw the share of right positions after each token for a clock of ``angle`` degrees a third.

    right (n,): shares. Returns the figure.
    """
    fig, ax = figure(size="panel")
    ax.axhline(1 / 3, color=COLORS["gray"], linestyle=LINES["dashed"], lw=1.3)
    label_line(ax, len(right), 1 / 3, "chance", color=COLORS["gray"], dx=-40, dy=9)
    ax.plot(range(1, len(right) + 1), right, color=COLORS["blue"], linestyle="-")
    ax.set(xlabel="tokens so far", ylabel="share right", ylim=(0, 1.08), title=f"{angle:g} degrees a third")
    return fig
