"""Teachers, the closed-form population error, and students that land on the floor and on the law."""

import math

import pytest
import torch
from helpers import F64, gen, like

from headsandstates.experiments.learning_heads import (
    FULL,
    conditioned_system,
    draw_teacher,
    population_error,
    train_heads,
)
from headsandstates.experiments.students import train_on_data, train_pairwise, train_plain
from ssmbook.heads import head_count
from ssmbook.operators import LagOperator
from ssmbook.systems import System


@pytest.mark.parametrize(("k", "d", "p", "n"), [(1, 1, 1, 1), (3, 2, 2, 7), (6, 3, 2, 6)])
def test_teacher_has_k_heads_that_matter(k, d, p, n):
    teacher = draw_teacher(k, d, p, n, **like(k))
    assert (teacher.N, teacher.d, teacher.p, teacher.D) == (k, d, p, None)
    assert head_count(teacher, n) == k and teacher.operator(n).floor(k - 1) >= 1e-4
    with pytest.raises(ValueError, match="k must be"):
        draw_teacher(p * d + 1, d, p, 20)


@pytest.mark.parametrize(("k", "rho", "condition"), FULL["teachers"][::4])
def test_a_teacher_has_the_radius_of_its_poles(k, rho, condition):
    system = conditioned_system(k, 4, 3, 20, rho=rho, condition=condition, generator=gen(k))
    assert math.isclose(float(torch.linalg.eigvals(system.A).abs().max()), rho, rel_tol=1e-9)
    assert int(torch.linalg.matrix_rank(system.lags(20).flatten(1))) == k
    assert system.operator(20).floor(k - 1) >= 1e-4


@pytest.mark.guards("thm-head-floor")
@pytest.mark.parametrize("correlated", [False, True])
def test_population_error_is_the_mean_over_inputs(correlated):
    """By feeding one basis input at a time through the Cholesky factors."""
    n, d, p = 5, 3, 2
    M = torch.randn(n, p, d, **like(1))
    alpha, V = torch.randn(2, n, n, **like(2)), torch.randn(2, p, d, **like(3))
    time, channel = torch.eye(n, dtype=F64), torch.eye(d, dtype=F64)
    given = {}
    if correlated:
        time, channel = (root @ root.mT for root in (torch.randn(m, m + 2, **like(m)) for m in (n, d)))
        given = {"time_covariance": time, "channel_covariance": channel}
    basis = torch.eye(n * d, dtype=F64).reshape(n * d, n, d)
    L_t, L_x = torch.linalg.cholesky(time), torch.linalg.cholesky(channel)
    x = torch.einsum("ij,bjc,dc->bid", L_t, basis, L_x)
    wanted = LagOperator(M).apply(x)
    got = torch.einsum("hij,hpd,bjd->bip", alpha, V, x)
    exact = (got - wanted).square().sum() / wanted.square().sum()
    torch.testing.assert_close(population_error(alpha, V, M, **given), exact)
    with pytest.raises(ValueError, match="zero system"):
        population_error(alpha, V, 0 * M)
    with pytest.raises(ValueError, match="alpha"):
        population_error(alpha[:, 1:, 1:], V, M)


@pytest.mark.guards("thm-head-floor", "thm-head-count")
def test_students_land_on_the_floor():
    k, n = 3, 11
    A, B, C, _ = draw_teacher(k, 3, 2, n, **like(k))
    M = System(A, B, C).lags(n)
    trained = train_heads(M, range(k + 3), seeds=3, generator=gen())
    floor = LagOperator(M).floor()
    for H in range(k + 3):
        errors = trained.errors_of(H)
        assert len(errors) == 3 and (H < k or errors.max() < 1e-12)
        if H < k:
            torch.testing.assert_close(errors, floor[H].expand(3), rtol=1e-6, atol=0.0)
    error = population_error(trained.alpha, trained.V, M)
    torch.testing.assert_close(error, trained.error, rtol=1e-6, atol=1e-20)
    best = System(A, B, C).operator(n).best_heads(k - 1)
    found = trained.operator(3 * (k - 1)).to_dense()
    torch.testing.assert_close(found, best.to_dense(), rtol=1e-4, atol=1e-4)
    shaken = population_error(best.alpha + 0.01 * torch.randn(k - 1, n, n, **like(1)), best.V, M)
    assert shaken > population_error(best.alpha, best.V, M)
    assert (trained.history[0, 3:] > 0.5).all() and trained.steps[[0, -1]].tolist() == [0, 2000]


def test_heads_arrive_when_the_law_says():
    lags = torch.zeros(6, 2, 2, dtype=F64)
    lags[0, 0, 0], lags[1, 1, 1] = 1.0, 0.6
    run = train_plain(lags, 3, seeds=2, steps=700, seed=0, records=200)
    s0 = run["scale"] ** 2 * (1 + 36 / 4) / 4
    for r in (0, 1):
        s = float(run["sigma"][r])
        law = math.log(s / s0 - 1) / (2 * math.log1p(run["rate"] * s))
        for way in ("population", "samples"):
            row = run[way]["spectrum"][:, r]
            half = next(step for step, now in zip(run["steps"], row, strict=True) if now > s / 2)
            assert 0.75 * law < half < 1.25 * law


def test_with_much_data_the_error_is_floor_plus_parameters_times_noise():
    M = conditioned_system(2, 2, 2, 6, rho=0.8, condition=1, least_share=0.05, generator=gen(2)).lags(6)
    run = train_on_data(M, [1, 2], 2000, noise=0.5, seeds=4, steps=400, seed=3)
    floor = LagOperator(M).floor()
    for H, free, errors in zip(run["H"], run["free"], run["trained"], strict=True):
        rule = floor[H] + free * (0.5 + floor[H]) / (2000 * run["outputs"])
        assert abs(float(errors.mean() / rule) - 1) < 0.15


def test_the_pairwise_students_see_their_lags():
    lags = torch.zeros(3, 1, 1, dtype=F64)
    lags[0] = 1.0  # y_i = x_i: one head with a coefficient that knows the lag
    run = train_pairwise(lags, [1], seeds=1, steps=300, seed=0, hidden=16)
    assert float(run["trained"].max()) < 0.1
