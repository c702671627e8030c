"""The counts of a report as a table, and two reports beside each other."""

from __future__ import annotations

from statistics import median, median_high

from ssmbook.display import Table, number, table
from ssmbook.lens._measure import LayerReport, Measures


def counts_table(report) -> Table:
    """One row a layer: what it is, then its numbers as trained and, in brackets, with permuted weights."""
    header = ["layer", "family", "heads", *titles(report)]
    words = "Heads that leave at most that share of the energy, upper medians over the texts"
    beside = "; in brackets the same layer with permuted weights" if report.settings["permuted"] else ""
    rows = [_row(layer) for layer in report.layers]
    return table(rows, header, align="ll" + "r" * (len(header) - 2), caption=words + beside)


def titles(report) -> list[str]:
    """What ``values`` lists."""
    shares = [f"{100 * eps:g}\N{NO-BREAK SPACE}% left" for eps in report.settings["epsilons"]]
    tokens = [f"{share}, on these tokens" for share in shares[:2]]
    return ["rank k", *shares, *tokens, "on the first token", "mean distance", "states"]


def values(measures: Measures) -> list[str]:
    """The numbers of one layer: rank, head counts, and what its median head does."""
    weighted = list(measures.weighted.values())[:2]
    counts = [measures.rank, *measures.counts.values(), *weighted]
    heads = [measures.heads.get(key) for key in ("first", "distance", "states")]
    most = "≤ " if measures.at_most else ""
    return [
        *(most + short(median_high(each)) for each in counts),
        *(short(None if each is None else median(each)) for each in heads),
    ]


def _row(layer: LayerReport) -> list[str]:
    """The cells of one layer."""
    cells = values(layer.trained)
    if layer.permuted is not None:
        pairs = zip(cells, values(layer.permuted), strict=True)
        cells = [own if own == other == short(None) else f"{own} ({other})" for own, other in pairs]
    return [layer.name or layer.kind, layer.family, str(layer.H), *cells]


def short(value: float | None) -> str:
    """Whole numbers whole, others to two digits."""
    if value is not None and float(value).is_integer():
        return str(int(value))
    return number(value, 2)


def comparison(before, after) -> Table:
    """The layers that two reports share, before → after."""
    n, m = before.settings["tokens"], after.settings["tokens"]
    if n != m:
        raise ValueError(f"after must be a report on {n} tokens, as before; got {m}")
    others = {layer.name: layer for layer in after.layers}
    shared = [(layer, others[layer.name]) for layer in before.layers if layer.name in others]
    if not shared:
        raise ValueError(f"after must hold layers of before; got none of the same name in {after.model}")
    rows = []
    for old, new in shared:
        cells = zip(values(old.trained), values(new.trained), strict=True)
        rows.append([old.name or old.kind, old.family, *(f"{was} → {now}" for was, now in cells)])
    header = ["layer", "family", *titles(before)]
    caption = f"{before.model} → {after.model}: heads that leave at most that share of the energy"
    return table(rows, header, align="ll" + "r" * (len(header) - 2), caption=caption)
