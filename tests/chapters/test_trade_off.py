"""Pictures of *trade-off*: the strip, the plane of span and reach, and lines on log axes, by other routes."""

import math

import numpy as np
import pytest
from helpers import gen, points

from ssmbook import maps
from ssmbook.chapters.trade_off import figures

PLACES = {
    "feed-forward": (8, 1, 0.0, 0.0),
    "attention": (2, 2, 0.03, 1.0),
    "SSD": (2, 2, 0.04, 1.0),
    "RetNet": (2, 2, 0.3, 0.6),
    "LTI SSM": (6, 6, 1e-3, 1e-3),
    "hybrid, stack": (12, 12, 0.03, 1.0),
}


def test_arcs_are_as_wide_as_the_weights():
    weights = [0.02, 0.9, 0.0005, 0.0795]
    fig, alt = figures.strip_and_bucket(weights, 1, state=48)
    strip, bucket = fig.axes
    arcs = [text for text in strip.texts if getattr(text, "arrow_patch", None) is not None]
    widths = {text.xy[0]: text.arrow_patch.get_linewidth() for text in arcs}
    assert widths == pytest.approx({0: 0.08, 1: 3.6, 3: 0.318})  # a weight below 1e-3 has no arc
    said = [text.get_text() for ax in fig.axes for text in ax.texts]
    assert said.count("? κ2") == 2 and "weight 0.900: answers v2" in said and "48 numbers" in said
    assert "weight 0.900" in alt and "48 numbers" in alt


def test_each_map_stands_at_its_span_and_its_two_reaches():
    fig, alt = figures.plane(PLACES)
    lines = fig.axes[0].get_lines()
    assert len(lines) == 3 * len(PLACES)
    seen = set()
    for (name, (_, one, typical, best)), bar, low, high in zip(
        sorted_like(lines), lines[::3], lines[1::3], lines[2::3], strict=True
    ):
        ends = [max(typical, figures.FLOOR), max(best, figures.FLOOR)]
        assert points(bar)[:, 1].tolist() == ends and bar.get_gid() == name
        assert points(low)[0, 1] == ends[0] and points(high)[0, 1] == ends[1]
        assert abs(math.log2(points(bar)[0, 0] / one)) <= 0.35  # nearer to its own k than to any other
        assert bar.get_color() == figures.COLORS[figures.GROUPS[figures.group_of(name)][0]]
        seen.add(tuple(points(bar)[0]))
    assert len(seen) == len(PLACES)  # no map hides another
    assert "fixed decay: 2 maps, span 2 to 6, best reach 0.001 to 0.6" in alt


def sorted_like(lines):
    return [(bar.get_gid(), PLACES[bar.get_gid()]) for bar in lines[::3]]


def test_every_map_of_the_zoo_has_a_group_of_its_own_kind():
    zoo = maps.zoo(4, 4, 9, H=2, head_width=4, N=6, generator=gen(0))
    named = [name for _, names in figures.GROUPS.values() for name in names]
    assert sorted(named) == sorted(zoo), "every map of the zoo stands in one of GROUPS of the figures"
    with pytest.raises(ValueError, match="name must be a map of one of GROUPS; got 'EMA'"):
        figures.group_of("EMA")
    groups = {name: figures.group_of(name) for name in zoo}
    assert groups["SSD"] == groups["attention"] == "content can hold"
    assert groups["S4D"] == groups["RetNet"] == "fixed decay"


def test_a_power_is_straight_and_an_exponential_bends_down():
    distances = [1, 2, 4, 8, 16, 32]
    shares = {"attention": [1 / t for t in distances], "LTI SSM": [0.7**t for t in distances]}
    shares["convolution"] = [1.0, 0.5, 0.0, 0.0, 0.0, 0.0]
    fig, alt = figures.reach_lines(distances, shares)
    ax = fig.axes[0]
    assert ax.get_xscale() == ax.get_yscale() == "log"
    power, exponential, cut, law = (np.log(points(line)) for line in ax.get_lines())
    assert np.allclose(np.diff(power[:, 1]) / np.diff(power[:, 0]), -1)
    assert (np.diff(np.diff(exponential[:, 1]) / np.diff(exponential[:, 0])) < -0.1).all()
    assert len(cut) == 2 and np.allclose(law, power)  # a share of zero has no place on the axis
    assert "attention 3.1e-02" in alt and sorted(t.get_text() for t in ax.texts) == sorted(shares)


def test_the_way_through_a_stack_goes_up_along_the_head_and_up():
    fig, alt = figures.stack_path(0.987, 2.4e-7, 32)
    (ax,) = fig.axes
    way = points(ax.get_lines()[0])
    steps = np.diff(way, axis=0)
    assert (np.count_nonzero(steps, axis=1) == 1).all() and (steps >= 0).all()  # up, along, up
    boxes = [(box.get_y(), box.get_y() + box.get_height()) for box in ax.patches]
    inside = [sum(low < y < high for low, high in boxes) for y in way[:, 1]]
    assert len(boxes) == 3 and inside == [0, 1, 1, 0]
    assert boxes[1][0] < way[1, 1] == way[2, 1] < boxes[1][1]  # it changes the token in the head alone
    arrows = [text for text in ax.texts if getattr(text, "arrow_patch", None) is not None]
    along = [text for text in arrows if text.xy[1] == text.xyann[1]]
    assert [any(low < text.xy[1] < high for low, high in boxes[::2]) for text in along] == [True, True]
    said = [text.get_text() for text in ax.texts]
    assert "$V$: 0.99 of the limit" in said and "without the head 2e-07" in said
    assert "0.99 of the limit" in alt and "2e-07" in alt and "token 32" in alt
