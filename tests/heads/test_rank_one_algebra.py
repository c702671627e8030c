"""Rank-one heads where B and C see every state: 2 N - t of them, and N + defect for two tokens."""

import numpy as np
import pytest
import torch
from helpers import F64

from ssmbook.heads.rank_limited.algebra import Algebra, algebra_behind, placed_heads
from ssmbook.heads.rank_limited.count import rank_limited_head_count, rank_limited_lower_bounds
from ssmbook.systems import System

pytestmark = pytest.mark.guards("prop-rank-one-count")

HALF, QUARTER = np.array([[0.5]]), np.array([[-0.25]])
PAIR, OTHER = np.array([[0.0, -0.75], [0.75, 0.75]]), np.array([[0.5, -0.5], [0.5, 0.5]])


def block(root, size):
    """A Jordan block over the reals: ``size`` copies of a 1 x 1 or a 2 x 2 root, identities between them."""
    w = len(root)
    A = np.kron(np.eye(size), root)
    A[: w * (size - 1), w:] += np.eye(w * (size - 1))
    return torch.from_numpy(A)


def built(*blocks, seed=None):
    """B = C = I, or random B and C of rank N; an integer change of states that keeps every entry exact."""
    A = torch.block_diag(*(block(*b) for b in blocks))
    N = len(A)
    if seed is None:
        return System(A, torch.eye(N, dtype=F64), torch.eye(N, dtype=F64))
    g = torch.Generator().manual_seed(seed)
    T = torch.eye(N, dtype=F64) + torch.randint(-1, 2, (N, N), generator=g).double().triu(1)
    inverse = torch.linalg.inv(T).round()
    assert torch.equal(T @ inverse, torch.eye(N, dtype=F64))
    B, C = torch.randn(N, N + 1, generator=g, dtype=F64), torch.randn(N + 2, N, generator=g, dtype=F64)
    return System(T @ A @ inverse, B, C)


def count(system, n):
    found = rank_limited_head_count(system, n, r=1)
    V, M = found.evidence.V, system.lags(n)
    assert found.evidence.H == found.high and found.evidence.relative_error < 1e-9
    assert (found.evidence.lags() - M).norm() <= 2e-9 * M.norm()
    assert all(torch.linalg.svdvals(v)[1] < 1e-9 for v in V)
    return found


@pytest.mark.parametrize("m", [2, 3, 4, 5])
@pytest.mark.parametrize("rho", [0.5, 0.9, 0.0])
def test_a_jordan_block_of_size_m_needs_2m_minus_1(m, rho):
    system = built((np.array([[rho]]), m))
    for n in (m, 2 * m):
        assert count(system, n) == 2 * m - 1
    assert count(system, 2) == (m + 1 if m > 1 else 1)


@pytest.mark.parametrize(
    ("blocks", "t"),
    [
        ([(HALF, 1), (QUARTER, 1), (PAIR, 1)], 3),  # simple poles: q + 3 g
        ([(PAIR, 2)], 1),
        ([(HALF, 3), (PAIR, 1), (QUARTER, 1)], 3),
        ([(PAIR, 2), (OTHER, 1)], 2),
        ([(HALF, 2), (QUARTER, 2)], 2),
    ],
)
def test_one_formula_for_poles_pairs_and_blocks(blocks, t):
    for seed in (None, 0, 1):
        system = built(*blocks, seed=seed)
        N = system.N
        assert count(system, N) == 2 * N - t and count(system, 2 * N + 1) == 2 * N - t
        bounds = rank_limited_lower_bounds(system, 2 * N, r=1)
        assert bounds["tensor rank"] == 2 * N - t
        assert rank_limited_lower_bounds(system, 2 * N, r=2)["tensor rank"] == -(-(2 * N - t) // 2)


@pytest.mark.parametrize(
    ("blocks", "defect", "built_too"),
    [
        ([(PAIR, 1), (OTHER, 1)], 1, True),
        ([(PAIR, 1), (PAIR, 1)], 2, True),
        ([(PAIR, 1), (PAIR, 1), (PAIR, 1)], 3, True),
        ([(HALF, 2), (QUARTER, 1)], 1, True),
        ([(HALF, 2), (HALF, 2)], 2, True),
        ([(HALF, 2), (PAIR, 1), (PAIR, 1)], 2, True),
        ([(HALF, 1), (QUARTER, 1), (QUARTER, 1)], 0, True),
        ([(HALF, 3), (HALF, 1)], 1, False),  # two blocks at one eigenvalue: one column does not move both
    ],
)
def test_two_tokens_need_one_head_more_for_each_defective_invariant_polynomial(blocks, defect, built_too):
    for seed in (None, 2):
        system = built(*blocks, seed=seed)
        found = count(system, 2)
        assert found.low == system.N + defect and (found == system.N + defect) == built_too
        assert rank_limited_lower_bounds(system, 2, r=1)["tensor rank"] == system.N + defect
        assert rank_limited_head_count(system, 2 * system.N, r=1).low >= system.N + defect


def test_lags_alone_are_enough_where_they_are_exact_powers():
    system = built((HALF, 3))
    M = system.lags(8)
    assert rank_limited_head_count(M, r=1) == 5
    M[5, 0, 0] += 2.0**-40  # no longer the powers of one matrix: the structure proves nothing
    assert algebra_behind(M.numpy(), None) is None
    assert algebra_behind(M[:, :2].numpy(), None) is None and algebra_behind(M[:1].numpy(), None) is None
    singular = M.clone()
    singular[0] = 0
    assert algebra_behind(singular.numpy(), None) is None


def test_without_the_hypotheses_nothing_is_claimed():
    system = built((HALF, 3))
    arrays = [m.numpy() for m in (system.A, system.B, system.C)]
    lags = system.lags(6).numpy()
    assert algebra_behind(lags, (*arrays, None)).lower_bound == 5
    assert algebra_behind(lags, (*arrays, np.eye(3))) is None
    assert algebra_behind(lags, (arrays[0], arrays[1][:, :2], arrays[2], None)) is None
    flat = arrays[2].copy()
    flat[2] = flat[1] * (1 + 1e-14)
    for scale in (1.0, 1e-20, 1e20):  # a rank has no unit
        assert algebra_behind(lags, (arrays[0], arrays[1], scale * flat, None)) is None
        assert algebra_behind(lags, (arrays[0], arrays[1], scale * arrays[2], None)).lower_bound == 5
        assert algebra_behind(scale * (flat @ lags), None) is None
    # fewer lags than states span less than the algebra
    assert algebra_behind(lags[:2], (*arrays, None)).lower_bound == 4
    one = System(*(torch.full((1, 1), 0.5, dtype=F64) for _ in range(3)))
    assert rank_limited_head_count(one, 5, r=1) == 1


def test_a_rounded_block_is_the_rationals_it_became():
    """A Jordan block in rotated states has split eigenvalues: no more than their modes is proved."""
    g = torch.Generator().manual_seed(3)
    for m in (3, 4):
        Q = torch.linalg.qr(torch.randn(m, m, generator=g, dtype=F64))[0]
        A, eye = Q @ block(HALF, m) @ Q.mT, torch.eye(m, dtype=F64)
        found = rank_limited_head_count(System(A, eye, eye), 2 * m, r=1)
        values = torch.linalg.eigvals(A)
        modes = int((values.imag == 0).sum()) + 3 * int((values.imag > 0).sum())
        assert m <= found.low <= max(modes, 2 * m - 1) <= found.high


def test_parts_of_the_construction_say_when_they_fail():
    X = np.diag([0.5, 0.5, 0.25])  # two blocks at one real pole: one column cannot part them
    heads = placed_heads(np.eye(3), X, 1)
    if heads is not None:
        flat = heads.reshape(len(heads), -1).T
        assert np.abs(flat @ np.linalg.lstsq(flat, X.ravel(), rcond=None)[0] - X.ravel()).max() > 1e-9
    assert placed_heads(np.eye(2), np.zeros((2, 2))) is None
    algebra = Algebra(X, np.eye(3), np.eye(3), 5, ((0.5, 2), (0.25, 1)), 2, 0)
    assert algebra.lower_bound == 3 and algebra.value_maps() == []


def test_a_bound_stands_where_its_value_maps_are_beyond_float64(monkeypatch):
    def singular(self):
        raise np.linalg.LinAlgError

    monkeypatch.setattr(Algebra, "value_maps", singular)
    system = built((HALF, 3))
    found = rank_limited_head_count(system, 6, r=1)
    assert found.low == 5 <= found.high and found.evidence.relative_error < 1e-9
