"""Figures of *linear-algebra*; each returns the figure, or the figure and its alternative text."""

import math

import numpy as np
import torch
from scipy.optimize import nnls

from headsandstates.chapters._drawn import unmarked
from ssmbook.display import COLORS, figure, label_line, number
from ssmbook.display.style import LINES, readable


def weyl(P, changes, R, rank_one):
    """Draw what adding rank one, m times, does to an ellipse of P (2, 2) and to the spectrum of R (q, q)."""
    fig, (plane, values) = figure(ncols=2)
    turn = torch.linspace(0, 2 * math.pi, 121, dtype=torch.float64)
    circle = torch.stack([turn.cos(), turn.sin()])
    second = torch.linalg.svdvals(P)[1]
    for Q in changes:
        plane.plot(*((P + Q) @ circle), color=COLORS["black"], ls="-", lw=1.3)
    plane.plot(*(P @ circle), color=COLORS["gray"], ls="-", lw=3)
    plane.plot(*(second * circle), color=COLORS["purple"], ls=LINES["dashed"])
    plane.set_aspect("equal")
    plane.set_title("P gray, P + Q black, radius σ₂(P) dashed", fontsize=10)
    sigma, after = torch.linalg.svdvals(R), torch.linalg.svdvals(R + rank_one)
    for r, value in enumerate(sigma):
        low = float(sigma[r + 1]) if r + 1 < len(sigma) else 0.0
        high = float(sigma[r - 1]) if r else float(after.max())
        bar = {"color": COLORS["purple"], "ls": "-", "lw": 9, "alpha": 0.35, "solid_capstyle": "butt"}
        values.plot((r + 1, r + 1), (low, high), **bar)
        values.plot([r + 1] * len(after), after[:, r], ".", color=COLORS["black"], ls="none")
        values.plot((r + 0.7, r + 1.3), (value, value), color=COLORS["black"], ls="-", lw=1.6)
    values.set(xlabel="r", ylabel="singular value")
    values.set_title("lines σ of P, dots of P + Q", fontsize=10)
    least = torch.linalg.matrix_norm(P + changes, 2).min()
    return fig, (
        f"{len(changes)} ellipses of P + Q, Q of rank one: none fits into the circle of radius "
        f"{number(second)}, the nearest has the half-axis {number(least)}. {len(after)} spectra of "
        f"{len(sigma)} values, each value between the neighbors of that of P."
    )


def powers(norms, rho, kappa):
    """Draw the norms (n,) of the powers of a matrix between ρ^τ and κ ρ^τ."""
    fig, ax = figure(size="panel")
    tau = np.arange(len(norms))
    for factor, name, dy in ((1.0, "$ρ^τ$", -9), (kappa, "$κρ^τ$", 8)):
        ax.semilogy(tau, factor * rho**tau, color=COLORS["purple"], ls=LINES["dashed"])
        label_line(ax, tau[len(tau) // 2], factor * rho ** tau[len(tau) // 2], name, dx=0, dy=dy)
    ax.semilogy(tau, norms, color=COLORS["black"], ls="-")
    top = int(np.argmax(norms))
    ax.plot(top, norms[top], "o", color=COLORS["black"])
    label_line(ax, top, norms[top], f"{norms[top]:.1f}", color=COLORS["black"], dx=0, dy=11, ha="center")
    ax.set(xlabel="τ", ylabel=r"$\|A^\tau\|_2$", ylim=(None, 2 * kappa))
    return fig, (
        f"Norms of the powers of a matrix with ρ = {rho:.1f}: from 1 up to {norms[top]:.1f} at τ = {top}, "
        f"then down, between ρ to the τ and {kappa:.0f} times that."
    )


def separate_or_surround(sets):
    """Draw for each set of vectors (n, 2) a half-plane that holds them, or their hull with zero in it."""
    fig, axes = figure(ncols=len(sets), size=(7.0, 3.2))
    words = []
    for ax, m in zip(axes, sets, strict=True):
        weights, miss = nnls(np.vstack([m.T, np.ones(len(m))]), [0, 0, 1])
        nearest = m.T @ weights / weights.sum()  # of their convex hull to zero
        if miss > 1e-9:
            u = nearest / np.linalg.norm(nearest)
            across = np.array([-u[1], u[0]])
            edge = np.stack([-9 * across, 9 * across, 9 * across + 9 * u, 9 * u - 9 * across])
            ax.fill(*edge.T, color=COLORS["purple"], alpha=0.15, lw=0)
            ax.plot(*np.stack([0 * u, nearest]).T, color=COLORS["purple"], ls="-", lw=2.4)
            label_line(ax, *nearest, "u", color=COLORS["purple"], dx=4, dy=-9)
            said = f"separate: u · m at least {number(float((m @ nearest).min()))}"
        else:
            used = m[weights > 0]
            ax.fill(*used[np.argsort(np.arctan2(*used.T))].T, color=COLORS["brown"], alpha=0.15, lw=0)
            said = "surround: Σ λ m = 0"
            for point, weight in zip(m, weights, strict=True):
                text = f"{weight:.2f}" if weight > 0 else "0"
                label_line(ax, *point, text, color=readable(COLORS["brown"]), dx=0, dy=10, ha="center")
        ax.plot(*m.T, "o", color=COLORS["black"], ls="none", ms=6)
        ax.plot(0, 0, "+", color=COLORS["black"], ms=10, mew=1.6)
        ax.set(title=said, xlim=(-2, 2), ylim=(-1.6, 1.6), aspect="equal")
        unmarked(ax)
        words.append(said)
    return fig, f"{len(sets)} sets of vectors in the plane. {'; '.join(words)}."
