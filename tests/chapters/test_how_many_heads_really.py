"""Pictures of *how-many-heads-really*: two positive heads, the cone of the sink heads, fits and floors."""

import math

import numpy as np
import pytest
import torch
from helpers import F64
from scipy.optimize import nnls

from ssmbook.chapters.how_many_heads_really import figures
from ssmbook.heads import head_count
from ssmbook.systems import System, rotation


def turning(n, theta=0.7):
    eye = torch.eye(2, dtype=F64)
    return System(rotation(theta, dtype=F64), eye, eye).lags(n)


def test_the_dots_of_the_flip_are_its_lags_and_every_row_has_length_one():
    lags = [(-0.5) ** tau for tau in range(9)]
    c = torch.tensor([[max(m, 0) + 0.1, max(-m, 0) + 0.1] for m in lags], dtype=F64).T
    lag = torch.arange(9)[:, None] - torch.arange(9)
    alpha = (c[0] / (2 * c[0].sum()))[lag.clamp(min=0)].tril()
    fig, alt = figures.flip_heads(c, alpha)
    bars, rows = fig.axes
    assert np.allclose(bars.get_lines()[0].get_ydata(), lags[:8])
    heights = np.array([bar.get_height() for bar in bars.patches])
    assert np.allclose(heights[:8] + heights[8:], lags[:8])
    assert (heights[:8] > 0).all() and (heights[8:] < 0).all()
    length = {}
    for bar in rows.patches:
        i = round(bar.get_y() + bar.get_height() / 2)
        length[i] = length.get(i, 0) + bar.get_width()
    assert np.allclose([length[i] for i in range(6)], 1)
    sink = 1 - float(alpha[5].sum())
    assert f"{sink:.2f} of the last one shown" in alt and "1.000, -0.500, 0.250, -0.125" in alt


@pytest.mark.guards("thm-sink-count")
@pytest.mark.parametrize("theta", [0.7, -0.4, 2.5])
def test_the_open_cone_of_the_drawn_heads_holds_every_lag(theta):
    for n in range(2, 12):
        M = turning(n, theta)
        points = figures._plane(M)
        V = figures.sink_value_maps(points)
        assert (
            len(V)
            == head_count(M, coefficients="softmax").value
            == (2 if (n - 1) * abs(theta) < math.pi else 3)
        )
        for point in points:
            if len(V) == 2:
                assert np.linalg.solve(V.T, point).min() > 0
            else:
                assert nnls(V.T, point)[1] < 1e-12 and np.allclose(V.sum(0), 0)


@pytest.mark.parametrize("n", [5, 6])
def test_a_frame_shows_lags_cone_and_certificate(n):
    M = turning(n)
    certificate = head_count(M, coefficients="softmax").evidence
    plane, bars = figures.certificate_frame(M, certificate).axes
    angles = 0.7 * np.arange(n)
    assert np.allclose(plane.get_lines()[0].get_xydata(), np.stack([np.cos(angles), np.sin(angles)], 1))
    heights = np.array([bar.get_height() for bar in bars.patches])
    if n == 5:  # the best half-plane looks along the middle of the arc
        assert np.allclose(heights, np.cos(angles - angles[-1] / 2), atol=1e-6)
        assert bars.get_title() == "all positive: 2 heads"
    else:
        assert np.allclose(heights @ np.exp(1j * angles), 0, atol=1e-9) and heights.min() >= 0
        assert bars.get_title() == "Σ λ M = 0: 3 heads"
    path = plane.patches[0].get_path()  # half a plane at most, and the whole plane for three
    inside = path.contains_points(figures._plane(M))
    assert inside.all()
    assert path.contains_point((0.1, -1.0)) == (n == 6)


def test_fits_share_an_axis_and_show_every_curve():
    curves = {"H = 2": torch.tensor([1.0, 0.5, 0.4]), "H = 3": torch.tensor([1.0, 0.1, 1e-7])}
    panels = {"left": ({"H = 2": curves["H = 2"]}, {"plateau": 0.3}), "right": (curves, {"floor": 0.2})}
    left, right = figures.fit_curves(panels).axes
    assert left.get_ylim() == right.get_ylim() and left.get_ylim()[0] < 1e-7
    drawn = [line.get_ydata() for line in right.get_lines()]
    assert np.allclose(drawn[0], [1, 0.5, 0.4]) and np.allclose(drawn[1], [1, 0.1, 1e-7])
    assert np.allclose(drawn[2], 0.2) and np.allclose(left.get_lines()[1].get_ydata(), 0.3)
    assert [ax.get_title() for ax in (left, right)] == ["left", "right"]


def test_tails_are_shares_above_beside_a_slope_of_minus_one():
    samples = {"cauchy": 1 / (1 - np.arange(2000) / 2000), "bounded": np.linspace(0, 40, 2000)}
    (ax,) = figures.tails(samples, 30.0).axes
    one, other, slope, bound = (np.asarray(line.get_xydata(), dtype=float) for line in ax.get_lines())
    for (t, above), values in zip((one.T, other.T), samples.values(), strict=True):
        assert np.allclose(above, [(values > x).mean() for x in t]) and t[0] < 0.011
    assert (
        np.allclose(slope[:, 0] * slope[:, 1], slope[0, 0] * slope[0, 1]) and slope[-1, 0] > 100 * slope[0, 0]
    )
    assert (bound[:, 0] == 30).all()
    assert [text.get_text() for text in ax.texts] == [*samples, "slope −1", "proved bound"]


def test_the_path_of_an_optimizer_stands_beside_the_families():
    path = np.array([1.0, 10.0, 100.0]), np.array([1e-1, 1e-2, 1e-3])
    families = {"one pole": (np.array([2.0, 20.0, 200.0]), np.array([0.3, 0.03, 0.003])), "pair": path}
    (ax,) = figures.divergence(path, families).axes
    drawn = [line.get_xydata().T for line in ax.get_lines()]
    assert np.array_equal(drawn, [families["one pole"], path, path])
    assert [line.get_linestyle() == "None" for line in ax.get_lines()] == [False, False, True]
    said = {text.get_text(): text.xy for text in ax.texts}
    assert said == {"one pole": (20, 0.03), "pair": (10, 1e-2), "two heads, fitted": (100, 1e-3)}


def test_the_common_row_sum_is_where_the_weighed_misses_balance():
    flip, M = torch.tensor([(-0.5) ** tau for tau in range(20)], dtype=F64)[:, None, None], turning(20)
    fig, alt = figures.row_sums(flip, M)
    line, plane = fig.axes
    dots = np.asarray(line.collections[-1].get_offsets())
    assert np.allclose(dots[:, 1], [(1 - (-0.5) ** (i + 1)) / 1.5 for i in range(9)])
    # what one number for all rows costs least
    T = line.get_lines()[0].get_ydata()[0]
    partial = [(1 - (-0.5) ** (i + 1)) / 1.5 for i in range(20)]

    def missed(value):
        return sum((S - value) ** 2 / (i + 1) for i, S in enumerate(partial))

    assert missed(T) < min(missed(T - 1e-3), missed(T + 1e-3))
    energy = sum((20 - tau) * 0.25**tau for tau in range(20))
    assert f"misses {missed(T) / energy:.4f}" in line.get_title()
    turned = [sum(complex(math.cos(0.7 * t), math.sin(0.7 * t)) for t in range(i + 1)) for i in range(20)]
    cross = sum(S / (i + 1) for i, S in enumerate(turned)) / sum(1 / (i + 1) for i in range(20))
    marked = next(spot for spot in plane.get_lines() if spot.get_marker() == "X")
    assert np.allclose((marked.get_xdata()[0], marked.get_ydata()[0]), (cross.real, cross.imag))
    shown = np.asarray(plane.collections[-1].get_offsets()) @ (1, 1j)
    assert np.allclose(shown, turned[:9])
    assert f"{cross.real:.3f} I + {cross.imag:.3f} J" in alt


@pytest.mark.parametrize(("poles", "count"), [((0.9, -0.5), 2), ((-0.9, -0.5), 3), ((0.9, 0.0), 2)])
def test_the_shaded_half_plane_holds_all_lags_or_they_surround_zero(poles, count):
    fig, alt = figures.pole_planes([poles, poles], 20)
    ax = fig.axes[0]
    points = np.stack(ax.get_lines()[0].get_data(), axis=1)
    assert np.allclose(points, [[pole**tau for pole in poles] for tau in range(20)])
    held = "in a half-plane" if count == 2 else "around zero"
    assert f"{count} heads" in ax.get_title() and f"{held}, {count} heads" in alt
    shaded = ax.patches[0].get_path()
    if count == 2:
        assert all(shaded.contains_point(point) for point in points)
        assert not shaded.contains_point((-0.5, 0.0)) and not shaded.contains_point((-1.0, -1.0))
    else:
        assert shaded.contains_point((0.0, 0.0))
        weights, rest = nnls(np.vstack([points.T, np.ones(20)]), np.array([0.0, 0.0, 1.0]))
        assert rest < 1e-12 and weights.min() >= 0
