"""Figures of the chapter *learning-heads*: trained students over what was computed before training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.ticker import MaxNLocator

from ssmbook.display import COLORS, LINES, figure, label_line
from ssmbook.display._pictures import medians

LEAST = 1e-12  # smaller errors are drawn on this line
HUES = ("blue", "orange", "green", "purple")


def students(teacher: Mapping, title: str):
    """Draw the students of one teacher over the floor (gray), beside the untrained ones (crosses).

    teacher: a job of the experiment, with k, floor, H, trained and untrained. Returns the figure.
    """
    fig, ax = figure(size="panel")
    k = teacher["k"]
    ax.semilogy(teacher["H"][:k], teacher["floor"][:k], color=COLORS["gray"], ls="-", lw=3)
    for H, before, after in zip(teacher["H"], teacher["untrained"], teacher["trained"], strict=True):
        ax.semilogy([H] * len(before), before, "x", color=COLORS["sky"], ms=5)
        after = [max(error, LEAST) for error in after]
        ax.semilogy([H] * len(after), after, "o", color=COLORS["orange"], mfc="none", ms=7)
    ax.set(xlabel="heads H", ylabel="error over energy", ylim=(LEAST / 10, 10), title=title)
    ax.set_xlim(-0.5, 8.5)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    return fig


def classes(curves: Mapping[str, Mapping[str, Mapping]], counts: Mapping[str, Mapping[str, int | None]]):
    """Draw for each system the best error of every class against H; a vertical line where the count says 0.

    curves: system -> class -> job; counts: system -> class -> count, None where there is none. Returns the
    figure.
    """
    fig, axes = figure(ncols=len(curves), size=(7.0, 3.2), sharey=True)
    for ax, (system, found) in zip(axes, curves.items(), strict=True):
        for (kind, job), hue, line in zip(found.items(), HUES, LINES.values(), strict=False):
            best = [max(min(errors), LEAST) for errors in job["trained"]]
            ax.semilogy(job["H"], best, "o", color=COLORS[hue], linestyle=line, ms=4.5, label=kind)
            count = counts[system][kind]
            if count is not None:
                ax.plot([count], [LEAST / 4], "^", color=COLORS[hue], ms=7, clip_on=False)
        ax.set(title=system, xlabel="heads H", ylim=(LEAST / 4, 3))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.tick_params(labelleft=True)  # on a phone the panels stand below each other
    axes[0].set_ylabel("least error over energy")
    axes[0].legend(loc="lower left", fontsize=9)
    return fig


def data(jobs: Sequence[Mapping], law: Sequence[Sequence[float]]):
    """Draw the errors on m noisy sequences against H (median, least to largest), and the law (lines).

    jobs: those named "data m"; law: for each job the predicted error at each H. Returns the figure.
    """
    fig, ax = figure(size="panel")
    for job, wanted, hue in zip(jobs, law, HUES, strict=False):
        ax.semilogy(job["H"], wanted, color=COLORS[hue], linestyle="-", lw=1.3)
        middle = medians(ax, job["H"], job["trained"], COLORS[hue])
        label_line(ax, job["H"][-1], middle[-1], f"{job['m']} sequences", color=COLORS[hue])
    floor = jobs[0]["floor"]
    k = jobs[0]["k"]
    ax.semilogy(range(k), floor[:k], color=COLORS["gray"], linestyle=LINES["dotted"], lw=2)
    label_line(ax, k - 1, floor[k - 1], "floor", color=COLORS["gray"], dx=-40, dy=-8)
    ax.set(xlabel="heads H", ylabel="error over energy", xlim=(-0.3, jobs[0]["H"][-1] + 1.6))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    return fig


def arrivals(steps, found, law, sigma, shown=(1, 2, 4, 8, 15)):
    """Draw how some singular values of the student grow step by step (lines) beside their law (dots).

    steps (R,); found, law (R, H) as lists; sigma (H,): the teacher's. Returns the figure.
    """
    fig, ax = figure(size="panel")
    for r, hue in zip(shown, COLORS.values(), strict=False):
        ax.semilogx(steps, [row[r - 1] for row in found], color=hue, ls="-")
        ax.semilogx(steps[::2], [row[r - 1] for row in law][::2], "o", color=hue, mfc="none", ms=4)
        label_line(ax, steps[-1], sigma[r - 1], f"{r}", color=hue)
    ax.set(
        xlabel="step of gradient descent", ylabel="singular value of the student", xlim=(10, steps[-1] * 1.6)
    )
    return fig
