"""Rank-one heads where B and C see every state: 2 N - t of them, and N + defect for two tokens."""

import numpy as np
import pytest
import torch
from helpers import F64

from ssmbook.heads import head_count
from ssmbook.systems import System

pytestmark = pytest.mark.guards("prop-rank-one-count")

ZERO, HALF, QUARTER = np.array([[0.0]]), np.array([[0.5]]), np.array([[-0.25]])
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
    found = head_count(system, n, value_rank=1)
    V, M = found.evidence.V, system.lags(n)
    lags = torch.einsum("hn,hpd->npd", found.evidence.coefficients, V)
    assert len(V) == found.high and (lags - M).norm() <= 2e-9 * M.norm()
    assert all(torch.linalg.svdvals(v)[1] < 1e-9 for v in V)
    return found


@pytest.mark.parametrize(
    ("blocks", "t"),
    [
        ([(HALF, 1), (QUARTER, 1), (PAIR, 1)], 3),  # simple poles: q + 3 g
        ([(HALF, 5)], 1),
        ([(ZERO, 3)], 1),
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
        assert head_count(system, 2 * N, value_rank=2).low >= -(-(2 * N - t) // 2)


@pytest.mark.parametrize(
    ("blocks", "defect", "built_too"),
    [
        ([(PAIR, 1), (OTHER, 1)], 1, True),
        ([(PAIR, 1), (PAIR, 1)], 2, True),
        ([(PAIR, 1), (PAIR, 1), (PAIR, 1)], 3, True),
        ([(HALF, 5)], 1, True),
        ([(ZERO, 3)], 1, True),
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
        assert head_count(system, 2 * system.N, value_rank=1).low >= system.N + defect


def test_the_bound_needs_its_hypotheses():
    system = built((HALF, 3))
    M = system.lags(8)
    assert head_count(M, value_rank=1) == 5  # exact powers of one matrix
    M[5, 0, 0] += 2.0**-40
    assert head_count(M, value_rank=1).low < 5
    seen = system.replace(C=system.C[:2])  # one state is not seen: C has rank 2
    skipped = system.replace(D=torch.eye(3, dtype=F64))
    assert head_count(seen, 8, value_rank=1).low < 5
    assert head_count(skipped, 8, value_rank=1).low < 5
    assert head_count(system, 2, value_rank=1).low == 4  # fewer lags than states span less than the algebra
    one = System(*(torch.full((1, 1), 0.5, dtype=F64) for _ in range(3)))
    assert head_count(one, 5, value_rank=1) == 1
