"""Teachers, the closed-form population error, and students that land on the floor."""

import pytest
import torch
from helpers import F64, like

from ssmbook.experiments import learning_heads
from ssmbook.experiments.learning_heads import _fitted, draw_teacher, population_error, train_heads
from ssmbook.heads import head_count, head_floor, heads_from_ssm
from ssmbook.operators import LagOperator
from ssmbook.systems import System


def random_covariance(size, seed):
    root = torch.randn(size, size + 2, **like(seed))
    return root @ root.mT / size


@pytest.mark.parametrize(("k", "d", "p", "n"), [(1, 1, 1, 1), (3, 2, 2, 7), (5, 4, 3, 16), (6, 3, 2, 6)])
def test_teacher_has_k_heads_that_matter(k, d, p, n):
    teacher = draw_teacher(k, d, p, n, least_share=1e-6, **like(k))
    assert (teacher.N, teacher.d, teacher.p, teacher.D) == (k, d, p, None)
    assert head_count(teacher, n) == k
    assert head_floor(teacher, n)[k - 1] >= 1e-6
    assert teacher.spectral_radius() < 0.9 + 1e-9


def test_teacher_is_reproducible_and_cast():
    first, again = (draw_teacher(3, 2, 2, 9, **like(0)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(list(first)[:3], list(again)[:3], strict=True))
    short = draw_teacher(3, 2, 2, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float32)
    assert all(torch.equal(a.float(), b) for a, b in zip(list(first)[:3], list(short)[:3], strict=True))


@pytest.mark.guards("thm-head-floor")
@pytest.mark.parametrize("correlated", [False, True])
def test_population_error_is_the_mean_over_inputs(correlated):
    """Against a sample; and exactly, by feeding one basis input at a time through the Cholesky factors."""
    n, d, p = 5, 3, 2
    M = torch.randn(n, p, d, **like(1))
    alpha, V = torch.randn(2, n, n, **like(2)), torch.randn(2, p, d, **like(3))
    time, channel = random_covariance(n, 4), random_covariance(d, 5)
    given = {"time_covariance": time, "channel_covariance": channel} if correlated else {}
    L_t, L_x = (
        torch.linalg.cholesky(S) if correlated else torch.eye(len(S), dtype=F64) for S in (time, channel)
    )
    basis = torch.eye(n * d, dtype=F64).reshape(n * d, n, d)
    x = torch.einsum("ij,bjc,dc->bid", L_t, basis, L_x)
    wanted = LagOperator(M).apply(x)
    got = torch.einsum("hij,hpd,bjd->bip", alpha, V, x)
    exact = (got - wanted).square().sum() / wanted.square().sum()
    torch.testing.assert_close(population_error(alpha, V, M, **given), exact)
    z = torch.randn(40_000, n, d, **like(6))
    x = torch.einsum("ij,bjc,dc->bid", L_t, z, L_x)
    wanted, got = LagOperator(M).apply(x), torch.einsum("hij,hpd,bjd->bip", alpha, V, x)
    sample = (got - wanted).square().sum() / wanted.square().sum()
    torch.testing.assert_close(sample, exact, rtol=0.05, atol=0.0)


@pytest.mark.guards("thm-head-floor")
def test_no_heads_and_random_heads_stay_above_the_floor():
    A, B, C, _ = draw_teacher(4, 3, 2, 9, **like(0))
    M = System(A, B, C).lags(9)
    floor = head_floor(M)
    assert population_error(torch.zeros(0, 9, 9, dtype=F64), torch.zeros(0, 2, 3, dtype=F64), M) == 1
    for H in range(5):
        best = heads_from_ssm(System(A, B, C), 9, H=H)
        error = population_error(best.alpha, best.V, M)
        torch.testing.assert_close(error, floor[H], rtol=1e-9, atol=1e-20)
        shaken = population_error(best.alpha + 0.01 * torch.randn(H, 9, 9, **like(H)), best.V, M)
        assert H == 0 or shaken > error


@pytest.mark.guards("thm-head-floor", "thm-head-count")
@pytest.mark.parametrize(("k", "d", "p", "n"), [(3, 3, 2, 11), (4, 2, 3, 9)])
def test_students_land_on_the_floor(k, d, p, n):
    A, B, C, _ = draw_teacher(k, d, p, n, **like(k))
    M = System(A, B, C).lags(n)
    trained = train_heads(M, range(k + 3), seeds=3, generator=torch.Generator().manual_seed(0))
    assert len(trained.steps) == 40 and trained.steps[[0, -1]].tolist() == [0, 2000]
    floor = head_floor(M)
    for H in range(k + 3):
        errors = trained.errors_of(H)
        assert len(errors) == 3
        if H < k:
            torch.testing.assert_close(errors, floor[H].expand(3), rtol=1e-6, atol=0.0)
        else:
            assert errors.max() < 1e-12
    torch.testing.assert_close(
        population_error(trained.alpha, trained.V, M), trained.error, rtol=1e-6, atol=1e-20
    )
    blocks = trained.operator(3 * (k - 1)).to_dense()
    best = heads_from_ssm(System(A, B, C), n, H=k - 1).to_dense()
    torch.testing.assert_close(blocks, best, rtol=1e-4, atol=1e-4 * float(best.abs().max()))
    assert (trained.history[0, 3:] > 0.5).all() and torch.equal(trained.history[-1], trained.error)


def test_students_do_not_see_each_other():
    M = System(*draw_teacher(3, 2, 2, 7, **like(3))).lags(7)
    together = train_heads(M, [0, 2, 4], seeds=2, steps=300, generator=torch.Generator().manual_seed(1))
    other = train_heads(5 * M, [0, 2, 4], seeds=2, steps=300, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(together.history, other.history)  # nor the scale of the teacher
    assert together.alpha[0].abs().max() == 0 and together.alpha[2, 2:].abs().max() == 0
    assert together.V[2, 2:].abs().max() == 0
    assert together.heads.tolist() == [0, 0, 2, 2, 4, 4]


def test_the_first_step_moves_every_number_of_a_head_by_a_tenth():
    M = System(*draw_teacher(3, 2, 2, 7, **like(3))).lags(7)
    start, moved = (
        train_heads(M, [2], seeds=3, steps=steps, generator=torch.Generator().manual_seed(1))
        for steps in (0, 1)
    )
    step = (moved.alpha - start.alpha).abs()  # Adam's first step is its rate, whatever the gradient
    torch.testing.assert_close(step, torch.full_like(step, 0.1), rtol=1e-2, atol=0)
    assert 0.25 < float(start.alpha.std()) < 0.35


def test_one_student_of_a_batch_alone():
    rows, mask = torch.randn(9, 4, **like(1)), torch.ones(5, 3, 9, dtype=F64)
    alpha, V = torch.randn(5, 3, 9, **like(2)), torch.randn(5, 3, 4, **like(3))
    how = {"steps": 60, "lr": 0.1, "marks": {0, 30, 60}}
    together = _fitted(alpha.clone(), V.clone(), rows, mask, **how)
    alone = _fitted(alpha[2:3].clone(), V[2:3].clone(), rows, mask[:1], **how)
    torch.testing.assert_close(together[:, 2:3], alone, rtol=1e-8, atol=0.0)


def test_training_keeps_dtype_and_its_input():
    M = System(*draw_teacher(2, 2, 2, 6, **like(3))).lags(6).float()
    before = M.clone()
    trained = train_heads(M, [1], seeds=1, steps=5, generator=torch.Generator().manual_seed(1))
    assert torch.equal(M, before) and trained.alpha.dtype == trained.error.dtype == torch.float32
    assert not any(part.requires_grad for part in (trained.alpha, trained.V, trained.history))
    untrained = train_heads(M, [1], seeds=1, steps=0)
    assert untrained.steps.tolist() == [0] and untrained.history.shape == (1, 1)


def test_as_many_systems_are_drawn_as_attempts_were_allowed(monkeypatch):
    real, drawn = learning_heads.random_stable, []
    monkeypatch.setattr(
        learning_heads, "random_stable", lambda *given, **how: drawn.append(1) or real(*given, **how)
    )
    with pytest.raises(ValueError, match="the best of 3 draws"):
        draw_teacher(4, 2, 2, 9, least_share=0.9, attempts=3)
    assert len(drawn) == 3


BAD = [
    (lambda: draw_teacher(5, 2, 2, 9), ValueError, "k must be between 1 and 4"),
    (lambda: draw_teacher(2, 2, 2, 9, least_share=1.0), ValueError, "least_share"),
    (lambda: draw_teacher(2, 2, 2, 9, least_share="x"), TypeError, "least_share"),
    (
        lambda: draw_teacher(4, 2, 2, 9, least_share=0.5, attempts=3),
        ValueError,
        "best of 3 draws .* had .*e-",
    ),
    (lambda: train_heads(torch.zeros(4, 2, 2), [1]), ValueError, "zero system"),
    (lambda: train_heads(torch.ones(4, 2), [1]), ValueError, "M must"),
    (lambda: train_heads(torch.ones(4, 2, 2), [1, 1]), ValueError, "heads"),
    (lambda: train_heads(torch.ones(4, 2, 2), []), ValueError, "heads"),
    (lambda: train_heads(torch.ones(4, 2, 2), [1.5]), TypeError, "heads"),
    (lambda: train_heads(torch.full((4, 2, 2), torch.nan), [1]), ValueError, "M must"),
    (
        lambda: population_error(torch.ones(1, 3, 3), torch.ones(1, 2, 2), torch.ones(4, 2, 2)),
        ValueError,
        "alpha",
    ),
    (
        lambda: population_error(torch.ones(2, 1, 4, 4), torch.ones(1, 2, 2), torch.ones(4, 2, 2)),
        ValueError,
        "batch",
    ),
    (
        lambda: population_error(
            torch.ones(1, 4, 4), torch.ones(1, 2, 2), torch.ones(4, 2, 2), channel_covariance=-torch.eye(2)
        ),
        ValueError,
        "channel_covariance",
    ),
]


@pytest.mark.parametrize("name", ["d", "p", "n", "attempts"])
def test_a_teacher_has_sizes_of_one_or_more(name):
    sizes = {"d": 2, "p": 2, "n": 5, "attempts": 3}
    with pytest.raises(ValueError, match=f"{name} must be at least 1; got 0"):
        draw_teacher(1, **sizes | {name: 0})


@pytest.mark.parametrize(("call", "error", "words"), BAD)
def test_bad_input_is_named(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_a_teacher_comes_in_the_default_dtype_or_the_one_asked_for():
    for dtype, wanted in ((None, torch.get_default_dtype()), (F64, F64)):
        assert (
            draw_teacher(2, 2, 2, 6, generator=torch.Generator().manual_seed(0), dtype=dtype).dtype == wanted
        )
