"""The slider: one bundle, the same each time, right in every form."""

import base64
import io
import json
import re
import sys
import types
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from bs4 import BeautifulSoup
from IPython.core.formatters import DisplayFormatter
from PIL import Image

from ssmbook import display
from ssmbook.display._slider import FRAME_BYTES, FRAME_COUNT

VIEW = "application/vnd.jupyter.widget-view+json"
UNSEEN = "display:none"
VALUES = [0.5, 0.9, 1, "∞ <&>"]
ASSETS = Path(__file__).parents[2] / "chapters" / "assets"


def draw(value):
    fig, ax = display.figure(size="slider")
    height = 2.0 if isinstance(value, str) else value
    ax.bar([0, 1], [height, height**2])
    ax.set_ylim(0, 5)
    return fig


def words(value):
    return f'two bars at rho = {value}, "high" & <wide>'


def build(**options):
    return display.Slider("ρ", VALUES, draw, words, **{"name": "toy", "start": 1, **options})


@pytest.fixture(scope="module")
def slider():
    return build()


def html_form(slider):
    return slider._repr_mimebundle_()[0]["text/html"]


def test_bundle_keys_and_metadata(slider):
    data, metadata = slider._repr_mimebundle_()
    assert set(data) == {"text/plain", "text/html", "image/png", VIEW}
    assert data[VIEW]["model_id"] == slider.widget.model_id
    assert base64.b64decode(data["image/png"]) == slider.frames[1]
    assert metadata == {"alt": words(0.9)}


def test_text_lists_label_values_and_every_alt(slider):
    assert slider._repr_mimebundle_()[0]["text/plain"].splitlines() == [
        "Slider ρ: 4 values, starts at 0.9",
        *[f"ρ = {value}: {words(value)}" for value in VALUES],
    ]


def test_two_builds_are_byte_identical_but_for_the_widget_id(slider):
    for options in ({}, {"name": None}):
        one, two = (build(**options)._repr_mimebundle_()[0] for _ in range(2))
        assert one.pop(VIEW) != two.pop(VIEW)
        assert one == two
    assert slider._repr_mimebundle_() == slider._repr_mimebundle_()
    assert slider.widget.model_id not in html_form(slider)


def test_html_is_well_formed_and_accessible(slider):
    soup = BeautifulSoup(html_form(slider), "html.parser")
    (figure,) = soup.find_all("figure", class_="ssm-slider")
    assert figure["id"] == "ssm-slider-toy"
    (control,) = figure.find_all("input")
    assert (control["type"], control["min"], control["max"], control["value"]) == ("range", "0", "3", "1")
    assert control["aria-valuetext"] == "0.9" and control.has_attr("disabled")
    assert figure.label["for"] == control["id"] and figure.label.text == "ρ"
    assert figure.output["for"] == [control["id"]] and figure.output.text == "0.9"
    images = figure.find_all("img")
    assert [image["alt"] for image in images] == [words(value) for value in VALUES]
    rows = figure.select(".ssm-slider-frames > div")
    assert [row["data-value"] for row in rows] == [str(value) for value in VALUES]
    assert [row.get("style", "") for row in rows] == [UNSEEN, "", UNSEEN, UNSEEN]
    assert not soup.find_all(hidden=True)
    assert [base64.b64decode(image["src"].partition(",")[2]) for image in images] == slider.frames
    assert {(image["width"], image["height"]) for image in images} == {("660", "330")}
    ids = [tag["id"] for tag in soup.find_all(id=True)]
    assert len(ids) == len(set(ids)) == 2
    assert soup.find("script") is None and "http" not in html_form(slider)


def test_html_tags_are_balanced(slider):
    html = html_form(slider)
    for tag in ("figure", "div", "label", "output"):
        assert len(re.findall(f"<{tag}[ >]", html)) == html.count(f"</{tag}>")


def test_live_slider_moves_the_frame():
    slider = build()
    control, frame = slider.widget.children
    assert [label for label, _ in control.options] == [str(value) for value in VALUES]
    assert control.description == "ρ" and control.index == 1
    for i in (3, 0, 1, 2):
        control.index = i
        shown = BeautifulSoup(frame.value, "html.parser")
        image = shown.img
        assert image["alt"] == shown.get_text() == words(VALUES[i])
        assert base64.b64decode(image["src"].partition(",")[2]) == slider.frames[i]


def test_the_frame_on_loading_names_the_live_handle(slider):
    """What the browser is told; that it does it is seen in a browser."""
    control, frame = slider.widget.children
    for i in (1, 3):
        control.index = i
        script = BeautifulSoup(frame.value, "html.parser").img["onload"]
        said = json.loads(re.search(r"\{.*?\}", script)[0])
        assert said["aria-label"] == "ρ" and said["aria-valuetext"] == str(VALUES[i])
        assert [said[f"aria-value{word}"] for word in ("min", "now", "max")] == ["0", str(i), "3"]
    control.index = slider.start


def test_frames_differ_and_fit_the_budget(slider):
    assert len(set(slider.frames)) == len(VALUES)
    assert max(map(len, slider.frames)) <= FRAME_BYTES == 60_000


def test_a_sentence_says_where_the_slider_moves(slider):
    (note,) = BeautifulSoup(html_form(slider), "html.parser").find_all("p")
    assert note["class"] == ["ssm-slider-note"]
    assert note.text.startswith("ρ = 0.9;") and "once its cell has run" in note.text


def test_colab_gets_the_widget_alone_and_others_every_form(slider, monkeypatch):
    """Asked as IPython asks: its formatters add what methods of their own names return."""
    formatter = DisplayFormatter()
    assert set(formatter.format(slider)[0]) == {"text/plain", "text/html", "image/png", VIEW}
    monkeypatch.setitem(sys.modules, "google.colab", types.ModuleType("google.colab"))
    assert set(formatter.format(slider)[0]) == {"text/plain", VIEW}


def test_value_texts_of_floats_ints_tensors_and_strings():
    import torch

    values = [0.1 + 0.2, 1e-5, torch.tensor(0.25), np.int64(3), True, "two"]
    slider = display.Slider("Δ", values, lambda v: draw(1), lambda v: "always the same picture, 1")
    assert slider.value_texts == ["0.3", "1e-05", "0.25", "3", "yes", "two"] and slider.start == 0
    assert re.fullmatch("[0-9a-f]{8}", slider.name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": [1]}, "values must hold 2 to 40 values; got 1"),
        ({"values": range(FRAME_COUNT + 1)}, "values must hold 2 to 40 values; got 41"),
        ({"values": [1, 1.0]}, "values must differ as text"),
        ({"label": r"$\rho$"}, "label must be one line of plain Unicode"),
        ({"label": " "}, "label must be"),
        ({"name": "Rho slider"}, "name must be lower-case"),
        ({"start": 2}, "start must be between 0 and 1; got 2"),
        ({"start": -1}, "start must be between 0 and 1; got -1"),
        ({"alt": lambda value: "short"}, r"alt\(1\) must say what the figure shows"),
        ({"draw": lambda value: display.figure(size=(value, 2))[0]}, "draw must return figures of one size"),
    ],
)
def test_bad_arguments_are_named(change, message):
    arguments = {
        "label": "ρ",
        "values": [1, 2],
        "draw": draw,
        "alt": words,
        "name": "x",
        "start": 0,
        **change,
    }
    with pytest.raises(ValueError, match=message):
        display.Slider(**arguments)
    with pytest.raises(TypeError, match="values must be a sequence of values; got set"):
        display.Slider(**{**arguments, "values": {1, 2}})


def test_wrong_types_are_named():
    with pytest.raises(TypeError, match="label must be a str; got int"):
        display.Slider(1, [1, 2], draw, words)
    with pytest.raises(TypeError, match="start must be an int; got float"):
        display.Slider("ρ", [1, 2], draw, words, start=0.0)
    with pytest.raises(TypeError, match="draw must be a function of the value; got NoneType"):
        display.Slider("ρ", [1, 2], None, words)
    with pytest.raises(TypeError, match="alt must be a function of the value; got str"):
        display.Slider("ρ", [1, 2], draw, "words")
    with pytest.raises(TypeError, match=r"draw\(1\) must be a matplotlib Figure; got NoneType"):
        display.Slider("ρ", [1, 2], lambda value: None, words)
    with pytest.raises(TypeError, match=r"alt\(1\) must be a str; got float"):
        display.Slider("ρ", [1, 2], draw, lambda value: 1.0)


def test_heavy_frame_is_refused_and_pyplot_figures_are_closed():
    def noisy(value):
        fig, ax = plt.subplots(figsize=(6, 3))
        ax.imshow(np.random.default_rng(0).random((600, 1200, 3)), aspect="auto")
        return fig

    with pytest.raises(ValueError, match=r"draw\(1\) must fit 60,000 bytes"):
        display.Slider("ρ", [1, 2], noisy, words)
    assert plt.get_fignums() == []


def test_script_and_style_speak_of_what_the_html_holds(slider):
    soup = BeautifulSoup(html_form(slider), "html.parser")
    script = (ASSETS / "slider.js").read_text(encoding="utf-8")
    for selector in re.findall(r'querySelector(?:All)?\("([^"]+)"\)', script):
        assert soup.select(selector), selector
    style = (ASSETS / "slider.css").read_text(encoding="utf-8")
    assert set(re.findall(r"\.(ssm-slider[a-z-]*)", style)) <= set(
        re.findall(r'class="([a-z-]+)"', str(soup))
    )
    for text in (script, style):
        assert "://" not in text and "import" not in text.replace("!important", "")
    assert len(script) < 2000


def two_panels(value):
    fig, axes = display.figure(ncols=2, size="slider")
    for ax in axes:
        ax.plot([0, value], [0, 1])
        ax.set_ylabel("label")
    return fig


def test_panels_stand_apart_and_together_are_the_frame():
    slider = display.Slider("ρ", [1, 2], two_panels, words, name="two")
    soup = BeautifulSoup(html_form(slider), "html.parser")
    for row, frame in zip(soup.select(".ssm-slider-frames > div"), slider.frames, strict=True):
        parts = [base64.b64decode(image["src"].partition(",")[2]) for image in row.find_all("img")]
        assert len(parts) == 2
        left, right, whole = (np.asarray(Image.open(io.BytesIO(p)).convert("RGB")) for p in (*parts, frame))
        assert np.array_equal(np.concatenate([left, right], axis=1), whole)
        assert (left[:, -1] == 255).all() and min(left.shape[1], right.shape[1]) > 0.4 * whole.shape[1]
    alts = [image["alt"] for image in soup.select("div[data-value='2'] img")]
    assert alts == [words(2), "Panel 2 of the same picture."]


def test_nothing_is_cut_through_a_common_title():
    def titled(value):
        fig = two_panels(value)
        fig.suptitle("one title over both of the panels")
        return fig

    slider = display.Slider("ρ", [1, 2], titled, words, name="two")
    assert html_form(slider).count("<img") == 2
