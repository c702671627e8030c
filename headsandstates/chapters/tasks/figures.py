"""Figures of *tasks*; each returns the figure, or the figure and its alternative text."""

from collections.abc import Mapping, Sequence

from matplotlib.patches import Rectangle

from headsandstates.chapters._drawn import level, medians, write
from ssmbook.display import COLORS, figure, label_line
from ssmbook.display.style import LINES, SERIES

# color and line of each model, and by how many points its label moves
STYLES = tuple(zip(SERIES, LINES.values(), (6, 0, 0, -6, 0), strict=False))
SPAN_STYLES = {
    "attention": ("head", "-"), "SSD": ("state", LINES["dashed"]), "rotating SSM": ("purple", LINES["long"]),
    "Mamba-3": ("brown", LINES["dotted"]), "DeltaProduct": ("black", LINES["dashdot"]),
    "selective SSM": ("gray", LINES["dotted"]),
}  # fmt: skip

BLANK, ASK = 8, 9


def strips(examples: Mapping[str, tuple[Sequence[int], Sequence[int]]]):
    """Draw sequences as strips of boxes; examples: task -> tokens, answers (-1 where nothing is asked)."""
    fig, axes = figure(nrows=4, size=(3.6, 3.6))
    words, signs = [], {BLANK: "", ASK: "?"}
    for ax, (task, (tokens, answers)) in zip(axes.flat, examples.items(), strict=True):
        group = 3 if task == "recall" else len(tokens)  # a key of two symbols and its value stand together
        for i, (token, answer) in enumerate(zip(tokens, answers, strict=True)):
            place = i + 0.4 * (i // group)
            edge = COLORS["black" if token == ASK else "gray"]
            face = "#E4E4E4" if token == BLANK else "white"
            ax.add_patch(Rectangle((place - 0.42, -0.5), 0.84, 1, fc=face, ec=edge))
            write(ax, place, 0, signs.get(token, str(token)), 9.5)
            if answer >= 0:
                write(ax, place, -1.1, str(answer), 9.5, color=COLORS["black"])
        ax.set(xlim=(-0.6, 19.8), ylim=(-1.7, 0.6))
        ax.set_title(task, fontsize=10, loc="left")
        ax.set_axis_off()
        said = " ".join(signs.get(token, str(token)) or "blank" for token in tokens)
        words.append(f"{task} {said}, answers {' '.join(str(a) for a in answers if a >= 0)}")
    return fig, f"One sequence of each task. {'; '.join(words)}."


def by_pairs(found: Mapping[str, Mapping], guess: float):
    """Draw the share right against the pairs in the test (median, range); training is starred."""
    fig, ax = figure(size=(3.6, 2.8))
    level(ax, guess)
    for (model, job), (hue, line, height) in zip(found.items(), STYLES, strict=True):
        middle = medians(ax, job["tested"], job["right"], COLORS[hue], line)
        up = -height if middle[-1] > guess + 0.05 else -9  # clear of the dashed line
        label_line(ax, job["tested"][-1], middle[-1], model, color=COLORS[hue], dx=7, dy=up)
    _tested(ax, job, "pairs in the test")
    ax.set(ylabel="share right", ylim=(0, 1.08), xlim=(1.8, 52))
    return fig


def _tested(ax, job, unit):
    """Mark the lengths of the tests on a logarithmic axis, that of training with a star."""
    ax.set_xscale("log", base=2)
    ax.minorticks_off()
    ax.set(xlabel=unit, xticks=job["tested"])
    ax.set_xticklabels([f"{n}*" if n == job["L"] else n for n in job["tested"]])


def accuracies(
    short: Mapping[str, Mapping[str, Mapping]],
    long: Mapping[str, Mapping[str, Sequence[float]]],
    guessing: Mapping[str, float],
):
    """Draw the share right at the length of training after a short run (filled) and a long one (open).

    short: task -> model -> job of the short runs; long: task -> model -> the share of each seed.
    """
    fig, axes = figure(ncols=len(short), size=(7.0, 3.0), sharey=True)
    fig.stacks = (2,)
    for ax, (task, models) in zip(axes, short.items(), strict=True):
        ax.axvline(guessing[task], color=COLORS["gray"], linestyle=LINES["dashed"], lw=1.3)
        for row, (model, job) in enumerate(models.items()):
            height = len(models) - 1 - row
            shares = [share for share in job["right"][1] if share is not None]
            ax.plot(shares, [height + 0.14] * len(shares), "o", color=COLORS["black"], ms=6)
            longer = long.get(task, {}).get(model, [])
            ax.plot(longer, [height - 0.14] * len(longer), "o", color=COLORS["purple"], mfc="none", ms=6)
        ax.set(title=task, xlabel="share right", xlim=(0, 1.07), xticks=(0, 0.5, 1))
        ax.set(yticks=range(len(models)), yticklabels=list(models)[::-1], ylim=(-0.5, len(models) - 0.5))
    axes[2].tick_params(labelleft=True)  # where the page is narrow a new row begins here
    return fig


def by_test(found: Mapping[str, Mapping[str, Mapping]], guess: float):
    """Draw the share right against the length of the test, a panel for each task -> model -> job."""
    fig, axes = figure(ncols=len(found), size=(7.0, 3.0))
    for ax, (task, models) in zip(axes, found.items(), strict=True):
        level(ax, guess)
        for (model, job), (hue, line, _) in zip(models.items(), STYLES, strict=False):
            middle = medians(ax, job["tested"], job["right"], COLORS[hue], line)
            label_line(ax, job["tested"][1], middle[1], model, color=COLORS[hue], dx=8)
        _tested(ax, job, "symbols in the test")
        ax.set(title=task, ylim=(0, 1.08))
    axes[0].set_ylabel("share right")
    return fig


def by_span(
    shares: Mapping[str, Mapping[str, Sequence[Sequence[float]]]],
    spans: Sequence[str],
    guessing: Mapping[str, float],
):
    """Draw the share right in each span of tokens, a panel for each task: median and range of the seeds.

    shares: task -> model -> for each seed a share for each span.
    """
    fig, axes = figure(ncols=len(shares), size=(7.0, 3.4))
    words = []
    for ax, (task, models) in zip(axes, shares.items(), strict=True):
        level(ax, guessing[task])
        for model, seeds in models.items():
            hue, line = SPAN_STYLES[model]
            middle = medians(ax, range(len(spans)), list(zip(*seeds, strict=True)), COLORS[hue], line)
            words.append(f"{task}, {model} {', '.join(f'{share:.2f}' for share in middle)}")
            ax.plot([], [], color=COLORS[hue], linestyle=line, marker="o", label=model)
        ax.set(title=task, xlabel="tokens", xticks=range(len(spans)), xticklabels=spans)
        ax.set(ylabel="share right", ylim=(0, 1.55), yticks=(0, 0.25, 0.5, 0.75, 1))
        ax.legend(loc="upper center", ncols=2, fontsize=9, frameon=False)
    return fig, f"Median share right of tokens {', '.join(spans)}: {'; '.join(words)}."


def clock(right: Sequence[float], angle: float):
    """Draw the share of right positions (n,) after each token for a clock of ``angle`` degrees a third."""
    fig, ax = figure(size="panel")
    level(ax, 1 / 3)
    label_line(ax, len(right), 1 / 3, "chance", color=COLORS["gray"], dx=-40, dy=9)
    ax.plot(range(1, len(right) + 1), right, color=COLORS["head"], linestyle="-")
    ax.set(xlabel="tokens so far", ylabel="share right", ylim=(0, 1.08), title=f"{angle:g} degrees a third")
    return fig
