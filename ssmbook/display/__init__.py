"""Figures, operator pictures, sliders and tables, all with words and numbers that a test can compare."""

from ssmbook.display import _needed  # noqa: F401
from ssmbook.display._pictures import (
    block_heatmap,
    block_heatmap_alt,
    kronecker_picture,
    span_spectrum,
    span_spectrum_alt,
)
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
    "block_heatmap_alt",
    "figure",
    "kronecker_picture",
    "label_line",
    "number",
    "show",
    "span_spectrum",
    "span_spectrum_alt",
    "table",
    "use_style",
]
