"""From a figure to bytes: deterministic palette PNGs within a size budget, and the checks of their words."""

from __future__ import annotations

import base64
import io
import re

from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image, ImageChops, ImageStat, PngImagePlugin

from ssmbook.display._style import PAGE_WIDTH, SMALLEST_PT

PIXELS = 2
"""Pixels of a picture for each pixel of the page, along each side: sharp on a dense screen too."""
FIGURE_DPI = PIXELS * 96
FIGURE_BYTES = 150_000
CUTS = "ssmbook-cuts"
"""The PNG's text chunk with the places, in pixels, between panels that a narrow page may stack."""
MARGIN = 12 * PIXELS
"""Rows that stay above and below what is drawn in a panel of a stack."""
_COLOR_COUNTS = (32, 64, 128, 256)
_UNSEEN = 4.0
"""Mean squared error, of 255 squared, that nobody sees in a palette: 42 dB."""


def check_alt(name: str, alt) -> None:
    """Refuse an alternative text that says nothing: no ``str``, too short, several lines, a file name."""
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
    """Refuse all but a figure with text of ``SMALLEST_PT`` points or more at the width of the page."""
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
    """Return the figure as an opaque palette PNG, in as few colors as look the same.

    Never in so many that it exceeds ``limit`` bytes; ``ValueError`` when 32 colors do. Its only note says
    where its panels part. The same figure gives the same bytes each time on one machine.
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
    notes = PngImagePlugin.PngInfo()
    if cuts := panel_cuts(fig, picture):
        notes.add_text(CUTS, " ".join(map(str, cuts)))
    packed = b""
    for colors in _COLOR_COUNTS:
        quantized = picture.quantize(colors, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        more = _bytes(quantized, notes)
        if packed and len(more) > limit:
            break
        packed = more
        if _squared_error(picture, quantized) <= _UNSEEN:
            break
    if len(packed) > limit:
        raise ValueError(
            f"{name} must fit {limit:,} bytes as a PNG; got {len(packed):,} at {picture.width} x "
            f"{picture.height} pixels: draw fewer marks or a smaller figure"
        )
    return packed


def _squared_error(picture: Image.Image, quantized: Image.Image) -> float:
    """Return the mean squared difference over pixels and channels, each from 0 to 255."""
    difference = ImageStat.Stat(ImageChops.difference(picture, quantized.convert("RGB")))
    return sum(rms**2 for rms in difference.rms) / 3


def panel_cuts(fig: Figure, picture: Image.Image) -> list[int]:
    """Return the columns of white pixels between the panels of a figure with one row of them, else nothing.

    A color bar belongs to its panel. Nothing is cut where anything, a common title say, crosses the gap. An
    attribute ``stacks`` of the figure names the columns before which it may be cut; without it, all.
    """
    columns: dict[int, list] = {}
    for ax in fig.axes:
        owner = getattr(ax, "_colorbar_info", {}).get("parents", [ax])[0]
        place = owner.get_subplotspec()
        if place is None or place.get_gridspec().nrows != 1:
            return []
        starts = getattr(fig, "stacks", range(1, place.get_gridspec().ncols))
        part = sum(place.colspan.start >= first for first in starts)
        if (box := ax.get_tightbbox()) is not None:
            columns.setdefault(part, []).append(box)
    scale = picture.width / fig.bbox.width
    spans = [(min(b.x0 for b in boxes), max(b.x1 for b in boxes)) for _, boxes in sorted(columns.items())]
    cuts = [round(scale * (left[1] + right[0]) / 2) for left, right in zip(spans, spans[1:], strict=False)]
    white = all(picture.crop((x, 0, x + 1, picture.height)).getextrema() == ((255, 255),) * 3 for x in cuts)
    return cuts if white else []


def panels(png: bytes) -> list[bytes]:
    """Return the panels of a picture, from left to right, as PNG bytes."""
    picture = Image.open(io.BytesIO(png))
    cuts = [int(x) for x in picture.info.get(CUTS, "").split()]
    if not cuts:
        return [png]
    edges = zip([0, *cuts], [*cuts, picture.width], strict=True)
    return [_bytes(picture.crop((left, 0, right, picture.height))) for left, right in edges]


def stacked(png: bytes) -> bytes | None:
    """Return the panels of a picture one below the other, for a narrow page; None where there is but one."""
    parts = [Image.open(io.BytesIO(part)).convert("RGB") for part in panels(png)]
    if len(parts) == 1:
        return None
    parts = [_trimmed(part) for part in parts]  # they were as high as the highest
    whole = Image.new("RGB", (max(part.width for part in parts), sum(part.height for part in parts)), "white")
    for i, part in enumerate(parts):
        whole.paste(part, (0, sum(p.height for p in parts[:i])))
    return _bytes(whole.quantize(256, dither=Image.Dither.NONE))


def _trimmed(picture: Image.Image) -> Image.Image:
    """A picture without the rows above and below what is drawn in it, but for a margin."""
    drawn = ImageChops.invert(picture).getbbox()
    if drawn is None:
        return picture
    rows = max(0, drawn[1] - MARGIN), min(picture.height, drawn[3] + MARGIN)
    return picture.crop((0, rows[0], picture.width, rows[1]))


def _bytes(picture: Image.Image, notes: PngImagePlugin.PngInfo | None = None) -> bytes:
    packed = io.BytesIO()
    picture.save(packed, format="PNG", optimize=True, pnginfo=notes)
    return packed.getvalue()


def encode(png: bytes) -> str:
    """Return PNG bytes as the base64 text that notebooks and data addresses hold."""
    return base64.b64encode(png).decode("ascii")


def page_size(png: bytes) -> dict[str, int]:
    """Return the width and height at which a page shows a picture, as notebooks note them beside it."""
    return dict(zip(("width", "height"), (pixels // PIXELS for pixels in pixel_size(png)), strict=True))


def pixel_size(png: bytes) -> tuple[int, int]:
    """Return (width, height) of PNG bytes in pixels."""
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")
