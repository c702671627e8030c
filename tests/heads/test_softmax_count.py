"""The softmax head count with a sink: decisions, certificates and the eigenvalue test."""

import math
import re
from fractions import Fraction
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers import F64, gen, in_another_basis, random_system, rotation
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from ssmbook.heads import head_count
from ssmbook.heads.softmax import lp
from ssmbook.heads.softmax.certify import certify
from ssmbook.heads.softmax.eigenvalues import eigenvalue_test, verdict_of_poles
from ssmbook.systems import System

softmax_head_count = partial(head_count, coefficients="softmax")


def rotation_lags(theta, n, rho=0.9):
    return torch.stack([rho**t * rotation(t * theta) for t in range(n)])


def verify(M, certificate):
    """Check a certificate by its own statement, with nothing of the code that made it."""
    unit = M / M.flatten(1).norm(dim=1).clamp(min=1e-300)[:, None, None]
    if certificate.kind == "separating":
        margins = (unit * certificate.U).sum((1, 2)) / certificate.U.norm()
        assert margins.min() > 0 and margins.min() >= certificate.margin * (1 - 1e-12)
    elif certificate.kind == "dependency":
        weights = certificate.weights
        assert (weights >= 0).all() and abs(float(weights.sum()) - 1) < 1e-12
        assert torch.einsum("n,npd->pd", weights, unit).norm() < 1e-13


@pytest.mark.guards("thm-sink-count")
@pytest.mark.parametrize("theta", [0.01, 0.3, 0.7, 1.0, 2.0, 3.0, 3.14])
def test_rotation_needs_two_heads_iff_its_arc_is_short(theta):
    turning = math.ceil(math.pi / theta)
    for n in sorted({2, turning - 1, turning, turning + 1, turning + 2} - {0, 1}):
        M = rotation_lags(theta, n)
        count = softmax_head_count(M)
        certificate = count.evidence
        assert count == (2 if (n - 1) * theta < math.pi else 3), (n, certificate.reason)
        verify(M, certificate)


@pytest.mark.guards("thm-sink-count")
def test_half_turn_and_negative_pole_pay_one_more_from_two_tokens_on():
    for M in (rotation_lags(math.pi, 6), (-0.5) ** torch.arange(6, dtype=F64)[:, None, None]):
        assert [softmax_head_count(M[:n]) for n in (1, 2, 3, 6)] == [1, 2, 2, 2]
    assert softmax_head_count(0.5 ** torch.arange(6, dtype=F64)[:, None, None]) == 1


@pytest.mark.guards("thm-sink-count")
def test_zero_system_and_zero_lag():
    none = softmax_head_count(torch.zeros(5, 2, 3, dtype=F64))
    assert none == 0 and none.evidence.exact and none.evidence.margin == none.evidence.residual == 0
    M = rotation_lags(0.3, 6)
    M[4] = 0
    count = softmax_head_count(M)
    certificate = count.evidence
    assert count == 3 and certificate.kind == "dependency" and certificate.exact
    assert certificate.weights.tolist() == [0, 0, 0, 0, 1, 0]
    assert certificate.reason == "lag 4 is exactly zero"
    assert softmax_head_count(rotation_lags(0.3, 6)) == 2


def test_what_a_certificate_holds_has_the_dtype_of_the_lags():
    separating, dependency = (softmax_head_count(rotation_lags(0.3, n).float()).evidence for n in (6, 20))
    assert separating.U.shape == (2, 2) and separating.U.dtype == dependency.weights.dtype == torch.float32


@pytest.mark.guards("thm-sink-count")
def test_exact_boundary_is_settled_over_the_rationals_and_rounding_is_called_undecided():
    quarter = torch.tensor([[0.0, -1], [1, 0]], dtype=F64)
    M = System(quarter, torch.eye(2, dtype=F64), torch.eye(2, dtype=F64)).lags(3)
    count = softmax_head_count(M)
    certificate = count.evidence
    assert count == 3 and certificate.exact
    verify(M, certificate)
    eighth = rotation_lags(math.pi / 4, 5)
    count = softmax_head_count(eighth)
    certificate = count.evidence
    assert (count.low, count.high) == (2, 3) and certificate.kind == "undecided" and not certificate.exact
    assert abs(certificate.margin) < 1e-15
    assert softmax_head_count(eighth[:4]) == 2 and softmax_head_count(rotation_lags(math.pi / 4, 6)) == 3


@pytest.mark.guards("thm-sink-count")
@pytest.mark.parametrize("gap", [1e-3, 1e-6, 1e-9])
def test_near_ties_are_decided_on_both_sides(gap):
    for sign, wanted in ((-1, 2), (1, 3)):
        angle = math.pi + sign * gap
        M = torch.stack([rotation(0.0), rotation(1.0), rotation(angle)])
        count = softmax_head_count(M)
        certificate = count.evidence
        assert count == wanted and certificate.margin < gap
        verify(M, certificate)
    M = torch.stack([rotation(0.0), rotation(1.0), rotation(math.pi - 1e-14)])
    assert not softmax_head_count(M).settled
    M[2] = rotation(math.pi - 1e-6)  # as far off as float32 rounds
    assert not softmax_head_count(M.float()).settled


@pytest.mark.guards("thm-sink-count")
def test_a_sign_is_claimed_only_when_rational_arithmetic_agrees():
    g = gen(0)
    claims = 0
    for trial in range(60):
        P, Q = torch.randn(2, 2, 2, generator=g, dtype=F64)
        M = P @ rotation_lags(math.pi / 4, 4 + trial % 2, rho=1.0) @ Q
        count = softmax_head_count(M)
        certificate = count.evidence
        if certificate.kind == "separating":
            claims += 1
            U = [Fraction(u) for u in certificate.U.flatten().tolist()]
            for lag in M.flatten(1).tolist():
                assert sum(u * Fraction(v) for u, v in zip(U, lag, strict=True)) > 0
    assert claims >= 30


@pytest.mark.guards("thm-sink-count")
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 3), st.integers(1, 3), st.integers(1, 12))
def test_certificates_prove_what_they_say(seed, N, p, d, n):
    A, B, C, _ = random_system(N, d, p, 0.9, seed)
    M = System(A, B, C).lags(n)
    count = softmax_head_count(M)
    certificate = count.evidence
    assert certificate.k == torch.linalg.matrix_rank(M.flatten(1), rtol=1e-10)
    assert certificate.k <= count.low <= count.high <= certificate.k + 1
    verify(M, certificate)
    g = gen(seed)
    turned, condition = in_another_basis(A, B, C, g)
    if condition < 1e3:
        other = softmax_head_count(turned.lags(n))
        assert max(count.low, other.low) <= min(count.high, other.high)
    scales = torch.rand(n, 1, 1, generator=g, dtype=F64) * 10 + 0.1
    other = softmax_head_count(scales * M)
    assert max(count.low, other.low) <= min(count.high, other.high)


@pytest.mark.guards("prop-eigenvalue-test")
def test_eigenvalue_test_on_two_hundred_random_systems():
    g = gen(1)
    undecided, both = 0, {"k": 0, "k+1": 0}
    for seed in range(200):
        N, p = (int(torch.randint(1, high, (1,), generator=g)) for high in (6, 4))
        d = -(-N // p) + seed % 2
        system = random_system(N, d, p, 0.9, seed)[:3]
        test = eigenvalue_test(System(*system))
        assert test.independent and test.nu == N
        both[test.verdict] += 1
        real = torch.linalg.eigvals(system[0])
        assert (test.verdict == "k") == bool(((real.imag == 0) & (real.real > 0)).any())
        lengths = (N, 8, 12) if test.verdict == "k" else (test.n0_low - 1, test.n0_high)
        for n, extra in zip(lengths, (0, 0, 0) if test.verdict == "k" else (0, 1), strict=True):
            count = softmax_head_count(System(*system).lags(n))
            certificate = count.evidence
            undecided += not count.settled
            assert count.low <= certificate.k + extra <= count.high, (seed, n, test)
    assert min(both.values()) > 40 and undecided <= 8


@pytest.mark.guards("prop-eigenvalue-test")
@pytest.mark.parametrize("theta", [0.2, 0.7, 1.3, 2.9])
def test_eigenvalue_test_is_sharp_for_one_pair(theta):
    eye = torch.eye(2, dtype=F64)
    test = eigenvalue_test(System(0.9 * rotation(theta), eye, eye))
    assert test.verdict == "k+1" and test.n0_low == test.n0_high == 1 + math.ceil(math.pi / theta)


@pytest.mark.guards("prop-eigenvalue-test")
@pytest.mark.parametrize("turns,n0", [(5, 6), (5 + 5e-11, 7)])
def test_a_turn_that_is_half_a_circle_in_whole_steps_but_for_rounding(turns, n0):
    """pi / theta = 5 in floating point needs no sixth step; a little more does."""
    eye = torch.eye(2, dtype=F64)
    assert verdict_of_poles(System(0.9 * rotation(math.pi / turns), eye, eye)).n0_high == n0


@pytest.mark.guards("prop-eigenvalue-test")
@pytest.mark.parametrize("thetas", [(0.2, 0.5), (0.1, 0.7), (0.4, 0.9, 1.3)])
def test_lengths_with_a_margin_below_n_rtol_stay_open(thetas):
    A = 0.9 * torch.block_diag(*(rotation(theta) for theta in thetas))
    eye = torch.eye(len(A), dtype=F64)
    sharp, coarse = (eigenvalue_test(System(A, eye, eye), rtol=rtol) for rtol in (1e-10, 1e-2))
    assert sharp.n0_low == sharp.n0_high
    assert coarse.n0_low < sharp.n0_high < coarse.n0_high


@pytest.mark.parametrize("seed", range(3))
def test_a_cone_almost_as_wide_as_a_half_space_is_seen_in_balanced_coordinates(seed):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((30, 3))
    rows[:, 0] = 1e-9 * rng.uniform(0.5, 2, 30)
    turn = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    found = certify(rows @ turn, 1e-13, 1e-13)
    assert found.kind == "separating" and found.margin > 1e-10
    U = found.U.numpy()
    assert (rows @ turn @ U > 0).all() and abs(turn @ U)[0] > 0.999 * np.linalg.norm(U)


@pytest.mark.guards("prop-eigenvalue-test")
def test_multiplicity_and_delay_enter_the_bounds():
    jordan = torch.tensor([[-0.5, 1], [0, -0.5]], dtype=F64)
    eye = torch.eye(2, dtype=F64)
    test = eigenvalue_test(System(jordan, eye, eye))
    # Without the index the upper bound would be 2, yet two tokens still do with k heads.
    assert (test.n0_low, test.n0_high) == (3, 3)
    assert [softmax_head_count(System(jordan, eye, eye).lags(n)) for n in (1, 2, 3)] == [1, 2, 3]
    shift, eye = torch.diag(torch.ones(2, dtype=F64), 1), torch.eye(3, dtype=F64)
    test = eigenvalue_test(System(shift, eye, eye))
    assert (test.n0_low, test.n0_high) == (4, 4)
    assert [softmax_head_count(System(shift, eye, eye).lags(n)) for n in (1, 2, 3, 4, 5)] == [
        1,
        2,
        3,
        4,
        4,
    ]


@pytest.mark.guards("prop-eigenvalue-test")
def test_positive_pole_without_independence_decides_nothing():
    A, B, C = (
        torch.diag(torch.tensor([1.0, -1], dtype=F64)),
        torch.ones(2, 1, dtype=F64),
        torch.tensor([[1.0, 2]], dtype=F64),
    )
    test = eigenvalue_test(System(A, B, C))
    assert test.verdict == "inconclusive" and (test.k, test.nu) == (1, 2)
    assert softmax_head_count(System(A, B, C).lags(4)) == 2
    hidden = eigenvalue_test(
        System(torch.diag(torch.tensor([0.5, -0.5], dtype=F64)), torch.tensor([[0.0], [1]], dtype=F64), C)
    )
    assert hidden.verdict == "k+1" and hidden.nu == 1


@pytest.mark.guards("prop-eigenvalue-test")
def test_defective_pole_after_a_change_of_basis_keeps_its_verdict():
    g = gen(5)
    for seed in range(5):
        P = torch.randn(3, 3, generator=g, dtype=F64)
        nilpotent = P @ torch.diag(torch.ones(2, dtype=F64), 1) @ torch.linalg.inv(P)
        assert (
            eigenvalue_test(System(nilpotent, torch.eye(3, dtype=F64), torch.eye(3, dtype=F64))).verdict
            == "k+1"
        ), seed


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_non_finite_lags_are_refused(bad):
    M = rotation_lags(0.3, 4)
    M[2, 0, 1] = bad
    with pytest.raises(ValueError, match="M must"):
        softmax_head_count(M)


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="M must"):
        softmax_head_count(torch.zeros(3, 2, dtype=F64))
    with pytest.raises(TypeError, match="M must be"):
        softmax_head_count(torch.zeros(3, 2, 2, dtype=torch.complex128))
    with pytest.raises(ValueError, match="rtol"):
        softmax_head_count(rotation_lags(0.3, 4), rtol=2.0)
    eye = torch.eye(2, dtype=F64)
    with pytest.raises(ValueError, match="system must be one system"):
        eigenvalue_test(System(eye.expand(3, 2, 2), eye.expand(3, 2, 2), eye.expand(3, 2, 2)))


def test_a_lag_outside_the_numerical_span_leaves_the_count_open():
    """The second lag is too small to raise the rank, yet its sign matters: a tighter tolerance settles it."""
    M = torch.tensor([[[1.0, 0.0]], [[0.0, 1e-11]]], dtype=F64)
    count = softmax_head_count(M)
    assert (count.low, count.high, count.evidence.kind) == (1, 2, "undecided")
    assert isinstance(count.evidence.margin, float) and math.isnan(count.evidence.margin)
    assert not count.evidence.exact
    assert softmax_head_count(M, rtol=1e-12) == 2


BESIDE_ZERO = torch.tensor([[1.0, 0], [-1, 1], [-1, -1]], dtype=F64)[:, None]  # 0 is inside their hull
PROOFS = {  # lags, the kind of their certificate, whether it is exact, and whether its margin is above zero
    "no lag but zero": (torch.zeros(4, 2, 3, dtype=F64), "zero", True, 0),
    "one lag that is zero": (rotation_lags(0.3, 4) * torch.tensor([1.0, 1, 0, 1])[:, None, None],
                             "dependency", True, 0),
    "opposite lags": (torch.tensor([[1.0, 0], [0, 1], [-1, 0]], dtype=F64)[:, None], "dependency", True, 0),
    "a hull about zero": (BESIDE_ZERO, "dependency", False, 1),
    "one side": (rotation_lags(0.3, 4), "separating", True, 1),
    "half a turn, rounded": (rotation_lags(math.pi / 4, 5), "undecided", False, 0),
}  # fmt: skip


@pytest.mark.guards("thm-sink-count")
@pytest.mark.parametrize("name", PROOFS)
def test_a_certificate_says_whether_it_is_exact(name):
    M, kind, exact, sign = PROOFS[name]
    found = softmax_head_count(M).evidence
    assert (found.kind, found.exact) == (kind, exact)
    assert found.margin > 1e-6 if sign else abs(found.margin) < 1e-15
    if kind == "zero":
        assert found.spectrum.tolist() == [0.0] * 4
    verify(M, found)


@pytest.mark.guards("thm-sink-count")
def test_a_hull_as_thin_as_1e_11_is_seen_in_balanced_coordinates():
    """The weights found there are those of longer rows: each is divided by the length of its own."""
    for seed in range(12):
        rows = np.random.default_rng(seed).standard_normal((15, 2)) * [1.0, 1e-11]
        found = certify(rows, 1e-14, 1e-13)
        assert (found.kind, found.exact) == ("dependency", False) and found.margin > 1e-13


def test_long_systems_and_float32_are_answered():
    A, B, C, _ = random_system(16, 4, 4, 0.999, 0)
    M = System(A, B, C).lags(65536)
    before = M.clone()
    assert softmax_head_count(M).evidence.k == 16 and torch.equal(M, before)
    count = softmax_head_count(rotation_lags(0.7, 20).float())
    certificate = count.evidence
    assert count == 3 and certificate.weights.dtype == torch.float32
    assert softmax_head_count(rotation_lags(0.7, 5).float()) == 2


@pytest.mark.guards("prop-eigenvalue-test")
@pytest.mark.parametrize("radius", [0.9, 0.9999])
def test_the_system_behind_long_lags_decides_where_the_lags_cannot(radius):
    A, B, C, _ = random_system(12, 4, 4, radius, 0)
    A = torch.block_diag(A, torch.tensor([[radius / 3]], dtype=F64))  # a positive pole that fades early
    B, C = torch.cat([B, torch.ones(1, 4, dtype=F64)]), torch.cat([C, torch.ones(4, 1, dtype=F64)], 1)
    M = System(A, B, C).lags(65536)
    count = softmax_head_count(System(A, B, C), len(M))
    certificate = count.evidence
    assert (count, certificate.kind, certificate.residual) == (13, "eigenvalue", 0.0)
    assert not certificate.exact
    assert softmax_head_count(M) != 13  # the lags alone underflow, or cannot tell


@pytest.mark.parametrize("n", [3, 5, 6, 40])
def test_the_system_and_its_lags_agree(n):
    system = (0.9 * rotation(0.7), torch.eye(2, dtype=F64), torch.eye(2, dtype=F64))
    M = System(*system).lags(n)
    wanted = 2 if 0.7 * (n - 1) < math.pi else 3
    assert softmax_head_count(System(*system), n) == softmax_head_count(M) == wanted


@pytest.mark.guards("thm-sink-count")
def test_a_skip_is_part_of_the_system_and_leaves_the_poles_out_of_it():
    one = torch.ones(1, 1, dtype=F64)
    assert softmax_head_count(System(0.5 * one, one, one), 9).evidence.kind == "eigenvalue"
    for skip, wanted in ((1.0, 1), (-3.0, 2)):  # M_0 = 2, M_0 = -2 beside positive lags
        system = System(0.5 * one, one, one, skip * one)
        count = softmax_head_count(system, 9)
        assert count == softmax_head_count(system.lags(9)) == wanted
        assert count.evidence.kind in ("separating", "dependency")
        with pytest.raises(ValueError, match="system must have no skip"):
            eigenvalue_test(system)


def test_a_certificate_keeps_no_graph():
    one = torch.ones(1, 1, dtype=F64)
    certificate = softmax_head_count(System((0.5 * one).requires_grad_(), one, one), 8).evidence
    assert certificate.kind == "eigenvalue" and not certificate.spectrum.requires_grad


def test_the_widest_margin_rests_on_the_rows_nearest_to_it():
    """Weights of sum one, on rows that touch the margin alone, prove it: Σ w_i z_i bounds every u."""
    angle = torch.linspace(-1, 0.7, 301, dtype=F64)
    Z = torch.stack([angle.cos(), angle.sin()], 1).numpy()
    u, weights, _ = lp.widest_margin(Z)
    margins = Z @ u
    assert (weights >= 0).all() and weights.sum() == pytest.approx(1)
    assert weights[margins > margins.min() + 1e-8].max() == 0
    assert np.abs(weights @ Z).sum() == pytest.approx(margins.min())  # the best u has entries of at most one


def test_a_program_that_fails_leaves_the_shapes(monkeypatch):
    monkeypatch.setattr("scipy.optimize.linprog", lambda *program, **rest: SimpleNamespace(status=4))
    u, weights, _ = lp.widest_margin(np.eye(5, 3))
    assert u.tolist() == [0] * 3 and weights.tolist() == [0] * 5


def test_weights_that_prove_nothing_have_no_radius():
    Z = np.concatenate([np.eye(2), -np.eye(2)])
    assert lp.dependency_radius(Z, np.full(4, 0.25)) > 0.1
    assert lp.dependency_radius(Z, np.array([0.5, 0.5, 0.5, -0.5])) == -np.inf
    assert lp.dependency_radius(Z, np.full(4, 0.5)) == -np.inf
    assert lp.dependency_radius(Z[:1], np.ones(1)) == -np.inf  # fewer lags than directions
    fan = np.linspace(-1.5, 1.5, 30)  # all on one side: no ball about 0, whatever the weights
    assert lp.dependency_radius(np.stack([np.cos(fan), np.sin(fan)], 1), np.full(30, 1 / 30)) < 0


@pytest.mark.guards("thm-sink-count")
def test_the_widest_margin_is_that_of_a_program_over_all_rows_at_once():
    for seed in range(12):
        g = np.random.default_rng(seed)
        Z, _ = lp.unit_rows(g.standard_normal((100, 4)) + [2.0, 1.0, 0.0, 0.0])
        u, weights, working = lp.widest_margin(Z)
        whole = linprog(
            [0, 0, 0, 0, -1],
            np.hstack([-Z, np.ones((100, 1))]),
            np.zeros(100),
            bounds=[(-1, 1)] * 4 + [(None, 1)],
        )
        assert (Z @ u).min() == pytest.approx(-whole.fun, abs=1e-8) and abs(u).max() <= 1 + 1e-9
        assert set(np.flatnonzero(weights)) <= set(working)


def test_rows_of_any_size_become_units_and_zero_rows_stay_zero():
    unit, nonzero = lp.unit_rows(np.array([[3.0, -4.0], [0.0, 0.0], [-3e-300, 4e-300], [4e300, 3e300]]))
    assert np.allclose(unit, [[0.6, -0.8], [0, 0], [-0.6, 0.8], [0.8, 0.6]], rtol=1e-15, atol=0)
    assert nonzero.tolist() == [True, False, True, True]


@pytest.mark.guards("thm-sink-count")
def test_a_small_lag_may_leave_the_span_by_a_rounding_of_the_large_one():
    """1e-11 of the largest lag is no direction, and 1e-8 of the small lag that has it."""
    M = torch.tensor([[[1.0, 0.0]], [[1e-3, 1e-11]]], dtype=F64)
    count = softmax_head_count(M)
    assert count == 1 and count.evidence.kind == "separating"
    assert 1e-9 < count.evidence.residual < 1e-7
    M[1, 0, 1] = 9e-11  # 1e-7 of its own lag, and still below the tolerance of the rank
    M[1, 0, 0] = 1e-4
    assert softmax_head_count(M).evidence.kind == "undecided"


def test_what_is_undecided_says_why():
    evidence = softmax_head_count(rotation_lags(math.pi / 4, 5)).evidence
    said = r"best margin \S+ is below the trusted accuracy \S+ and no dependency was proved"
    assert evidence.kind == "undecided" and re.fullmatch(said, evidence.reason)


@pytest.mark.guards("thm-sink-count")
@pytest.mark.parametrize("share, kind", [(0.5, "separating"), (9.0, "separating"), (11.0, "undecided")])
def test_ten_times_a_coarse_tolerance_of_the_rank_is_forgiven_each_lag(share, kind):
    lag = 0.05 * torch.tensor([1.0, share * 1e-5], dtype=F64)
    M = torch.stack([torch.tensor([1.0, 0.0], dtype=F64), lag])[:, None]
    evidence = softmax_head_count(M, rtol=1e-5).evidence
    assert (evidence.k, evidence.kind) == (1, kind)
    assert evidence.residual == pytest.approx(share * 1e-5, rel=0.01)
    said = "a lag leaves the span of the 1 leading directions by 1.1e-04 of its norm"
    assert (evidence.reason == said) == (kind == "undecided")
