"""Figures of *interaction-rank-gap*; each returns the figure, or the figure and its alternative text."""

import math

import torch

from headsandstates.chapters._drawn import HEAD, STATE, unit_circle, unmarked
from headsandstates.chapters.two_ways_to_mix.figures import best_single_head, missed
from ssmbook.display import COLORS, figure, label_line, number
from ssmbook.display.style import LINES
from ssmbook.systems import rotation


def two_tokens(theta):
    """Draw three pairs of tokens, the target R(θ) x_0 + x_1, and what multiples of the tokens can reach."""
    first = torch.tensor([1.0, 0.2], dtype=torch.float64)
    seconds = {"different directions": (-0.5, 0.9), "nearly parallel": (1.45, 0.62), "one token": (0.0, 0.0)}
    fig, axes = figure(ncols=3, size=(7.0, 2.7))
    words = []
    for ax, (title, second) in zip(axes, seconds.items(), strict=True):
        second = torch.tensor(second, dtype=torch.float64)
        target = rotation(theta, dtype=torch.float64) @ first + second
        said = _reach(ax, first, second, target)
        ax.set_title(f"{title}\n{said}", fontsize=10)
        ax.set_aspect("equal", adjustable="datalim")
        ax.margins(0.16)
        unmarked(ax)
        words.append(f"{title}, {said}")
    return fig, (
        f"Two tokens and the target, the first rotated by {theta:g} plus the second. {'; '.join(words)}."
    )


def _reach(ax, first, second, target) -> str:
    """Draw the tokens, the target, and the multiples that reach it or the distance that stays; say it."""
    tokens = torch.stack([first, second], 1)
    _arrow(ax, first, "$x_0$", "gray", (0, -10))
    if second.norm() == 0:
        foot = (target @ first) / (first @ first) * first
        ax.plot(*torch.stack([-0.4 * first, 1.3 * first]).T, color=COLORS[HEAD], ls=LINES["dashed"], lw=1.3)
        ax.plot(*torch.stack([target, foot]).T, color=COLORS["black"], ls=LINES["dotted"], lw=1.6)
        _arrow(ax, target, "target", STATE)
        return f"off by {number(float((target - foot).norm()))}"
    # The dashed line goes on beyond its tip.
    _arrow(ax, second, "$x_1$", "gray", (-11, -4) if second[0] < 0 else (9, -7))
    multiples = torch.linalg.solve(tokens, target)
    corners = torch.stack([0 * first, multiples[0] * first, target, multiples[1] * second, 0 * first])
    ax.plot(*corners.T, color=COLORS[HEAD], ls=LINES["dashed"], lw=1.3)
    _arrow(ax, target, "target", STATE)
    return f"α = {multiples[0]:.1f}, {multiples[1]:.1f}".replace("-", "−")


def _arrow(ax, tip, name, color, beside=(0, 9)):
    x, y = tip.tolist()
    ax.plot([0, x], [0, y], color=COLORS[color], ls="-", lw=2)
    ax.plot(x, y, "o", color=COLORS[color], ms=4)
    label_line(ax, x, y, name, color=COLORS[color], dx=beside[0], dy=beside[1], ha="center")


def lonely_clock(theta, n, shown):
    """Draw the n outputs of the rotating state on one unit token, and how far each is from its line."""
    fig, (circle, values) = figure(ncols=2, size=(7.0, 3.0))
    tau = torch.arange(n, dtype=torch.float64)
    dots, off = torch.stack([torch.cos(theta * tau), torch.sin(theta * tau)], 1), torch.sin(theta * tau).abs()
    unit_circle(circle)
    circle.plot([-1.3, 1.95], [0, 0], color=COLORS[HEAD], ls=LINES["dashed"], lw=1.3)
    label_line(circle, 1.95, 0, "line of Vx", color=COLORS[HEAD], dx=0, dy=8, ha="right")
    for ax, tops in ((circle, dots), (values, torch.stack([tau, off], 1))):
        for lag, (x, y) in enumerate(tops.tolist()):
            color, width = (COLORS["black"], 2) if lag in shown else (COLORS["gray"], 0.8)
            ax.plot([x, x], [0, y], color=color, ls="-", lw=width)
        ax.plot(*tops.T.numpy(), "o", color=COLORS[STATE], ls="none", ms=4)
    for lag in shown:
        x, y = dots[lag].tolist()
        beside = {"dx": 7, "dy": 4 * y} if x > 0.5 else {"dx": 0, "dy": 9 * y, "ha": "center"}
        label_line(circle, x, y, f"lag {lag}", color=COLORS[STATE], **beside)
        top = off[lag] >= off[max(lag - 1, 0) : lag + 2].max()
        beside = {"dx": 0, "dy": 9, "ha": "center"} if top else {"dx": -5, "ha": "right"}
        label_line(values, lag, float(off[lag]), number(float(off[lag])), color=COLORS["black"], **beside)
    circle.set(xlim=(-1.35, 2.0), ylim=(-1.2, 1.3), aspect="equal", title="outputs of the rotating state")
    unmarked(circle)
    values.set(xlim=(-2.6, n - 0.5), ylim=(0, 1.15), xlabel="lag τ", title="distance from the line")
    words = ", ".join(f"{number(float(off[lag]))} at lag {lag}" for lag in shown)
    most = f"at most {off.max():.3f}"
    return fig, f"The state rotates a unit token by {theta:g} per step, off its line by {words}, {most}."


def tail(prices, theta):
    """Draw the share of inputs with |α_11 - 1| >= t against t, over its law; prices (m,): |α_11 - 1|."""
    fig, ax = figure(size="panel")
    t = torch.logspace(-2, 4, 121, dtype=torch.float64)
    ax.loglog(t.numpy(), ((1 + (t / math.sin(theta)) ** 2) ** -0.5).numpy(), color=COLORS["gray"], ls="-")
    label_line(ax, float(t[80]), 0.02, "falls like 1/t", color=COLORS["gray"], dx=8, dy=14)
    ordered = prices.sort(descending=True).values
    share = torch.arange(1, len(ordered) + 1, dtype=torch.float64) / len(ordered)
    ax.loglog(ordered.numpy(), share.numpy(), ".", color=COLORS["black"], ms=4, ls="none")
    ax.set(xlabel="t", ylabel="share with |α₁₁ − 1| ≥ t", xlim=(0.01, 1e4), ylim=(0.5 / len(ordered), 1.5))
    above = {s: float((prices >= s).double().mean()) for s in (1, 10, 100)}
    words = ", ".join(f"at least {s} on {part:.3f}" for s, part in above.items())
    words += f" of them, at most {prices.max():,.0f}"
    return fig, f"|α₁₁ − 1| over {len(prices):,} inputs: {words}, falling like 1/t."


def three_tests(first, second):
    """Draw what M = diag(first, second) makes of b_1, b_2 and their sum, and the line of each (dashed)."""
    fig, axes = figure(ncols=3, size=(7.0, 2.7))
    words = []
    for ax, (name, token) in zip(axes, {"b₁": (1, 0), "b₂": (0, 1), "b₁ + b₂": (1, 1)}.items(), strict=True):
        x = torch.tensor(token, dtype=torch.float64)
        target = torch.tensor([first, second], dtype=torch.float64) * x
        factor = float(target @ x / (x @ x))
        off = float((target - factor * x).norm())
        said = f"Mx = {number(factor)} x" if off < 1e-12 else f"Mx is off by {number(off)}"
        ax.plot(*torch.stack([-0.2 * x, 1.25 * x]).T, color=COLORS[HEAD], ls=LINES["dashed"], lw=1.3)
        ax.plot(*torch.stack([target, factor * x]).T, color=COLORS["black"], ls=LINES["dotted"], lw=1.6)
        for tip, label, color, up in ((x, "x", "gray", 9), (target, "Mx", STATE, -9)):
            ax.plot(*torch.stack([0 * tip, tip]).T, "o-", color=COLORS[color], lw=2, ms=4, markevery=[1])
            label_line(ax, *tip, label, color=COLORS[color], dy=up)
        ax.set(aspect="equal", xlim=(-0.45, 1.45), ylim=(-0.35, 1.35))
        ax.set_title(f"x = {name}\n{said}", fontsize=10)
        unmarked(ax)
        words.append(f"x = {name}: {said}")
    return fig, f"M = diag({first:g}, {second:g}) on three tokens. {'; '.join(words)}."


def price(sizes, needed, theta):
    """Draw the largest coefficients needed (m, draws) against the size ε of later tokens, and their bound."""
    fig, ax = figure(size="panel")
    ax.loglog(sizes, needed, ".", color=COLORS["black"], ms=3, alpha=0.25, ls="none")
    bound = abs(math.sin(theta)) / sizes - 1
    ax.loglog(sizes[bound > 0], bound[bound > 0], color=COLORS["gray"], ls="-")
    label_line(ax, sizes[0], bound[0], "|sin θ|/ε − 1", color=COLORS["gray"], dx=2, dy=-38)
    ax.axhline(1, color=COLORS["black"], ls=LINES["dashed"], lw=1.2)
    label_line(ax, sizes[0], 1, "softmax: at most 1", color=COLORS["black"], dx=2, dy=8)
    ax.set(xlabel="size ε of the later tokens", ylabel="largest coefficient")
    return fig, (
        f"Largest coefficient against ε for {needed.shape[1]} inputs each: from {needed[0].min():.1e} at "
        f"ε = {sizes[0]:.0e}, none below the bound {bound[0]:.1e}, which is 1 at ε = "
        f"{abs(math.sin(theta)) / 2:.3f}."
    )


def clock_frame(theta: float):
    """Draw 20 lags √(n−τ) R(θτ) of the rotating state, the best head, and the share it misses against θ."""
    fig, (plane, values) = figure(ncols=2, size="slider")
    best_single_head(plane, theta, 20)
    plane.set_title(f"20 tokens: misses {missed(theta, 20):.3f}")
    grid = torch.linspace(0, math.pi, 181, dtype=torch.float64)
    for length, color, line in zip((5, 20, 200), ("sand", "purple", "brown"), LINES.values(), strict=False):
        curve = [missed(t, length) for t in grid.tolist()]
        values.plot(grid, curve, color=COLORS[color], ls=line)
        values.plot(theta, missed(theta, length), "o", color=COLORS[color], ms=6)
        at, up = (90, -12) if length == 5 else (69, 8 if length == 200 else -9)
        place = {"dx": 0, "dy": up, "ha": "center"}
        label_line(values, float(grid[at]), curve[at], f"n = {length}", color=COLORS[color], **place)
    values.set(ylim=(-0.02, 0.58), xlabel="angle θ", title="share of the energy missed")
    values.set_xticks((0, math.pi / 2, math.pi), ("0", "π/2", "π"))
    return fig
