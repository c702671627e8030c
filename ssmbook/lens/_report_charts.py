"""Pictures of a report as inline SVG, in colors that the page chooses: heat maps and small charts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

# Shades of a heat map, and the size of a chart and its margins.
SHADES = 10
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 300, 190, 46, 34, 8


def svg(title: str, body: str, width: float, height: float, more: str = "") -> str:
    """A figure with its picture and, below, its title."""
    name = escape(title, quote=True)
    return (
        f'<figure><svg role="img" aria-label="{name}" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}"{more}>{body}</svg><figcaption>{name}</figcaption></figure>'
    )


def shade(value: float, most: float, log: bool) -> int:
    """Which of ten shades a value has, 0 for none."""
    if not most:
        return 0
    share = math.log1p(abs(value)) / math.log1p(most) if log else abs(value) / most
    return min(math.ceil(SHADES * share - 0.2), SHADES)


def heat(
    title: str, rows: Sequence[Sequence[int]], names: Sequence[str], columns: Sequence[str],
    cell: tuple[float, float], most: float, what: str, *, before: str = "", left: float = 0,
    log: bool = False,
) -> str:  # fmt: skip
    """A matrix of integers as SVG, one path for each shade; a script says the value of a cell.

    Parameters
    ----------
    title, what : str
        What is shown, and what a value is.
    rows : sequence of sequences of int
        The values.
    names, columns : sequence of str
        Of rows and columns.
    cell : tuple of float
        Width and height of a cell.
    most : float
        The value with the darkest shade.
    before : str
        What is drawn in front.
    left : float
        How wide that is.
    log : bool
        Whether shades go by the logarithm.
    """
    paths: dict[str, list[str]] = {}
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            if at := shade(value, most, log):
                paths.setdefault(f"{'minus' if value < 0 else 'plus'} s{at}", []).append(f"M{j} {i}h1v1h-1z")
    width, height = max(map(len, rows)), len(rows)
    drawn = "".join(f'<path class="{style}" d="{"".join(cells)}"/>' for style, cells in sorted(paths.items()))
    body = f'{before}<g transform="translate({left:g} 0) scale({cell[0]:g} {cell[1]:g})">{drawn}</g>'
    data = {
        "values": ";".join(",".join(map(str, row)) for row in rows),
        "cell": f"{cell[0]:g},{cell[1]:g},{left:g}",
        "what": what, "rows": "\t".join(names[:height]), "columns": "\t".join(columns[:width]),
    }  # fmt: skip
    more = "".join(f' data-{key}="{escape(value, quote=True)}"' for key, value in data.items())
    return svg(title, body, left + cell[0] * width, cell[1] * height, f' class="heat"{more}')


def scale(low: str, high: str, what: str = "") -> str:
    """The shades of a heat map from low to high."""
    cells = "".join(f'<path class="plus s{at}" d="M{at * 12} 2h12v12h-12z"/>' for at in range(1, SHADES + 1))
    words = f'<text x="6" y="12" text-anchor="middle">{low}</text><text x="137" y="12">{high}</text>'
    given = f'class="scale" role="img" aria-label="from {low} to {high}" data-what="{what}"'
    return f'<svg {given} width="160" height="16">{words}{cells}</svg>'


def ticks(low: float, high: float, log: bool) -> list[float]:
    """At most six round numbers between two."""
    if log:
        powers = range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)
        found = [10.0**power for power in powers[:: max(1, len(powers) // 5)]]
        return found if len(found) > 1 else [low, high]
    step = 10 ** math.floor(math.log10(max(high - low, 1e-9)))
    step *= next(part for part in (0.2, 0.5, 1, 2) if (high - low) / (step * part) <= 6)
    return [step * k for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


Points = list[tuple[float, float]]


def chart(title: str, x: str, y: str, lines: Sequence[tuple[Points, str]], log: str) -> str:
    """A chart of points, each line with its style; ``log``: the axes, x, y or both, that are logarithmic."""
    lines = [each for each in lines if each[0]]
    if not lines:
        return ""
    logs, spans = ("x" in log, "y" in log), []
    for axis in (0, 1):
        values = [point[axis] for points, _ in lines for point in points]
        low, high = min(values), max(values)
        low = low if logs[axis] else min(low, 0.0)
        spans.append((low, high if high > low else low + (abs(low) or 1.0)))

    def at(value: float, axis: int) -> float:
        (low, high), f = spans[axis], math.log if logs[axis] else float
        share = (f(value) - f(low)) / (f(high) - f(low))
        ends = ((_LEFT, _WIDTH - 10), (_HEIGHT - _BOTTOM, _TOP))[axis]
        return ends[0] + share * (ends[1] - ends[0])

    parts = []
    for value in ticks(*spans[0], logs[0]):
        parts.append(
            f'<text x="{at(value, 0):.1f}" y="{_HEIGHT - _BOTTOM + 13}" text-anchor="middle">{value:g}</text>'
        )
    for value in ticks(*spans[1], logs[1]):
        height = at(value, 1)
        parts.append(f'<path class="grid" d="M{_LEFT} {height:.1f}H{_WIDTH - 10}"/>')
        parts.append(f'<text x="{_LEFT - 5}" y="{height + 4:.1f}" text-anchor="end">{value:.3g}</text>')
    for points, style in lines:
        places = [f"{at(a, 0):.1f} {at(b, 1):.1f}" for a, b in points]
        parts.append(f'<path class="line {style}" d="M{"L".join(places)}"/>')
        for place, (a, b) in zip(places, points, strict=True):
            cx, cy = place.split()
            say = f"{x}: {a:.3g}; {y}: {b:.3g}" + ", permuted" * (style == "permuted")
            parts.append(
                f'<circle class="{style}" cx="{cx}" cy="{cy}" r="3" data-say="{escape(say, quote=True)}"/>'
            )
    parts.append(
        f'<text x="{(_LEFT + _WIDTH) / 2:g}" y="{_HEIGHT - 5}" text-anchor="middle">{escape(x)}</text>'
    )
    return svg(f"{title} ({y})", "".join(parts), _WIDTH, _HEIGHT)
