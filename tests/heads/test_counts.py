"""Head counts in float64: named examples, the bounds, invariance, agreement with rational arithmetic,
near-ties.
"""

import math
import warnings

import pytest
import torch
from helpers import EYE, F64, floats, gen, randn, random_system, rotation
from hypothesis import given, settings
from hypothesis import strategies as st

from ssmbook.heads import (
    HeadCountTieWarning,
    exact_head_count,
    exact_minimal_degree,
    head_count,
    head_count_bound,
    heads_from_ssm,
)
from ssmbook.heads.fixed._span import cluster, orthonormal_powers, span_rows
from ssmbook.heads.fixed.counts import spectrum_report
from ssmbook.systems import System

quick = settings(max_examples=40, deadline=None)


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
    report = spectrum_report(System(*floats(A, B, C), floats(D)[0]), n)
    assert exact.evidence.verify()
    assert report.rank == exact.value, str(report)
    assert spectrum_report(System(*floats(A, B, C)), len(A)).degree == exact_minimal_degree((A, B, C))


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
    assert spectrum_report(System(A, B, C), n).rank == min(n, N, p * d)
    with_skip = spectrum_report(System(A, B, C, D), n).rank
    assert with_skip == min(n, N + 1, p * d)
    generator = torch.Generator().manual_seed(seed + 1)
    U, V = (torch.linalg.qr(torch.randn(N, N, generator=generator, dtype=F64))[0] for _ in range(2))
    T = U @ torch.diag(torch.logspace(0, 2, N, dtype=F64)) @ V
    back = torch.linalg.inv(T)
    assert spectrum_report(System(T @ A @ back, T @ B, C @ back, D), n).rank == with_skip


@pytest.mark.guards("prop-what-k-is")
@quick
@given(integer_systems(3), integer_systems(3), st.integers(1, 12))
def test_the_count_of_a_sum_is_at_most_the_sum_of_the_counts(one, two, n):
    (A, B, C, _), (a, b, c, _) = one, two
    d, p = min(B.shape[1], b.shape[1]), min(len(C), len(c))
    B, C, b, c = B[:, :d], C[:p], b[:, :d], c[:p]
    both = floats(torch.block_diag(A, a), torch.cat([B, b]), torch.cat([C, c], 1))
    total = spectrum_report(System(*both), n).rank
    assert total <= exact_head_count((A, B, C), n).value + exact_head_count((a, b, c), n).value


@pytest.mark.guards("thm-head-count")
@pytest.mark.parametrize("scales", ["rho", "rows", "modes"])
def test_badly_scaled_systems_keep_their_count(scales):
    A, B, C, D = random_system(12, 4, 4, 0.9, 3)
    if scales == "rho":
        A = 1e-200 * A
    if scales == "rows":
        B, C = (
            B * torch.logspace(-200, 200, 4, dtype=F64),
            C * torch.logspace(90, -90, 4, dtype=F64)[:, None],
        )
    if scales == "modes":
        A = torch.diag(torch.linspace(0.05, 0.6, 12, dtype=F64))
    n = 10_000
    assert head_count(System(A, B, C), n) == 12
    if scales != "rows":
        assert head_count(System(A, B, C, D), n) == 13
    # The raw lags hide modes that the system still has.
    assert head_count(System(A, B, C).lags(64)).value < 12


@pytest.mark.guards("prop-what-k-is")
def test_a_skip_that_cancels_lag_zero_adds_no_head():
    A, B, C, _ = random_system(3, 3, 3, 0.9, 8)
    T = torch.linalg.qr(random_system(3, 3, 3, 0.9, 9)[0])[0]
    # C T^T T B rounds differently from C B, so M_0 is about 1e-16 instead of 0.
    assert head_count(System(T @ A @ T.mT, T @ B, C @ T.mT, -(C @ B)), 3) == 2
    assert head_count(System(T @ A @ T.mT, T @ B, C @ T.mT, -(C @ B)), 9) == 3


@pytest.mark.guards("prop-what-k-is")
def test_poles_that_no_input_drives_decide_nothing():
    """A B = 0: behind the skip no lag follows, and two poles 1e-9 apart are no close call."""
    Q = torch.linalg.qr(torch.cat([torch.ones(4, 1, dtype=F64), randn(4, 3)], 1)).Q
    A = Q @ torch.diag(torch.tensor([0, 0.5, 0.5 + 1e-9, 0.9], dtype=F64)) @ Q.mT
    ones = torch.ones(4, 1, dtype=F64)
    report = spectrum_report(System(A, ones, torch.eye(4, dtype=F64), ones), 9)
    assert (report.rank, report.method, report.near_tie) == (1, "zero", False)


@pytest.mark.guards("prop-what-k-is")
def test_a_first_lag_counts_by_its_direction_and_not_at_all_where_it_cancels():
    """A skip of 1e-12 where C B = 0 is a lag of its own; what is left of 0.1 + 0.2 - 0.3 is none."""
    A, B, C = torch.zeros(4, 4, dtype=F64), torch.cat([EYE, 0 * EYE]), torch.cat([0 * EYE, EYE], 1)
    A[2:, :2] = EYE
    skip = torch.diag(torch.tensor([1e-12, -1e-12], dtype=F64))
    assert spectrum_report(System(A, B, C, skip), 5).rank == 2
    rest = torch.tensor([[0.1, 0.2, -0.3]], dtype=F64)
    ones, skip = torch.ones(3, 1, dtype=F64), torch.full((1, 1), 1e-30, dtype=F64)
    assert (rest @ ones).item() != 0
    assert spectrum_report(System(torch.zeros(3, 3, dtype=F64), ones, rest, skip), 5).rank == 0


def test_a_skip_too_large_for_the_units_of_the_rest_is_named():
    tiny = torch.full((1, 1), 1e-200, dtype=F64)
    with pytest.raises(ValueError, match="D, in units of the rows of C and the columns of B, must be finite"):
        head_count(System(tiny, tiny, tiny, torch.ones(1, 1, dtype=F64)), 3)


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
    report = spectrum_report(System(T @ A @ T.mT, T @ B, C @ T.mT), 1000)
    assert report.rank == report.degree == 32 and report.gap > 1e8
    assert head_count(System(T @ A @ T.mT, T @ B, C @ T.mT, D), 1000) == 33


def test_the_length_is_free_up_to_any_n():
    A, B, C, D = random_system(64, 8, 8, 0.999, 4)
    assert head_count(System(A, B, C), 65_536) == 64
    assert head_count(System(A, B, C, D), 10**12) == 64  # p d = 64 caps the skip's extra head


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


def test_near_ties_are_reported_and_warned_about():
    A = torch.diag(torch.tensor([0.5, 0.5 + 1e-9], dtype=F64))
    report = spectrum_report(System(A, EYE, EYE), 10)
    assert report.near_tie and "NEAR-TIE" in str(report)
    assert str(report).startswith(
        f"k = {report.rank} (modal): smallest kept {report.smallest_kept:.2g}, largest"
    )
    with pytest.warns(HeadCountTieWarning, match="read the spectrum"):
        head_count(System(A, EYE, EYE), 10)
    M = torch.stack([EYE, EYE + 3e-11 * torch.diag(torch.tensor([1.0, -1.0], dtype=F64))])
    assert head_count(M).evidence.near_tie and head_count(M) == 1
    assert head_count(M, rtol=1e-13) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert head_count(System(rotation(0.7), EYE, EYE), 10) == 2
        assert head_count(System(rotation(0.7).float(), EYE.float(), EYE.float()), 10) == 2


def test_float32_systems_use_the_tolerance_of_their_dtype():
    report = spectrum_report(System(rotation(0.7).float(), EYE.float(), EYE.float()), 9)
    assert report.rtol == pytest.approx(16 * torch.finfo(torch.float32).eps)
    assert report.spectrum.dtype == F64


@pytest.mark.parametrize("count", [head_count, spectrum_report, head_count_bound])
def test_bad_systems_are_named(count):
    A, B, C, D = random_system(3, 2, 4, 0.9, 7)
    system = System(A, B, C, D)
    with pytest.raises(TypeError, match="system must be real"):
        count(system.to(torch.complex128), 5)
    with pytest.raises(ValueError, match=r"system must be one system, .*; got batch shape \(2,\)"):
        count(System(*(part.expand(2, *part.shape) for part in system)), 5)
    with pytest.raises(ValueError, match="system must hold values; got a tensor on the device meta"):
        count(system.to("meta"), 5)
    with pytest.raises(ValueError, match="n must be at least 0"):
        count(system, -1)
    with pytest.raises(ValueError, match="rtol must be"):
        count(system, 5, rtol=1.5)
    with pytest.raises(TypeError, match="rtol must be"):
        count(system, 5, rtol="tiny")
    for bare in ((A, B, C, 5), (*system, 5), (A.tolist(), B, C, 5)):
        with pytest.raises(TypeError, match=r"system must be a System; got (Tensor|list) \(make"):
            count(*bare)
    with pytest.raises(TypeError, match="system must be a System; got list"):
        count([A, B, C], 5)


def test_bad_lags_are_named():
    with pytest.raises(TypeError, match="M must be a floating-point"):
        head_count(torch.zeros(3, 2, 2, dtype=torch.complex128))
    with pytest.raises(ValueError, match="M must"):
        head_count(torch.zeros(2, 2))
    with pytest.raises(ValueError, match="M must"):
        head_count(torch.full((2, 2, 2), torch.nan))
    assert head_count(torch.zeros(0, 2, 2)) == head_count(torch.zeros(4, 2, 2)) == 0


@pytest.mark.guards("prop-what-k-is")
def test_the_bound_does_not_depend_on_the_units_of_an_output():
    A, B, C, _ = random_system(3, 2, 2, 0.9, 0)
    assert (
        head_count_bound(System(A, B, torch.tensor([[1.0], [1e-7]]) * C), 20)
        == head_count_bound(System(A, B, C), 20)
        == 3
    )


def test_krylov_growth_close_to_the_tolerance_is_a_near_tie():
    A = torch.tensor([[0.5, 1e-8], [0.0, 0.5]], dtype=F64)
    report = spectrum_report(System(A, EYE, EYE), 8)
    assert (report.method, report.rank) == ("krylov", 2) and report.smallest_kept < 1e-7 and report.near_tie
    two = torch.block_diag(*(torch.tensor([[pole, 1.0], [0.0, 0.5]]) for pole in (0.5, 0.5)))
    two = two.double()
    two[2, 2] += 1e-11  # a third power of A that is new by no more than this
    report = spectrum_report(System(two, torch.eye(4, dtype=F64), torch.eye(4, dtype=F64)), 8)
    assert (report.method, report.rank) == ("krylov", 2) and report.near_tie
    assert 1e-12 < report.largest_dropped < 1e-11
    assert type(report.smallest_kept) is type(report.largest_dropped) is float


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
    report = spectrum_report(System(A, torch.eye(3, dtype=F64), torch.eye(3, dtype=F64)), 5, rtol=0.0)
    assert (report.method, report.rank, report.degree) == ("krylov", 2, 2)


def test_what_is_no_system_and_a_length_beside_lags_are_named():
    with pytest.raises(TypeError, match="system must be a System; got str"):
        head_count("A", 5)
    with pytest.raises(TypeError, match="n must be an int; got NoneType"):
        head_count(System(EYE, EYE, EYE))
    with pytest.raises(TypeError, match="n must be left out beside lag operators"):
        head_count(torch.zeros(3, 2, 2), 3)


@pytest.mark.guards("prop-what-k-is")
@pytest.mark.parametrize("poles", [(0.0, 0.5), (0.0, 0.0), (0.9, 0.5)])
def test_a_skip_of_zeros_is_no_skip(poles):
    A = torch.diag(torch.tensor(poles, dtype=F64))
    A[0, 1] = 1
    for n in (1, 2, 5):
        plain, skipped = (spectrum_report(System(A, EYE, EYE, D), n) for D in (None, 0 * EYE))
        assert str(plain) == str(skipped) and torch.equal(plain.spectrum, skipped.spectrum)
        assert (plain.degree, plain.method) == (skipped.degree, skipped.method)


def test_the_closest_calls_are_those_of_the_spectrum_and_of_the_poles():
    # Two poles 1e-9 apart, and one far away: the closest decision is between the two.
    eye = torch.eye(3, dtype=F64)
    far = System(torch.diag(torch.tensor([0.5, 0.5 + 1e-9, -0.8], dtype=F64)), eye, eye)
    report = spectrum_report(far, 10)
    assert report.near_tie and report.smallest_kept == pytest.approx(1e-9 / 0.8, rel=1e-6)
    # Two lags that differ by 4e-10 e: their rows (1, 0, 0, 1 + e) have the singular values 2 and e / sqrt(2).
    M = torch.stack([EYE, EYE + 4e-10 * torch.diag(torch.tensor([1.0, -1.0], dtype=F64))])
    count = head_count(M)
    report = count.evidence
    assert count == 2 and report.near_tie
    assert report.smallest_kept == pytest.approx(2e-10, rel=1e-5) == float(report.spectrum[1])
    report = head_count(M, rtol=1e-9).evidence
    assert report.largest_dropped == pytest.approx(2e-10, rel=1e-5)
    assert report.smallest_kept == pytest.approx(1) and report.gap == pytest.approx(5e9, rel=1e-5)
    # Modes of residues 1, 0.1, 1e-12 and 1e-14.
    A, C = torch.diag(torch.tensor([0.9, 0.5, -0.2, -0.7], dtype=F64)), torch.ones(1, 4, dtype=F64)
    rows = span_rows(A, torch.tensor([[1.0], [0.1], [1e-12], [1e-14]], dtype=F64), C, 9, 1e-10)
    assert (rows.kept, rows.dropped, rows.degree) == pytest.approx((0.1, 1e-12, 2), abs=0)


@pytest.mark.parametrize(
    "A, C, kept, dropped, degree",
    [
        ([[0.5, 1, 0], [0, 0.5, 0], [0, 0, 0.5]], [[1, 0, 0], [0, 1, 0], [0, 0, 1e-3]], 1e-3, 0, 2),
        ([[0.5, 1, 0], [0, 0.5, 0], [0, 0, 0.5]], [[1, 0, 0], [0, 1, 0], [0, 0, 1e-11]], 0.7, 1e-11, 2),
        ([[0.5, 1, 0], [0, 0.5, 0], [0, 0, 0.5]], [[0, 0, 1e-12], [0, 1e-13, 0]], 1, 1e-12, 0),
    ],
)
def test_the_closest_calls_of_the_krylov_route_are_those_of_states_cut_away_too(A, C, kept, dropped, degree):
    A, C = (torch.tensor(rows, dtype=F64) for rows in (A, C))
    rows = span_rows(A, torch.eye(3, dtype=F64), C, 9, 1e-10)
    assert (rows.method, rows.degree) == ("krylov", degree)
    assert rows.kept == pytest.approx(kept, rel=0.1) and rows.dropped == pytest.approx(dropped, abs=1e-16)


def test_the_smallest_growth_of_all_powers_is_told():
    steps = torch.diag(torch.tensor([1e-3, 1.0], dtype=F64), -1)
    _, kept, dropped = orthonormal_powers(lambda q: steps @ q, torch.eye(3, dtype=F64)[0], 3, 1e-10)
    assert (kept, dropped) == (1e-3, 0)


def test_poles_that_steps_join_are_one_however_many_they_are():
    poles = torch.tensor([*range(14), 20], dtype=F64)
    labels, apart, within = cluster(poles[torch.randperm(15, generator=gen())], 1.0)
    assert sorted(labels.bincount().tolist()) == [1, 14] and (apart, within) == (7, 13)
    labels, apart, within = cluster(poles[:3], 2.0)
    assert labels.tolist() == [0, 0, 0] and (apart, within) == (math.inf, 2)


@pytest.mark.parametrize("gap, method", [(1e-5, "modal"), (1e-7, "krylov")])
def test_modes_are_read_until_their_vectors_have_a_condition_of_a_million(gap, method):
    A = torch.tensor([[0.5, 1.0], [0.0, 0.5 + gap]], dtype=F64)
    report = spectrum_report(System(A, EYE, EYE), 8)
    assert (report.rank, report.method) == (2, method)
