"""Figures of the chapter *head-count*: kernels and value maps, error curves, one slider, epsilon counts."""

from __future__ import annotations

from matplotlib.colors import Normalize
from matplotlib.ticker import MaxNLocator

from ssmbook.display import COLORS, DIVERGING, LINES, figure, label_line


def heads_as_kernels(c, V):
    """Draw the kernels c (H, n) against the lag, and the value maps V (H, p, d), H <= 6, beside them.

    Tensors on the CPU. Returns the figure. Introduced in *head-count*.
    """
    H, n = c.shape
    fig, axes = figure(ncols=1 + H, size=(7.0, 2.6), width_ratios=[2.6] + [0.8] * H)
    top = float(V.abs().max())
    for h in range(H):
        axes[0].plot(range(n), c[h], lw=1.7)
        color = axes[0].get_lines()[-1].get_color()
        axes[1 + h].imshow(V[h], cmap=DIVERGING, norm=Normalize(-top, top))
        axes[1 + h].set_title(f"$V_{h + 1}$", color=color)
        axes[1 + h].set(xticks=[], yticks=[])
        axes[1 + h].grid(False)
    axes[0].set(xlabel="lag τ = i − j", ylabel="coefficient $c_h(τ)$")
    return fig


def error_curve(floor, heads, error, steps, history, least=1e-16):
    """Draw the floor and the trained errors against H, and the way down of every student on the right.

    floor (K,): relative errors for H = 0 … K-1; heads (S,), error (S,): of the students; steps (R,), history
    (R, S). Values below ``least`` are drawn there. Returns the figure. Introduced in *head-count*.
    """
    fig, (left, right) = figure(ncols=2, size="wide", width_ratios=[1.0, 1.15])
    clear = floor > least
    left.semilogy(range(int(clear.sum())), floor[clear], color=COLORS["gray"], linestyle="-", lw=2.5)
    label_line(left, 2.5, float(floor[2:4].prod()) ** 0.5, "floor", dx=8, dy=8)
    left.semilogy(heads, error.clamp(min=least), "o", color=COLORS["orange"], mfc="none", ms=7)
    left.set(xlabel="heads H", ylabel="error relative to the energy", ylim=(least / 10, 6))
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    hues = list(COLORS.values())
    for s in range(history.shape[1]):
        right.semilogy(
            steps, history[:, s].clamp(min=least), color=hues[int(heads[s]) % len(hues)], lw=1, ls="-"
        )
    for H in sorted(set(heads.tolist())):
        if H < len(floor) and clear[H]:
            label_line(right, float(steps[-1]), float(floor[H]), f"H = {H}", color=hues[H % len(hues)])
    right.set(xlabel="step of training", ylim=(least / 10, 6), xlim=(0, float(steps[-1]) * 1.22))
    right.set_yticklabels([])
    return fig


def approximation(M, best, y, y_best, title):
    """Draw lags M (n, p, d) beside those of their approximation, and one output y (n,) with y_best over it.

    Rows of the pictures are lags, columns the p d entries of M_tau. Returns the figure. Introduced in
    *head-count*.
    """
    fig, (left, middle, right) = figure(ncols=3, size="slider", width_ratios=[0.6, 0.6, 1.5])
    top = float(M.abs().max())
    for ax, lags, name in ((left, M, "target"), (middle, best, title)):
        ax.imshow(
            lags.flatten(1), cmap=DIVERGING, norm=Normalize(-top, top), aspect="auto", interpolation="nearest"
        )
        ax.set(title=name, xticks=[], xlabel="entry of $M_τ$")
        ax.grid(False)
    left.set_ylabel("lag τ")
    middle.set_yticklabels([])
    right.plot(y, color=COLORS["gray"], linestyle="-", lw=3)
    right.plot(y_best, color=COLORS["orange"], linestyle="-", lw=1.5)
    low, high = float(y.min()), float(y.max())
    right.xaxis.set_major_locator(MaxNLocator(integer=True))
    right.set(
        xlabel="position i", title="one output", ylim=(1.25 * low - 0.25 * high, 1.25 * high - 0.25 * low)
    )
    return fig


def epsilon_counts(N, counts, title):
    """Draw the counts of several families against the number of states N on logarithmic axes, with k = N.

    counts: name -> list of counts, one for each N. Returns the figure. Introduced in *head-count*.
    """
    fig, ax = figure(size="wide")
    ax.loglog(N, N, color=COLORS["gray"], linestyle=LINES["dotted"], base=2)
    label_line(ax, N[-1], N[-1], "N")
    hues = ("blue", "orange", "green", "purple")
    for (name, values), hue, line in zip(counts.items(), hues, LINES.values(), strict=False):
        ax.loglog(N, values, color=COLORS[hue], linestyle=line, marker="o", base=2)
        label_line(ax, N[-1], values[-1], f"{name}: {values[-1]:g}")
    ax.set(
        xlabel="states N",
        ylabel="heads",
        title=title,
        xticks=N,
        xticklabels=N,
        xlim=(N[0] * 0.9, N[-1] * 2.2),
    )
    ticks = [2**e for e in range(int(N[-1]).bit_length())]
    ax.set(yticks=ticks, yticklabels=ticks)
    ax.minorticks_off()
    return fig
