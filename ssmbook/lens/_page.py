"""The page of a report: the text, each head as a matrix to hover over, which heads are alike, and numbers."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape
from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor

from ssmbook._extras import extra
from ssmbook.display import number, table
from ssmbook.display.tables import Table
from ssmbook.lens._errors import gram
from ssmbook.lens._measure import LayerReport
from ssmbook.lens._reading import Reading

# Tokens of the first text, and heads of a layer, that are drawn; percent below which a cell
# stays white.
TOKENS, HEADS, LEAST = 32, 16, 2
ALIKE = 90
_CELL = 7
_STYLE = """
body { font: 15px/1.5 sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
img { max-width: 100% } table { border-collapse: collapse; font-size: 14px }
td, th { padding: .15rem .6rem; border-bottom: 1px solid #ddd } .wide { overflow-x: auto }
.text span { background: #eef3f8; margin: 2px; padding: 0 4px; display: inline-block; white-space: pre }
.text sub { color: #777 } .heads { display: flex; flex-wrap: wrap; gap: 10px }
figure { margin: 0 } figcaption { font-size: 13px } svg { border: 1px solid #ccc; fill: #2a6f97 }
svg rect:hover { stroke: #d9822b; stroke-width: 1.5 } summary { font-size: 1.2rem; cursor: pointer }
"""


def drawn(readings: Sequence[Reading]) -> tuple[list | None, list | None]:
    """Return the weights of each head among the first tokens of the first text, and how alike heads are.

    Weights in percent, (H, 32, 32) at most; of heads with entries above one, percent of the
    largest. Alike: cosines of the attention matrices over all texts, in percent, (H, H).
    ``None`` without heads or for many.
    """
    if readings[0].mixing is None or readings[0].H > HEADS:
        return None, None
    alphas = [reading.alpha for reading in readings]
    G = sum(gram(alpha) for alpha in alphas)
    size = G.diagonal().clamp_min(1e-300).sqrt()
    first = alphas[0][:, :TOKENS, :TOKENS]
    first = first / first.abs().amax((-2, -1), keepdim=True).clamp_min(1.0)
    return _percent(first), _percent(G / size / size[:, None])


def _percent(values: Tensor) -> list:
    return (100 * values).round().to(torch.int64).tolist()


def page(
    model: str, summary: Table, layers: Sequence[LayerReport], tokens: Sequence[str], remarks: Sequence[str]
) -> str:
    """Return the whole page of a report; it needs no other file and no network.

    Parameters
    ----------
    model : str
        What the model is called.
    summary : Table
        The counts of all layers.
    layers : sequence of LayerReport
        What is shown one by one.
    tokens : sequence of str
        The first ones of the first text.
    remarks : sequence of str
        What stands at the end.
    """
    names = [escape(token.replace("\n", "↵")) for token in tokens]
    words = "".join(f"<span>{name}<sub>{place}</sub></span>" for place, name in enumerate(names))
    text = f'<h2>The first tokens</h2>\n<p class="text">{words}</p>' if names else ""
    each = "\n".join(_layer(layer, place, names) for place, layer in enumerate(layers))
    end = "".join(f"<p>{escape(remark)}</p>\n" for remark in remarks)
    return document(
        f"{model} under the lens",
        f"<p>Layers, heads and tokens are numbered from 0.</p>\n{wide(summary)}\n{text}\n"
        f"<h2>Layer by layer</h2>\n{each}\n{end}",
    )


def drawing() -> ModuleType:
    """Import what draws a layer; ``ImportError`` with the extra that brings it where it is missing."""
    with extra("book"):
        return import_module("ssmbook.lens._figure")


def document(title: str, body: str) -> str:
    """A page with this title and body."""
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n{body}</body>\n</html>\n"
    )


def wide(given: Table) -> str:
    """A table that scrolls by itself, without the columns that nothing fills."""
    kept = [at for at in range(len(given.header)) if any(row[at] != number(None) for row in given.cells)]
    header, *rows = ([row[at] for at in kept] for row in (given.header, *given.cells))
    shown = Table(header, rows, "".join(given.align[at] for at in kept), given.caption)
    return f'<div class="wide">{shown._repr_html_()}</div>'


def _layer(layer: LayerReport, place: int, tokens: list[str]) -> str:
    parts = [f"<summary>Layer {place}: {escape(layer.title)}, {layer.H} heads</summary>"]
    if layer.weights:
        heads = "".join(
            f"<figure>{matrix(rows, tokens)}<figcaption>head {h}</figcaption></figure>"
            for h, rows in enumerate(layer.weights)
        )
        parts.append("<p>Weights: each row is an output token, each column a token that it reads.</p>")
        parts.append(f'<div class="heads">{heads}</div>')
    if layer.alike and layer.H > 1:
        names = [f"head {h}" for h in range(layer.H)]
        parts.append(f"<p>{escape(merges(layer))}</p>\n{matrix(layer.alike, names, 14)}")
    parts.append(wide(_numbers(layer)))
    fig, alt = drawing().layer_figure(layer)
    image = io.BytesIO()
    fig.savefig(image, format="svg", facecolor="white", metadata={"Date": None})
    data = base64.b64encode(image.getvalue()).decode("ascii")
    dashed = " Dashed: with permuted weights." * (layer.permuted is not None)
    parts.append(f'<img src="data:image/svg+xml;base64,{data}" alt="{escape(alt, quote=True)}">')
    parts.append(f"<p>Solid: as trained.{dashed}{_gradient(layer)}</p>")
    return f"<details{' open' * (place == 0)}>" + "\n".join(parts) + "</details>"


def matrix(rows: Sequence[Sequence[int]], names: Sequence[str], cell: int = _CELL) -> str:
    """A matrix of percents as SVG; each cell shows its value when the mouse rests on it."""
    names, cells = [*names, *[""] * len(rows)], []
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            if abs(value) >= LEAST:
                color = " fill='#c1121f'" * (value < 0)
                words = f"{i} {names[i]} ← {j} {names[j]}: {value / 100:.2f}"
                cells.append(
                    f"<rect x='{j * cell}' y='{i * cell}' width='{cell}' height='{cell}'{color} "
                    f"fill-opacity='{min(abs(value), 100) / 100:g}'><title>{words}</title></rect>"
                )
    size = cell * len(rows)
    return f"<svg width='{size}' height='{size}'>{''.join(cells)}</svg>"


def merges(layer: LayerReport) -> str:
    """Which heads have nearly the same attention matrices, in words; they are the first to merge."""
    left, groups = list(range(layer.H)), []
    while left:
        first = left.pop(0)
        group = [first, *(h for h in left if layer.alike[first][h] >= ALIKE)]
        left = [h for h in left if h not in group]
        groups += [group] if len(group) > 1 else []
    found = "; ".join(", ".join(map(str, group)) for group in groups) or "none"
    words = f"merge first (cosine of their attention matrices at least {ALIKE / 100:g}): {found}"
    return f"Similarity of heads; {words}."


def _numbers(layer: LayerReport) -> Table:
    """What each head does."""
    names = {
        "first": "weight on the first key", "outside": "weight on no key", "distance": "mean distance",
        "states_1%": "states at 1 %",
    }  # fmt: skip
    found = {name: layer.trained.heads[key] for key, name in names.items() if key in layer.trained.heads}
    columns = [[number(value, 2) for value in values] for values in found.values()]
    header = ["head" if layer.H == len(columns[0]) else "quantile", *found]
    if layer.alike and layer.H > 1:
        header.append("most alike")
        others = [[(v, -o) for o, v in enumerate(row) if o != h] for h, row in enumerate(layer.alike)]
        columns.append([f"head {-max(row)[1]} ({max(row)[0] / 100:.2f})" for row in others])
    rows = [[str(h), *cells] for h, cells in enumerate(zip(*columns, strict=True))]
    return table(rows, header, align="l" + "r" * len(columns))


def _gradient(layer: LayerReport) -> str:
    given = layer.trained.gradient
    if given is None or given["ratio"] is None:
        return ""
    return f" The gradient norm is never less than {number(given['ratio'])} times its lower bound."
