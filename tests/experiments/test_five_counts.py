"""Fitted heads against the floors that the theorems set, and the floors against brute force."""

import math

import pytest
import torch
from helpers import F64, clock, gen, randn, rotation

from headsandstates.chapters.how_many_heads_really.border import (
    jordan_approximation,
    jordan_pair,
)
from headsandstates.chapters.how_many_heads_really.five_counts import (
    cone_error,
    fit_softmax_heads,
    half_plane_floor,
)
from headsandstates.experiments.students import fit_class


@pytest.mark.parametrize("sink", [True, False])
def test_another_optimizer_ends_at_the_same_error(sink):
    M = randn(6, 2, 2)
    fit = fit_softmax_heads(M, 2, sink=sink, starts=4)
    other = fit_class(M, 2, "sink" if sink else "softmax", seeds=8, generator=gen(1))
    assert fit.curve[-1] == pytest.approx(float(other.min()), rel=0.02)  # both stop in local minima
    assert (fit.curve.diff() <= 0).all() and len(fit.curve) == len(fit.largest)


@pytest.mark.parametrize("rho", [1.0, 0.9, 1.1])
def test_half_plane_floor_against_cones_of_two(rho):
    M = clock(rho=rho, n=11)
    floor = half_plane_floor(M)
    assert min(cone_error(M, randn(2, 2, 2, seed=s)) for s in range(200)) >= floor
    angles = torch.arange(0, 2 * math.pi, 0.02).tolist()
    opposite = math.pi - 1e-3  # almost
    nearly = [cone_error(M, torch.stack([rotation(phi), rotation(phi + opposite)])) for phi in angles]
    assert floor <= min(nearly) < 1.01 * floor


def test_cone_error_by_hand():
    M = clock(math.pi / 2, n=3)  # I, J, -I on the axes of a plane
    quadrant = torch.stack([M[0], M[1]])
    assert cone_error(M, quadrant) == pytest.approx(1 / 6)  # -I is missed, one block in six
    assert cone_error(M, torch.stack([M[0] + M[1], M[1] - M[0]])) == pytest.approx((3 + 1) / 2 / 6)
    assert cone_error(M, torch.cat([quadrant, M[2:]])) < 1e-20


@pytest.mark.guards("prop-border-rank")
def test_the_pair_of_poles_is_one_order_better_than_the_one_sided_family():
    for build, order in ((jordan_pair, 2), (jordan_approximation, 1)):
        coarse, fine = (build(0.5, epsilon, 8) for epsilon in (1e-2, 1e-3))
        assert torch.linalg.matrix_rank(fine.V).tolist() == [1, 1]
        assert torch.allclose(fine.V.flatten(1).norm(dim=1), torch.ones(2, dtype=F64))
        assert coarse.relative_error / fine.relative_error == pytest.approx(10**order, rel=0.1)
        largest, smaller = (each.coefficients.abs().max() for each in (fine, coarse))
        assert float(largest / smaller) == pytest.approx(10, rel=0.1)
