"""Students of every class: the batched optimizer, and the counts at which their errors vanish."""

import pytest
import torch
from helpers import F64, clock, gen, randn
from scipy.optimize import minimize as foreign

from headsandstates.chapters.how_many_heads_really.five_counts import half_plane_floor
from headsandstates.experiments.students import fit_class, minimize
from ssmbook.heads import sinkless_plateau

ROTATION = clock(n=8)


def banana(z):
    return 100 * (z[:, 1] - z[:, 0] ** 2) ** 2 + (1 - z[:, 0]) ** 2


def test_each_problem_has_its_own_optimizer():
    start = randn(5, 2)
    together, _ = minimize(banana, start, steps=80)
    for row, point in zip(start, together, strict=True):
        alone = minimize(banana, row[None], steps=80)[0][0]
        assert torch.equal(alone, point)
    assert torch.allclose(together, torch.ones_like(together), atol=1e-10)


def test_against_another_implementation():
    root, b = randn(3, 7, 7, seed=1), randn(3, 7, seed=2)
    Q = root @ root.mT + torch.eye(7, dtype=F64)

    def objective(z):
        return torch.einsum("sa,sab,sb->s", z, Q, z) / 2 - (b * z).sum(1) + z.pow(4).sum(1)

    found = minimize(objective, torch.zeros(3, 7, dtype=F64), steps=200)[1]
    for s in range(3):

        def single(z, s=s):
            z = torch.tensor(z)
            return float(z @ Q[s] @ z / 2 - b[s] @ z + z.pow(4).sum())

        assert float(found[s]) <= foreign(single, [0.0] * 7, tol=1e-12).fun + 1e-9


@pytest.mark.guards("thm-no-sink", "prop-plateau")
def test_without_a_sink_the_plateau_is_reached_and_never_passed():
    plateau = sinkless_plateau(ROTATION).relative
    for H in (3, 4):
        errors = fit_class(ROTATION, H, "softmax", steps=150, generator=gen(H))
        assert errors.min() >= plateau * (1 - 1e-9) and errors.min() < plateau * 1.01


@pytest.mark.guards("thm-sink-count")
def test_with_a_sink_the_third_head_makes_the_rotation():
    errors = [fit_class(ROTATION, H, "sink", steps=150, generator=gen()) for H in (2, 3)]
    assert errors[0].min() >= half_plane_floor(ROTATION) and errors[1].min() < 1e-3 * errors[0].min()


@pytest.mark.guards("prop-rank-limited")
def test_rank_one_value_maps_need_three_heads_for_a_rotation():
    few = torch.stack([torch.eye(2, dtype=F64), torch.zeros(2, 2, dtype=F64)])  # fewer blocks than entries
    assert [round(float(fit_class(few, H, "rank one", seeds=2).min()), 6) for H in (1, 2)] == [0.5, 0.0]
    errors = [fit_class(ROTATION, H, "rank one", generator=gen()) for H in (2, 3)]
    assert errors[0].min() > 0.1 and errors[1].max() < 1e-20
