"""The palette, measured: contrast on white, distance under three kinds of color blindness, text sizes."""

import itertools
import re
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from ssmbook import display
from ssmbook.display.style import DARK, DIVERGING, LIGHT, SEQUENTIAL, SMALLEST_PT

ASSETS = Path(__file__).resolve().parents[2] / "chapters/assets"

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


def oklab(rgb):
    to_lms = [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
    to_lab = [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
    return np.array(to_lab) @ np.cbrt(np.array(to_lms) @ np.clip(rgb, 0, 1))


def contrast(color):
    return 1.05 / (float(linear(color) @ [0.2126, 0.7152, 0.0722]) + 0.05)


@pytest.fixture(autouse=True)
def style():
    with matplotlib.rc_context():
        display.use_style()
        yield


@pytest.mark.parametrize("name", display.COLORS)
def test_lines_and_their_labels_stand_out_on_white(name):
    color = display.COLORS[name]
    _, ax = display.figure()
    ax.plot([0, 1], [0, 1], color=color)
    label = display.label_line(ax, 1, 1, "slope 1")
    assert contrast(color) >= 3 and contrast(label.get_color()) >= 4.5
    assert label.get_text() == "slope 1" and label.xy == (1, 1) and label.get_fontsize() >= SMALLEST_PT


@pytest.mark.parametrize("kind", BLINDNESS)
def test_line_colors_differ_under_color_blindness(kind):
    colors = [c for name, c in display.COLORS.items() if name != "gray"]
    seen = [lab(np.array(BLINDNESS[kind]) @ linear(c)) for c in colors]
    nearest = min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2))
    assert nearest > 20


@pytest.mark.parametrize("kind", BLINDNESS)
@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_signs_and_roles_are_never_taken_for_each_other(palette, kind):
    seen = [oklab(BLINDNESS[kind] @ linear(palette[name])) for name in ("plus", "minus", "head", "state")]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) >= 0.14


@pytest.mark.parametrize("name", ["logo.svg", "logo-dark.svg", "favicon.svg"])
def test_the_mark_has_the_signs_and_the_roles_of_the_palette(name):
    palette = DARK if "dark" in name else LIGHT
    used = set(re.findall(r"#\w{6}", (ASSETS / name).read_text("utf-8")))
    assert {palette["plus"], palette["minus"]} <= used <= set(palette.values())


def test_each_line_of_the_cycle_has_its_own_color_and_style():
    _, ax = display.figure()
    lines = [ax.plot([0, 1], [0, k])[0] for k in range(6)]
    assert len({line.get_color() for line in lines}) == 6
    assert len({str(line._unscaled_dash_pattern) for line in lines}) == 6


def test_color_maps_are_white_at_zero_and_darken_steadily():
    lightness = [lab(linear(SEQUENTIAL(t)[:3]))[0] for t in np.linspace(0, 1, 64)]
    assert (np.diff(lightness) < 0).all() and SEQUENTIAL(0.0)[:3] == (1, 1, 1)
    assert DIVERGING(0.5)[:3] == pytest.approx((1, 1, 1))
    assert {SEQUENTIAL.name, DIVERGING.name} <= set(matplotlib.colormaps)


def test_a_figure_has_the_style_without_use_style_and_is_unknown_to_pyplot():
    with matplotlib.rc_context(matplotlib.rcParamsDefault):
        before = dict(matplotlib.rcParams)
        fig, axes = display.figure(3, 2, "slider")
        assert axes[1, 0].xaxis.get_ticklabels()[0].get_fontsize() == SMALLEST_PT
        assert axes.shape == (2, 3) and tuple(display.figure(size=(3, 2))[0].get_size_inches()) == (3, 2)
        assert dict(matplotlib.rcParams) == before and plt.get_fignums() == []
