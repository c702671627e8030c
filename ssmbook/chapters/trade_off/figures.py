"""Figures of the chapter *trade-off*."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ssmbook._checks import check_integer
from ssmbook.display import COLORS, LINES, figure, label_line

FLOOR = 1e-5  # smaller shares, and zeros, are drawn on this line
_BROKEN = {
    "attention": "atten-\ntion",
    "convolution": "convo-\nlution",
    "selective SSM, zoh": "selective\nSSM",
    "LTI SSM": "LTI\nSSM",
    "hybrid, sum": "hybrid,\nsum",
}


def two_axes(places: Mapping[str, Sequence[float]]):
    """Return a figure that places every map on both axes: span on the left, reach on the right, a row each.

    places: name -> (k of the whole table, k in one output, typical reach, best reach), drawn in the order
    given, bottom first; a reach lies in [0, 1] and is drawn at 1e-5 when smaller. Open marks: one output,
    typical tokens; filled: the whole table, the best tokens found. Raises ``ValueError`` for no map or a
    reach outside. Introduced in *trade-off*.
    """
    _check(places)
    fig, (span, distance) = figure(ncols=2, size=(7.0, 0.26 * len(places) + 0.9), sharey=True)
    for row, (whole, one, typical, best) in enumerate(places.values()):
        for ax, low, high, color in (
            (span, one, whole, "blue"),
            (distance, max(typical, FLOOR), max(best, FLOOR), "orange"),
        ):
            ax.plot((low, high), (row, row), "-", color=COLORS["gray"], lw=1)
            ax.plot(low, row, "o", mfc="white", color=COLORS[color], ms=8.5)
            ax.plot(high, row, "o", color=COLORS[color], ms=4.5)
    span.set(yticks=range(len(places)), yticklabels=list(places), ylim=(-0.7, len(places) - 0.3))
    span.set_xscale("log", base=2)
    span.set(xticks=(1, 2, 4, 8, 16), xticklabels=("1", "2", "4", "8", "16"), title="span")
    span.set_xlabel("independent matrices")
    distance.set(xscale="log", xlim=(FLOOR / 1.6, 2), title="reach", xlabel="share of the gradient kept")
    _mark_floor(distance.set_xticks)
    return fig


def reach_frame(places: Mapping[str, Sequence[float]]):
    """Return a figure of reach alone: from the typical (open) to the best (filled) share, a column a map.

    places: as in :func:`two_axes`; the number under a name is its k in one output. Raises as that does.
    Introduced in *trade-off*.
    """
    _check(places)
    fig, ax = figure(size="slider")
    for column, (_, _, typical, best) in enumerate(places.values()):
        low, high = max(typical, FLOOR), max(best, FLOOR)
        ax.plot((column, column), (low, high), "-", color=COLORS["gray"], lw=1)
        ax.plot(column, low, "o", mfc="white", color=COLORS["orange"], ms=9)
        ax.plot(column, high, "o", color=COLORS["orange"], ms=5)
    names = [f"{_BROKEN.get(name, name)}\n{one}" for name, (_, one, _, _) in places.items()]
    ax.set_xticks(range(len(places)), names)
    ax.set(yscale="log", ylim=(FLOOR / 1.6, 2), ylabel="share of the gradient kept")
    ax.set_xlabel("map, and independent matrices in one output")
    _mark_floor(ax.set_yticks)
    return fig


def _check(places):
    if not places:
        raise ValueError("places must hold at least one map; got none")
    for name, (_, _, *shares) in places.items():
        if not all(0 <= share <= 1 for share in shares):
            raise ValueError(f"places[{name!r}] must hold reaches in [0, 1]; got {shares}")


def _mark_floor(set_ticks):
    ticks = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1)
    set_ticks(ticks, ("less", "10⁻⁴", "10⁻³", "10⁻²", "10⁻¹", "1"), minor=False)
    set_ticks((), minor=True)


def mix_frame(weight: float, distances: Sequence[int], hybrid, floor, alone):
    """Return a figure of the gradient of a sum hybrid against distance, over its floor and beside its SSM.

    weight: the state space model's share in this frame, 0 to 1; distances (m,); hybrid, floor, alone (m,):
    ||J|| of the hybrid, the proven floor, ||J|| of the weighted SSM; nonpositive values are left out. Raises
    ``TypeError``/``ValueError`` for fewer than 2 distances. Introduced in *trade-off*.
    """
    check_integer("len(distances)", len(distances), low=2)
    fig, ax = figure(size="slider")
    curves = (("SSM alone", alone, "green", "dotted"), ("floor", floor, "gray", "dashed"))
    for name, values, color, line in (*curves, ("hybrid", hybrid, "blue", "solid")):
        seen = [(t, float(v)) for t, v in zip(distances, values, strict=True) if 1e-6 < float(v)]
        if not seen:
            continue
        ax.plot(*zip(*seen, strict=True), color=COLORS[color], linestyle=LINES[line])
        label_line(ax, *seen[-1], name, dy={"floor": -7, "hybrid": 7}.get(name, 0))
    ax.set(yscale="log", ylim=(1e-6, 10), xlim=(0, distances[-1] * 1.22), xlabel="distance in tokens")
    ax.set(ylabel="‖∂y/∂x‖", title=f"weight of the SSM: {weight:g}")
    return fig


def recall(counts: Sequence[int], lines: Mapping[str, Sequence[float]]):
    """Return a figure of the share missed against the number of pairs, a labeled line per entry.

    counts (m,): pairs; lines: name -> shares (m,). Labels at the right end are pushed apart where they would
    meet. Raises ``TypeError``/``ValueError`` for fewer than 2 counts. Introduced in *trade-off*.
    """
    check_integer("len(counts)", len(counts), low=2)
    fig, ax = figure()
    placed = []
    for (name, shares), color, line in zip(lines.items(), COLORS, LINES.values(), strict=False):
        ax.plot(counts, shares, marker="o", color=COLORS[color], linestyle=line)
        placed.append((float(shares[-1]), name, COLORS[color]))
    top = max(float(max(shares)) for shares in lines.values())
    height = None
    for end, name, color in sorted(placed, key=lambda entry: -entry[0]):
        height = end if height is None else min(end, height - 0.085 * top)
        label_line(ax, counts[-1], height, name, color=color, dx=9)
    ax.set_xscale("log", base=2)
    ax.set_xticks(counts, [str(count) for count in counts])
    ax.set(xlim=(counts[0] * 0.9, counts[-1] * 3.2), xlabel="pairs to remember", ylabel="share missed")
    return fig
