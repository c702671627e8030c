"""Heads with value maps of bounded rank: bounds, constructions, and the Jordan block's border rank."""

import math

import numpy as np
import pytest
import torch
from helpers import F64, rotation
from hypothesis import given, settings
from hypothesis import strategies as st

from ssmbook.chapters.how_many_heads_really.border import jordan_approximation, jordan_lags
from ssmbook.heads import head_count
from ssmbook.systems import System


def modal_system(real, pairs, p, d, seed=0):
    g = torch.Generator().manual_seed(seed)
    A = torch.block_diag(
        *[torch.tensor([[v]], dtype=F64) for v in real], *[r * rotation(t) for r, t in pairs]
    )
    return A, torch.randn(len(A), d, generator=g, dtype=F64), torch.randn(p, len(A), generator=g, dtype=F64)


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
@given(
    st.integers(0, 10**6),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 9),
    st.integers(1, 4),
)
def test_bounds_are_ordered_and_the_construction_is_the_system(seed, N, p, d, n, r):
    g = torch.Generator().manual_seed(seed)
    A = torch.randn(N, N, generator=g, dtype=F64)
    A = A * (0.9 / torch.linalg.eigvals(A).abs().max())
    system = A, torch.randn(N, d, generator=g, dtype=F64), torch.randn(p, N, generator=g, dtype=F64)
    M = System(*system).lags(n)
    lower, upper = check(M, r, system)
    k = int(torch.linalg.matrix_rank(M.flatten(1), rtol=1e-10))
    assert k <= lower
    if r >= min(p, d):
        assert lower == upper == k
    poles = torch.linalg.eigvals(A)
    if r == 1:
        assert upper <= int((poles.imag == 0).sum()) + 3 * int((poles.imag > 0).sum())


@pytest.mark.guards("prop-rank-limited")
@pytest.mark.parametrize("theta", [0.1, 0.7, 1.5, 3.0])
def test_rotation_needs_three_rank_one_heads(theta):
    eye = torch.eye(2, dtype=F64)
    for n in (2, 3, 12):
        M = System(0.9 * rotation(theta), eye, eye).lags(n)
        assert check(M, 1) == (3, 3) and check(M, 2) == (2, 2)
    assert check(System(0.9 * rotation(theta), eye, eye).lags(1), 1) == (2, 2)
    half = System(-0.9 * eye, eye, eye).lags(5)
    assert check(half, 1) == (2, 2) and check(half, 2) == (1, 1)


@pytest.mark.guards("prop-rank-limited")
@pytest.mark.parametrize(
    "real,pairs",
    [
        ([0.9, 0.4], []),
        ([0.9], [(0.8, 1.0)]),
        ([0.9, 0.3], [(0.8, 1.0), (0.7, 2.0)]),
        ([], [(0.9, 0.5), (0.8, 1.2)]),
    ],
)
def test_modes_are_counted_exactly_where_input_and_output_see_all_states(real, pairs):
    N = len(real) + 2 * len(pairs)
    for p, d in ((N, N), (N + 1, N + 2)):
        M = System(*modal_system(real, pairs, p, d)).lags(2 * N + 3)
        wanted = len(real) + 3 * len(pairs)
        assert check(M, 1) == (wanted, wanted)
        assert check(M, 2) == (N, N)


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
    g = torch.Generator().manual_seed(4)
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
    assert lower_bounds(row, 2)["span"] == 4
    pair = System(rotation(0.7), torch.eye(2, dtype=F64), torch.eye(2, dtype=F64)).lags(4)
    bounds = lower_bounds(pair, 1)
    assert bounds.pop("tensor rank") == 3 and max(bounds.values()) == 2
    wide = torch.zeros(2, 2, 3, dtype=F64)
    wide[0, 0, 0] = wide[0, 1, 1] = wide[1, 0, 1] = wide[1, 1, 2] = 1
    bounds = lower_bounds(wide, 1)
    assert bounds["rows"] == 3 > max(bounds["span"], bounds["columns"], bounds["largest lag"])
    assert [lower_bounds(wide, r)["rows"] for r in (2, 3)] == [2, 1]
    # k = 2 in a 3 x 3 core: no algebra, but a non-real pencil eigenvalue rules three rank-one heads out.
    pencil = torch.stack(
        [torch.eye(3, dtype=F64), torch.block_diag(rotation(1.0), 2 * torch.eye(1, dtype=F64))]
    )
    for lags in (pencil, torch.cat([pencil, pencil.sum(0, keepdim=True)])):  # powers of a matrix, and none
        bounds = lower_bounds(lags, 1)
        assert bounds.pop("tensor rank") == 4 and max(bounds.values()) == 3
    pencil[1] = torch.diag(torch.tensor([1.0, 2, 3], dtype=F64))
    assert check(pencil, 1) == (3, 3)


@pytest.mark.guards("prop-border-rank")
@pytest.mark.parametrize("rho", [0.5, -0.25, 1.0])
def test_jordan_block_has_rank_three_and_border_rank_two(rho):
    eye = torch.eye(2, dtype=F64)
    A = torch.tensor([[rho, 1.0], [0, rho]], dtype=F64)
    M = jordan_lags(rho, 9)
    assert torch.allclose(M, System(A, eye, eye).lags(9), atol=1e-15)
    assert check(M, 1) == (3, 3)
    errors, sizes = [], []
    for epsilon in (1e-1, 1e-2, 1e-3, 1e-4):
        heads = jordan_approximation(rho, epsilon, 9)
        assert [int(torch.linalg.matrix_rank(V)) for V in heads.V] == [1, 1]
        lags = torch.einsum("hn,hpd->npd", heads.coefficients, heads.V)
        assert heads.relative_error == pytest.approx(float((lags - M).norm() / M.norm()))
        errors.append(heads.relative_error)
        sizes.append(float(heads.coefficients.abs().max()))
    assert errors[3] < 1e-3 and all(4 < a / b < 40 for a, b in zip(errors, errors[1:], strict=False))
    assert all(b > 4 * a for a, b in zip(sizes, sizes[1:], strict=False))


@pytest.mark.parametrize("shape", [(0, 2, 3), (3, 0, 2), (3, 2, 2)])
def test_lags_without_entries_or_of_zeros_need_no_head(shape):
    count = head_count(torch.zeros(shape, dtype=F64), value_rank=1)
    assert count == 0 and count.evidence.relative_error == 0


def test_dtype_and_a_rank_of_zero():
    M = jordan_lags(0.5, 4)
    assert head_count(M.float(), value_rank=2).evidence.V.dtype == torch.float32
    assert not head_count(M.clone().requires_grad_(), value_rank=2).evidence.V.requires_grad
    with pytest.raises(ValueError):
        head_count(M, value_rank=0)


@pytest.mark.guards("prop-rank-limited")
@pytest.mark.parametrize("m", [2, 4, 6])
@pytest.mark.parametrize("gap", [1e-7, 1e-3])
def test_a_change_within_the_tolerance_that_turns_a_cluster_complex_proves_nothing(m, gap):
    """m real poles need m heads of rank one; a change of 1e-9 of the lags, the tolerance of a construction,
    moves them far off the axis, to the 1/m-th power of it.
    """
    A, eye, n = torch.diag(0.5 + gap * torch.arange(m, dtype=F64)), torch.eye(m, dtype=F64), 2 * m
    A += torch.diag(torch.ones(m - 1, dtype=F64), 1)
    M = System(A, eye, eye).lags(n)
    rng, turned = np.random.default_rng(m), 0
    for draw in range(6):
        change = torch.zeros(m, m, dtype=F64)
        change[-1, 0] = (-1) ** draw
        if draw > 3:
            change = torch.from_numpy(rng.standard_normal((m, m)))
        slope = float((System(A + 1e-10 * change, eye, eye).lags(n) - M).norm() / M.norm()) / 1e-10
        changed = A + change * (0.3 + 0.6 * (draw % 4 > 1)) * 1e-9 / slope
        near = System(changed, eye, eye).lags(n)
        assert (near - M).norm() < 1e-9 * near.norm()
        turned += bool((torch.linalg.eigvals(changed).imag != 0).any())
        assert max(lower_bounds(near, 1).values()) <= m
    assert turned or gap > 1e-4


@pytest.mark.guards("prop-rank-limited")
@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(0, 5), st.integers(0, 2), st.sampled_from([1e-6, 1e-3, 0.05, 1.0]),
    st.booleans(), st.integers(1, 2),
)  # fmt: skip
def test_no_bound_exceeds_the_count_of_the_modes(seed, q, g, spread, triangular, r):
    """q real poles and g pairs, close or not, need at most q + 3 g heads of rank one, q + 2 g of rank two."""
    rng = np.random.default_rng(seed)
    q = q or 1
    blocks = [np.array([[0.9 * v]]) for v in 0.3 + spread * rng.uniform(-1, 1, q)]
    blocks += [
        rho * np.array([[math.cos(t), -math.sin(t)], [math.sin(t), math.cos(t)]])
        for rho, t in zip(rng.uniform(0.4, 0.95, g), rng.uniform(0.05, 3.1, g), strict=True)
    ]
    A = torch.block_diag(*(torch.from_numpy(b) for b in blocks))
    N = len(A)
    if triangular:
        A[:q, :q] += torch.from_numpy(np.triu(rng.standard_normal((q, q)), 1))
    if rng.random() < 0.5:
        Q = torch.linalg.qr(torch.from_numpy(rng.standard_normal((N, N))))[0]
        A = Q @ A @ Q.mT
    B, C = (torch.from_numpy(rng.standard_normal((N, N))) for _ in range(2))
    if rng.random() < 0.5:
        B, C = B[:, : int(rng.integers(1, N + 1))], C[: int(rng.integers(1, N + 1))]
    lower = max(lower_bounds(System(A, B, C).lags(N + int(rng.integers(0, N + 1))), r).values())
    assert lower <= q + (3 if r == 1 else 2) * g


@pytest.mark.guards("prop-rank-limited")
@pytest.mark.parametrize("r", [1, 2])
@pytest.mark.parametrize("faint", [1e-4, 1e-6, 1e-8])
def test_a_faint_direction_does_not_lift_rounding_into_a_rank(r, faint):
    # k = 2, and one head of rank one for each: the second mode is faint, its rounding errors are not seen.
    g = torch.Generator().manual_seed(r)
    A = torch.diag(torch.tensor([0.9, 0.4], dtype=F64))
    Q = torch.linalg.qr(torch.randn(2, 2, generator=g, dtype=F64))[0]
    B, C = torch.randn(2, 6, generator=g, dtype=F64), torch.randn(5, 2, generator=g, dtype=F64)
    C[:, 1] *= faint
    M = System(Q @ A @ Q.mT, Q @ B, C @ Q.mT).lags(12)
    assert max(lower_bounds(M, r).values()) == 2


def test_each_construction_is_the_best_somewhere():
    g = torch.Generator().manual_seed(0)
    M = torch.zeros(6, 3, 3, dtype=F64)
    M[:, :2, :2] = torch.randn(6, 2, 2, generator=g, dtype=F64)
    assert check(M, 1)[1] == 4  # the four elementary matrices of the 2 x 2 core, and nothing else
    a, b = torch.randn(4, 2, generator=g, dtype=F64), torch.randn(4, 3, generator=g, dtype=F64)
    M = torch.einsum("tp,td->tpd", a, b)
    M = torch.cat([M, 0.01 * torch.stack([M[0] + M[1], M[2] - M[3]])])
    assert check(M, 1)[1] == 4  # four of the lags themselves


@pytest.mark.guards("prop-rank-limited")
def test_modes_far_below_the_largest_count_where_the_tolerance_asks_for_them():
    """Three modes of rank one, of 2 x 4, one of relative size 1e-12; there are six elementary matrices."""
    A, B, C = modal_system([0.9, 0.5, -0.4], [], 2, 4)
    system = System(A, B * torch.tensor([[1.0], [3e-12], [1.0]], dtype=F64), C)
    assert head_count(system, 10, value_rank=1) == 2
    assert head_count(system, 10, value_rank=1, rtol=1e-13) == 3
