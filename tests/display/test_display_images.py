"""Pictures and sliders in a notebook: small, the same each time, right in every form."""

import base64
import io
import re
import sys
import types
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
from bs4 import BeautifulSoup
from IPython.core.formatters import DisplayFormatter
from nbclient import NotebookClient
from PIL import Image

from headsandstates.sliders import FRAME_BYTES, Slider, stacked
from ssmbook import display
from ssmbook.display.images import FIGURE_BYTES, render

VIEW = "application/vnd.jupyter.widget-view+json"
VALUES = [0.5, 0.9, 1, "∞ <&>"]
ROOT = Path(__file__).parents[2]


def opened(png):
    return Image.open(io.BytesIO(png))


def panels(**options):
    fig, axes = display.figure(ncols=2, **options)
    for ax in axes:
        ax.plot([0, 1])
    return fig


def test_a_narrow_page_gets_the_panels_one_below_the_other():
    png = render(panels(width_ratios=(1, 2)), dpi=96, limit=FIGURE_BYTES)
    whole, narrow = (opened(data).convert("RGB") for data in (png, stacked(png)))
    cut = int(opened(png).info["ssmbook-cuts"])
    assert narrow.height == 2 * whole.height and narrow.width == whole.width - cut
    left = narrow.crop((0, 0, cut, whole.height))
    assert left.tobytes() == whole.crop((0, 0, cut, whole.height)).tobytes()


def test_what_has_one_panel_or_a_common_title_is_not_cut():
    fig, ax = display.figure(size="panel")
    fig.colorbar(ax.imshow(np.eye(3)), ax=ax)
    titled = panels()
    titled.suptitle("one title over both of the panels")
    assert all(stacked(render(each, dpi=96, limit=FIGURE_BYTES)) is None for each in (fig, titled))


def draw(value):
    fig, ax = display.figure(size="slider")
    height = 2.0 if isinstance(value, str) else value
    ax.bar([0, 1], [height, height**2])
    ax.set_ylim(0, 5)
    return fig


def words(value):
    return f'two bars at rho = {value}, "high" & <wide>'


def build(**options):
    return Slider("ρ", VALUES, draw, words, **{"name": "toy", "start": 1, **options})


@pytest.fixture(scope="module")
def slider():
    return build()


def html_form(slider):
    return BeautifulSoup(slider._repr_mimebundle_()[0]["text/html"], "html.parser")


def test_every_form_is_in_one_bundle_the_same_each_time(slider):
    data, metadata = slider._repr_mimebundle_()
    assert set(data) == {"text/plain", "text/html", "image/png", VIEW} and metadata == {"alt": words(0.9)}
    assert base64.b64decode(data["image/png"]) == slider.frames[1]
    assert data["text/plain"].splitlines() == [
        "Slider ρ: 4 values, starts at 0.9",
        *[f"ρ = {value}: {words(value)}" for value in VALUES],
    ]
    again = build()._repr_mimebundle_()[0]
    assert again.pop(VIEW) != data[VIEW] and again.items() <= data.items()
    assert all(opened(frame).mode == "P" for frame in slider.frames)  # a palette
    assert len(set(slider.frames)) == len(VALUES) and max(map(len, slider.frames)) <= FRAME_BYTES


def test_html_is_accessible(slider):
    soup = html_form(slider)
    (figure,), (control,) = soup.select("figure.ssm-slider"), soup.find_all("input")
    assert figure["id"] == "ssm-slider-toy"
    assert (control["type"], control["min"], control["max"], control["value"]) == ("range", "0", "3", "1")
    assert control["aria-valuetext"] == "0.9" and control.has_attr("disabled")
    assert figure.label["for"] == control["id"] and figure.output["for"] == [control["id"]]
    assert [image["alt"] for image in figure.find_all("img")] == [words(value) for value in VALUES]
    rows = figure.select(".ssm-slider-frames > div")
    assert [row["data-value"] for row in rows] == [str(value) for value in VALUES]
    assert [row.get("style", "") for row in rows] == ["display:none", "", "display:none", "display:none"]
    assert soup.find("script") is None and "http" not in str(soup)


def test_names_are_chosen_from_a_menu():
    slider = Slider("layer", ["SSD", "RNN <&>"], draw, words, name="menu", start=1, live="layers")
    soup = html_form(slider)
    menu = soup.find("select")
    assert soup.label["for"] == menu["id"] and menu.has_attr("disabled") and not soup.output
    assert [option.get_text() for option in soup.find_all("option")] == slider.value_texts
    assert [option["value"] for option in soup.find_all("option", selected=True)] == ["1"]
    assert [row["data-number"] for row in soup.select(".ssm-slider-frames > div")] == ["0.0", "1.0"]
    control, frame = slider.widget.children
    assert type(control).__name__ == "Dropdown" and control.label == "RNN <&>"
    control.index = 0
    assert words("SSD") in BeautifulSoup(frame.value, "html.parser").get_text()
    for values in (["1", "2"], {"zero": 0, "pi": 3.14}, [1, "2"]):  # numbers under whatever name
        assert html_form(Slider("ρ", values, lambda _: draw(1), words, name="toy")).input


def test_the_live_slider_moves_the_frame():
    slider = build()
    control, frame = slider.widget.children
    for i in (3, 0, 1, 2):
        control.index = i
        shown = BeautifulSoup(frame.value, "html.parser")
        assert shown.img["alt"] == shown.get_text() == words(VALUES[i])
        assert base64.b64decode(shown.img["src"].partition(",")[2]) == slider.frames[i]


def test_colab_gets_the_widget_alone_and_others_every_form(slider, monkeypatch):
    formatter = DisplayFormatter()
    assert set(formatter.format(slider)[0]) == {"text/plain", "text/html", "image/png", VIEW}
    monkeypatch.setitem(sys.modules, "google.colab", types.ModuleType("google.colab"))
    assert set(formatter.format(slider)[0]) == {"text/plain", VIEW}


def test_panels_are_apart_and_together_are_the_frame():
    slider = Slider("ρ", [1, 2], lambda value: panels(size="slider"), words, name="two")
    row = html_form(slider).select_one(".ssm-slider-frames > div")
    parts = [base64.b64decode(image["src"].partition(",")[2]) for image in row.find_all("img")]
    left, right, whole = (np.asarray(opened(png).convert("RGB")) for png in (*parts, slider.frames[0]))
    assert np.array_equal(np.concatenate([left, right], axis=1), whole)


CELLS = [
    "from ssmbook import display\nimport matplotlib.pyplot as plt\ndisplay.use_style()",
    "fig, ax = plt.subplots()\nline = ax.plot([0, 1])\ndisplay.show(fig, alt=f'a line from {0} to {1:.3f}')",
    "display.table([['a', 0.5]], ['name', 'value'])",
]


def test_a_notebook_shows_a_picture_once_with_its_words(tmp_path):
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    NotebookClient(book, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [cell.outputs for cell in book.cells]
    assert [len(output) for output in outputs] == [0, 1, 1]
    shown, table = outputs[1][0], outputs[2][0]
    assert set(shown.data) == {"image/png", "text/plain"}
    assert shown.data["text/plain"] == shown.metadata["alt"] == "a line from 0 to 1.000"
    width, height = opened(base64.b64decode(shown.data["image/png"])).size
    assert shown.metadata["image/png"] == {"width": width // 2, "height": height // 2}
    assert set(table.data) == {"text/plain", "text/html", "text/markdown"}
    assert plt.get_fignums() == []


@pytest.mark.parametrize("path", sorted((ROOT / "chapters").rglob("*.ipynb")), ids=lambda path: path.stem)
def test_every_picture_of_a_chapter_is_small_and_has_words(path):
    """The words are one line of 20 characters or more; a file is at most 150 kB, a slider's frame 60 kB."""
    for cell in nbformat.read(path, as_version=4).cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                alt, size = output.metadata["alt"], len(base64.b64decode(data["image/png"]))
                assert len(alt) >= 20 and alt == alt.strip() and "\n" not in alt, alt
                assert size <= (FRAME_BYTES if "Slider " in data["text/plain"][:7] else FIGURE_BYTES), alt
                frames = re.findall(r'base64,([^"]+)"', "".join(data.get("text/html", "")))
                assert all(len(base64.b64decode(frame)) <= FRAME_BYTES for frame in frames), alt
