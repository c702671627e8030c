"""One slider for Jupyter, Colab, the static page and paper: a single object with a single MIME bundle."""

from __future__ import annotations

import hashlib
import html
import json
import re
import sys
from collections.abc import Callable, Sequence
from functools import cached_property

import ipywidgets
import matplotlib.pyplot as plt

from ssmbook._checks import check_integer, check_sequence
from ssmbook.display._png import (
    PIXELS,
    check_alt,
    check_figure,
    encode,
    page_size,
    panels,
    pixel_size,
    render,
)
from ssmbook.display._table import number

FRAME_DPI = PIXELS * 110
FRAME_BYTES = 60_000
FRAME_COUNT = 40
# Notebook viewers drop the attribute `hidden` of outputs that they do not trust, and would show every frame.
_UNSEEN = ' style="display:none"'
_VIEW = "application/vnd.jupyter.widget-view+json"


class Slider:
    """A figure with one parameter to move, drawn beforehand for every value of it.

    ``label`` names the parameter (Unicode such as ρ, no LaTeX); ``values`` are its 2 to 40 values (numbers
    or str, all different as text); ``draw(value)`` returns a matplotlib figure, all of one size
    (``figure(size="slider")``), each at most 60,000 bytes as a PNG, its panels stacked where the page is
    narrow; ``alt(value)`` returns its alternative text, one line with numbers, which stands under the frame
    as well; ``name`` (a-z, 0-9, hyphens) becomes the HTML id, once a page; ``start`` is the index of the
    value shown first.

    As the last expression of a cell it is a live slider where a kernel runs, and a figure with an ``<input
    type="range">`` in the built page; its ``text/plain`` form lists every value with its alternative text,
    so the notebook test checks all numbers. Attributes: ``value_texts``, ``alts``, ``frames`` (PNG bytes),
    ``widget``. Raises ``ValueError``/``TypeError`` for what breaks these rules. Introduced in
    *two-ways-to-mix*.

    >>> def draw(rho):
    ...     fig, ax = figure(size="slider")
    ...     ax.plot(rho ** torch.arange(20))
    ...     return fig
    >>> Slider("ρ", [0.5, 0.9], draw, lambda rho: f"A decay: after ten steps {rho**10:.3f} is left.")
    Slider ρ: 2 values, starts at 0.5
    ρ = 0.5: A decay: after ten steps 0.001 is left.
    ρ = 0.9: A decay: after ten steps 0.349 is left.
    """

    def __init__(
        self,
        label: str,
        values: Sequence,
        draw: Callable,
        alt: Callable[..., str],
        *,
        name: str | None = None,
        start: int = 0,
    ):
        values = check_sequence("values", values, "values")
        _check_words(label, name)
        for role, function in (("draw", draw), ("alt", alt)):
            if not callable(function):
                raise TypeError(f"{role} must be a function of the value; got {type(function).__name__}")
        if not 2 <= len(values) <= FRAME_COUNT:
            raise ValueError(f"values must hold 2 to {FRAME_COUNT} values; got {len(values)}")
        start = check_integer("start", start, low=0, high=len(values) - 1)
        self.label, self.values, self.start = label, values, start
        self.value_texts = [_value_text(value) for value in values]
        if len(set(self.value_texts)) < len(values):
            raise ValueError(f"values must differ as text; got {self.value_texts}")
        self.alts = [alt(value) for value in values]
        for text, words in zip(self.value_texts, self.alts, strict=True):
            check_alt(f"alt({text})", words)
        self.frames = [
            _frame(draw, value, text) for value, text in zip(values, self.value_texts, strict=True)
        ]
        _check_sizes(self.frames, self.value_texts)
        self.name = name or hashlib.sha256(repr(self).encode()).hexdigest()[:8]

    def __repr__(self) -> str:
        head = f"Slider {self.label}: {len(self.values)} values, starts at {self.value_texts[self.start]}"
        lines = [
            f"{self.label} = {text}: {alt}" for text, alt in zip(self.value_texts, self.alts, strict=True)
        ]
        return "\n".join([head, *lines])

    @cached_property
    def widget(self) -> ipywidgets.VBox:
        """The live form: a ``SelectionSlider`` above an ``HTML`` widget with the frame and its alt text."""
        slider = ipywidgets.SelectionSlider(
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

        ipywidgets gives the handle of a slider no name and no value but its index, and no way to set them.
        """
        said = {"role": "slider", "aria-label": self.label, "aria-valuetext": self.value_texts[index]}
        for word, value in (("min", 0), ("max", len(self.values) - 1), ("now", index)):
            said[f"aria-value{word}"] = str(value)
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
        frames = "\n".join(
            f'<div data-value="{text}"{"" if i == start else _UNSEEN}>{self._images(i)}</div>'
            for i, text in enumerate(texts)
        )
        return (
            f'<figure class="ssm-slider" id="{base}">\n'
            f'<div class="ssm-slider-frames" aria-live="polite">\n{frames}\n</div>\n'
            f'<div class="ssm-slider-control">\n<label for="{base}-input">{label}</label>\n'
            f'<input id="{base}-input" type="range" min="0" max="{len(texts) - 1}" step="1" value="{start}" '
            f'aria-valuetext="{texts[start]}" autocomplete="off" disabled>\n'
            f'<output for="{base}-input" aria-live="off">{texts[start]}</output>\n</div>\n'
            f'<p class="ssm-slider-note">{label} = {texts[start]}; the slider moves on the book\'s page, '
            f"with JavaScript, and in Jupyter once its cell has run.</p>\n</figure>"
        )

    def _repr_mimebundle_(self, include=None, exclude=None):
        view = {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}
        data = {"text/plain": repr(self), _VIEW: view}
        # Colab chooses among the forms by rules of its own, without our script: it gets the widget alone.
        if "google.colab" not in sys.modules:
            data |= {"text/html": self._html(), "image/png": encode(self.frames[self.start])}
        return data, {"alt": self.alts[self.start]}


def _check_words(label, name) -> None:
    if not isinstance(label, str):
        raise TypeError(f"label must be a str; got {type(label).__name__}")
    if not label.strip() or re.search(r"[$\\\n]", label):
        raise ValueError(f"label must be one line of plain Unicode, without LaTeX; got {label!r}")
    if name is not None and not (isinstance(name, str) and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)):
        raise ValueError(f"name must be lower-case letters, digits and hyphens; got {name!r}")


def _value_text(value) -> str:
    value = value.item() if hasattr(value, "item") else value
    return f"{value:.6g}" if isinstance(value, float) else number(value)


def _frame(draw, value, text) -> bytes:
    fig = draw(value)
    try:
        check_figure(f"draw({text})", fig)
        return render(f"draw({text})", fig, dpi=FRAME_DPI, limit=FRAME_BYTES)
    finally:
        if hasattr(fig, "savefig"):
            plt.close(fig)


def _check_sizes(frames, texts) -> None:
    sizes = [pixel_size(frame) for frame in frames]
    for size, text in zip(sizes, texts, strict=True):
        if size != sizes[0]:
            raise ValueError(
                f"draw must return figures of one size; got {sizes[0]} and, at {text}, {size} pixels"
            )
