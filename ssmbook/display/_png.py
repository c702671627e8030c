"""From a figure to bytes: deterministic palette PNGs within a size budget, and the checks of their words."""

from __future__ import annotations

import base64
import io
import re

from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from ssmbook.display._style import PAGE_WIDTH, SMALLEST_PT

FIGURE_DPI = 130
FIGURE_BYTES = 60_000
_COLOR_COUNTS = (256, 128, 64, 32)


def check_alt(name: str, alt) -> None:
    """Refuse an alternative text that says nothing: not a ``str``, under 20 characters, several lines, a
    file name.
    """
    if not isinstance(alt, str):
        raise TypeError(f"{name} must be a str; got {type(alt).__name__}")
    if len(alt.strip()) < 20 or alt != alt.strip():
        raise ValueError(
            f"{name} must say what the figure shows, with its numbers, in 20 characters or more; got {alt!r}"
        )
    if re.search(r"[\r\n]", alt):
        raise ValueError(f"{name} must be one line; got a line break in {alt!r}")
    if re.fullmatch(r"\S+\.(png|svg|jpe?g|gif|pdf)", alt, re.IGNORECASE):
        raise ValueError(f"{name} must say what the figure shows; got a file name, {alt!r}")


def check_figure(name: str, fig) -> None:
    """Refuse anything but a figure whose text reads at ``SMALLEST_PT`` points once it is as wide as the
    page.
    """
    if not isinstance(fig, Figure):
        raise TypeError(f"{name} must be a matplotlib Figure; got {type(fig).__name__}")
    shrink = min(1.0, PAGE_WIDTH / fig.get_figwidth())
    for text in fig.findobj(Text):
        points = text.get_fontsize() * shrink
        if text.get_visible() and text.get_text().strip() and points < SMALLEST_PT - 1e-6:
            raise ValueError(
                f"{name} must have text of {SMALLEST_PT:g} pt or more at page width ({PAGE_WIDTH:g} in); "
                f"got {text.get_text()!r} at {points:.1f} pt in a figure {fig.get_figwidth():g} in wide"
            )


def render(name: str, fig: Figure, *, dpi: int, limit: int) -> bytes:
    """Return the figure as an opaque palette PNG without metadata, in as many colors as fit ``limit``
    bytes.

    The same figure gives the same bytes each time on one machine. Raises ``ValueError`` when 32 colors are
    still too large.
    """
    buffer = io.BytesIO()
    fig.savefig(
        buffer,
        format="png",
        dpi=dpi,
        facecolor="white",
        metadata={"Software": None},
        pil_kwargs={"compress_level": 1},
    )
    picture = Image.open(buffer).convert("RGB")
    for colors in _COLOR_COUNTS:
        packed = io.BytesIO()
        quantized = picture.quantize(colors, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        quantized.save(packed, format="PNG", optimize=True)
        if packed.tell() <= limit:
            return packed.getvalue()
    raise ValueError(
        f"{name} must fit {limit:,} bytes as a PNG; got {packed.tell():,} at {picture.width} x "
        f"{picture.height} pixels: draw fewer marks or a smaller figure"
    )


def encode(png: bytes) -> str:
    """Return PNG bytes as the base64 text that notebooks and data addresses hold."""
    return base64.b64encode(png).decode("ascii")


def pixel_size(png: bytes) -> tuple[int, int]:
    """Return (width, height) of PNG bytes in pixels."""
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")
