"""Figures of the chapter *positions*."""

from __future__ import annotations

import numpy as np
import torch

from headsandstates.chapters._drawn import signed
from headsandstates.chapters.positions import schemes
from ssmbook.display import COLORS, figure, label_line

SCHEME_COLORS = {"distance": "black", "RoPE": "head", "T5": "brown", "ALiBi": "purple"}


def told_apart(theta: float, n: int):
    """Return strips of cos(theta tau) over n distances and of each scheme's best copy, and their words."""
    m = torch.cos(theta * torch.arange(n, dtype=torch.float64))
    buckets = schemes.basis("T5", n)
    means = buckets.mT @ (buckets @ m / buckets.sum(1).clamp(min=1))
    strips = {f"rotation by {theta:g}": m, "T5": means, "ALiBi": schemes.alibi_fit(m[:, None, None], 3)[1]}
    strips["no positions"] = torch.cat([m[:1], m[1:].mean().expand(n - 1)])
    fig, axes = figure(nrows=len(strips), size=(3.6, 2.8))
    words = []
    for ax, (name, strip) in zip(axes, strips.items(), strict=True):
        signed(ax, strip[None], top=1.0, aspect="auto")
        ax.set_title(name, loc="left", fontsize=10)
        missed = (strip - m).square().sum() / m.square().sum()
        words.append(f"{name} {len(strip.unique())} numbers, misses {missed:.0%}")
    axes[-1].set(xlabel="distance τ", xticks=range(0, n, 5))
    return fig, f"Strips of {n} distances: {'; '.join(words)} of the squares."


def alibi_frame(m, best, share, crossings):
    """Return a figure of scalar lags as dots and the best sum of fading exponentials as rings."""
    fig, ax = figure(size="panel")
    ax.axhline(0, color=COLORS["gray"], lw=0.8)
    ax.plot(range(len(m)), best.numpy(), "o-", color=COLORS["purple"], mfc="none", ms=10, lw=1)
    ax.plot(range(len(m)), m.numpy(), "o", color=COLORS["black"])
    ax.set(xlabel="distance τ", ylabel="lag", ylim=(-0.65, 1.1), xlim=(-0.4, len(m) - 0.6))
    ax.set(title=f"changes of sign: {crossings} of {len(m) - 1}; missed: {share:.2%}")
    return fig


def students(found, floors, first):
    """Return a figure of trained errors by system and scheme, and its alternative text.

    found: {system: {scheme: errors of the seeds}}; floors: {system: {scheme: floor}}, drawn as short lines;
    first: {system: errors of the first run of distance logits}, drawn as rings.
    """
    fig, axes = figure(ncols=len(found), size=(7.0, 3.0), sharey=True)
    words = []
    for ax, (name, by_scheme) in zip(axes, found.items(), strict=True):
        ax.plot(np.full(len(first[name]), 0), first[name], "o", color=COLORS["gray"], mfc="none", ms=6)
        for x, (scheme, errors) in enumerate(by_scheme.items()):
            color = COLORS[SCHEME_COLORS[scheme]]
            ax.plot(np.full(len(errors), x), errors, "o", color=color, alpha=0.6, ms=6)
            floor = floors[name].get(scheme)
            if floor:
                ax.plot([x - 0.45, x + 0.45], [floor, floor], color=color, lw=2, ls="-", zorder=1)
        listed = ", ".join(f"{scheme} {_short(float(np.median(each)))}" for scheme, each in by_scheme.items())
        words.append(f"{name}: {listed}; first run {_short(float(np.median(first[name])))}")
        ax.set_xticks(range(len(by_scheme)), ["\n" * (x % 2) + scheme for x, scheme in enumerate(by_scheme)])
        ax.tick_params(labelleft=True)  # on a phone the panels stand apart
        ax.set(title=name, yscale="log", ylim=(1e-11, 5), xlim=(-0.6, len(by_scheme) - 0.4))
    axes[0].set_ylabel("relative squared error")
    label_line(axes[0], 2.35, floors[next(iter(found))]["T5"], "floor", color=COLORS["brown"])
    return fig, "Median errors of five trained layers. " + ". ".join(words) + "."


def _short(value: float) -> str:
    """Return a share with the digits that are the same on every machine."""
    if value < 1e-3:
        return "below 0.0001%" if value < 1e-6 else "below 0.1%"
    return f"{value:.{0 if value >= 0.1 else 1}%}"
