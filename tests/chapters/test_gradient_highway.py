"""Pictures of *gradient-highway*: chain and arc, two lanes, and curves on log axes, by other routes."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from helpers import F64, points

from ssmbook.chapters.gradient_highway import figures


@pytest.mark.parametrize(("distance", "keep"), [(1024, 0.9), (10, 0.5)])
def test_chain_and_arc_carry_their_numbers(distance, keep):
    fig, alt = figures.paths(distance, keep=keep, weight=0.75)
    chain, arc = fig.axes
    exact = Fraction(keep).limit_denominator(10) ** distance
    size = math.log10(exact.numerator) - math.log10(exact.denominator)
    power = f"{10 ** (size - math.floor(size)):.1f}e{math.floor(size):+03d}"
    assert power in alt and any(power in text.get_text() for text in chain.texts)
    steps = [text.xy[0] for text in chain.texts if text.get_text() == f"×{keep:g}"]
    boxes = [text.get_position()[0] for text in chain.texts if text.get_bbox_patch()]
    arrows = [text for text in chain.texts if getattr(text, "arrow_patch", None) is not None]
    ends = [(text.xyann[0], text.xy[0]) for text in arrows]
    assert len(boxes) == 5 and ends == list(zip(boxes, boxes[1:], strict=False))
    assert steps == [(start + end) / 2 for start, end in ends]
    bows = [text for text in arc.texts if getattr(text, "arrow_patch", None) is not None]
    assert len(bows) == 1 and bows[0].xy[0] == 4 and bows[0].xyann[0] == 0
    assert any("0.75 σ₂(V)" in text.get_text() for text in arc.texts)


@pytest.mark.parametrize("t", [0.0, 0.5, 1.278, 3.0])
@pytest.mark.parametrize("sigma_2", [0.7, 0.0])
def test_the_bracket_is_the_derivative_of_two_tokens(t, sigma_2):
    V = torch.diag(torch.tensor([1.0, sigma_2], dtype=F64))
    x = torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=F64)

    def last(x):
        return torch.softmax(t * x[-1, 0] * x[:, 0], 0) @ (x @ V.T)

    weight = torch.softmax(t * x[-1, 0] * x[:, 0], 0)[0]
    J = torch.func.jacrev(last)(x)[:, 0] / weight
    assert torch.allclose(figures.bracket(t, sigma_2), J, atol=1e-12)
    ax = figures.two_lanes(t).axes[0 if sigma_2 else 1]
    frozen, bent, along, lane = (points(line) for line in ax.get_lines())
    assert np.allclose(bent, points_of_circle(len(bent)) @ J.numpy().T, atol=1e-9)
    assert np.allclose(frozen, points_of_circle(len(frozen)) @ V.numpy(), atol=1e-9)
    assert np.allclose(along[1], [J[0, 0], 0]) and np.allclose(lane[1], [0, sigma_2])
    assert f"{torch.linalg.matrix_norm(J, 2):.2f} α" in ax.get_title()


def points_of_circle(count):
    turn = 2 * np.pi * np.arange(count) / (count - 1)
    return np.stack([np.cos(turn), np.sin(turn)], axis=1)


def test_the_lane_stays_and_the_other_direction_vanishes():
    norms = [float(torch.linalg.matrix_norm(figures.bracket(t, 0.7), 2)) for t in np.linspace(0, 6, 601)]
    assert min(norms) == pytest.approx(0.7, abs=1e-12)
    assert float(figures.bracket(1.27846, 0.0).abs().max()) < 1e-5
    assert "across, the lane stays 0.7" in figures.two_lanes_alt(1.278)


def test_the_spread_counts_draws_by_their_power_of_ten():
    generator = torch.Generator().manual_seed(0)
    sizes = 10 ** (8 * torch.randn(500, generator=generator, dtype=F64) - 20)
    fig, alt = figures.spread(sizes, {"recurrence": 1e-45, "asked": 10.0})
    (ax,) = fig.axes
    for bar in [patch for patch in ax.patches if patch.get_width() == pytest.approx(1)]:
        low, high = 10 ** bar.get_x(), 10 ** (bar.get_x() + 1)
        assert bar.get_height() == sum(low <= size < high for size in sizes.tolist())
    assert [line.get_xdata()[0] for line in ax.get_lines()] == pytest.approx([-45, 1])
    ordered = sorted(sizes.tolist())
    band = next(patch for patch in ax.patches if patch.get_width() > 1.5)
    inside = [band.get_x() < math.log10(size) < band.get_x() + band.get_width() for size in ordered]
    assert sum(inside) == 450 and not inside[24] and inside[25]
    assert f"median {(ordered[249] * ordered[250]) ** 0.5:.0e}" in alt


def test_the_tables_of_the_derivative_add_up():
    generator = torch.Generator().manual_seed(1)
    V, column, row = (torch.randn(*shape, generator=generator, dtype=F64) for shape in ((3, 4), (3,), (4,)))
    J = V + column[:, None] * row
    fig, alt = figures.derivative_parts(J, V, column, row)
    shown = [np.asarray(ax.images[0].get_array()) for ax in fig.axes if ax.images]
    assert [table.shape for table in shown] == [(3, 4), (3, 4), (3, 1), (1, 4)]
    assert np.allclose(shown[0] - shown[1], shown[2] * shown[3])
    assert len({ax.images[0].norm.vmax for ax in fig.axes if ax.images}) == 1
    assert "of rank 1" in alt and f"{np.linalg.svd(V)[1][0]:.2f}" in alt


def test_each_price_holds_what_it_promises():
    few, many = ((T, math.log(9 * T), math.log(0.9 ** (-1 / T) - 1), -math.log(9.49 * T)) for T in (8, 512))
    fig, alt = figures.prices(few, many)
    drawn = [[bar.get_height() for bar in ax.patches] for ax in fig.axes]
    assert [len(bars) for bars in drawn] == [1, 8, 1]  # one logit, every token of the gap, one pole
    kept = math.prod(1 / (1 + math.exp(z)) for z in drawn[1])
    weight = math.exp(drawn[0][0]) / (math.exp(drawn[0][0]) + 8)
    assert kept == pytest.approx(0.9) and weight == pytest.approx(0.9)
    levels = [line.get_ydata()[0] for ax in fig.axes for line in ax.get_lines() if line.get_ydata()[0]]
    assert levels == list(many[1:])
    assert alt.endswith("They move by 4.16, 4.17, 4.16.")  # about log 64 each


def triple(tau, power):
    return tau, tau.clamp(min=1) ** -float(power), None


def test_curves_are_drawn_on_log_axes_as_given():
    tau = torch.arange(1025, dtype=F64)
    stops = torch.tensor([2.0**e for e in range(11)], dtype=F64)
    curves = {f"ρ = {rho}": (tau, rho**tau, rho**tau) for rho in (0.5, 0.9, 0.99, 1.0)}
    curves |= {name: triple(stops, k) for k, name in enumerate(("asked", "all logits 0", "ALiBi"))}
    curves["random tokens"] = triple(stops, 3)
    fig = figures.reach_lines(curves, (stops * 1e-9, stops * 1e-3))
    left, right = fig.axes
    assert left.get_xscale() == left.get_yscale() == right.get_xscale() == "log"
    assert np.allclose(points(left.get_lines()[2])[:, 1], np.exp(np.arange(1025) * math.log(0.9)), atol=0)
    slopes = [np.polyfit(*np.log(points(line)).T, 1)[0] for line in right.get_lines()]
    assert slopes == pytest.approx([0, -1, -2, -3], abs=1e-9)  # a power is a straight line
    band = right.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == pytest.approx(1e-9) and band[:, 1].max() == pytest.approx(1.024)


def test_measurements_lie_over_laws_in_the_panels_of_the_companion():
    tau = torch.arange(1025, dtype=F64)
    names = ("Jordan block", "non-normal", "tanh RNN", "gate held", "gate open")
    curves = {name: (tau, 0.9**tau, 2 * 0.9**tau) for name in names}
    left, right = figures.flow_panels(curves).axes
    assert [len(ax.get_lines()) for ax in (left, right)] == [6, 4]
    measured, law = left.get_lines()[:2]
    assert np.allclose(points(law)[:, 1], 2 * points(measured)[:, 1])
    assert (law.get_color(), left.get_yscale()) == ("#000000", "log")
