"""Figures of *scans*; each returns the figure, or the figure and its alternative text."""

import torch

from ssmbook.display import COLORS, figure, label_line
from ssmbook.display.style import LINES, SEQUENTIAL


def scan_rungs(T: int, rung: int):
    """Draw a doubling scan of T entries after ``rung`` passes: the span of inputs each entry has seen."""
    fig, ax = figure(size="panel")
    reach = 2**rung
    for t in range(T):
        first = max(0, t - reach + 1)
        done = first == 0
        ax.plot([first - 0.3, t + 0.3], [t, t], "-", lw=5, color=COLORS["state" if done else "sand"])
    if rung:
        for t in range(reach // 2, T):
            middle = t - reach // 2 + 0.5
            ax.plot([middle, middle], [t - 0.42, t + 0.42], "-", lw=1.6, color=COLORS["black"])
    ax.set(xlabel="inputs composed so far", ylabel="entry t", xlim=(-0.8, T), ylim=(T - 0.4, -0.6))
    ax.set(xticks=range(0, T, 3), yticks=range(0, T, 3))
    ax.set_title(f"after {rung} passes: {min(T, reach)} of {T} entries finished")
    return fig


def blocks_from_zero(kinds: dict[str, tuple[torch.Tensor, torch.Tensor]]):
    """Draw states (T,) over those of blocks run from zero (T / L, L), {title: pair}; the gap is the past."""
    fig, axes = figure(ncols=len(kinds), size=(7.0, 2.5))
    told = []
    for ax, (title, (states, blocks)) in zip(axes, kinds.items(), strict=True):
        L = blocks.shape[1]
        for k, block in enumerate(blocks):
            time = range(k * L, (k + 1) * L)
            ax.fill_between(time, block, states[k * L : (k + 1) * L], color=COLORS["gray"], alpha=0.2, lw=0)
            ax.plot(time, block, "-", color=COLORS["purple"])
            ax.plot(time[-1], block[-1], "o", color=COLORS["purple"], ms=6)
        ax.plot(states, "-", color=COLORS["state"])
        ax.set(title=title, xlabel="time t", xticks=range(0, len(states) + 1, L), ylim=(0, None))
        left = (states[-1] - blocks[-1, -1]) / states[-L - 1]
        told.append(f"{title}, {float(left):.3f}")
    states, blocks = next(iter(kinds.values()))
    middle, end = len(states) // 2, len(states) - 1
    label_line(axes[0], middle, states[middle], "the state", color=COLORS["state"], dx=-8, dy=8, ha="right")
    label_line(axes[0], end, blocks[-1, -1], "from zero", color=COLORS["purple"], dx=4, dy=14, ha="right")
    return fig, (
        f"What the last block, run from zero, lacks at its end, over the state before it: {'; '.join(told)}."
    )


def held_and_wiped(gates: torch.Tensor, writes: torch.Tensor, states: torch.Tensor):
    """Draw a state over the strip of its gates, all (T,), and what is written between them."""
    fig, (top, strip) = figure(nrows=2, size=(3.6, 2.2), sharex=True, height_ratios=(4, 1))
    time = range(len(states))
    top.bar(time, states.tolist(), width=0.86, color=COLORS["state"], alpha=0.6)
    for t in time:
        place = {"xytext": (0, 3), "textcoords": "offset points", "ha": "center"}
        top.annotate(f"{float(states[t]):g}", (t, float(states[t])), **place)
        hue = "white" if gates[t] > 0.6 else "black"
        strip.text(t, 0, f"{float(gates[t]):g}", ha="center", va="center", color=hue)
        if writes[t]:
            strip.text(t, -0.7, f"+ {float(writes[t]):g}", ha="center", va="bottom")
    strip.imshow(gates[None].numpy(), cmap=SEQUENTIAL, vmin=0, vmax=1.35, aspect="auto")
    top.set(ylabel="state", ylim=(0, 1.22 * float(states.max())), yticks=[])
    strip.set(yticks=[], xticks=time, xlabel="time t", ylabel="gate")
    strip.spines[:].set_visible(True)
    for ax in (top, strip):
        ax.grid(False)
        ax.tick_params(length=0)
    told = ", ".join(f"{float(h):g}" for h in states)
    return fig, f"States {told} under the gates {', '.join(f'{float(a):g}' for a in gates)}."


def kept_numbers(counts: dict[str, int]):
    """Draw how many numbers each form keeps, a dot on a logarithmic axis with the count beside it."""
    fig, ax = figure(size=(3.6, 2.4))
    counts = dict(sorted(counts.items(), key=lambda item: item[1]))
    told = _dots(ax, counts, ",", "black")
    ax.set(xlim=(1, 40 * max(counts.values())), xlabel="numbers kept beside the input")
    return fig, f"Dots on a logarithmic axis, the numbers that each form keeps: {told}."


def _dots(ax, values: dict[str, float], form: str, color: str) -> str:
    """Draw a dot for each name, the first on top, on a logarithmic axis, its number beside it."""
    ax.plot(list(values.values()), list(values), "o", color=COLORS[color], ms=7, linestyle="none")
    for row, value in enumerate(values.values()):
        ax.annotate(f"{value:{form}}", (value, row), (7, 0), textcoords="offset points", va="center")
    ax.set_xscale("log")
    ax.set_ylim(-0.5, len(values) - 0.5)
    ax.invert_yaxis()
    return ", ".join(f"{name} {value:{form}}" for name, value in values.items())


def silent_gradient(pairs: dict[str, tuple[torch.Tensor, torch.Tensor]]):
    """Draw gradients over time, {input: (found, true)}, each (T,): what autograd returns over the truth."""
    fig, axes = figure(ncols=len(pairs), size=(7.0, 2.3))
    told = []
    for ax, (title, (found, true)) in zip(axes, pairs.items(), strict=True):
        ax.plot(true, "-", color=COLORS["gray"], lw=6, alpha=0.5)
        ax.plot(found, "o", linestyle=LINES["dashed"], color=COLORS["purple"])
        ax.set(title=title, xlabel="time t", ylim=(-0.28 * float(true.max()), 1.15 * float(true.max())))
        off = float((found - true).abs().max())
        told.append(f"{title}: off by at most {off:.2f} of {float(true.abs().max()):.2f}")
        high = int(true.argmax())
        label_line(ax, high, float(true[high]), "true", color=COLORS["gray"], dx=8, dy=4)
        middle = len(true) // 2
        label_line(ax, middle, float(found[middle]), "returned", color=COLORS["purple"], dx=0, dy=-11)
    return fig, f"Gradients, returned against true: {'; '.join(told)}."


def rosetta_heatmap(errors: dict[str, torch.Tensor], forms: list[str], columns: list[str]):
    """Draw log10 of errors {dtype: (forms, columns)} in units of rounding; a dash for NaN or zero."""
    fig, axes = figure(nrows=len(errors), size=(3.6, 7.4), sharex=True)
    for ax, (name, table) in zip(axes, errors.items(), strict=True):
        unit = torch.finfo(getattr(torch, name)).eps
        table = table / unit
        picture = ax.imshow(table.log10().numpy(), cmap=SEQUENTIAL, vmin=-1, vmax=2, aspect="auto")
        ax.grid(False)
        ax.set(title=f"{name}, unit {unit:.1e}", xticks=range(len(columns)), yticks=range(len(forms)))
        ax.set_yticklabels(forms)
        for row, column in (~(table > 0)).nonzero().tolist():
            ax.text(column, row, "–", ha="center", va="center", fontsize=9)
    ax.set_xticklabels(columns, rotation=90)
    ax.set_xlabel("ρ, length")
    bar = fig.colorbar(
        picture, ax=axes, ticks=[-1, 0, 1, 2], location="bottom", label="largest error, in units of rounding"
    )
    bar.ax.set_xticklabels(["0.1", "1", "10", "100"])
    return fig


def cost_curves(lengths: list[int], costs: dict[str, dict[str, list[int]]]):
    """Draw counts {counter: {algorithm: [of each length]}} against the length."""
    fig, axes = figure(nrows=len(costs), size=(3.6, 7.0), sharex=True)
    names = list(next(iter(costs.values())))
    for ax, (title, curves) in zip(axes, costs.items(), strict=True):
        for name, mark in zip(names, "osv^xD", strict=False):
            ax.loglog(lengths, curves[name], marker=mark, ms=4)
        ax.set(title={"words": "words moved", "depth": "longest chain"}.get(title, title))
    ax.set(xlabel="length T")
    fig.legend(axes[0].get_lines(), names, ncols=len(names) // 2, loc="outside lower center")
    return fig


def block_length_trade(lengths: list[int], words: list[float], depth: list[int]):
    """Draw words moved for each number and the longest chain against the block length."""
    fig, axes = figure(ncols=2, size=(3.6, 2.4))
    panels = (("words moved a number", words, "black", (0, 7)), ("longest chain", depth, "purple", (6, -8)))
    for ax, (title, values, color, first) in zip(axes, panels, strict=True):
        ax.loglog(lengths, values, "o-", base=2, color=COLORS[color], ms=4)
        for at, off, ha in ((0, first, "left"), (-1, (0, 7), "right")):
            place = {"xytext": off, "textcoords": "offset points", "ha": ha}
            ax.annotate(f"{values[at]:g}", (lengths[at], values[at]), **place)
        ax.set(xlabel="block length L", title=title, ylim=(0.7 * min(values), 1.6 * max(values)))
    told = (f"{L}: {w:g} and {k}" for L, w, k in zip(lengths, words, depth, strict=True))
    return fig, f"Words moved a number and chain against the block length. {'; '.join(told)}."


def clock_dots(names: list[str], ratios: list[float]):
    """Draw how many times as long as the last of them each form takes, slowest on top, on a log scale."""
    fig, ax = figure(size=(3.7, 1.9))
    told = _dots(ax, dict(zip(names, ratios, strict=True)), ".3g", "black")
    ax.set(xlim=(0.6, 3 * max(ratios)), xlabel="time, compiled loop = 1")
    ax.set_xticks([1, 10, 100], ["1", "10", "100"])
    return fig, f"Dots on a logarithmic axis, times over that of the compiled loop: {told}."


def chunk_blocks(m: torch.Tensor, Q: int):
    """Draw the sizes of a causal matrix m (T, T) in chunks of Q, each block with its numerical rank."""
    fig, ax = figure(size="panel")
    size = m.abs() / m.abs().max()
    ax.imshow(size.sqrt().numpy(), cmap=SEQUENTIAL, vmin=0, vmax=1)
    ranks, box = {"on": set(), "below": set()}, {"facecolor": "white", "edgecolor": "none", "pad": 2}
    for i in range(0, len(m), Q):
        for j in range(0, i + 1, Q):
            rank = int(torch.linalg.matrix_rank(m[i : i + Q, j : j + Q], rtol=1e-10))
            ranks["on" if i == j else "below"].add(rank)
            at = j + (Q - 1) / 2, i + (Q - 1) / 2
            ax.annotate(f"rank {rank}", at, ha="center", va="center", bbox=box)
    edges = [i - 0.5 for i in range(0, len(m) + 1, Q)]
    ax.hlines(edges, -0.5, len(m) - 0.5, color=COLORS["black"], lw=1)
    ax.vlines(edges, -0.5, len(m) - 0.5, color=COLORS["black"], lw=1)
    ax.set(xlabel="token j that is read", ylabel="output i", xticks=[], yticks=[])
    n = len(m) // Q
    told = {where: " or ".join(map(str, sorted(found))) for where, found in ranks.items()}
    return fig, (
        f"A lower triangular matrix in {n} by {n} blocks of {Q}: blocks on the diagonal have rank "
        f"{told['on']}, blocks below it rank {told['below']}, blocks above it are empty."
    )
