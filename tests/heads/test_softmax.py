"""Softmax heads with a sink: counts against their certificates and other programs, and the heads built."""

import math
from fractions import Fraction
from functools import partial

import mpmath
import numpy as np
import pytest
import torch
from helpers import EYE, F64, diagonal, gen, in_another_basis, random_system, rotation, seen, toeplitz
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from ssmbook.heads import eigenvalue_test, exact_minimal_degree, head_count, softmax_heads
from ssmbook.systems import System

exact_head_count = partial(head_count, exact=True)

softmax_count = partial(head_count, coefficients="softmax")
ONE = torch.ones(1, 1, dtype=F64)


def rotation_lags(theta, n, rho=0.9):
    return torch.stack([rho**t * rotation(t * theta) for t in range(n)])


def verify(M, evidence):
    """Check a certificate by its own statement, with nothing of the code that made it."""
    unit = M / M.flatten(1).norm(dim=1).clamp(min=1e-300)[:, None, None]
    if evidence.kind == "separating":
        margins = (unit * evidence.U).sum((1, 2)) / evidence.U.norm()
        assert margins.min() > 0 and margins.min() >= evidence.margin * (1 - 1e-12)
    elif evidence.kind == "dependency":
        weights = evidence.weights
        assert (weights >= 0).all() and abs(float(weights.sum()) - 1) < 1e-12
        assert torch.einsum("n,npd->pd", weights, unit).norm() < 1e-13


def widest_margin(M):
    """max t with <U, M_tau> >= t |M_tau| and |U| <= 1, by a linear program of our own over all lags."""
    rows = (M / M.flatten(1).norm(dim=1)[:, None, None]).flatten(1).numpy()
    q = rows.shape[1]
    objective, bounds = np.append(np.zeros(q), -1.0), [(-1, 1)] * q + [(0, None)]
    constraints = np.hstack([-rows, np.ones((len(rows), 1))])
    return linprog(objective, constraints, np.zeros(len(rows)), bounds=bounds).x[-1]


# ------------------------------------------------------------------ the count of given lags


@pytest.mark.guards("thm-sink-count")
def test_half_turn_and_negative_pole_pay_one_more_from_two_tokens_on():
    for M in (rotation_lags(math.pi, 6), (-0.5) ** torch.arange(6, dtype=F64)[:, None, None]):
        assert [softmax_count(M[:n]) for n in (1, 2, 3, 6)] == [1, 2, 2, 2]
    assert softmax_count(0.5 ** torch.arange(6, dtype=F64)[:, None, None]) == 1


@pytest.mark.guards("thm-sink-count")
def test_zero_system_and_zero_lag():
    assert softmax_count(torch.zeros(5, 2, 3, dtype=F64)) == 0
    M = rotation_lags(0.3, 6)
    assert softmax_count(M) == 2
    M[4] = 0
    count = softmax_count(M)
    assert count == 3 and count.evidence.weights.tolist() == [0, 0, 0, 0, 1, 0]


@pytest.mark.guards("thm-sink-count")
def test_exact_boundary_is_settled_over_the_rationals_and_rounding_is_undecided():
    quarter = torch.tensor([[0.0, -1], [1, 0]], dtype=F64)
    M = System(quarter, EYE, EYE).lags(3)
    count = softmax_count(M)
    assert count == 3 and count.evidence.margin == 0
    verify(M, count.evidence)
    eighth = rotation_lags(math.pi / 4, 5)
    count = softmax_count(eighth)
    assert (count.low, count.high) == (2, 3) and abs(count.evidence.margin) < 1e-15
    assert softmax_count(eighth[:4]) == 2 and softmax_count(rotation_lags(math.pi / 4, 6)) == 3


@pytest.mark.guards("thm-sink-count")
@pytest.mark.parametrize("gap", [1e-3, 1e-6, 1e-9])
def test_near_ties_are_decided_on_both_sides(gap):
    for sign, wanted in ((-1, 2), (1, 3)):
        M = torch.stack([rotation(angle) for angle in (0.0, 1.0, math.pi + sign * gap)])
        count = softmax_count(M)
        assert count == wanted and count.evidence.margin < gap
        verify(M, count.evidence)
    M[2] = rotation(math.pi - 1e-14)
    assert not softmax_count(M).settled


@pytest.mark.guards("thm-sink-count")
def test_a_sign_is_claimed_only_when_rational_arithmetic_agrees():
    g, claims = gen(0), 0
    for trial in range(40):
        P, Q = torch.randn(2, 2, 2, generator=g, dtype=F64)
        M = P @ rotation_lags(math.pi / 4, 4 + trial % 2, rho=1.0) @ Q
        evidence = softmax_count(M).evidence
        if evidence.kind == "separating":
            claims += 1
            U = [Fraction(u) for u in evidence.U.flatten().tolist()]
            for lag in M.flatten(1).tolist():
                assert sum(u * Fraction(v) for u, v in zip(U, lag, strict=True)) > 0
    assert claims >= 20


@pytest.mark.guards("thm-sink-count")
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 3), st.integers(1, 3), st.integers(1, 12))
def test_certificates_prove_the_count_in_any_basis_and_scale(seed, N, p, d, n):
    A, B, C, _ = random_system(N, d, p, 0.9, seed)
    M = System(A, B, C).lags(n)
    count = softmax_count(M)
    k = count.evidence.k
    assert k == torch.linalg.matrix_rank(M.flatten(1), rtol=1e-10) and k <= count.low <= count.high <= k + 1
    verify(M, count.evidence)
    g = gen(seed)
    turned, condition = in_another_basis(A, B, C, g)
    scaled = (torch.rand(n, 1, 1, generator=g, dtype=F64) * 10 + 0.1) * M
    for lags in [scaled, turned.lags(n)][: 2 if condition < 1e3 else 1]:
        other = softmax_count(lags)
        assert max(count.low, other.low) <= min(count.high, other.high)


# ------------------------------------------------------------------ the count of a system


@pytest.mark.guards("prop-eigenvalue-test", "thm-sink-count")
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0, 4]), st.booleans())
@example(2034, 4, True)  # a lag that cancels is no lag that fades
@example(2375, 4, True)
def test_verdicts_agree_with_rational_ranks_and_a_linear_program(seed, spread, turned):
    rng = np.random.default_rng(seed)
    N, p, d = (int(v) for v in rng.integers(1, (5, 4, 4)))
    exact = [torch.from_numpy(rng.integers(-2, 3, s)) for s in ((N, N), (N, d), (p, N))]
    k, nu = exact_head_count(exact, N).value, exact_minimal_degree(exact)
    A, B, C = (part.double() for part in exact)
    M = System(A, B, C).lags(N + int(rng.integers(1, 8)))
    if turned:
        Q = torch.linalg.qr(torch.from_numpy(rng.standard_normal((N, N))))[0]
        A, B, C = Q @ A @ Q.mT, Q @ B, C @ Q.mT
    S = 10.0 ** torch.from_numpy(rng.uniform(-spread, spread, N))
    system = System(S[:, None] * A / S, S[:, None] * B, C / S)
    test = eigenvalue_test(system)
    if test.verdict != "inconclusive":
        assert (test.k, test.nu) == (k, nu) and k <= nu
    count = softmax_count(system, len(M))
    assert count.evidence.k == k and (k <= count.low <= count.high <= k + 1 or count == 0)
    if not k or (M.flatten(1).norm(dim=1) == 0).any():
        assert count.low <= k + (k > 0) <= count.high
        return
    margin = widest_margin(M)
    if margin > 1e-5:
        assert count.low <= k <= count.high and (count == k or margin < 1e-3)
    elif margin < 1e-12:
        assert count.low <= k + 1 <= count.high


@pytest.mark.guards("prop-eigenvalue-test")
@pytest.mark.parametrize("radius", [0.9, 0.9999])
def test_the_poles_decide_where_long_lags_cannot(radius):
    A, B, C, _ = random_system(12, 4, 4, radius, 0)
    A = torch.block_diag(A, torch.tensor([[radius / 3]], dtype=F64))  # a positive pole that fades early
    B, C = torch.cat([B, torch.ones(1, 4, dtype=F64)]), torch.cat([C, torch.ones(4, 1, dtype=F64)], 1)
    count = softmax_count(System(A, B, C), 65536)
    assert count == 13 and count.evidence.kind == "eigenvalue"
    assert softmax_count(System(A, B, C).lags(65536)) != 13


@pytest.mark.guards("thm-sink-count")
def test_a_skip_is_part_of_the_system_and_leaves_the_poles_out_of_it():
    for skip, wanted in ((1.0, 1), (-3.0, 2)):  # M_0 = 2, M_0 = -2 beside positive lags
        system = System(0.5 * ONE, ONE, ONE, skip * ONE)
        assert softmax_count(system, 9) == softmax_count(system.lags(9)) == wanted
        assert softmax_count(system, 3000) == wanted  # beyond the least number of float64
        with pytest.raises(ValueError, match="skip"):
            eigenvalue_test(system)


@pytest.mark.guards("thm-sink-count")
def test_a_lag_that_cancels_is_zero():
    """M_tau = 1 + (-1)^tau in states that no longer cancel exactly; and input and output that never meet."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        Q = torch.from_numpy(np.linalg.qr(rng.standard_normal((4, 4)))[0])
        A, ones = diagonal(1.0, -1.0, 0.0, 0.0), torch.tensor([[1.0, 1, 0, 0]], dtype=F64)
        assert softmax_count(System(Q @ A @ Q.mT, Q @ ones.mT, ones @ Q.mT), 9) == 2
        A, eye = torch.diag(torch.ones(3, dtype=F64), -1), torch.eye(4, dtype=F64)
        B, C = eye[:, 2:3], eye[1:2]
        apart = System(Q @ A @ Q.mT, Q @ B, C @ Q.mT)
        assert softmax_count(apart, 6) == softmax_heads(apart, 6).H == 0


@pytest.mark.guards("thm-sink-count")
@pytest.mark.parametrize("decay, n", [(0.01, 300), (0.5, 2000)])
def test_a_fading_lag_is_no_zero_lag(decay, n):
    A = diagonal(decay)
    M = System(A, ONE, ONE).lags(n)
    assert (M == 0).any()
    assert softmax_count(System(A, ONE, ONE), n) == 1 and softmax_count(M) == 2
    heads = softmax_heads(System(A, ONE, ONE), n)
    assert heads.H == 1
    # What float64 does not hold, the logits do: the last row, by its logarithms.
    row = heads.logits[0, -1]
    size = row - torch.logsumexp(torch.cat([row.new_zeros(1), row]), 0) + heads.V.log().squeeze()
    wanted = math.log(decay) * torch.arange(n - 1, -1, -1, dtype=F64)
    assert (size - wanted).abs().max() < 1e-9
    assert softmax_heads(System(-A, ONE, ONE), n).H == 2


# ------------------------------------------------------------------ the heads


def check_heads(heads, M, tolerance=1e-10):
    """Finite logits, positive coefficients, rows below 1, and the operator itself, through the softmax."""
    n = M.shape[0]
    visible = torch.ones(n, n, dtype=torch.bool).tril()
    assert torch.isfinite(heads.logits[:, visible]).all()
    alpha = heads.coefficients()
    assert (alpha[:, visible] > 0).all() and (alpha[:, ~visible] == 0).all()
    assert alpha.sum(-1).max() < 1
    W = torch.einsum("hij,hpd->ijpd", alpha, heads.V)
    # A small margin makes large value maps, which cancel: what is left of them is rounded at their size.
    rounding = n * torch.finfo(F64).eps * float(heads.V.abs().max())
    assert (W - toeplitz(M)).norm() <= tolerance * toeplitz(M).norm() + rounding
    assert torch.allclose(heads.operator().to_dense(), W, atol=1e-12 * float(heads.V.abs().max()))


@pytest.mark.guards("thm-sink-count")
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 3), st.integers(1, 3), st.integers(1, 15))
def test_built_heads_are_the_system(seed, N, p, d, n):
    A, B, C, _ = random_system(N, d, p, 0.95, seed)
    system = System(A, B, C, torch.ones(p, d, dtype=F64) if seed % 3 == 0 else None)
    heads, k = softmax_heads(system, n), softmax_heads(system, n).evidence.k
    assert heads.H in (k, k + 1)
    if heads.evidence.kind == "separating" and heads.evidence.margin > 1e-4:
        assert heads.H == k
    check_heads(heads, system.lags(n))


@pytest.mark.guards("thm-sink-count")
def test_large_fast_unstable_and_nilpotent_systems():
    system = System(*random_system(32, 8, 8, 0.98, 0)[:3])
    heads = softmax_heads(system, 512)
    assert heads.H == 33
    check_heads(heads, system.lags(512))
    for radius in (0.3, 1.5):
        system = System(*random_system(6, 3, 3, radius, 1)[:3])
        check_heads(softmax_heads(system, 60), system.lags(60))
    shift = seen(torch.diag(torch.ones(2, dtype=F64), 1))
    assert softmax_heads(shift, 6).H == 4
    check_heads(softmax_heads(shift, 6), shift.lags(6))
    none = softmax_heads(System(0 * EYE, 0 * EYE, EYE), 4)
    assert none.H == 0 and none.operator().to_dense().shape == (4, 4, 2, 2)


def test_heads_keep_ten_digits_beside_a_faint_direction():
    assert softmax_heads(System(diagonal(0.9, 0.5), EYE, diagonal(1.0, 1e-8)), 10).relative_error < 1e-10


@pytest.mark.guards("thm-sink-count")
@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3), st.booleans())
def test_heads_of_fast_systems_are_the_system_lag_by_lag(seed, N, skip):
    rng = np.random.default_rng(seed)
    A = torch.from_numpy(np.diag(rng.uniform(0.0005, 0.005, N)) + 0.002 * np.triu(rng.random((N, N)), 1))
    B, C = (torch.from_numpy(rng.standard_normal(s)) for s in ((N, 2), (2, N)))
    D = torch.from_numpy(rng.standard_normal((2, 2))) if skip else None
    n = 160
    heads = softmax_heads(System(A, B, C, D), n)
    assert heads.relative_error < 1e-10
    with mpmath.workdps(60):
        a, b, c = (mpmath.matrix(m.tolist()) for m in (A, B, C))
        row = [[mpmath.exp(float(v)) for v in head] for head in heads.logits[:, -1]]
        row = [[weight / (1 + sum(head)) for weight in head] for head in row]
        state = b
        for tau in range(n):
            lag = c * state + (mpmath.matrix(D.tolist()) if skip and tau == 0 else 0 * (c * state))
            made = 0 * lag
            for head, V in zip(row, heads.V, strict=True):
                made += head[n - 1 - tau] * mpmath.matrix(V.tolist())
            assert mpmath.norm(made - lag) < 1e-9 * mpmath.norm(lag), tau
            state = a * state
