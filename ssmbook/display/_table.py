"""Tables whose text is the same on every machine."""

from __future__ import annotations

import html
import math
import numbers
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ssmbook._checks import check_integer, check_sequence

_ALIGN = {"l": "left", "r": "right", "c": "center"}


def number(value: Any, digits: int = 3) -> str:
    """Return a value as short text: ints in full, reals to ``digits`` digits, the rest as ``str``.

    Accepts Python, numpy and one-element torch scalars, real or complex; None becomes a dash, a bool yes or
    no. Reals from 0.001 to 99,999 are written out with trailing zeros (0.500), others with an exponent
    (1.23e-05); from 10,000 on commas part the thousands. Introduced in *two-ways-to-mix*.

    >>> number(16384), number(0.123456), number("k")
    ('16,384', '0.123', 'k')
    """
    digits = check_integer("digits", digits, low=1)
    if getattr(value, "ndim", 0) > 0:
        shape = tuple(value.shape)
        raise TypeError(f"value must be one number or a word; got {type(value).__name__} of shape {shape}")
    value = value.item() if hasattr(value, "item") else value
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, numbers.Integral):
        return f"{value:,}" if abs(value) > 9999 else str(value)
    if isinstance(value, numbers.Real):
        return _real(float(value), digits)
    if isinstance(value, numbers.Complex):
        sign = "-" if value.imag < 0 else "+"
        return f"{_real(value.real, digits)} {sign} {_real(abs(value.imag), digits)}i"
    return str(value)


def _real(value: float, digits: int) -> str:
    if not math.isfinite(value):
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

    ``rows`` is a sequence of m rows of c cells (str, numbers, scalar tensors, None), ``header`` c titles;
    the first cell of a row is its title. ``align`` is a string of c letters out of l, r, c (default:
    numeric columns to the right), ``digits`` the significant digits of reals, ``caption`` a sentence above.
    Raises ``ValueError`` for a ragged row, a wrong ``align`` or no header. Introduced in *two-ways-to-mix*.

    >>> print(table([["rotation", 2], ["decay", 1]], ["system", "heads"]))
    system    heads
    --------  -----
    rotation      2
    decay         1
    """
    header = [str(title) for title in check_sequence("header", header, "titles")]
    rows = check_sequence("rows", rows, "rows")
    rows = [check_sequence(f"rows[{i}]", row, "cells") for i, row in enumerate(rows)]
    if not header:
        raise ValueError("header must name at least one column; got none")
    for i, row in enumerate(rows):
        if len(row) != len(header):
            raise ValueError(f"rows[{i}] must have {len(header)} cells, as header has; got {len(row)}")
    if align is None:
        columns = zip(*rows, strict=True) if rows else [()] * len(header)
        align = "".join("l" if any(isinstance(cell, str) for cell in column) else "r" for column in columns)
    if len(align) != len(header) or set(align) - set(_ALIGN):
        raise ValueError(f"align must be {len(header)} letters out of l, r, c; got {align!r}")
    return Table(header, [[number(cell, digits) for cell in row] for row in rows], align, caption)


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """What ``table`` returns: cells as text, in the forms plain text, HTML and Markdown.

    Introduced in *interaction-operator*.

    >>> print(Table(["system", "heads"], [["rotation", "2"]], align="lr"))
    system    heads
    --------  -----
    rotation      2
    """

    header: list[str]
    cells: list[list[str]]
    align: str
    caption: str | None = None

    def __repr__(self) -> str:
        widths = [max(map(_width, column)) for column in zip(self.header, *self.cells, strict=True)]
        lines = [self._line(self.header, widths), "  ".join("-" * w for w in widths)]
        lines += [self._line(row, widths) for row in self.cells]
        return "\n".join(([self.caption] if self.caption else []) + lines)

    def _line(self, cells, widths) -> str:
        return "  ".join(
            _pad(cell, width, letter) for cell, width, letter in zip(cells, widths, self.align, strict=True)
        ).rstrip()

    def _repr_html_(self) -> str:
        styles = [f' style="text-align:{_ALIGN[letter]}"' for letter in self.align]
        head = "".join(
            f'<th scope="col"{style}>{html.escape(title)}</th>'
            for title, style in zip(self.header, styles, strict=True)
        )
        body = "".join(self._html_row(row, styles) for row in self.cells)
        caption = f"<caption>{html.escape(self.caption)}</caption>\n" if self.caption else ""
        name = html.escape(self.caption or "Table: " + ", ".join(self.header), quote=True)
        return (
            f'<div class="ssm-table" role="group" tabindex="0" aria-label="{name}">\n<table class="table">\n'
            f"{caption}<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n</div>"
        )

    def _html_row(self, row, styles) -> str:
        first, *rest = (html.escape(cell) for cell in row)
        cells = "".join(f"<td{style}>{cell}</td>" for cell, style in zip(rest, styles[1:], strict=True))
        return f'<tr><th scope="row"{styles[0]}>{first}</th>{cells}</tr>\n'

    def _repr_markdown_(self) -> str:
        rule = {"l": ":--", "r": "--:", "c": ":-:"}
        lines = [self.header, [rule[letter] for letter in self.align], *self.cells]
        lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
        text = "\n".join(lines)
        return f"{self.caption}\n\n{text}" if self.caption else text


def _width(text: str) -> int:
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def _pad(text: str, width: int, letter: str) -> str:
    space = width - _width(text)
    left = {"l": 0, "r": space, "c": space // 2}[letter]
    return " " * left + text + " " * (space - left)
