"""Students of every class: the batched optimizer, and the counts at which their errors vanish."""

import pytest
import torch
from helpers import F64
from scipy.optimize import minimize as foreign

from ssmbook import systems
from ssmbook.chapters.how_many_heads_really.five_counts import half_plane_floor
from ssmbook.experiments import students
from ssmbook.experiments.students import fit_class, minimize
from ssmbook.heads import sinkless_plateau


def powers(A, n):
    return torch.stack([torch.linalg.matrix_power(A, tau) for tau in range(n)])


@pytest.fixture(scope="module")
def rotation():
    return powers(systems.rotation(torch.tensor(0.7, dtype=F64)), 8)


def banana(z):
    return 100 * (z[:, 1] - z[:, 0] ** 2) ** 2 + (1 - z[:, 0]) ** 2


def test_each_problem_has_its_own_optimizer():
    start = torch.randn(5, 2, dtype=F64, generator=torch.Generator().manual_seed(0))
    together, _, history = minimize(banana, start, steps=80)
    for row, point in zip(start, together, strict=True):
        alone = minimize(banana, row[None], steps=80)[0][0]
        assert torch.equal(alone, point)
    assert torch.allclose(together, torch.ones_like(together), atol=1e-10)
    assert (history.diff(dim=0) <= 0).all() and len(history) <= 81
    assert not (together.requires_grad or history.requires_grad)


def test_the_first_step_has_length_one_however_steep(monkeypatch):
    start = torch.zeros(2, 2, dtype=F64)
    slopes, genuine = [], students._backtrack
    monkeypatch.setattr(students, "_backtrack", lambda *given: slopes.append(given[-1]) or genuine(*given))
    point, *_ = minimize(lambda z: z @ torch.tensor([300.0, -400.0], dtype=F64), start, steps=1)
    assert torch.allclose(point, torch.tensor([-0.6, 0.8], dtype=F64).expand(2, 2), rtol=1e-15)
    assert slopes[0].tolist() == [-500.0, -500.0]  # what the search holds each decrease against


def test_it_remembers_so_many_steps_and_no_more(monkeypatch):
    real, seen = students._two_loops, []
    monkeypatch.setattr(students, "_two_loops", lambda g, pairs: seen.append(len(pairs)) or real(g, pairs))
    minimize(banana, torch.zeros(1, 2, dtype=F64), steps=students.MEMORY + 4)
    assert seen == [*range(students.MEMORY), *[students.MEMORY] * 4]


def test_the_direction_is_that_of_the_inverse_hessian_written_out():
    """H <- (I - s y^T/s^T y) H (I - y s^T/s^T y) + s s^T/s^T y, from s^T y/y^T y of the newest pair."""
    g = torch.Generator().manual_seed(2)
    slope, eye = torch.randn(1, 5, dtype=F64, generator=g), torch.eye(5, dtype=F64)
    pairs = [tuple(torch.randn(2, 1, 5, dtype=F64, generator=g)) for _ in range(3)]
    pairs = [(s, y if float((s * y).sum()) > 0 else -y) for s, y in pairs]
    s, y = (v[0] for v in pairs[-1])
    H = (s @ y) / (y @ y) * eye
    for s, y in ((s[0], y[0]) for s, y in pairs):
        left = eye - torch.outer(s, y) / (s @ y)
        H = left @ H @ left.mT + torch.outer(s, s) / (s @ y)
    torch.testing.assert_close(students._two_loops(slope, pairs)[0], -H @ slope[0])
    flat = [(s, 0 * y) for s, y in pairs]
    torch.testing.assert_close(students._two_loops(slope, flat), -slope)  # no curvature, no memory


def test_against_another_implementation():
    g = torch.Generator().manual_seed(1)
    root = torch.randn(3, 7, 7, dtype=F64, generator=g)
    Q, b = root @ root.mT + torch.eye(7, dtype=F64), torch.randn(3, 7, dtype=F64, generator=g)

    def objective(z):
        return torch.einsum("sa,sab,sb->s", z, Q, z) / 2 - (b * z).sum(1) + z.pow(4).sum(1)

    found = minimize(objective, torch.zeros(3, 7, dtype=F64), steps=200)[1]
    for s in range(3):

        def single(z, s=s):
            z = torch.tensor(z)
            return float(z @ Q[s] @ z / 2 - b[s] @ z + z.pow(4).sum())

        assert float(found[s]) <= foreign(single, [0.0] * 7, tol=1e-12).fun + 1e-9


def test_a_minimum_stays_where_it_is():
    start = torch.ones(2, 2, dtype=F64)
    point, value, _ = minimize(banana, start, steps=5)
    assert torch.equal(point, start) and not value.any()
    assert len(minimize(banana, start, steps=50)[2]) == 3  # twice no way on: it stops
    point, value, history = minimize(banana, 3 * start, steps=0)
    assert torch.equal(point, 3 * start) and torch.equal(history, value[None]) and value.all()


@pytest.mark.guards("thm-no-sink", "prop-plateau")
def test_without_a_sink_the_plateau_is_reached_and_never_passed(rotation):
    plateau = sinkless_plateau(rotation).relative
    for H in (3, 4):
        errors = fit_class(rotation, H, "softmax", steps=150, generator=torch.Generator().manual_seed(H))
        assert errors.min() >= plateau * (1 - 1e-9) and errors.min() < plateau * 1.01


@pytest.mark.guards("thm-sink-count")
def test_with_a_sink_the_third_head_makes_the_rotation(rotation):
    errors = [
        fit_class(rotation, H, "sink", steps=150, generator=torch.Generator().manual_seed(0)) for H in (2, 3)
    ]
    assert errors[0].min() >= half_plane_floor(rotation) and errors[1].min() < 1e-3 * errors[0].min()


@pytest.mark.guards("prop-rank-limited")
def test_rank_one_value_maps_need_three_heads_for_a_rotation(rotation):
    few = torch.stack([torch.eye(2, dtype=F64), torch.zeros(2, 2, dtype=F64)])  # fewer blocks than entries
    assert [round(float(fit_class(few, H, "rank one", seeds=2).min()), 6) for H in (1, 2)] == [0.5, 0.0]
    errors = [fit_class(rotation, H, "rank one", generator=torch.Generator().manual_seed(0)) for H in (2, 3)]
    assert errors[0].min() > 0.1 and errors[1].max() < 1e-20


def test_bad_input(rotation):
    for change, words in (
        ({"kind": "linear"}, "kind must be one of softmax, sink, rank one; got 'linear'"),
        ({"H": 0}, "H must be at least 1"),
        ({"M": 0 * rotation}, "zero system"),
        ({"M": rotation[0]}, "M must"),
    ):
        with pytest.raises(ValueError, match=words):
            fit_class(**{"M": rotation, "H": 1, "kind": "sink", **change})
    for start in (torch.full((1, 2), torch.nan), torch.zeros(2)):
        with pytest.raises(ValueError, match="start must"):
            minimize(banana, start)
