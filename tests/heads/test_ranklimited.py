"""Heads with value maps of bounded rank: bounds, constructions, and the Jordan block's border rank."""

import math

import numpy as np
import pytest
import torch
from helpers import F64, diagonal, gen, randn, random_system, rotation, seen
from hypothesis import given, settings
from hypothesis import strategies as st

from ssmbook.heads import head_count
from ssmbook.systems import System


def modal_system(real, pairs, p, d, seed=0):
    A = torch.block_diag(*[diagonal(v) for v in real], *[r * rotation(t) for r, t in pairs])
    return A, randn(len(A), d, seed=seed), randn(p, len(A), seed=seed + 1)


def check(M, r, system=None):
    """The two bounds on the count, after a look at the heads that attain the upper one."""
    behind = (M,) if system is None else (System(*system), len(M))
    count = head_count(*behind, value_rank=r)
    V, lags = count.evidence.V, torch.einsum("hn,hpd->npd", count.evidence.coefficients, count.evidence.V)
    assert count.low <= count.high == len(V) and count.evidence.relative_error <= 1e-9
    assert (lags - M).norm() <= 2e-9 * M.norm()
    assert all(torch.linalg.matrix_rank(value_map, rtol=1e-8) <= r for value_map in V)
    return count.low, count.high


def lower_bounds(M, r):
    return head_count(M, value_rank=r).evidence.bounds


@pytest.mark.guards("prop-rank-limited")
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), *[st.integers(1, 4)] * 3, st.integers(1, 9))
def test_bounds_are_ordered_and_the_construction_is_the_system(seed, N, p, d, r, n):
    system = A, _, _ = random_system(N, d, p, 0.9, seed)[:3]
    M, r = System(*system).lags(n), min(r, p, d)
    lower, upper = check(M, r, system)
    k = int(torch.linalg.matrix_rank(M.flatten(1), rtol=1e-10))
    assert k <= lower
    if r == min(p, d):
        assert lower == upper == k
    pairs = int((torch.linalg.eigvals(A).imag > 0).sum())
    if r == 1:
        assert upper <= N + pairs
    clustered = System(0.3 * torch.eye(N, dtype=F64) + 1e-3 * A, *system[1:]).lags(n)
    assert max(lower_bounds(clustered, r).values()) <= N + pairs


@pytest.mark.guards("prop-rank-limited")
def test_modes_of_the_system_help_where_the_lags_do_not_show_them():
    system = modal_system([0.9, 0.3], [(0.8, 1.0), (0.7, 2.0)], 3, 4)
    M = System(*system).lags(24)
    assert check(M, 1, system)[1] == 8 < check(M, 1)[1]
    repeated = modal_system([0.9, 0.5, 0.5, 0.1], [], 4, 4)
    M = System(*repeated).lags(12)
    assert check(M, 1, repeated) == (4, 4) and check(M, 2, repeated) == (3, 3)


@pytest.mark.guards("prop-rank-limited")
def test_two_dimensional_spans_by_their_discriminant():
    g = gen(4)
    seen = set()
    for _ in range(40):
        M = torch.randn(2, 2, 2, generator=g, dtype=F64)
        # An independent view: M_0^-1 M_1 has real eigenvalues iff the span has two rank-one elements.
        real = bool((torch.linalg.eigvals(torch.linalg.solve(M[0], M[1])).imag == 0).all())
        a, c = torch.linalg.det(M)
        discriminant = (torch.linalg.det(M.sum(0)) - a - c) ** 2 - 4 * a * c
        assert (discriminant > 0) == real
        assert check(M, 1) == ((2, 2) if real else (3, 3))
        for E in head_count(M, value_rank=1).evidence.V if real else ():
            sigma = torch.linalg.svdvals(E)
            assert sigma[1] < 1e-9 * sigma[0] and float(sigma[0]) == pytest.approx(1)
            rows = torch.cat([M.flatten(1), E.flatten()[None]])
            assert torch.linalg.matrix_rank(rows, rtol=1e-9) == 2
        seen.add(real)
    assert seen == {True, False}


@pytest.mark.guards("prop-rank-limited")
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_double_root_gives_three_heads_in_any_basis(sign):
    """det(x E + y F) = ± y² / 2 with E = e_1 e_2^T and F = diag(1, ±1) / sqrt(2): 0 at E alone, twice."""
    E, F = np.array([[0.0, 1.0], [0.0, 0.0]]), np.diag([1.0, sign]) / math.sqrt(2)
    for angle in (0.0, 0.3, math.pi / 2, 2.0, -0.5):  # of the basis in which the span is given
        turned = torch.from_numpy(np.tensordot(rotation(angle).numpy(), np.stack([E, F]), 1))
        assert check(turned, 1)[1] == 3


@pytest.mark.guards("prop-rank-limited")
def test_every_lower_bound_is_the_reason_somewhere():
    eye = torch.eye(4, dtype=F64)
    one = lower_bounds(eye[None], 2)
    assert one["span"] == 1 and one["columns"] == one["rows"] == one["largest lag"] == 2
    row = torch.zeros(4, 4, 1, dtype=F64)
    row[range(4), range(4), 0] = 1
    assert lower_bounds(row, 1)["span"] == 4
    pair = seen(rotation(0.7)).lags(4)
    bounds = lower_bounds(pair, 1)
    assert bounds.pop("tensor rank") == 3 and max(bounds.values()) == 2
    wide = torch.zeros(2, 2, 3, dtype=F64)
    wide[0, 0, 0] = wide[0, 1, 1] = wide[1, 0, 1] = wide[1, 1, 2] = 1
    bounds = lower_bounds(wide, 1)
    assert bounds["rows"] == 3 > max(bounds["span"], bounds["columns"], bounds["largest lag"])
    assert lower_bounds(wide, 2)["rows"] == 2
    # k = 2 in a 3 x 3 core: no algebra, but a non-real pencil eigenvalue rules three rank-one heads out.
    pencil = torch.stack([torch.eye(3, dtype=F64), torch.block_diag(rotation(1.0), diagonal(2.0))])
    for lags in (pencil, torch.cat([pencil, pencil.sum(0, keepdim=True)])):  # powers of a matrix, and none
        bounds = lower_bounds(lags, 1)
        assert bounds.pop("tensor rank") == 4 and max(bounds.values()) == 3
    pencil[1] = diagonal(1.0, 2.0, 3.0)
    assert check(pencil, 1) == (3, 3)


def test_each_construction_is_the_best_somewhere():
    g = gen(0)
    M = torch.zeros(6, 3, 3, dtype=F64)
    M[:, :2, :2] = torch.randn(6, 2, 2, generator=g, dtype=F64)
    assert check(M, 1)[1] == 4  # the four elementary matrices of the 2 x 2 core, and nothing else
    a, b = torch.randn(4, 2, generator=g, dtype=F64), torch.randn(4, 3, generator=g, dtype=F64)
    M = torch.einsum("tp,td->tpd", a, b)
    M = torch.cat([M, 0.01 * torch.stack([M[0] + M[1], M[2] - M[3]])])
    assert check(M, 1)[1] == 4  # four of the lags themselves
