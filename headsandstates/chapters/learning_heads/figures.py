"""Figures of *learning-heads*; each returns the figure, or the figure and its alternative text."""

from collections.abc import Mapping, Sequence
from statistics import median

from matplotlib.ticker import MaxNLocator

from headsandstates.chapters._drawn import medians
from ssmbook.display import COLORS, figure, label_line
from ssmbook.display.style import LINES, SERIES, readable

LEAST = 1e-12  # smaller errors are drawn on this line


def students(teacher: Mapping, title: str):
    """Draw the trained students of one teacher over the floor, beside the untrained ones (crosses)."""
    fig, ax = figure(size="panel")
    k = teacher["k"]
    ax.semilogy(teacher["H"][:k], teacher["floor"][:k], color=COLORS["gray"], ls="-", lw=3)
    for H, before, after in zip(teacher["H"], teacher["untrained"], teacher["trained"], strict=True):
        ax.semilogy([H] * len(before), before, "x", color=COLORS["brown"], ms=5)
        after = [max(error, LEAST) for error in after]
        ax.semilogy([H] * len(after), after, "o", color=COLORS["head"], mfc="none", ms=7)
    label_line(ax, 8.4, 0.1, "before training", color=COLORS["brown"], dx=0, ha="right")
    label_line(ax, -0.2, 1e-8, "after training", color=COLORS["head"], dx=0)
    label_line(ax, -0.2, 1e-9 / 5, "— floor", color=COLORS["gray"], dx=0)
    ax.set(xlabel="heads H", ylabel="error over energy", ylim=(LEAST / 10, 10), title=title)
    ax.set_xlim(-0.5, 8.5)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    return fig


def predicted(teachers: Sequence[Mapping], own: Mapping, shuffled: Mapping):
    """Draw every error with 1 <= H < k over its floor, and the medians of one teacher and it shuffled."""
    fig, (each, control) = figure(ncols=2, size=(7.0, 3.0))
    runs = [(job["floor"][H], e) for job in teachers for H in range(1, job["k"]) for e in job["trained"][H]]
    ends = min(runs)[0], max(runs)[0]
    each.loglog(ends, ends, color=COLORS["gray"], ls="-", lw=1.2)
    each.loglog(*zip(*runs, strict=True), "o", color=COLORS["head"], mfc="none", ls="none", ms=6)
    each.set(xlabel="floor, computed before", ylabel="error, after training")
    each.set_title(f"{len(runs)} runs, H < k")
    words = []
    for name, job, hue, at in (("its own lags", own, "head", 1e-6), ("shuffled", shuffled, "purple", 1e-3)):
        errors, k = [max(median(row), LEAST) for row in job["trained"]], job["k"]
        control.semilogy(job["H"], errors, "o", color=COLORS[hue], ls="-", ms=4.5)
        side = {"dx": -14, "ha": "right"} if k > 6 else {"dx": 8}
        label_line(control, k - 0.5, at, name, color=COLORS[hue], **side)
        words.append(f"{name}: {errors[k - 1]:.2g} at H = {k - 1}, at most {errors[k]:.0e} at H = {k}")
    control.set(xlabel="heads H", ylabel="error over energy", title="one teacher, and shuffled")
    control.set_ylim(LEAST / 10, 20)
    control.xaxis.set_major_locator(MaxNLocator(integer=True))
    off = max(error / floor for floor, error in runs)
    return fig, (
        f"{len(runs)} errors between {ends[0]:.1g} and {ends[1]:.2g} on their floors, at most {off:.4f} "
        f"times them. One teacher: {'; '.join(words)}."
    )


def found_pairs(H: Sequence[int], trained: Sequence[Sequence[float]], floor: Sequence[float], exact: int):
    """Draw errors of pairwise heads (a row of seeds for each H), the floor of fixed ones, and exact ones."""
    fig, ax = figure(size="panel")
    best = [floor[each] for each in H]
    ax.plot(H, best, "s", color=COLORS["gray"], ls=LINES["dashed"], ms=4)
    label_line(ax, H[1], best[1], "fixed, at best", color=COLORS["gray"], dx=4, dy=9)
    middle = medians(ax, H, trained, COLORS["head"], "-")
    label_line(ax, H[1], middle[1], "pairwise, trained", color=COLORS["head"], dx=4, dy=12)
    there = [0 if each >= exact else float("nan") for each in H]
    ax.plot(H, there, "^", color=COLORS["black"], ls="none", ms=7, clip_on=False)
    label_line(ax, exact, 0, "exact ones exist", color=COLORS["black"], dx=-6, dy=10, ha="right")
    ax.set(xlabel="heads H", ylabel="error over energy", xticks=H, ylim=(0, 1.15 * best[0]))
    counts = zip(H, middle, best, strict=True)
    words = "; ".join(f"{a:.3f} and {b:.3f} at H = {each}" for each, a, b in counts)
    alt = f"Errors of trained pairwise heads and of the best fixed ones: {words}."
    return fig, f"{alt} Exact pairwise heads exist from H = {exact} on."


def classes(curves: Mapping[str, Mapping[str, Mapping]], counts: Mapping[str, Mapping[str, int | None]]):
    """Draw the best error of every class against H, and its count; curves: system -> class -> job."""
    fig, axes = figure(ncols=len(curves), size=(7.0, 3.2))
    for ax, (system, found) in zip(axes, curves.items(), strict=True):
        for (kind, job), hue, line in zip(found.items(), SERIES, LINES.values(), strict=False):
            best = [max(min(errors), LEAST) for errors in job["trained"]]
            ax.semilogy(job["H"], best, "o", color=COLORS[hue], linestyle=line, ms=4.5, label=kind)
            count = counts[system][kind]
            if count is not None:
                ax.plot([count], [LEAST / 4], "^", color=COLORS[hue], ms=7, clip_on=False)
        ax.set(title=system, xlabel="heads H", ylim=(LEAST / 4, 3))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0].set_ylabel("least error over energy")
    axes[0].legend(loc="lower left", fontsize=9)
    return fig


def data(jobs: Sequence[Mapping], law: Sequence[Sequence[float]]):
    """Draw the errors of jobs "data m" against H (median, least to largest), and the law (lines)."""
    fig, ax = figure(size="panel")
    for job, wanted, hue in zip(jobs, law, SERIES, strict=False):
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


def arrivals(steps, spectra, law, sigma):
    """Draw singular values (R, H) of students step by step over their law, and how many are found."""
    fig, (ax, stairs) = figure(ncols=2, size=(7.0, 3.0))
    found, shown = list(spectra.values())[-1], (1, 2, 4, 8, 15)
    for r, hue in zip(shown, map(COLORS.get, SERIES), strict=False):
        ax.semilogx(steps, [row[r - 1] for row in found], color=hue, ls="-")
        ax.semilogx(steps[::2], [row[r - 1] for row in law][::2], "o", color=hue, mfc="none", ms=4)
        label_line(ax, steps[-1], sigma[r - 1], f"{r}", color=hue)
    words = []
    for (name, rows), hue in zip({**spectra, "law": law}.items(), SERIES, strict=False):
        counts = [sum(now > s / 2 for now, s in zip(row, sigma, strict=True)) for row in rows]
        if name == "law":
            stairs.semilogx(steps[::2], counts[::2], "o", color=COLORS["gray"], mfc="none", ls="none", ms=4)
        else:
            line = LINES["dashed" if words else "solid"]
            stairs.step(steps, counts, where="post", color=COLORS[hue], ls=line)
        half = (next((steps[t] for t, count in enumerate(counts) if count >= r), "never") for r in shown)
        words.append(f"{name} {', '.join(map(str, half))}")
    keys = [f"{mark} {name}" for mark, name in zip("—–", spectra, strict=False)] + ["○ law"]
    for at, (key, hue) in enumerate(zip(keys, (*SERIES[: len(spectra)], "gray"), strict=True)):
        place = {"transform": stairs.transAxes, "color": readable(COLORS[hue]), "fontsize": 9.5}
        stairs.text(0.04, 0.93 - 0.1 * at, key, **place)
    for each, label in ((ax, "singular value of the student"), (stairs, "heads found")):
        each.set(xlabel="step of gradient descent", ylabel=label, xlim=(10, steps[-1] * 1.6))
    return fig, f"Heads {', '.join(map(str, shown))} are half grown at the steps: {'; '.join(words)}."
