"""Head counts in float64: named examples, the bounds, invariance, agreement with rational arithmetic,
near-ties.
"""

import math
from functools import partial

import pytest
import torch
from helpers import EYE, F64, floats, randn, random_system, rotation
from hypothesis import given, settings
from hypothesis import strategies as st

from ssmbook.heads import (
    exact_minimal_degree,
    head_count,
    head_count_bound,
    heads_from_ssm,
)
from ssmbook.systems import System

exact_head_count = partial(head_count, exact=True)

pytestmark = pytest.mark.filterwarnings("ignore::ssmbook.heads.HeadCountTieWarning")
quick = settings(max_examples=40, deadline=None)


def evidence(*asked, **options):
    return head_count(*asked, **options).evidence


@st.composite
def integer_systems(draw, largest=5):
    """Small integer systems: dense, sparse (often nilpotent), or with a repeated block behind a hidden
    basis.
    """
    N, p, d = draw(st.integers(1, largest)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    entry = draw(st.sampled_from([st.integers(-2, 2), st.sampled_from([0, 0, 0, 1, -1])]))
    matrix = lambda rows, columns: [[draw(entry) for _ in range(columns)] for _ in range(rows)]  # noqa: E731
    A = torch.tensor(matrix(N, N))
    if draw(st.booleans()):
        A, N = torch.block_diag(A, A), 2 * N
        hide = torch.tensor(matrix(N, N)).tril(-1) + torch.eye(N, dtype=torch.int64)
        back = torch.linalg.inv(hide.double()).round().long()
        A = hide @ A @ back
    B, C = torch.tensor(matrix(N, d)), torch.tensor(matrix(p, N))
    D = torch.tensor(matrix(p, d)) if draw(st.booleans()) else None
    return A, B, C, D


@pytest.mark.guards("thm-rank-gap")
@pytest.mark.parametrize("theta", [0.1, 0.7, math.pi / 2, 2.0, 3.1])
def test_the_rotation_needs_two_heads_and_theta_pi_one(theta):
    assert head_count(System(rotation(theta, 0.9), EYE, EYE), 10) == 2
    assert head_count(System(rotation(theta), EYE, EYE), 1) == 1
    assert head_count(System(rotation(math.pi), EYE, EYE), 10) == 1  # sin(math.pi) is 1.2e-16, not 0


@pytest.mark.guards("prop-what-k-is")
def test_siso_s4d_mimo_zero_and_identity_examples():
    A, B, C, _ = random_system(9, 1, 1, 0.9, 0)
    assert head_count(System(A, B, C), 50) == 1
    A, B, C, D = random_system(9, 4, 3, 0.9, 1)
    assert head_count(System(A, B, C), 50) == 9 and head_count(System(A, B, C, D), 50) == 10
    assert head_count(System(A, B, C), 4) == 4 and head_count(System(A, B, C), 0) == 0
    assert head_count(System(A, B[:, :2], C[:2]), 50) == 4
    assert head_count(System(A, 0 * B, C), 50) == 0 and head_count(System(A, 0 * B, C, D), 50) == 1
    assert (
        head_count(System(0 * A, B, C), 50) == 1 and head_count(System(A[:0, :0], B[:0], C[:, :0], D), 5) == 1
    )


@pytest.mark.guards("prop-what-k-is")
@pytest.mark.parametrize("n", [2, 3, 5, 40])
def test_s4d_counts_the_rank_of_its_kernel_matrix(n):
    # Three scalar SSMs of two states; channel 2 repeats channel 0, so the n x d kernel matrix has rank 2.
    lam = torch.tensor([0.9, 0.2, 0.5, 0.4, 0.9, 0.2], dtype=F64)
    B = torch.zeros(6, 3, dtype=F64)
    C = torch.zeros(3, 6, dtype=F64)
    for channel in range(3):
        B[2 * channel : 2 * channel + 2, channel] = 1.0
        C[channel, 2 * channel : 2 * channel + 2] = torch.tensor([1.0, 3.0])
    kernels = torch.diagonal(System(torch.diag(lam), B, C).lags(n), dim1=1, dim2=2)
    assert head_count(System(torch.diag(lam), B, C), n).value == torch.linalg.matrix_rank(kernels) == 2


@pytest.mark.guards("prop-what-k-is")
def test_a_delay_line_stalls_for_five_lags():
    A, B = torch.diag(torch.ones(5, dtype=F64), -1), torch.eye(6, 1, dtype=F64)
    C = torch.zeros(2, 6, dtype=F64)
    C[0, 0] = C[1, 5] = 1.0
    assert [head_count(System(A, B, C), n) for n in range(1, 9)] == [1, 1, 1, 1, 1, 2, 2, 2]


@pytest.mark.guards("thm-head-count", "prop-what-k-is")
@quick
@given(integer_systems(), st.integers(0, 14))
def test_float64_agrees_with_rational_arithmetic(system, n):
    A, B, C, D = system
    exact = exact_head_count((A, B, C, D), n)
    report = evidence(System(*floats(A, B, C), floats(D)[0]), n)
    assert exact.evidence.verify()
    assert report.rank == exact.value, str(report)
    assert evidence(System(*floats(A, B, C)), len(A)).degree == exact_minimal_degree((A, B, C))


@pytest.mark.guards("prop-what-k-is")
@quick
@given(integer_systems(), st.integers(0, 14))
def test_the_bounds_hold_and_enough_lags_decide(system, n):
    A, B, C, D = system
    N, pd = len(A), len(C) * B.shape[1]
    k = exact_head_count((A, B, C, D), n).value
    nu, skip = exact_minimal_degree((A, B, C)), D is not None and bool(D.any())
    rank = lambda m: int(torch.linalg.matrix_rank(m.double()))  # noqa: E731
    assert k <= min(n, nu + skip, pd, N + skip, rank(B) * rank(C) + skip)
    assert k <= head_count_bound(System(*floats(A, B, C), floats(D)[0]), n)
    singular = abs(float(torch.linalg.det(A.double()))) < 0.5
    deciding = N + (skip and not singular)
    assert exact_head_count((A, B, C, D), deciding).value == exact_head_count((A, B, C, D), 3 * N + 2).value


@pytest.mark.guards("prop-what-k-is")
def test_with_a_skip_n_lags_are_not_enough_unless_a_is_singular():
    A, B, C = torch.diag(torch.tensor([2, 3])), torch.tensor([[1, 0], [0, 1]]), torch.tensor([[1, 0], [0, 1]])
    D = torch.tensor([[0, 1], [0, 0]])
    counts = [exact_head_count((A, B, C, D), n).value for n in (2, 3, 4)]
    assert counts == [2, 3, 3] and exact_head_count((A, B, C), 9).value == 2
    assert head_count_bound(System(*floats(A, B, C), D.double()), 9) == 3
    A = torch.diag(torch.tensor([2, 0]))
    assert [exact_head_count((A, B, C, D), n).value for n in (1, 2, 9)] == [1, 2, 2]
    assert head_count_bound(System(*floats(A, B, C), D.double()), 9) == 2


@pytest.mark.guards("prop-what-k-is")
@quick
@given(st.integers(1, 10), st.integers(1, 3), st.integers(1, 3), st.integers(1, 14), st.integers(0, 10**6))
def test_generic_systems_meet_the_bound_and_similarity_changes_nothing(N, d, p, n, seed):
    A, B, C, D = random_system(N, d, p, 0.9, seed)
    assert evidence(System(A, B, C), n).rank == min(n, N, p * d)
    with_skip = evidence(System(A, B, C, D), n).rank
    assert with_skip == min(n, N + 1, p * d)
    generator = torch.Generator().manual_seed(seed + 1)
    U, V = (torch.linalg.qr(torch.randn(N, N, generator=generator, dtype=F64))[0] for _ in range(2))
    T = U @ torch.diag(torch.logspace(0, 2, N, dtype=F64)) @ V
    back = torch.linalg.inv(T)
    assert evidence(System(T @ A @ back, T @ B, C @ back, D), n).rank == with_skip


@pytest.mark.guards("prop-what-k-is")
@quick
@given(integer_systems(3), integer_systems(3), st.integers(1, 12))
def test_the_count_of_a_sum_is_at_most_the_sum_of_the_counts(one, two, n):
    (A, B, C, _), (a, b, c, _) = one, two
    d, p = min(B.shape[1], b.shape[1]), min(len(C), len(c))
    B, C, b, c = B[:, :d], C[:p], b[:, :d], c[:p]
    both = floats(torch.block_diag(A, a), torch.cat([B, b]), torch.cat([C, c], 1))
    total = evidence(System(*both), n).rank
    assert total <= exact_head_count((A, B, C), n).value + exact_head_count((a, b, c), n).value


@pytest.mark.guards("thm-head-count")
@pytest.mark.parametrize("hidden", ["by the rate of decay", "by fast modes"])
def test_modes_that_the_lags_hide_are_counted(hidden):
    A, B, C, D = random_system(12, 4, 4, 0.9, 3)
    A = (
        1e-200 * A
        if hidden == "by the rate of decay"
        else torch.diag(torch.linspace(0.05, 0.6, 12, dtype=F64))
    )
    assert head_count(System(A, B, C), 10_000) == 12 and head_count(System(A, B, C, D), 10_000) == 13
    assert head_count(System(A, B, C).lags(64)).value < 12


@pytest.mark.guards("prop-what-k-is")
def test_poles_that_no_input_drives_decide_nothing():
    """A B = 0: behind the skip no lag follows, and two poles 1e-9 apart are no close call."""
    Q = torch.linalg.qr(torch.cat([torch.ones(4, 1, dtype=F64), randn(4, 3)], 1)).Q
    A = Q @ torch.diag(torch.tensor([0, 0.5, 0.5 + 1e-9, 0.9], dtype=F64)) @ Q.mT
    ones = torch.ones(4, 1, dtype=F64)
    report = evidence(System(A, ones, torch.eye(4, dtype=F64), ones), 9)
    assert (report.rank, report.near_tie) == (1, False)


@pytest.mark.guards("prop-what-k-is")
def test_a_skip_that_cancels_lag_zero_adds_no_head():
    A, B, C, _ = random_system(3, 3, 3, 0.9, 8)
    T = torch.linalg.qr(random_system(3, 3, 3, 0.9, 9)[0])[0]
    # C T^T T B rounds differently from C B, so M_0 is about 1e-16 instead of 0.
    assert head_count(System(T @ A @ T.mT, T @ B, C @ T.mT, -(C @ B)), 3) == 2
    assert head_count(System(T @ A @ T.mT, T @ B, C @ T.mT, -(C @ B)), 9) == 3


@pytest.mark.guards("prop-what-k-is")
def test_a_first_lag_counts_by_its_direction_and_not_at_all_where_it_cancels():
    """A skip of 1e-12 where C B = 0 is a lag of its own; what is left of 0.1 + 0.2 - 0.3 is none."""
    A, B, C = torch.zeros(4, 4, dtype=F64), torch.cat([EYE, 0 * EYE]), torch.cat([0 * EYE, EYE], 1)
    A[2:, :2] = EYE
    skip = torch.diag(torch.tensor([1e-12, -1e-12], dtype=F64))
    assert evidence(System(A, B, C, skip), 5).rank == 2
    rest = torch.tensor([[0.1, 0.2, -0.3]], dtype=F64)
    ones, skip = torch.ones(3, 1, dtype=F64), torch.full((1, 1), 1e-30, dtype=F64)
    assert (rest @ ones).item() != 0
    assert evidence(System(torch.zeros(3, 3, dtype=F64), ones, rest, skip), 5).rank == 0


@pytest.mark.parametrize("unit", [-1.0, 1e-200, -1e-200, 1e308, -1e308])
def test_sign_and_units_of_lags_do_not_change_their_count(unit):
    M = System(torch.diag(torch.tensor([0.9, 0.5], dtype=F64)), EYE, EYE).lags(6)  # no entry is negative
    report, same = (head_count(lags).evidence for lags in (M, unit * M))
    assert report.rank == same.rank == 2
    torch.testing.assert_close(same.spectrum, report.spectrum, rtol=1e-12, atol=1e-15)


@pytest.mark.guards("prop-what-k-is")
def test_a_small_skip_that_nothing_cancels_adds_a_head():
    """M_0 = G + 1e-6 E_22 and M_tau = G / 2^tau: what is small is not what is left of a cancellation."""
    eye, G = torch.eye(2, dtype=F64), torch.tensor([[1.0, 1.0], [1.0, 0.0]], dtype=F64)
    D = torch.diag(torch.tensor([0.0, 1e-6], dtype=F64))
    assert head_count(System(0.5 * eye, eye, G, D), 5) == 2
    assert head_count(System(0.5 * eye, eye, G), 5) == 1


@pytest.mark.guards("prop-what-k-is")
def test_doubled_real_modes_are_told_apart_from_distinct_ones():
    # Krylov growth cannot see this recurrence end: its rounding noise grows like a binomial coefficient.
    A = torch.diag(torch.linspace(0.05, 0.95, 32, dtype=F64).repeat(2))
    _, B, C, D = random_system(64, 8, 8, 0.9, 10)
    T = torch.linalg.qr(random_system(64, 1, 1, 0.9, 11)[0])[0]
    report = evidence(System(T @ A @ T.mT, T @ B, C @ T.mT), 1000)
    assert report.rank == report.degree == 32 and report.gap > 1e8
    assert head_count(System(T @ A @ T.mT, T @ B, C @ T.mT, D), 1000) == 33


@pytest.mark.parametrize("planted", range(1, 13))
def test_planted_ranks_are_found_from_lags(planted):
    generator = torch.Generator().manual_seed(planted)
    left = torch.linalg.qr(torch.randn(40, planted, generator=generator, dtype=F64))[0]
    right = torch.linalg.qr(torch.randn(15, planted, generator=generator, dtype=F64))[0]
    M = (left * torch.logspace(3, 3 - 5 * (planted > 1), planted, dtype=F64)) @ right.mT
    count = head_count(M.reshape(40, 3, 5))
    report = count.evidence
    assert count == planted and not report.near_tie and report.gap > 1e6
    assert report.spectrum[0] == pytest.approx(1.0)


@pytest.mark.guards("thm-head-count")
def test_a_repeated_eigenvalue_counts_once_below_the_number_of_modes():
    A = torch.diag(torch.tensor([0.9, 0.9, 0.5, 0.3], dtype=F64))
    eye = torch.eye(4, dtype=F64)
    assert [head_count(System(A, eye, eye), n) for n in (1, 2, 3, 4)] == [1, 2, 3, 3]
    assert torch.allclose(heads_from_ssm(System(A, eye, eye), 2).to_dense()[1, 0], A)


@pytest.mark.guards("prop-what-k-is")
def test_a_tolerance_of_zero_takes_only_exact_zeros_for_zero():
    A = torch.zeros(3, 3, dtype=F64)
    A[0, 1] = 1
    report = evidence(System(A, torch.eye(3, dtype=F64), torch.eye(3, dtype=F64)), 5, rtol=0.0)
    assert (report.method, report.rank, report.degree) == ("krylov", 2, 2)


@pytest.mark.guards("prop-what-k-is")
@pytest.mark.parametrize("poles", [(0.0, 0.5), (0.0, 0.0), (0.9, 0.5)])
def test_a_skip_of_zeros_is_no_skip(poles):
    A = torch.diag(torch.tensor(poles, dtype=F64))
    A[0, 1] = 1
    for n in (1, 2, 5):
        plain, skipped = (evidence(System(A, EYE, EYE, D), n) for D in (None, 0 * EYE))
        assert str(plain) == str(skipped) and torch.equal(plain.spectrum, skipped.spectrum)
        assert (plain.degree, plain.method) == (skipped.degree, skipped.method)


@pytest.mark.parametrize("gap, method", [(1e-5, "modal"), (1e-7, "krylov")])
def test_modes_are_read_until_their_vectors_have_a_condition_of_a_million(gap, method):
    A = torch.tensor([[0.5, 1.0], [0.0, 0.5 + gap]], dtype=F64)
    report = evidence(System(A, EYE, EYE), 8)
    assert (report.rank, report.method) == (2, method)
