"""A figure in a notebook: a small picture with its words."""

from __future__ import annotations

import base64
import io

import matplotlib.pyplot as plt
from IPython.display import display
from matplotlib.figure import Figure
from PIL import Image, ImageChops, ImageStat, PngImagePlugin

PIXELS = 2  # of a picture for each pixel of the page, along each side: sharp on a dense screen too
FIGURE_DPI = PIXELS * 96
FIGURE_BYTES = 150_000
UNSEEN = 4.0  # the largest mean squared error (0 to 255) of a palette that nobody sees: 42 dB
CUTS = "ssmbook-cuts"  # the PNG's text chunk with the columns between panels that a narrow page may stack


def show(fig: Figure, *, alt: str) -> None:
    """Put a figure into the notebook once, as a PNG whose text form is its alternative text, and close it.

    ``alt`` describes in one line what the figure shows, with its numbers, computed: the
    notebook test compares it, so a number that moves is found.
    """
    png = render(fig, dpi=FIGURE_DPI, limit=FIGURE_BYTES)
    metadata = {"alt": alt, "image/png": page_size(png)}  # else Jupyter shows every pixel, twice too large
    display({"image/png": encode(png), "text/plain": alt}, metadata=metadata, raw=True)


def render(fig: Figure, *, dpi: int, limit: int) -> bytes:
    """Return a figure as a palette PNG, in as few colors as look the same, and close it.

    More than 32 colors only if they fit into ``limit`` bytes. The same figure gives the
    same bytes each time on one machine.
    """
    buffer = io.BytesIO()
    fig.savefig(buffer, format="png", dpi=dpi, facecolor="white", pil_kwargs={"compress_level": 1})
    plt.close(fig)
    picture = Image.open(buffer).convert("RGB")
    notes = PngImagePlugin.PngInfo()
    if cuts := panel_cuts(fig, picture):
        notes.add_text(CUTS, " ".join(map(str, cuts)))
    packed = b""
    for colors in (32, 64, 128, 256):
        quantized = picture.quantize(colors, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        more = png_bytes(quantized, notes)
        if packed and len(more) > limit:
            break
        packed = more
        difference = ImageStat.Stat(ImageChops.difference(picture, quantized.convert("RGB")))
        if sum(rms**2 for rms in difference.rms) / 3 <= UNSEEN:
            break
    return packed


def panel_cuts(fig: Figure, picture: Image.Image) -> list[int]:
    """Return where a figure may be cut: columns of white pixels between the panels of its only row.

    A color bar belongs to its panel. Nothing is cut where something crosses a gap, such as
    a common title. An attribute ``stacks`` of the figure names the panels before which it
    may be cut; without it, all.
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


def png_bytes(picture: Image.Image, notes: PngImagePlugin.PngInfo | None = None) -> bytes:
    """Return a picture as a PNG, as small as it gets, with notes beside it."""
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
