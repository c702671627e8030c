"""The report as one page: no other file, no request, light and dark, read without a mouse or a screen."""

from __future__ import annotations

from html import escape

from ssmbook.display._png import encode, pixel_size, render
from ssmbook.lens._figure import panel_figures
from ssmbook.lens._measure import LayerReport
from ssmbook.lens._table import counts_table, short

_CSS = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #fff; --soft: #f3f4f6; --line: #c9cdd3;
  --link: #0b57a4; --faint: #565b63; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --paper: #14171a; --soft: #1f2429;
  --line: #454c54; --link: #8ec5ff; --faint: #a9b1ba; }
  figure img { filter: invert(.93) hue-rotate(180deg); } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 72rem; font: 16px/1.5 system-ui, sans-serif;
  color: var(--ink); background: var(--paper); }
h1 { font-size: 1.6rem; margin: .5rem 0; } h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; }
a { color: var(--link); } p { max-width: 46rem; }
.skip { position: absolute; left: -99rem; } .skip:focus { position: static; }
.wide { overflow-x: auto; } .wide:focus-visible, a:focus-visible, summary:focus-visible {
  outline: 3px solid var(--link); outline-offset: 2px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding: .3rem 0; color: var(--faint); }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right;
  vertical-align: top; }
th:first-child, td:first-child, .left { text-align: left; } thead th { background: var(--soft); }
td small, dd { color: var(--faint); } dl { display: grid; grid-template-columns: max-content 1fr;
  gap: .1rem 1rem; } dt { font-weight: 600; } dd { margin: 0; }
td { white-space: nowrap; } figure { margin: 1rem 0; } figure img { max-width: 100%; height: auto; }
.panels { display: flex; flex-wrap: wrap; gap: .5rem; }
figcaption { color: var(--faint); max-width: 46rem; }
"""

_READING = (
    "A layer with H heads is the operator W = Σ A<sub>h</sub> ⊗ V<sub>h</sub> on the tokens of a "
    "text. Its rank k is the number of independent value maps; most of its energy may need fewer. The table "
    "says how many heads leave at "
    "most 10 %, 1 % and 0.1 % of it: of the operator alone, and of its output for tokens with the second "
    "moments of that text. In small type: the same layer with the entries of its weight matrices permuted, "
    "on the same tokens. What differs lies in the order of the entries, which training made."
)
_KEYS = (
    "first: share on the first token; outside: on none, an explicit sink; distance: mean, in tokens; states: "
    "rank between past and future at the middle, whole and for all but 1 % of the energy"
)
_CAPTION = (
    "Solid, filled: as trained. Dashed, hollow: permuted weights. Dotted: on the left the shares of the "
    "table, on the right the floor α σ₂(V), which the gradient of no softmax head undercuts."
)


def page(report) -> str:
    """Return the whole document."""
    title = f"{report.model} under the lens"
    layers = "".join(_layer(layer, place) for place, layer in enumerate(report.layers))
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n"
        f"<style>{_CSS}</style>\n</head>\n<body>\n"
        f'<a class="skip" href="#layers">To the layers</a>\n<main>\n<h1>{escape(title)}</h1>\n'
        f"<p>{_READING}</p>\n{_settings(report)}\n{_counts(report)}\n"
        f'<div id="layers">\n{layers}</div>\n'
        f"</main>\n</body>\n</html>\n"
    )


def _settings(report) -> str:
    facts = {**report.settings, **report.versions}
    facts["epsilons"] = ", ".join(f"{100 * eps:g} %" for eps in report.settings["epsilons"])
    items = "".join(
        f"<dt>{escape(str(key))}</dt><dd>{escape(str(value))}</dd>" for key, value in facts.items()
    )
    notes = "".join(f"<p>Note: {escape(note)}.</p>" for note in report.notes)
    return f"<details><summary>Settings and versions</summary>\n<dl>{items}</dl>\n</details>\n{notes}"


def _counts(report) -> str:
    table, body = counts_table(report), ""
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in table.header)
    for place, (name, *cells) in enumerate(table.cells):
        link = f'<th scope="row"><a href="#layer-{place}">{escape(name)}</a></th>'
        body += f"<tr>{link}{''.join(map(_cell, cells))}</tr>\n"
    size = f"{report.settings['texts']} texts of {report.settings['tokens']} tokens"
    return (
        '<h2 id="counts">How many heads each layer needs</h2>\n'
        '<div class="wide" role="region" aria-labelledby="counts" tabindex="0">\n<table>\n'
        f"<caption>Upper medians over {size}</caption>\n"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n</div>"
    )


def _cell(text: str) -> str:
    trained, bracket, permuted = text.partition(" (")
    beside = f" <small>({escape(permuted)}</small>" if bracket else ""
    return f"<td>{escape(trained)}{beside}</td>"


def _layer(layer: LayerReport, place: int) -> str:
    name = escape(layer.name or layer.kind)
    pictures = "\n".join(_picture(fig, alt) for fig, alt in panel_figures(layer))
    return (
        f'<section aria-labelledby="layer-{place}">\n<h2 id="layer-{place}">{name}</h2>\n'
        f"<p>{escape(_sentence(layer))}</p>\n"
        f'<figure><div class="panels">{pictures}</div>\n<figcaption>{_CAPTION}</figcaption></figure>\n'
        f"{_heads(layer, place)}</section>\n"
    )


def _picture(fig, alt: str) -> str:
    png = render("fig", fig, dpi=160, limit=60_000)
    width, height = (size * 6 // 10 for size in pixel_size(png))
    size = f'width="{width}" height="{height}"'
    return f'<img src="data:image/png;base64,{encode(png)}" {size} alt="{escape(alt, quote=True)}">'


def _sentence(layer: LayerReport) -> str:
    shared = layer.trained.shared().items()
    needs = ", ".join(f"{heads} for all but {100 * float(eps):g} %" for eps, heads in shared)
    whose = "common to the texts" if layer.trained.common else "of its own for each text"
    return (
        f"This layer ({layer.kind}) has {layer.H} heads. With value maps {whose} its operator "
        f"needs {needs} of the energy. Read exactly: y = W x + offset to {layer.miss:.1g}."
    )


def _heads(layer: LayerReport, place: int) -> str:
    """The numbers of every head, or of quantiles of the heads, folded."""
    keys, wide = list(layer.trained.heads), layer.trained.quantiles
    first, title = ("quantile", "Quantiles of the heads") if wide else ("head", "Head by head")
    head = "".join(f'<th scope="col">{escape(key)}</th>' for key in (first, *keys))
    body = ""
    for h in range(len(layer.trained.heads[keys[0]])):
        cells = "".join(_beside(layer, key, h) for key in keys)
        body += f'<tr><th scope="row">{f"{10 * h} %" if wide else h + 1}</th>{cells}</tr>\n'
    return (
        f"<details><summary>{title}</summary>\n"
        f'<div class="wide" role="region" aria-label="Heads of layer {place + 1}" tabindex="0"><table>\n'
        f"<caption>{_KEYS}</caption>\n"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>\n</details>\n"
    )


def _beside(layer: LayerReport, key: str, h: int) -> str:
    other = None if layer.permuted is None else layer.permuted.heads.get(key)
    beside = "" if other is None else f" <small>({short(other[h])})</small>"
    return f"<td>{short(layer.trained.heads[key][h])}{beside}</td>"
