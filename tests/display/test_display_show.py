"""One PNG, its words, and no second showing."""

import base64
import io

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image, ImageChops

from ssmbook import display
from ssmbook.display import _show
from ssmbook.display._png import _UNSEEN, FIGURE_BYTES, MARGIN, _trimmed, render, stacked

ALT = "a line that climbs from 0 to 1 over 5 tokens"


@pytest.fixture
def published(monkeypatch):
    calls = []
    monkeypatch.setattr(_show, "display", lambda data, **options: calls.append((data, options)))
    return calls


def line():
    fig, ax = display.figure()
    ax.plot(range(5), np.linspace(0, 1, 5))
    ax.set(xlabel="token", ylabel="gain")
    return fig


def test_show_publishes_one_picture_whose_text_is_the_alt(published):
    assert display.show(line(), alt=ALT) is None
    ((data, options),) = published
    assert set(data) == {"image/png", "text/plain"}
    assert data["text/plain"] == ALT
    image = Image.open(io.BytesIO(base64.b64decode(data["image/png"])))
    size = {"width": image.width // 2, "height": image.height // 2}  # drawn at twice the density of a page
    assert options == {"metadata": {"alt": ALT, "image/png": size}, "raw": True}
    assert image.format == "PNG" and image.mode == "P" and image.info == {}
    assert image.convert("RGB").getpixel((0, 0)) == (255, 255, 255)


def test_twenty_characters_say_something(published):
    display.show(line(), alt=20 * "a")
    assert len(published) == 1


def test_same_figure_same_bytes(published):
    display.show(line(), alt=ALT)
    display.show(line(), alt=ALT)
    assert published[0] == published[1]


def test_show_closes_pyplot_figures_and_only_that_one(published):
    kept, _ = plt.subplots()
    shown, ax = plt.subplots()
    plt.figure(kept.number)
    ax.plot([1, 2])
    display.show(shown, alt=ALT)
    assert plt.get_fignums() == [kept.number]
    plt.close(kept)


@pytest.mark.parametrize(
    "alt",
    [
        "",
        "   ",
        "short 1",
        19 * "a",
        "figure-one-of-chapter.png",
        "two lines of text,\nwith 2 numbers",
        " " + ALT,
    ],
)
def test_words_that_say_nothing_are_refused(published, alt):
    fig, _ = plt.subplots()
    with pytest.raises(ValueError, match="alt must"):
        display.show(fig, alt=alt)
    assert published == [] and plt.get_fignums() == []


def test_wrong_types(published):
    with pytest.raises(TypeError, match="alt must be a str; got int"):
        display.show(line(), alt=7)
    with pytest.raises(TypeError, match="fig must be a matplotlib Figure; got str"):
        display.show("fig", alt=ALT)
    with pytest.raises(TypeError):
        display.show(line())
    assert published == []


def test_small_text_is_refused_also_when_only_a_wide_figure_makes_it_small(published):
    fig = line()
    fig.axes[0].set_title("tiny", fontsize=8.5)
    with pytest.raises(ValueError, match="9 pt or more.*'tiny' at 8.5 pt"):
        display.show(fig, alt=ALT)
    fig, ax = display.figure(size=(14, 4))
    ax.set_title("fifteen points", fontsize=15)
    with pytest.raises(ValueError, match="in a figure 14 in wide"):
        display.show(fig, alt=ALT)
    assert published == []


def test_a_palette_differs_from_the_picture_by_what_nobody_sees():
    assert round(10 * np.log10(255**2 / _UNSEEN)) == 42  # decibel


def test_many_shades_get_a_palette_as_large_as_the_bytes_allow():
    fig, ax = display.figure(size="panel")
    ax.imshow(np.random.default_rng(0).random((40, 40, 3)))
    colors = [
        len(Image.open(io.BytesIO(render("fig", fig, dpi=130, limit=limit))).getcolors())
        for limit in (10**6, 6_500)
    ]
    assert 128 < colors[0] <= 256 and colors[1] < colors[0]


def test_noise_is_quantized_until_it_fits_and_refused_when_it_cannot():
    fig, ax = display.figure(size="panel")
    ax.imshow(np.random.default_rng(0).random((40, 40, 3)))
    png = render("fig", fig, dpi=130, limit=FIGURE_BYTES)
    assert len(png) <= FIGURE_BYTES
    fig, ax = display.figure(size="slider")
    ax.imshow(np.random.default_rng(0).random((900, 900, 3)))
    with pytest.raises(ValueError, match="fig must fit 60,000 bytes as a PNG; got .* at 780 x 390 pixels"):
        render("fig", fig, dpi=130, limit=60_000)


def test_a_narrow_page_gets_the_panels_one_below_the_other():
    fig, axes = display.figure(ncols=2)
    for ax in axes:
        ax.plot([0, 1])
    png = render("fig", fig, dpi=96, limit=FIGURE_BYTES)
    whole, narrow = (Image.open(io.BytesIO(data)).convert("RGB") for data in (png, stacked(png)))
    assert narrow.height == 2 * whole.height and narrow.width < 0.6 * whole.width
    cut = int(Image.open(io.BytesIO(png)).info["ssmbook-cuts"])
    left = narrow.crop((0, 0, cut, whole.height))
    assert left.tobytes() == whole.crop((0, 0, cut, whole.height)).tobytes()
    right = narrow.crop((0, whole.height, whole.width - cut, narrow.height))
    assert right.tobytes() == whole.crop((cut, 0, whole.width, whole.height)).tobytes()


def test_a_low_panel_leaves_no_gap_in_the_stack():
    fig, axes = display.figure(ncols=2, size=(6, 4))
    axes[0].plot([0, 1])
    axes[1].imshow(np.eye(9)[:1])
    axes[1].axis("off")
    png = render("fig", fig, dpi=96, limit=FIGURE_BYTES)
    whole, narrow = (Image.open(io.BytesIO(data)).convert("RGB") for data in (png, stacked(png)))
    low = narrow.crop((0, whole.height, *narrow.size))
    drawn = ImageChops.invert(low).getbbox()
    assert (
        drawn[1] == MARGIN == low.height - drawn[3] == 2 * 12
    )  # twelve rows of the page and low.height < whole.height / 3
    cut = int(Image.open(io.BytesIO(png)).info["ssmbook-cuts"])
    right = whole.crop((cut, 0, *whole.size))
    assert low.crop(drawn).tobytes() == right.crop(ImageChops.invert(right).getbbox()).tobytes()


def test_the_page_of_stacked_panels_is_as_wide_as_the_widest():
    fig, axes = display.figure(ncols=2, width_ratios=(1, 2))
    for ax in axes:
        ax.plot([0, 1])
    png = render("fig", fig, dpi=96, limit=FIGURE_BYTES)
    whole, narrow = (Image.open(io.BytesIO(data)) for data in (png, stacked(png)))
    cut = int(whole.info["ssmbook-cuts"])
    assert cut < whole.width - cut == narrow.width


def test_an_empty_panel_stays_as_it_is():
    empty = Image.new("RGB", (30, 200), "white")
    assert _trimmed(empty).size == (30, 200)


def test_a_single_panel_with_its_color_bar_is_not_cut():
    fig, ax = display.figure(size="panel")
    fig.colorbar(ax.imshow(np.eye(3)), ax=ax)
    assert stacked(render("fig", fig, dpi=96, limit=FIGURE_BYTES)) is None
