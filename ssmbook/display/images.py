"""A figure, or one figure for every value of a parameter, in a notebook: small pictures with their words."""

from __future__ import annotations

import base64
import html
import io
import json
import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import ipywidgets
import matplotlib.pyplot as plt
from IPython.display import display
from matplotlib.figure import Figure
from PIL import Image, ImageChops, ImageStat, PngImagePlugin

from ssmbook.display.tables import number

PIXELS = 2  # of a picture for each pixel of the page, along each side: sharp on a dense screen too
FIGURE_DPI = PIXELS * 96
FIGURE_BYTES = 150_000
FRAME_DPI = PIXELS * 110
FRAME_BYTES = 60_000
MARGIN = 12 * PIXELS  # rows that stay above and below what is drawn in a panel of a stack
UNSEEN = 4.0  # the largest mean squared error (0 to 255) of a palette that nobody sees: 42 dB
CUTS = "ssmbook-cuts"  # the PNG's text chunk with the columns between panels that a narrow page may stack
# Notebook viewers drop the attribute `hidden` of outputs that they do not trust, and would
# show every frame.
_HIDDEN = ' style="display:none"'
_VIEW = "application/vnd.jupyter.widget-view+json"


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
        more = _bytes(quantized, notes)
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


class Slider:
    """A figure with one parameter to move, drawn beforehand for every value of it.

    As the last expression of a cell it is a live slider where a kernel runs, and a figure
    with an ``<input type="range">`` in the built page. Its text form lists every value with
    its alternative text, so that the notebook test checks all numbers.

    Parameters
    ----------
    label : str
        The parameter's name (Unicode such as ρ, no LaTeX).
    values : sequence or dict
        Its values, numbers or text, or texts with their numbers. Names, texts that hold more
        than a number, are chosen from a menu.
    draw : callable
        A value to a figure, all of one size (``figure(size="slider")``).
    alt : callable
        A value to the alternative text of its figure, one line with numbers.
    name : str
        Becomes the HTML id.
    start : int, default 0
        The index of the value that is shown first.
    live : str, optional
        A view of ``ssmbook/display/lab.js``, which on the book's page draws the same for
        every number between the first value and the last, or for every name; its words at a
        value are those of ``alt``.
    given : dict, list or number, optional
        What that view needs beside the number.

    Raises
    ------
    ValueError
        If figures differ in size.

    Examples
    --------
    >>> def draw(rho):
    ...     fig, ax = figure(size="slider")
    ...     ax.plot(rho ** torch.arange(20))
    ...     return fig
    >>> def words(rho):
    ...     return f"A decay: after ten steps {rho**10:.3f} is left."
    >>> Slider("ρ", [0.5, 0.9], draw, words, name="decay")
    Slider ρ: 2 values, starts at 0.5
    ρ = 0.5: A decay: after ten steps 0.001 is left.
    ρ = 0.9: A decay: after ten steps 0.349 is left.
    """

    def __init__(
        self,
        label: str,
        values: Sequence[Any] | dict[str, float],
        draw: Callable[[Any], Figure],
        alt: Callable[[Any], str],
        *,
        name: str,
        start: int = 0,
        live: str | None = None,
        given: dict[str, Any] | list[Any] | float | None = None,
    ) -> None:
        self.label, self.values, self.name, self.start, self.live = label, list(values), name, start, live
        self.numbers, self.given = list(values.values() if isinstance(values, dict) else values), given
        self.named = not any(map(_is_number, self.numbers))
        self.value_texts = [_value_text(value) for value in self.values]
        self.alts = [alt(value) for value in self.values]
        self.frames = [render(draw(value), dpi=FRAME_DPI, limit=FRAME_BYTES) for value in self.values]
        if len(sizes := {pixel_size(frame) for frame in self.frames}) > 1:
            raise ValueError(f"draw must return figures of one size; got {sorted(sizes)} pixels")

    def __repr__(self) -> str:
        head = f"Slider {self.label}: {len(self.values)} values, starts at {self.value_texts[self.start]}"
        rows = zip(self.value_texts, self.alts, strict=True)
        return "\n".join([head, *(f"{self.label} = {text}: {alt}" for text, alt in rows)])

    @cached_property
    def widget(self) -> ipywidgets.VBox:
        """The live form: ``SelectionSlider`` or ``Dropdown`` above an ``HTML`` with the frame and its alt."""
        control = ipywidgets.Dropdown if self.named else ipywidgets.SelectionSlider
        slider = control(
            options=[(text, i) for i, text in enumerate(self.value_texts)],
            index=self.start,
            description=self.label,
            style={"description_width": "initial"},
            layout={"width": "min(100%, 480px)"},
        )
        frame = ipywidgets.HTML(self._live_frame(self.start))
        slider.observe(lambda change: setattr(frame, "value", self._live_frame(change["new"])), "value")
        return ipywidgets.VBox([slider, frame])

    def _live_frame(self, index: int) -> str:
        """The frame of the live slider above its words; on loading it names the handle for screen readers.

        ipywidgets gives the handle of a slider no name and no value but its index, and no
        way to set them.
        """
        said = {
            "role": "slider",
            "aria-label": self.label,
            "aria-valuetext": self.value_texts[index],
            "aria-valuemin": 0,
            "aria-valuemax": len(self.values) - 1,
            "aria-valuenow": index,
        }
        script = (
            "const handle = this.closest('.widget-vbox')?.querySelector('.noUi-handle, .ui-slider-handle');"
            f" Object.entries({json.dumps(said)}).forEach(([key, value]) => handle?.setAttribute(key, value))"
        )
        images = self._images(index, f' onload="{html.escape(script)}"')
        return f"{images}<div>{html.escape(self.alts[index])}</div>"

    def _images(self, index: int, attributes: str = "") -> str:
        """A frame's panels, the first with the words for all of them."""
        tags = ""
        for k, part in enumerate(panels(self.frames[index]), 1):
            alt = f"Panel {k} of the same picture." if tags else self.alts[index]
            width, height = page_size(part).values()
            tags += (
                f'<img src="data:image/png;base64,{encode(part)}" width="{width}" height="{height}" '
                f'alt="{html.escape(alt)}"{"" if k > 1 else attributes}>'
            )
        return tags

    def _html(self) -> str:
        """The form of a page; not named ``_repr_html_``, which IPython would add to every bundle."""
        base, label, start = f"ssm-slider-{self.name}", html.escape(self.label), self.start
        texts = [html.escape(text) for text in self.value_texts]
        view = f' data-lab="{html.escape(self.live)}"' if self.live else ""
        if self.given is not None:
            given = html.escape(json.dumps(self.given), quote=False).replace("'", "&#x27;")
            view += f" data-given='{given}'"
        numbers = range(len(texts)) if self.named else self.numbers
        numbers = [f' data-number="{float(value)!r}"' if view else "" for value in numbers]
        frames = "\n".join(
            f'<div data-value="{text}"{numbers[i]}{"" if i == start else _HIDDEN}>{self._images(i)}</div>'
            for i, text in enumerate(texts)
        )
        moves = "slider moves"
        control = (
            f'<input id="{base}-input" type="range" min="0" max="{len(texts) - 1}" step="1" '
            f'value="{start}" aria-valuetext="{texts[start]}" autocomplete="off" disabled>\n'
            f'<output for="{base}-input" aria-live="off">{texts[start]}</output>'
        )
        if self.named:
            chosen = [" selected" if i == start else "" for i in range(len(texts))]
            options = [f'<option value="{i}"{chosen[i]}>{text}</option>' for i, text in enumerate(texts)]
            control = f'<select id="{base}-input" autocomplete="off" disabled>{"".join(options)}</select>'
            moves = "menu opens"
        return (
            f'<figure class="ssm-slider" id="{base}"{view}>\n'
            f'<div class="ssm-slider-frames" aria-live="polite">\n{frames}\n</div>\n'
            f'<div class="ssm-slider-control">\n<label for="{base}-input">{label}</label>\n{control}\n'
            f'</div>\n<p class="ssm-slider-note">{label} = {texts[start]}; the {moves} on the book\'s page, '
            f"with JavaScript, and in Jupyter once its cell has run.</p>\n</figure>"
        )

    def _repr_mimebundle_(self, include=None, exclude=None):
        view = {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}
        data = {"text/plain": repr(self), _VIEW: view}
        # Colab chooses among the forms by rules of its own, without our script: it gets the
        # widget alone.
        if "google.colab" not in sys.modules:
            data |= {"text/html": self._html(), "image/png": encode(self.frames[self.start])}
        return data, {"alt": self.alts[self.start]}


def _is_number(value) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _value_text(value) -> str:
    value = value.item() if hasattr(value, "item") else value
    return f"{value:.6g}" if isinstance(value, float) else number(value)
