"""Figures of *structured-dynamics*; each returns the figure, or the figure and its alternative text."""

import math
from collections.abc import Callable

import numpy as np
import torch
from matplotlib.patches import Rectangle

from headsandstates.chapters._drawn import arrow, equation, level, write
from ssmbook.display import COLORS, figure, label_line
from ssmbook.display.style import DIVERGING
from ssmbook.numerics import numerical_rank


def mass_and_spring():
    """Draw the mass on its spring, with the push, the position and the velocity as arrows."""
    fig, ax = figure(size=(3.7, 1.9))
    ax.add_patch(Rectangle((-0.3, 0), 0.3, 1.2, facecolor="#D4D4D4", edgecolor="none"))  # the wall
    ax.plot([-0.3, 6.2], [0, 0], "-", color=COLORS["gray"], lw=1.2)  # the floor
    turns = torch.arange(13)
    coil = 0.5 + 0.2 * torch.tensor([0] + [1, -1] * 5 + [1, 0])
    ax.plot(0.25 * turns, coil, "-", color=COLORS["gray"], lw=1.4)
    ax.add_patch(Rectangle((3, 0.03), 1, 0.95, facecolor=COLORS["state"], edgecolor="none"))
    write(ax, 3.5, 0.5, "1 kg", color="white")
    ax.text(1.5, 0.95, "spring, 4 N/m", ha="center", va="bottom")
    ax.text(1.5, -0.12, "friction, 0.4 kg/s", ha="center", va="top")
    for (x, y), length, words, color in (
        ((4.05, 0.5), 1.1, "push x", "black"),
        ((3.5, 1.2), 0.9, "velocity v", "state"),
        ((3.5, -0.55), 0.9, "position q", "state"),
    ):
        arrow(ax, (x, y), (x + length, y), COLORS[color], lw=2)
        ax.text(x + length + 0.1, y, words, va="center", color=COLORS[color])
    ax.plot([3.5, 3.5], [-0.7, -0.4], "-", color=COLORS["gray"], lw=1.2)
    ax.text(3.4, -0.55, "at rest: 0", ha="right", va="center", color=COLORS["gray"])
    ax.set(xlim=(-0.4, 6.3), ylim=(-0.8, 1.45))
    ax.set_axis_off()
    return fig, (
        "A mass of 1 kg is tied to a wall by a spring of 4 N/m, with a friction of 0.4 kg/s. Arrows to the "
        "right: the push x, the velocity v, and the position q, measured from where the mass is at rest."
    )


def spring_path(time: torch.Tensor, position: torch.Tensor, marks: dict[str, tuple[float, float]]):
    """Draw position over time, both (T,), with the first second shaded and marks {name: (time, position)}."""
    fig, ax = figure(size="panel")
    ax.axvspan(0, 1, color=COLORS["gray"], alpha=0.2, lw=0)
    ax.plot(time, position, color=COLORS["state"])
    spots = {"dx": 2, "dy": 66}, {"dx": 4, "dy": -56}  # beside the swing, not across it
    for spot, (words, (t, q)) in zip(spots, marks.items(), strict=True):
        ax.plot(t, q, "o", color=COLORS["black"], ms=8)
        label_line(ax, t, q, words.replace("-", "−"), color=COLORS["black"], **spot)
    ax.set(xlabel="time in seconds", ylabel="position in meters")
    return fig


def hankel_spectra(spectra: dict[str, torch.Tensor]):
    """Draw Hankel singular values {system: (m,)}, over the first, each system named beside its curve."""
    fig, ax = figure(size="panel")
    spots = ((5.3, 1e-9, "right"), (12, 4.0, "left"), (8.2, 1e-7, "left"))
    for (name, sigma), mark, (x, y, side) in zip(spectra.items(), ("s", "^", "o"), spots, strict=True):
        ax.semilogy(range(1, len(sigma) + 1), (sigma / sigma[0]).clamp(min=1e-17), marker=mark)
        label_line(ax, x, y, name, dx=0, ha=side)
    ax.set(xlabel="index", ylabel="Hankel singular value", ylim=(1e-17, 30))
    return fig


def kicked_mass(M: torch.Tensor, delta: float, poles: torch.Tensor):
    """Draw the answer to a kick, lags M (n, 1, 1) at steps of ``delta`` seconds, beside the complex poles."""
    fig, (left, right) = figure(ncols=2, size="slider")
    left.plot(delta * torch.arange(1, len(M) + 1), M.flatten() / delta, color=COLORS["state"])
    left.set(xlabel="seconds after a kick", ylabel="position", ylim=(-0.55, 0.55))
    right.plot(poles.real, poles.imag, "o", ms=8, color=COLORS["state"])
    right.axvline(0, color=COLORS["gray"], lw=1)
    right.set(xlim=(-8, 0.5), ylim=(-2.5, 2.5), xlabel="real part of λ", ylabel="imaginary part")
    return fig


def compared_rules(lags: dict[str, torch.Tensor], delta: float):
    """Draw the responses of step rules to a kick, {name: lags (n, 1, 1)}, each over the first of them."""
    (_, exact), *others = lags.items()
    fig, axes = figure(nrows=len(others), size=(3.7, 3.4), sharex=True)
    for ax, (name, M), color in zip(axes, others, ("brown", "black", "purple"), strict=False):
        time = delta * torch.arange(1, len(M) + 1)
        ax.plot(time, exact.flatten() / delta, "-", color="#C4C4C4", lw=5)
        look = {"color": COLORS[color], "linestyle": "-", "marker": "o" if delta > 0.15 else None, "ms": 3}
        ax.plot(time, (M.flatten() / delta).clamp(-2, 2), **look)
        ax.set_title(name, color=COLORS[color], fontsize=10)
        ax.set(ylim=(-0.8, 0.8), xlim=(0, 10), ylabel="position", yticks=[-0.5, 0, 0.5])
    axes[-1].set_xlabel("seconds after a kick")
    return fig


def stability_maps(factors: dict[str, Callable], modes: torch.Tensor):
    """Draw |step(z)| over the plane of z = delta lambda for rules {name: step}, with modes (m,) on top."""
    extent = (-3.0, 1.0, -2.2, 2.2)
    plane = torch.meshgrid(torch.linspace(*extent[:2], 120), torch.linspace(*extent[2:], 121), indexing="xy")
    fig, axes = figure(ncols=len(factors), size=(7.0, 2.9), sharey=True)
    for ax, (name, step) in zip(axes, factors.items(), strict=True):
        factor = step(torch.complex(*plane)).abs().numpy()
        picture = {"extent": extent, "origin": "lower", "aspect": "auto"}
        ax.imshow(-np.log(factor), cmap=DIVERGING, vmin=-2, vmax=2, **picture)
        ax.contour(factor, levels=[1.0], extent=extent, colors="black", linewidths=1)
        ax.plot(modes.real, modes.imag, ".", color="black", ms=4)
        ax.grid(False)
        ax.set(title=name, xlabel="real part of z")
        ax.tick_params(labelleft=True)  # on a phone the panels are below each other
    axes[0].set_ylabel("imaginary part of z")
    return fig


def mixed_ratio(top: float):
    """Draw how many times too much the mixed form writes, with a dot at ``top``, and what both write."""
    fig, (left, right) = figure(ncols=2)
    u = torch.linspace(1e-3, 4, 100, dtype=torch.float64)
    exact = -torch.expm1(-u)
    left.axvspan(0, top, color=COLORS["gray"], alpha=0.13, lw=0)
    left.fill_between(u, 1 + u / 2, 1 + u, color=COLORS["purple"], alpha=0.18, lw=0)
    left.plot(u, u / exact, "-", color=COLORS["purple"])
    there = top / (1 - math.exp(-top))
    left.plot(top, there, "o", color=COLORS["purple"], ms=8)
    label_line(left, top, there, f"{there:.2f}", dx=-6, dy=9, ha="right", color=COLORS["purple"])
    label_line(left, 0.05, 4.3, "Mamba starts here", dx=0, color=COLORS["gray"])
    left.set(xlabel="u = Δ|λ|", ylabel="written: code / formula", xlim=(0, 4), ylim=(0, 5))
    left.set_title("the code writes too much")
    right.plot(u, exact, "-", color=COLORS["black"])
    right.plot(u, u, "--", color=COLORS["purple"])
    for height, name, color in ((0.96, "formula", "black"), (3.2, "code", "purple")):
        label_line(right, 3.2, height, name, color=COLORS[color], dy=-12)
    right.set(xlabel="u = Δ|λ|", ylabel="written × |λ|", title="the formula saturates at 1")
    return fig, (
        f"Left, code over formula against u from 0 to 4, between 1 + u/2 and 1 + u: {there:.2f} at "
        f"u = {top:g}, {4 / float(exact[-1]):.2f} at 4. Right, at u = 4 the formula writes "
        f"{float(exact[-1]):.2f}, the code 4."
    )


def gaps_over_steps(steps: list[float], gaps: list[float]):
    """Draw the gap between two forms of a layer against its mean step, dot by dot, and the median."""
    fig, ax = figure(size=(3.6, 2.5))
    ax.plot(steps, gaps, "o", linestyle="none", color=COLORS["black"])
    middle = np.median(gaps)
    level(ax, middle, 1.2)
    label_line(ax, 0, middle, f"median {middle:.2f}", dx=3, dy=9, color=COLORS["gray"])
    ax.set(xlabel="mean step of the tokens", ylabel="gap / size of the output")
    ax.set(xlim=(0, None), ylim=(0, None))
    return fig, (
        f"{len(gaps)} layers with mean steps from {min(steps):.3f} to {max(steps):.3f}: gaps from "
        f"{min(gaps):.2f} to {max(gaps):.2f}, median {middle:.2f}."
    )


def starting_modes(modes: dict[str, torch.Tensor], ring: torch.Tensor, delta: float):
    """Draw modes {name: (m,)} by imaginary part, and where one exact step puts them, with the LRU's ring."""
    fig, (left, right) = figure(ncols=2, size=(6.7, 3.1), width_ratios=(1, 1.35))
    arc = torch.linspace(0, math.pi, 90)
    right.plot(torch.cos(arc), torch.sin(arc), "-", color=COLORS["gray"], lw=1)
    colors = (COLORS["black"], COLORS["purple"], COLORS["brown"])
    for (name, lam), mark, color in zip(modes.items(), ".x+", colors, strict=True):
        left.plot(lam.imag.sort().values, mark, linestyle="", color=color, label=name)
        stepped = (delta * lam).exp()
        right.plot(stepped.real, stepped.imag, mark, linestyle="", color=color)
    right.plot(ring.real, ring.imag, "1", linestyle="", color=COLORS["purple"])
    label_line(right, -0.55, 0.55, "LRU ring", color=COLORS["purple"])
    left.set(xlabel="mode, in order", ylabel="imaginary part of λ", yscale="symlog", ylim=(-0.5, 20000))
    right.set(xlabel="real part", title="after one step", aspect="equal", ylim=(-0.1, 1.1))
    left.legend(loc="upper left", handletextpad=0.2)
    return fig


def way_through(j: int, i: int, last: int):
    """Draw the recurrence from token j - 1 to ``last`` as a graph, the way from j to i strong."""
    fig, ax = figure(size=(3.6, 2.0))
    way = []
    for t in range(j - 1, last + 1):
        for name, (start, end), beside, taken in (
            (f"A_{t}", ((t - 1, 0), (t, 0)), (t - 0.5, 0.22), j < t <= i),
            (f"B_{t}", ((t, -1), (t, 0)), (t + 0.2, -0.5), t == j),
            (f"C_{t}", ((t, 0), (t, 1)), (t + 0.2, 0.5), t == i),
        ):
            if name == f"A_{j - 1}":
                continue  # its token is not drawn
            color, ink = (COLORS["state"], COLORS["state"]) if taken else ("#8A8A8A", COLORS["gray"])
            arrow(ax, start, end, color, lw=2.4 if taken else 1, shrinkA=8, shrinkB=8)
            write(ax, *beside, f"${name}$", color=ink)
            way += [name] if taken else []
        for height, letter in ((-1, "x"), (0, "h"), (1, "y")):
            write(ax, t, height, f"${letter}_{t}$", 11)
    ax.set(xlim=(j - 1.3, last + 0.4), ylim=(-1.25, 1.25))
    ax.set_axis_off()
    way.sort(key=lambda name: ("BAC".index(name[0]), name))
    return fig, f"The way from token {j} to output {i} passes {', '.join(way).replace('_', '')}."


def hankel_split(H: torch.Tensor, see: torch.Tensor, reach: torch.Tensor):
    """Draw a matrix of whole numbers, H (m, m), as the product of ``see`` (m, N) and ``reach`` (N, m)."""
    N, m = reach.shape
    fig, axes = figure(ncols=5, size=(3.6, 1.6), width_ratios=[m, 0.8, N, 0.8, m])
    fig.stacks = ()  # an equation stays on one line
    titles = ["answers", "", "seen", "", "reached"]
    equation(axes, [H, "=", see, "·", reach], titles, sign_size=15, title_size=10.5)
    for row, values in enumerate(H.tolist()):
        for column, value in enumerate(values):
            ink = "white" if value > 0.6 * float(H.max()) else "black"
            write(axes[0], column, row, f"{value:g}", color=ink)
    off = float((see @ reach - H).abs().max())
    rows = "; ".join(", ".join(f"{v:g}" for v in row) for row in H.tolist())
    return fig, f"The matrix {rows} as {m} by {N} times {N} by {m}, off by {off:.3f} at most."


def cut_rank_curves(ranks: dict[str, list[int]]):
    """Draw the rank of the cut at every token, {operator: ranks}, each operator named beside its curve."""
    fig, ax = figure(size="panel")
    for (name, values), color in zip(ranks.items(), ("purple", "brown", "sand", "black"), strict=False):
        ax.plot(range(len(values)), values, color=COLORS["head" if name == "softmax" else color])
        top = max(values)
        end = len(values) - 1 - values[::-1].index(top)
        if values.count(top) > len(values) // 2:
            label_line(ax, len(values) // 2, top, name, dx=0, dy=9, ha="center")
        else:  # a narrow top leaves room at its side alone
            label_line(ax, end, top, name, dx=7, dy=3)
    ax.set(xlabel="cut at token m", ylabel="rank of the cut", ylim=(0, None))
    ax.margins(y=0.12)
    return fig


def _fan(ax, near: float, far: float, heights: torch.Tensor, y: float, weights: torch.Tensor):
    """Draw a line from (near, each height) to (far, y), as thick as its weight and colored by its sign."""
    for height, weight in zip(heights.tolist(), weights.tolist(), strict=True):
        color = COLORS["plus" if weight > 0 else "minus"]
        ax.plot([near, far], [height, y], "-", color=color, lw=3 * abs(weight), solid_capstyle="round")


def past_and_future(matrix: torch.Tensor, m: int):
    """Draw a causal matrix (n, n) with the cut at token m outlined, and its singular vectors as wires."""
    n, cut = len(matrix), matrix[m:, : m + 1]
    U, S, Vh = torch.linalg.svd(cut)
    N = numerical_rank(S, 1e-10)
    fig, (left, right) = figure(ncols=2)
    top = float(matrix.abs().max())
    left.imshow(matrix.numpy(), cmap=DIVERGING, vmin=-top, vmax=top)
    left.add_patch(Rectangle((-0.5, m - 0.5), m + 1, n - m, fill=False, lw=2))
    left.grid(False)
    left.set(xlabel="token j", ylabel="output i", xticks=range(0, n, 4), yticks=range(0, n, 4))
    past, future = torch.linspace(1, -1, m + 1), torch.linspace(1, -1, n - m)
    wires = torch.linspace(0.6, -0.6, N) if N > 1 else torch.zeros(1)
    for s, y in enumerate(wires.tolist()):
        _fan(right, 0, 0.9, past, y, Vh[s])
        right.plot([0.9, 1.1], [y, y], "-", color="black", lw=4)
        _fan(right, 2, 1.1, future, y, U[:, s])
    right.plot(0 * past, past, "o", color=COLORS["gray"])
    right.plot(0 * future + 2, future, "o", color=COLORS["gray"])
    for x, words in enumerate((f"tokens\n0 to {m}", f"N = {N}", f"outputs\n{m} to {n - 1}")):
        right.annotate(words, (x, 1.15), ha="center", va="bottom")
    right.set(xlim=(-0.4, 2.4), ylim=(-1.15, 1.6))
    right.set_axis_off()
    joined = f"{m + 1} past tokens and {n - m} outputs joined through {N} wires"
    return fig, f"A matrix of {n} tokens with the cut at token {m} outlined, {cut.numel()} numbers; {joined}."
