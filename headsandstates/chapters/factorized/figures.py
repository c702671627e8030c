"""Figures of *factorized*; each returns the figure, or the figure and its alternative text."""

import math

import torch

from headsandstates.chapters._drawn import equation
from ssmbook.display import COLORS, figure, label_line, number
from ssmbook.display.style import LINES


def narrow_heads(W_O, W_V):
    """Draw V_h = W_O^h W_V^h head by head, from W_O (H, p, r) and W_V (H, r, d), on one scale."""
    V = W_O @ W_V
    (H, p, r), d = W_O.shape, W_V.shape[2]
    fig, axes = figure(ncols=5, nrows=H, size=(3.6, 1.2 * H + 0.3), width_ratios=[r, 1.4, d, 1.4, d])
    top = float(V.abs().max())
    for h, row in enumerate(axes):
        titles = [f"$W_O^{h + 1}$", "", f"$W_V^{h + 1}$", "", f"$V_{h + 1}$"]
        parts = [W_O[h], "·", W_V[h], "=", V[h]]
        equation(row, parts, titles, top=top, sign_size=15, title_size=11)
    ranks = ", ".join(str(int(torch.linalg.matrix_rank(each))) for each in V)
    return fig, (
        f"{H} products of a {p} by {r} block of W_O and a {r} by {d} block of W_V: {H} value maps of size "
        f"{p} by {d}, of rank {ranks}."
    )


def head_prices(heads, span, rank, split, free):
    """Draw span and rank of the value maps against the heads, and the parameters when split in H or free."""
    fig, (counts, costs) = figure(ncols=2, size=(7.0, 2.6))
    panels = (
        (counts, span, "span of the maps", "black", (-8, 0, "right"), -1),
        (counts, rank, "rank of each", "purple", (8, 0, "left"), 0),
        (costs, free, "any matrices", "black", (-8, 0, "right"), -1),
        (costs, split, "split in H", "purple", (0, -10, "right"), -1),
    )
    for ax, values, words, color, (dx, dy, ha), at in panels:
        ax.loglog(heads, values, "o", base=2, linestyle="-", color=COLORS[color])
        label_line(ax, heads[at], values[at], words, dx=dx, dy=dy, ha=ha)
    counts.set(xlabel="heads H", ylabel="dimension")
    costs.set(xlabel="heads H", ylabel="parameters")
    for ax, ticks in ((counts, span), (costs, free)):
        ax.set_xticks(heads, [str(H) for H in heads])
        ax.set_yticks(ticks, [f"{tick:,}" for tick in ticks])
    told = "; ".join(f"{H}: {s} and {r}" for H, s, r in zip(heads, span, rank, strict=True))
    return fig, (
        f"Span and rank of the maps of H heads: {told}. Parameters from {split[0]:,} to {split[-1]:,}, "
        f"of any matrices from {free[0]:,} to {free[-1]:,}."
    )


def turning_angles(phi, samples=400):
    """Midpoints of ``samples`` equal parts of (-φ, φ)."""
    return phi * (2 * torch.arange(samples, dtype=torch.float64) + 1 - samples) / samples


def missed_by_one(phi):
    """Return the share that the best common V of the rotations R(θ) misses, and V in the (I, J) plane."""
    theta = turning_angles(phi)
    dots = torch.stack([theta.cos(), theta.sin()], 1)
    _, sigma, directions = torch.linalg.svd(dots, full_matrices=False)
    return float(sigma[1] ** 2 / (sigma**2).sum()), directions[0]


def theory(phi):
    """1/2 - |sin 2φ| / (4 φ), the share missed for angles spread evenly over (-φ, φ)."""
    return 0.5 - abs(math.sin(2 * phi)) / (4 * phi)


def turning(phi):
    """Draw the rotations R(θ), |θ| < φ, in the plane of I and J with the best V, and the share it misses."""
    share, (a, b) = missed_by_one(phi)
    theta = turning_angles(phi, 60)
    fig, (left, right) = figure(ncols=2, size="slider")
    left.plot(theta.cos(), theta.sin(), ".", color=COLORS["black"])
    left.plot([-1.15 * a, 1.15 * a], [-1.15 * b, 1.15 * b], color=COLORS["head"], linestyle=LINES["solid"])
    left.set(aspect="equal", xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), title="dots R(θ), line: best V")
    left.set(xlabel="part along I", ylabel="part along J")
    grid = torch.linspace(0.02, math.pi, 200).tolist()
    right.plot(grid, [theory(v) for v in grid], color=COLORS["gray"], linestyle=LINES["solid"])
    right.plot(phi, share, "o", color=COLORS["head"], ms=8)
    right.set(xlabel="spread φ", ylabel="share missed", ylim=(0, 0.65), title=f"one common head: {share:.3f}")
    return fig


def describe_turning(phi):
    """Describe where the best common V lies and what it misses."""
    share, (a, b) = missed_by_one(phi)
    best = "I" if abs(a) > abs(b) else "J"
    return f"Angles within ±{phi}: the best common V lies along {best} and misses {share:.3f} of the energy."


def missed(sigma, most=3):
    """Shares of the energy missed by 0 … ``most`` heads; sigma (..., k) are singular values, summed over."""
    energy = sigma.double() ** 2
    return [float(energy[..., H:].sum() / energy.sum()) for H in range(most + 1)]


def common_heads(shares):
    """Draw the shares missed by 0, 1, … heads: {kind of layer: [(each input's own, common) of each draw]}."""
    fig, axes = figure(ncols=len(shares))
    words = []
    for ax, (name, found) in zip(axes, shares.items(), strict=True):
        found = torch.tensor(found, dtype=torch.float64)  # (draws, 2, H)
        middle = found.median(0).values
        kinds = ("own", "black", "solid", (-26, -12)), ("common", "head", "dashed", (8, 6))
        for kind, (label, hue, line, (dx, dy)) in enumerate(kinds):
            ax.plot(found[:, kind].T, linestyle=LINES[line], color=COLORS[hue], lw=0.7, alpha=0.5)
            ax.plot(middle[kind], linestyle=LINES[line], color=COLORS[hue], lw=2.2)
            label_line(ax, 1, float(middle[kind, 1]), label, dx=dx, dy=dy)
            words.append(f"{name}, {label} value maps: one head misses {number(float(middle[kind, 1]))}")
        ax.set(title=name, xlabel="heads H", xticks=range(found.shape[-1]), ylim=(0, 1.02))
    axes[0].set_ylabel("share of energy missed")
    return fig, "Share missed by heads, medians of the draws. " + "; ".join(words) + "."


def feature_row(exact, near, states, misplaced, chosen, needed):
    """Draw a row of a softmax matrix over that of its ``chosen`` features, and the share misplaced by all."""
    fig, (left, right) = figure(ncols=2, size="slider")
    left.bar(range(len(exact)), exact.tolist(), width=1.0, color=COLORS["gray"], alpha=0.45)
    left.step(range(len(near)), near, where="mid", color=COLORS["state"], linestyle=LINES["solid"], lw=1.5)
    left.set(xlabel="input token j", title=f"one row, {states[chosen]} features")
    left.set_ylim(0, 1.25 * float(exact.max()))
    right.semilogy(states, misplaced, color=COLORS["state"], linestyle=LINES["solid"], marker="o", ms=3)
    right.plot(states[chosen], misplaced[chosen], "o", color=COLORS["state"], ms=9)
    right.axvline(needed, color=COLORS["gray"], linestyle=LINES["dashed"])
    right.text(needed + 2, max(misplaced), f"exact: {needed}", color=COLORS["black"], va="top")
    right.set(xlabel="states per value channel", title=f"misplaced: {misplaced[chosen]:.3f}")
    return fig
