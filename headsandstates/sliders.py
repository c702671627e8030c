"""One figure for every value of a parameter, in a notebook and on a page; and panels for a narrow page."""

from __future__ import annotations

import html
import io
import json
import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import ipywidgets
from matplotlib.figure import Figure
from PIL import Image, ImageChops

from ssmbook.display import number
from ssmbook.display.images import CUTS, PIXELS, encode, page_size, pixel_size, png_bytes, render

__all__ = ["Slider"]

FRAME_DPI = PIXELS * 110
FRAME_BYTES = 60_000
MARGIN = 12 * PIXELS  # rows that stay above and below what is drawn in a panel of a stack
# Notebook viewers drop the attribute `hidden` of outputs that they do not trust, and would
# show every frame.
_HIDDEN = ' style="display:none"'
_VIEW = "application/vnd.jupyter.widget-view+json"


def panels(png: bytes) -> list[bytes]:
    """Return the panels of a picture, from left to right, as PNG bytes."""
    picture = Image.open(io.BytesIO(png))
    cuts = [int(x) for x in picture.info.get(CUTS, "").split()]
    if not cuts:
        return [png]
    edges = zip([0, *cuts], [*cuts, picture.width], strict=True)
    return [png_bytes(picture.crop((left, 0, right, picture.height))) for left, right in edges]


def stacked(png: bytes) -> bytes | None:
    """Return the panels of a picture one below the other, for a narrow page; None where there is but one."""
    parts = [Image.open(io.BytesIO(part)).convert("RGB") for part in panels(png)]
    if len(parts) == 1:
        return None
    parts = [_trimmed(part) for part in parts]  # they were as high as the highest
    whole = Image.new("RGB", (max(part.width for part in parts), sum(part.height for part in parts)), "white")
    for i, part in enumerate(parts):
        whole.paste(part, (0, sum(p.height for p in parts[:i])))
    return png_bytes(whole.quantize(256, dither=Image.Dither.NONE))


def _trimmed(picture: Image.Image) -> Image.Image:
    """A picture without the rows above and below what is drawn in it, but for a margin."""
    drawn = ImageChops.invert(picture).getbbox()
    if drawn is None:
        return picture
    rows = max(0, drawn[1] - MARGIN), min(picture.height, drawn[3] + MARGIN)
    return picture.crop((0, rows[0], picture.width, rows[1]))


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
        A view of ``headsandstates/lab/lab.js``, which on the book's page draws the same for
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
    >>> from ssmbook.display import figure
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
