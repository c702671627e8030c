"""Tables whose text is the same on every machine."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

BAR = r"\|"  # inside a cell of a Markdown table
_ALIGN = {"l": "left", "r": "right"}


def number(value: Any, digits: int = 3) -> str:
    """Return a value as short text: integers in full, reals to ``digits`` digits, the rest as ``str``.

    Takes Python, numpy and one-element torch scalars; None becomes a dash, a bool yes or no. Reals from
    0.001 to 99,999 are written out with trailing zeros (0.500), others with an exponent.

    >>> number(16384), number(0.123456), number("k")
    ('16,384', '0.123', 'k')
    """
    value = value.item() if hasattr(value, "item") else value
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) > 9999 else str(value)
    if not isinstance(value, float) or not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    scientific = f"{value:.{digits - 1}e}"
    exponent = int(scientific.split("e")[1])
    if -3 <= exponent <= 4:
        return f"{float(scientific):{',' if exponent == 4 else ''}.{max(digits - 1 - exponent, 0)}f}"
    return scientific


def table(
    rows: Sequence[Sequence],
    header: Sequence[str],
    *,
    align: str | None = None,
    digits: int = 3,
    caption: str | None = None,
) -> Table:
    """Return a table that a notebook shows: as HTML in a page, as aligned text elsewhere.

    The cells are text, numbers, scalar tensors or None; the first cell of a row is its title. ``align`` holds
    a letter l or r for each column (default: numeric columns to the right), ``digits`` the significant
    digits of reals, ``caption`` a sentence above. Raises ``ValueError`` for a row of another length.

    >>> print(table([["rotation", 2], ["decay", 1]], ["system", "heads"]))
    system    heads
    --------  -----
    rotation      2
    decay         1
    """
    columns = list(zip(header, *rows, strict=True))
    if align is None:
        align = "".join("l" if any(isinstance(cell, str) for cell in cells[1:]) else "r" for cells in columns)
    return Table(list(header), [[number(cell, digits) for cell in row] for row in rows], align, caption)


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """Cells as text, in the forms plain text, HTML and Markdown."""

    header: list[str]
    cells: list[list[str]]
    align: str
    caption: str | None = None

    def __repr__(self) -> str:
        widths = [max(map(len, column)) for column in zip(self.header, *self.cells, strict=True)]
        lines = [self.caption] if self.caption else []
        for row in [self.header, ["-" * width for width in widths], *self.cells]:
            columns = zip(row, widths, self.align, strict=True)
            padded = [cell.ljust(width) if a == "l" else cell.rjust(width) for cell, width, a in columns]
            lines.append("  ".join(padded).rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        name = html.escape(self.caption or "Table: " + ", ".join(self.header), quote=True)
        caption = f"<caption>{html.escape(self.caption)}</caption>\n" if self.caption else ""
        head = "".join(self._cells(self.header, 'th scope="col"'))
        body = ""
        for row in self.cells:
            first, rest = self._cells(row, 'th scope="row"')[0], self._cells(row, "td")[1:]
            body += f"<tr>{first}{''.join(rest)}</tr>\n"
        return (
            f'<div class="ssm-table" role="group" tabindex="0" aria-label="{name}">\n<table class="table">\n'
            f"{caption}<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n</div>"
        )

    def _cells(self, row: list[str], tag: str) -> list[str]:
        return [
            f'<{tag} style="text-align:{_ALIGN[letter]}">{html.escape(cell)}</{tag[:2]}>'
            for cell, letter in zip(row, self.align, strict=True)
        ]

    def _repr_markdown_(self) -> str:
        rule = {"l": ":--", "r": "--:"}
        lines = [self.header, [rule[letter] for letter in self.align], *self.cells]
        text = "\n".join(f"| {' | '.join(cell.replace('|', BAR) for cell in line)} |" for line in lines)
        return f"{self.caption}\n\n{text}" if self.caption else text
