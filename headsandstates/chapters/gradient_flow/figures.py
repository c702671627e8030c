"""Figures of *gradient-flow*; each returns the figure, or the figure and its alternative text."""

import math
from collections.abc import Mapping, Sequence
from statistics import median

from headsandstates.chapters._drawn import level, ticks
from ssmbook.display import COLORS, figure, label_line
from ssmbook.display.style import LINES, SERIES

FAILED = 0.5
TICKS = (4, 8, 16, 32, 64, 128, 256)


def _distances(ax):
    ax.set_xscale("log", base=2)
    ax.set_xlabel("distance T")
    ticks(ax, TICKS)


def _last_learned(job):
    return max(T for T, errors in zip(job["T"], job["error"], strict=True) if median(errors) < FAILED)


def learned(jobs: Mapping[str, Mapping], predicted: Mapping[str, float]):
    """Draw the error after training against distance (median, range of seeds), predictions below."""
    fig, ax = figure(size="panel")
    for (name, job), color, line in zip(jobs.items(), map(COLORS.get, SERIES), LINES.values(), strict=False):
        middle = [median(errors) for errors in job["error"]]
        ends = [[min(errors) for errors in job["error"]], [max(errors) for errors in job["error"]]]
        ax.plot(job["T"], middle, "o", color=color, linestyle=line, ms=4)
        ax.fill_between(job["T"], *ends, color=color, alpha=0.15, linewidth=0)
        end = next(i for i, error in enumerate(middle) if error > FAILED)
        label_line(ax, job["T"][end], 1.07, name, color=color, ha="left", dx=-4, rotation=60, va="bottom")
        if name in predicted:
            ax.plot([predicted[name]], [-0.06], "^", color=color, ms=8, clip_on=False)
    _distances(ax)
    ax.set(ylabel="error after training", ylim=(-0.06, 1.5), xlim=(3.7, 300))
    return fig


# layer -> what its label says, the color of its line, and where the label stands: distance, points beside
# and above, turned by so many degrees
_SLOPES = {
    "LTI, ρ = 1": ("ρ = 1, held gate, attention", "gray", (80, 0, 9, 0)),
    "attention, ALiBi": ("ALiBi", "head", (186, 0, -10, 0)),
    "LTI, ρ = 0.99": ("ρ = 0.99", "state", (150, -20, -10, 0)),
    "LTI, poles 0.95 and 0.7": ("0.95 and 0.7", "sand", (98, 38, 4, 0)),
    "LTI, ρ = 0.9": ("ρ = 0.9", "state", (48, 24, 4, 0)),
    "selective, open": ("fading gate", "purple", (40, -8, 0, -71)),
    "LTI, ρ = 0.5": ("ρ = 0.5", "state", (4, 9, 0, -86)),
}
_FLAT = "selective, held", "attention, no logits"  # drawn where ρ = 1 is


def slopes(found: Mapping[str, Mapping]):
    """Draw fitted slopes of log gradients (the job "slopes") as lines from one point, laws dashed."""
    fig, ax = figure(size=(3.6, 3.0))
    longest = 200
    T = list(range(longest + 1))
    looks = _SLOPES | dict.fromkeys(_FLAT, (None, "gray", None))
    words = []
    for name, job in found.items():
        label, hue, place = looks[name]
        for slope in job["measured"]:
            ax.semilogy(T, [math.exp(slope * t) for t in T], color=COLORS[hue], ls="-", lw=2.5, alpha=0.5)
        law = job["law"][0]
        ax.semilogy(T, [math.exp(law * t) for t in T], color=COLORS["black"], ls=LINES["dashed"], lw=1)
        if label:
            at, dx, dy, turned = place
            where = {"dx": dx, "dy": dy, "ha": "center", "fontsize": 9, "rotation": turned}
            label_line(ax, at, math.exp(law * at), label, color=COLORS[hue], **where)
        gap = max(abs(slope - law) for slope in job["measured"])
        words.append(f"{name} {round(law, 4) + 0.0:.4f} ({gap:.4f})")
    ax.set(xlabel="distance in tokens", ylabel="left of the gradient", xlim=(0, longest), ylim=(1e-3, 2.5))
    return fig, f"Slope by the law (largest gap of eight draws): {'; '.join(words)}."


def ends(jobs: Mapping[str, Mapping], predicted: Mapping[str, float]):
    """Draw the last distance learned (filled), the first that failed (open), the prediction (triangle)."""
    fig, ax = figure(size=(3.6, 2.9))
    words = []
    for row, (name, job) in enumerate(jobs.items()):
        last = _last_learned(job)
        first = min(T for T in job["T"] if T > last)
        ax.plot((last, first), (row, row), color=COLORS["gray"], ls="-", lw=1.5)
        for T, face in ((last, COLORS["black"]), (first, "white")):
            ax.plot(T, row, "o", color=COLORS["black"], mfc=face, ms=7)
        ax.plot(predicted[name], row + 0.42, "^", color=COLORS["purple"], ms=5)
        words.append(f"{name} {last}, {first} and {predicted[name]:.0f}")
    _distances(ax)
    ax.set(yticks=range(len(jobs)), yticklabels=list(jobs), ylim=(len(jobs) - 0.3, -0.7), xlim=(14, 300))
    return fig, f"Last learned, first failed and predicted distance: {'; '.join(words)}."


def fewer_steps(jobs: Mapping[str, tuple[Mapping, Mapping]], critical: float, steps: tuple[int, int]):
    """Draw what two layers keep before training, and the last distance learned in each of two steps."""
    fig, ax = figure(size="panel")
    for (name, pair), hue, at in zip(jobs.items(), ("state", "head"), (64, 91), strict=True):
        ax.semilogy(pair[0]["T"], pair[0]["weight"], color=COLORS[hue], ls="-")
        for job, face in zip(pair, (COLORS[hue], "white"), strict=True):
            last = _last_learned(job)
            ax.plot(last, job["weight"][job["T"].index(last)], "o", color=COLORS[hue], mfc=face, ms=8)
        label_line(ax, at, pair[0]["weight"][pair[0]["T"].index(at)], name, color=COLORS[hue], dx=4, dy=9)
    for count, place, side in zip(steps, (0, 130), ("left", "right"), strict=True):
        weight = critical * steps[0] / count
        level(ax, weight, 1.2)
        words = {"dx": 3 if side == "left" else -2, "dy": -8 if side == "left" else 8, "ha": side}
        label_line(ax, place, weight, f"{count:,} steps", color=COLORS["gray"], **words)
    ax.set(xlabel="distance T", ylabel="kept before training", xlim=(0, 130), ylim=(1e-4, 1))
    return fig


def kept_at_first(job: Mapping, critical: float, title: str):
    """Draw what a layer keeps of the flagged token before training; filled where training succeeded."""
    fig, ax = figure(size="panel")
    ax.loglog(job["T"], job["weight"], color=COLORS["gray"], ls="-", lw=1.5)
    for T, weight, errors in zip(job["T"], job["weight"], job["error"], strict=True):
        share = sum(error < FAILED for error in errors) / len(errors)
        color = COLORS["black"] if share > 0.5 else "white"
        ax.plot(T, weight, "o", color=COLORS["black"], mfc=color, ms=8)
    ax.axhline(critical, color=COLORS["purple"], linestyle=LINES["dashed"])
    label_line(ax, 4, critical, f"{critical:.2g}", color=COLORS["purple"], dy=-9)
    _distances(ax)
    ax.set(ylabel="kept before training", ylim=(1e-6, 2), xlim=(3.7, 300), title=title)
    return fig


def two_laws(found: Mapping[float, Sequence[float]], laws: Mapping[str, Mapping[float, float]]):
    """Draw the measured distance (value, interval) over that of each law; found: rho -> value, ends."""
    fig, ax = figure(size="panel")
    level(ax, 1)
    words = []
    for (name, law), hue, shift in zip(laws.items(), ("black", "purple"), (-0.1, 0.1), strict=True):
        for row, (rho, (value, low, high)) in enumerate(found.items()):
            ax.plot((row + shift,) * 2, (low / law[rho], high / law[rho]), color=COLORS[hue], ls="-", lw=1.5)
            ax.plot(row + shift, value / law[rho], "o", color=COLORS[hue], ms=6)
        ratios = ", ".join(f"{found[rho][0] / law[rho]:.2f}" for rho in found)
        words.append(f"{name} {ratios}")
        label_line(ax, 1.5, 1.12 if shift < 0 else 1.155, name, color=COLORS[hue], dx=0, ha="center")
    ax.set(xticks=range(len(found)), xticklabels=list(found), xlabel="pole radius ρ at the start")
    ax.set(ylabel="measured / predicted", ylim=(0.84, 1.18), xlim=(-0.5, len(found) - 0.5))
    return fig, f"Measured over predicted distance at ρ = {', '.join(map(str, found))}: {'; '.join(words)}."


# color, mark and shift of each learning rate, side by side where products with the steps are equal
_RATES = [(hue, "osD^"[i], 1.05 ** (i - 1.5)) for i, hue in enumerate(("brown", "sand", "purple", "black"))]


def collapse(found: Mapping[tuple[float, int], Sequence[float]], law):
    """Draw the distance that half of the runs learn (value, interval) against rate times steps.

    found: (rate, steps) -> value, ends; law(product): the predicted distance.
    """
    fig, ax = figure(size="panel")
    products = sorted({rate * steps for rate, steps in found})
    expected = [law(product) for product in products]
    ax.plot(products, expected, color=COLORS["gray"], ls=LINES["dashed"], lw=1.3)
    looks = dict(zip(sorted({rate for rate, _ in found}), _RATES, strict=False))
    words = []
    for (rate, steps), (value, low, high) in sorted(found.items(), key=lambda job: job[0][0]):
        hue, mark, aside = looks[rate]
        at, name = rate * steps * aside, f"{rate:g}" if steps == 500 else None
        ax.plot((at, at), (low, high), color=COLORS[hue], ls="-", lw=1.5)
        ax.plot(at, value, mark, color=COLORS[hue], ms=5, label=name)
        words.append(f"{rate:g} times {steps:,}: {value:.0f}")
    ax.set_xscale("log")
    ax.set(xticks=products, xticklabels=[f"{product:g}" for product in products])
    ax.minorticks_off()
    ax.set(xlabel="learning rate × steps", ylabel="distance that half learn")
    ax.legend(title="learning rate", loc="upper left", frameon=False)
    return fig, f"Learned distance by rate and steps: {'; '.join(words)}."
