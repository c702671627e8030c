"""Figures, operator pictures and tables, all with words and numbers that a test can compare.

What draws is imported when a name that draws is first used; `number` and `table` need
nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from ssmbook._extras import extra
from ssmbook.display.tables import number, table

if TYPE_CHECKING:
    from ssmbook.display.images import show
    from ssmbook.display.pictures import block_heatmap, span_spectrum
    from ssmbook.display.style import COLORS, figure, label_line, use_style
else:
    _HOMES = {
        "images": ("show",),
        "pictures": ("block_heatmap", "span_spectrum"),
        "style": ("COLORS", "figure", "label_line", "use_style"),
    }

    def __getattr__(name):
        for home, names in _HOMES.items():
            if name in names:
                with extra("book"):
                    return getattr(import_module(f"{__name__}.{home}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return __all__


__all__ = [
    "COLORS", "block_heatmap", "figure", "label_line", "number", "show", "span_spectrum",
    "table", "use_style",
]  # fmt: skip
