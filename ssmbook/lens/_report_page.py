"""The page of a report: the verdict, one picture of all layers, tables, and each head as a matrix."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from statistics import median, median_high
from typing import TYPE_CHECKING

import torch

from ssmbook import display
from ssmbook.display import number, table
from ssmbook.display.tables import Table
from ssmbook.lens._measure import MOST_HEADS, LayerReport
from ssmbook.lens._reading import Reading
from ssmbook.lens._report_charts import chart, heat, scale, svg

if TYPE_CHECKING:
    from ssmbook.lens._report import Report

# Tokens of the first text, and heads of a layer, that are drawn; heads of all layers that are
# listed.
TOKENS, HEADS, LISTED = 32, 16, 20
# Of the picture of all layers: its width, that of the names, and the height of a layer.
_WIDE, _LEFT, _ROW = 340, 30, 16


def drawn(readings: Sequence[Reading]) -> list | None:
    """Return the weights of each head among the first tokens of the first text, (H, 32, 32) at most.

    In percent; of heads with entries above one, percent of the largest; ``None`` without heads or for many.
    """
    if readings[0].mixing is None or readings[0].H > HEADS:
        return None
    first = readings[0].alpha[:, :TOKENS, :TOKENS]
    first = first / first.abs().amax((-2, -1), keepdim=True).clamp_min(1.0)
    return (100 * first).round().to(torch.int64).tolist()


def page(report: Report, tokens: Sequence[str], remarks: Sequence[str]) -> str:
    """Return the whole page of a report, which needs no other file and no network.

    Parameters
    ----------
    report : Report
        What was measured.
    tokens : sequence of str
        The first ones of the first text.
    remarks : sequence of str
        What stands at the end.
    """
    names = [token.replace("\n", "↵").replace("\t", "⇥") for token in tokens]
    words = "".join(f"<span>{escape(name)}<sub>{place}</sub></span>" for place, name in enumerate(names))
    text = f'<h2>The first tokens</h2>\n<p class="text">{words}</p>' if names else ""
    heads = report.heads()
    change = f"<h2>Which heads to change first</h2>\n{wide(_first(heads))}\n" if heads else ""
    each = "\n".join(_layer(layer, place, names) for place, layer in enumerate(report.layers))
    verdict = "\n".join(f"<p>{escape(sentence)}</p>" for sentence in report.verdict())
    return document(
        f"{report.model} under the lens",
        f'<div class="verdict">{verdict}</div>\n<div class="row">{_summary(report.layers)}</div>\n'
        f"<p>Layers, heads and tokens are numbered from 0.</p>\n{change}<h2>All layers</h2>\n"
        f"{wide(report.table())}\n{text}\n<h2>Layer by layer</h2>\n{each}\n"
        + "".join(f"<p>{escape(remark)}</p>\n" for remark in remarks),
    )


def document(title: str, body: str) -> str:
    """A page with this title and body, in the colors of the book."""
    here = Path(__file__).parent
    colors = (Path(display.__file__).parent / "palette.css").read_text("utf-8")
    light, dark = re.findall(r"\{(.*?)\}", colors, re.DOTALL)
    style = f":root {{{light}}}\n@media screen and (prefers-color-scheme: dark) {{ :root {{{dark}}} }}\n"
    style, script = style + (here / "report.css").read_text("utf-8"), (here / "report.js").read_text("utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(title)}</h1>\n{body}</main>\n<script>\n{script}</script>\n</body>\n</html>\n"
    )


def wide(given: Table) -> str:
    """A table that scrolls by itself, without the columns that nothing fills."""
    kept = [at for at in range(len(given.header)) if any(row[at] != number(None) for row in given.cells)]
    header, *rows = ([row[at] for at in kept] for row in (given.header, *given.cells))
    return Table(header, rows, "".join(given.align[at] for at in kept), given.caption)._repr_html_()


# All layers ------------------------------------------------------------------------------------------------


def _summary(layers: Sequence[LayerReport]) -> str:
    """All layers: the heads that leave 10, 1 and 0.1 %, and the states of each head."""
    most, marks = max(layer.H for layer in layers), []
    step = (_WIDE - _LEFT - 4) / most
    for place, layer in enumerate(layers):
        y, words = place * _ROW + 2, [f"layer {place}, {layer.title}: {layer.H} heads"]
        bars = f'<rect class="all" x="{_LEFT}" y="{y}" width="{layer.H * step:.1f}" height="9"/>'
        for kind, top, height in (("trained", y, 9), ("permuted", y + 9, 4)):
            measures = getattr(layer, kind)
            found = {eps: median_high(counts) for eps, counts in measures.counts.items()} if measures else {}
            for level, count in reversed([*enumerate(found.values())]):
                bars += (
                    f'<rect class="{kind} left{level}" x="{_LEFT}" y="{top}" width="{count * step:.1f}" '
                    f'height="{height}"/>'
                )
            if found:
                each = ", ".join(f"{count} leave {100 * float(eps):g} %" for eps, count in found.items())
                words.append(f"{kind}: {each}")
        marks.append(f'<g data-say="{escape("; ".join(words), quote=True)}">{_name(place, y)}{bars}</g>')
    gray = ", gray: with permuted weights" * any(layer.permuted for layer in layers)
    title = f"Heads of each layer that leave 10, 1 and 0.1 % (dark to light{gray})"
    return svg(title, "".join(marks), _WIDE, _ROW * len(layers) + 4) + _states(layers)


def _states(layers: Sequence[LayerReport]) -> str:
    rows = [layer.needed for layer in layers]
    if not any(rows):
        return ""
    most = max(value for row in rows for value in row)
    cell, widest = min(_ROW, (_WIDE - _LEFT) // max(map(len, rows))), max(map(len, rows))
    names = [f"layer {place}" for place in range(len(rows))]
    labels = "".join(_name(place, place * _ROW + 2) for place in range(len(rows)))
    label = "head" if all(layer.H <= MOST_HEADS for layer in layers if layer.needed) else "head or quantile"
    title = f"States of each {label} at 1 % without its first key (one row per layer)"
    heads = [f"{label} {h}" for h in range(widest)]
    size, more = (cell, _ROW), {"before": labels, "left": _LEFT, "log": True}
    picture = heat(title, rows, names, heads, size, most, "states", **more)
    return f"<div>{picture}{scale('0', str(most), 'states')}</div>"


def _name(place: int, y: float) -> str:
    return f'<text x="{_LEFT - 5}" y="{y + 9.5}" text-anchor="end">{place}</text>'


def _first(heads: Sequence[dict]) -> Table:
    header = ["layer", "head", "states", "on half the text", "with the first key", "weight on the first key"]
    rows = [[number(value, 2) for value in head.values()] for head in heads[:LISTED]]
    words = (
        f"The {len(rows)} of {len(heads)} heads that fewest states carry at 1 %, the first key left out; "
        "report.json has all. What a change costs the model is measured by python -m ssmbook.lens plan"
    )
    return table(rows, [*header, "mean distance"], align="l" + "r" * 6, caption=words)


# One layer -------------------------------------------------------------------------------------------------


def _layer(layer: LayerReport, place: int, tokens: list[str]) -> str:
    parts = [f"<summary>Layer {place}: {escape(layer.title)}, {layer.H} heads</summary>"]
    if layer.weights:
        names = [f"{at} {name}" for at, name in enumerate([*tokens, *[""] * (layer.n - len(tokens))])]
        pictures = [
            heat(f"head {h}", rows, names, names, (7, 7), 100, "weight in percent")
            for h, rows in enumerate(layer.weights)
        ]
        parts.append("<p>Weights: each row is an output token, each column a token that it reads.</p>")
        parts.append(f"{scale('0', '1')}\n<div class='row'>{''.join(pictures)}</div>")
    parts.append(wide(_numbers(layer)))
    parts.append(f"<div class='row'>{_energy(layer)}{_reach(layer)}</div>")
    dashed = " Dashed or hollow: with permuted weights." * (layer.permuted is not None)
    parts.append(f"<p>Solid: as trained.{dashed}{_gradient(layer)}</p>")
    return f"<details{' open' * (place == 0)}>" + "\n".join(parts) + "</details>"


def _numbers(layer: LayerReport) -> Table:
    """What each head does."""
    names = {"first": "weight on the first key", "outside": "weight on no key", "distance": "mean distance"}
    found = {name: layer.trained.heads[key] for key, name in names.items() if key in layer.trained.heads}
    states = layer.trained.states["without"] if layer.trained.states else {}
    found |= {f"states, {100 * float(eps):g} % left": each[-1] for eps, each in states.items()}
    columns = [[number(value, 2) for value in values] for values in found.values()]
    header = ["head" if layer.H == len(columns[0]) else "quantile", *found]
    rows = [[str(h), *cells] for h, cells in enumerate(zip(*columns, strict=True))]
    return table(rows, header, align="l" + "r" * len(columns))


def _kinds(layer: LayerReport):
    return [(getattr(layer, kind), kind) for kind in ("permuted", "trained") if getattr(layer, kind)]


def _energy(layer: LayerReport) -> str:
    lines = []
    for measures, kind in _kinds(layer):
        energies = enumerate((sigma**2 for sigma in measures.spectrum), 1)
        lines.append(([(r, energy) for r, energy in energies if energy > 5e-4], kind))
    return chart("Energy of the best heads", "head, common to the texts", "share of all", lines, log="y")


def _reach(layer: LayerReport) -> str:
    lines = []
    for measures, kind in _kinds(layer):
        given = measures.gradient
        for key, style in (("norm", kind), ("floor", "floor")) if given else ():
            if given[key] and (key == "norm" or kind == "trained"):
                columns = (
                    [v for v in each if v and math.isfinite(v)] for each in zip(*given[key], strict=True)
                )
                pairs = zip(given["distance"], columns, strict=True)
                lines.append(([(x, median(each)) for x, each in pairs if each], style))
    title = "Gradient norm of the median head" + " and its floor" * (len(lines) > len(_kinds(layer)))
    return chart(title, "distance in tokens", "gradient norm", lines, log="xy") if lines else ""


def _gradient(layer: LayerReport) -> str:
    given = layer.trained.gradient
    if given is None or given["ratio"] is None:
        return ""
    return f" Dotted: a lower bound; the gradient norm is never less than {number(given['ratio'])} times it."
