"""Figures, operator pictures, sliders and tables, all with words and numbers that a test can compare."""

from ssmbook.display._pictures import block_heatmap, span_spectrum
from ssmbook.display._show import show
from ssmbook.display._slider import Slider
from ssmbook.display._style import (
    COLORS,
    DIVERGING,
    FAMILIES,
    LINES,
    SEQUENTIAL,
    SIZES,
    figure,
    label_line,
    use_style,
)
from ssmbook.display._table import Table, number, table

__all__ = [
    "COLORS",
    "DIVERGING",
    "FAMILIES",
    "LINES",
    "SEQUENTIAL",
    "SIZES",
    "Slider",
    "Table",
    "block_heatmap",
    "figure",
    "label_line",
    "number",
    "show",
    "span_spectrum",
    "table",
    "use_style",
]
