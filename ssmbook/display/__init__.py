"""Figures, operator pictures, sliders and tables, all with words and numbers that a test can compare."""

from ssmbook.display.images import Slider, show
from ssmbook.display.lab import Lab
from ssmbook.display.pictures import block_heatmap, span_spectrum
from ssmbook.display.style import COLORS, figure, label_line, use_style
from ssmbook.display.tables import number, table

__all__ = [
    "COLORS",
    "Lab",
    "Slider",
    "block_heatmap",
    "figure",
    "label_line",
    "number",
    "show",
    "span_spectrum",
    "table",
    "use_style",
]
