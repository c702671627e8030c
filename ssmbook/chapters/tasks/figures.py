"""Figures of the chapter *tasks*: accuracies of five models, and a clock whose angle is a little off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ssmbook.display import COLORS, LINES, figure, label_line


def accuracies(found: Mapping[str, Mapping[str, Mapping]], guessing: Mapping[str, float]):
    """Draw the accuracy of every seed: filled at the length of training, open at twice that length.

    found: task -> model -> job of the experiment; guessing: task -> accuracy of chance (dashed). Returns the
    figure. Introduced in *tasks*.
    """
    fig, axes = figure(ncols=len(found), size=(7.0, 3.0), sharey=True)
    for ax, (task, models) in zip(axes, found.items(), strict=True):
        ax.axvline(guessing[task], color=COLORS["gray"], linestyle=LINES["dashed"], lw=1.3)
        for row, job in enumerate(models.values()):
            height = len(models) - 1 - row
            ax.plot(job["accuracy"], [height + 0.12] * len(job["accuracy"]), "o", color=COLORS["blue"], ms=7)
            ax.plot(
                job["beyond"], [height - 0.12] * len(job["beyond"]), "o", color=COLORS["orange"], mfc="none"
            )
        ax.set(title=task, xlabel="share of answers right", xlim=(0, 1.05))
        ax.set(yticks=range(len(models)), yticklabels=list(models)[::-1], ylim=(-0.5, len(models) - 0.5))
    return fig


def clock(right: Sequence[float], angle: float):
    """Draw the share of right positions against the number of turns for a clock of ``angle`` degrees a turn.

    right (n,): shares. Returns the figure. Introduced in *tasks*.
    """
    fig, ax = figure(size="slider")
    ax.axhline(1 / 3, color=COLORS["gray"], linestyle=LINES["dashed"], lw=1.3)
    label_line(ax, len(right), 1 / 3, "chance", color=COLORS["gray"], dx=-40, dy=9)
    ax.plot(range(1, len(right) + 1), right, color=COLORS["blue"], linestyle="-")
    ax.set(xlabel="turns so far", ylabel="share right", ylim=(0, 1.08), title=f"{angle:g} degrees a turn")
    return fig
