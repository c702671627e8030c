"""The palette, measured: contrast on white, distance under three kinds of color blindness, text sizes."""

import itertools

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from ssmbook import display
from ssmbook.display._style import _STYLE, SMALLEST_PT, contrast_on_white, readable

# Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
BLINDNESS = {
    "none": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.01182, 0.04294, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.3039],
    ],
}
TO_XYZ = [
    [0.4124564, 0.3575761, 0.1804375],
    [0.2126729, 0.7151522, 0.072175],
    [0.0193339, 0.119192, 0.9503041],
]


def linear(color):
    c = np.array(to_rgb(color))
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    t = np.array(TO_XYZ) @ np.clip(rgb, 0, 1) / [0.95047, 1, 1.08883]
    f = np.where(t > 0.008856, np.cbrt(t), 7.787 * t + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.fixture(autouse=True)
def style():
    with matplotlib.rc_context():
        display.use_style()
        yield


def test_the_style_brings_its_color_maps():
    ours = (display.SEQUENTIAL.name, display.DIVERGING.name)
    kept = {name: matplotlib.colormaps[name] for name in ours if name in matplotlib.colormaps}
    for name in kept:
        matplotlib.colormaps.unregister(name)
    display.use_style()
    display.use_style()
    assert set(ours) <= set(matplotlib.colormaps)


@pytest.mark.parametrize("name", display.COLORS)
def test_every_line_color_stands_out_on_white(name):
    color = display.COLORS[name]
    luminance = float(linear(color) @ [0.2126, 0.7152, 0.0722])
    assert 1.05 / (luminance + 0.05) >= 3
    assert contrast_on_white(color) == pytest.approx(1.05 / (luminance + 0.05))
    assert contrast_on_white(readable(color)) >= 4.5


@pytest.mark.parametrize("kind", BLINDNESS)
def test_line_colors_differ_under_color_blindness(kind):
    colors = [c for name, c in display.COLORS.items() if name != "gray"]
    seen = [lab(np.array(BLINDNESS[kind]) @ linear(c)) for c in colors]
    nearest = min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2))
    assert nearest > 20


def test_cycle_gives_each_line_its_own_color_and_style():
    fig, ax = display.figure()
    lines = [ax.plot([0, 1], [0, k])[0] for k in range(6)]
    assert len({line.get_color() for line in lines}) == 6
    assert len({str(line._unscaled_dash_pattern) for line in lines}) == 6
    assert {line.get_color() for line in lines} <= set(display.COLORS.values())


def test_sequential_map_darkens_steadily_from_white():
    lightness = [lab(linear(display.SEQUENTIAL(t)[:3]))[0] for t in np.linspace(0, 1, 64)]
    assert (np.diff(lightness) < 0).all()
    assert display.SEQUENTIAL(0.0)[:3] == (1, 1, 1)
    assert display.DIVERGING(0.5)[:3] == pytest.approx((1, 1, 1))


def test_all_font_sizes_of_the_style_are_nine_points_or_more():
    sizes = {
        k: v
        for k, v in _STYLE.items()
        if k.endswith(("size",)) and k not in ("lines.markersize", "figure.figsize")
    }
    assert len(sizes) >= 6
    assert min(sizes.values()) >= SMALLEST_PT == 9
    keys = ("xtick.label", "ytick.label", "legend.font", "font.", "axes.label", "axes.title", "figure.title")
    ticks, _, _, text, labels, *_ = rising = [sizes[f"{key}size"] for key in keys]
    assert rising == sorted(rising) and text == labels and max(rising) - ticks == 2  # one hand, titles above


def test_the_grid_lies_under_what_is_drawn_and_plots_of_pyplot_are_laid_out_alike():
    import matplotlib.pyplot as plt

    assert display.figure()[1].get_axisbelow() is True
    fig = plt.figure()
    assert fig.get_constrained_layout() and tuple(fig.get_size_inches()) == display.SIZES["wide"]
    assert plt.gca().yaxis.get_major_formatter().format_data_short(-1).startswith("−")


def test_style_uses_the_bundled_font_on_white():
    assert matplotlib.rcParams["font.family"] == ["DejaVu Sans"]
    assert matplotlib.rcParams["figure.facecolor"] == "white"
    before = dict(matplotlib.rcParams)
    display.use_style()
    assert dict(matplotlib.rcParams) == before


def test_figure_shapes_and_no_pyplot_state():
    import matplotlib.pyplot as plt

    fig, axes = display.figure(3, 2, "slider", sharex=True)
    assert axes.shape == (2, 3) and tuple(fig.get_size_inches()) == display.SIZES["slider"]
    assert tuple(display.figure(size=(3, 2))[0].get_size_inches()) == (3, 2)
    assert plt.get_fignums() == []
    with pytest.raises(ValueError, match="size must be one of panel, wide.*got 'huge'"):
        display.figure(size="huge")
    with pytest.raises(ValueError, match=r"size must be \(width, height\); got \(1, 2, 3\)"):
        display.figure(size=(1, 2, 3))
    with pytest.raises(ValueError, match="size must be finite and positive; got -1"):
        display.figure(size=(-1, 2))
    with pytest.raises(TypeError, match="size must be finite and positive; got str"):
        display.figure(size=("a", 2))


def test_figure_has_the_style_without_use_style_and_leaves_the_defaults():
    with matplotlib.rc_context(matplotlib.rcParamsDefault):
        before = dict(matplotlib.rcParams)
        _, ax = display.figure()
        assert ax.xaxis.get_ticklabels()[0].get_fontsize() == 9
        assert dict(matplotlib.rcParams) == before


def test_label_line_takes_the_color_of_the_last_line_and_darkens_it():
    _, ax = display.figure()
    ax.plot([0, 1], [0, 1], color=display.COLORS["sky"])
    text = display.label_line(ax, 1, 1, "slope 1")
    assert text.get_text() == "slope 1" and text.xy == (1, 1)
    assert text.get_color() == readable(display.COLORS["sky"]) != display.COLORS["sky"]
    assert text.get_fontsize() >= 9 and text.get_annotation_clip() is False  # drawn outside the axes as well
    other = display.label_line(ax, 0, 0, "origin", color=display.COLORS["blue"])
    assert other.get_color() == display.COLORS["blue"].lower()
    with pytest.raises(ValueError, match="color must be a color of matplotlib; got 'mauve'"):
        display.label_line(ax, 0, 0, "origin", color="mauve")


def test_every_family_of_layers_has_a_color_of_its_own():
    assert set(display.FAMILIES.values()) <= set(display.COLORS)
    assert len(set(display.FAMILIES.values())) == len(display.FAMILIES)
