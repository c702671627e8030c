"""Softmax heads counted from a system: poles, lags and heads agree, or the test says that it is undecided."""

import math
from functools import partial

import mpmath
import numpy as np
import pytest
import torch
from helpers import F64
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from ssmbook.heads import (
    eigenvalue_test,
    exact_head_count,
    exact_minimal_degree,
    head_count,
    softmax_heads_from_ssm,
)
from ssmbook.heads._coordinates import largest_exponent, span_coordinates
from ssmbook.heads.fixed import spectrum_report
from ssmbook.heads.softmax.rows import _product, lag_rows
from ssmbook.systems import System

softmax_head_count = partial(head_count, coefficients="softmax")


def diagonal(*entries):
    return torch.diag(torch.tensor(entries, dtype=F64))


def widest_margin(M):
    """max t with <U, M_tau> >= t |M_tau| and |U| <= 1, by a linear program of our own over all lags."""
    rows = (M / M.flatten(1).norm(dim=1)[:, None, None]).flatten(1).numpy()
    q = rows.shape[1]
    found = linprog(
        np.append(np.zeros(q), -1.0),
        np.hstack([-rows, np.ones((len(rows), 1))]),
        np.zeros(len(rows)),
        bounds=[(-1, 1)] * q + [(0, None)],
    )
    return found.x[-1]


@pytest.mark.guards("prop-eigenvalue-test")
def test_units_of_the_states_change_no_verdict():
    A, B, C = diagonal(0.9, -0.5), diagonal(1.0, 1e-14), diagonal(1.0, 1e14)
    M = System(A, B, C).lags(12)
    test = eigenvalue_test(System(A, B, C))
    assert (test.verdict, test.k, test.nu) == ("k", 2, 2)
    assert softmax_head_count(M) == softmax_head_count(System(*(A, B, C)), len(M)) == 2


@pytest.mark.guards("prop-eigenvalue-test", "thm-sink-count")
@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0, 4, 8, 40]), st.booleans())
@example(2034, 4, True)  # a lag that cancels is no lag that fades
@example(2119, 40, False)
@example(2375, 4, True)
def test_verdicts_agree_with_rational_ranks_and_a_linear_program(seed, spread, turned):
    rng = np.random.default_rng(seed)
    N, p, d = (int(v) for v in rng.integers(1, (5, 4, 4)))
    A, B, C = (torch.from_numpy(rng.integers(-2, 3, s)) for s in ((N, N), (N, d), (p, N)))
    k, nu = exact_head_count((A, B, C), N).value, exact_minimal_degree((A, B, C))
    M = System(A.double(), B.double(), C.double()).lags(N + int(rng.integers(1, 8)))
    A, B, C = A.double(), B.double(), C.double()
    if turned:
        Q = torch.linalg.qr(torch.from_numpy(rng.standard_normal((N, N))))[0]
        A, B, C = Q @ A @ Q.mT, Q @ B, C @ Q.mT
    S = 10.0 ** torch.from_numpy(rng.uniform(-spread, spread, N))
    system = S[:, None] * A / S, S[:, None] * B, C / S
    test = eigenvalue_test(System(*system))
    if test.verdict == "inconclusive":
        assert test.k < test.nu or any(word in test.reason for word in ("near-tie", "too close"))
    else:
        assert (test.k, test.nu) == (k, nu) and k <= nu
    assert System(*system).minimal().N >= nu or spectrum_report(System(*system), N).near_tie
    count = softmax_head_count(System(*system), len(M))
    certificate = count.evidence
    assert certificate.k == k and (k <= count.low <= count.high <= k + 1 or count == 0)
    if not k or (M.flatten(1).norm(dim=1) == 0).any():
        assert count.low <= k + (k > 0) <= count.high
        return
    margin = widest_margin(M)
    if margin > 1e-5:
        assert count.low <= k <= count.high and (count == k or margin < 1e-3)
    elif margin < 1e-12:
        assert count.low <= k + 1 <= count.high


@pytest.mark.guards("prop-eigenvalue-test")
@pytest.mark.parametrize("channels", [1, 2])
def test_a_delay_behind_hidden_poles_is_no_positive_pole(channels):
    """M_1 = 0 exactly: in the minimal realization, of A = 0, every entry is a rounding error."""
    eye = torch.eye(channels, dtype=torch.int64)
    system = [torch.kron(torch.tensor(m), eye) for m in ([[2, 2], [0, 0]], [[1], [-1]], [[-1, 1]])]
    A, B, C = (m.double() for m in system)
    test = eigenvalue_test(System(A, B, C))
    assert (test.verdict, test.k, test.nu, test.n0_low, test.n0_high) == ("k+1", 1, 1, 2, 2)
    M = System(A, B, C).lags(4)
    assert exact_head_count(system, 4) == 1 and softmax_head_count(System(*(A, B, C)), len(M)) == 2


@pytest.mark.guards("prop-eigenvalue-test")
@pytest.mark.parametrize("gap", [1e-8, 1e-9, 3e-10])
def test_poles_too_close_to_call_are_undecided_with_the_reason(gap):
    eye = torch.eye(2, dtype=F64)
    test = eigenvalue_test(System(diagonal(0.5, 0.5 + gap), eye, eye))
    assert test.verdict == "inconclusive" and (test.k, test.nu) == (2, 1) and not test.independent
    assert "near-tie" in test.reason or "nu is 1 by the poles and 2 by the lags" in test.reason
    # Only one channel: k = 1, but two poles and one cannot be told apart by clusters of width 1e-7.
    ones = torch.ones(2, 1, dtype=F64)
    assert eigenvalue_test(System(diagonal(0.5, 0.5 + gap), ones, ones.mT)).verdict == "inconclusive"


@pytest.mark.guards("prop-eigenvalue-test")
def test_the_default_cluster_width_and_the_widest_radius_of_a_cluster():
    eye = torch.eye(2, dtype=F64)
    assert eigenvalue_test(System(diagonal(0.5, 0.5 + 1e-8), eye, eye)).nu == 1
    assert eigenvalue_test(System(diagonal(0.5, 0.5 + 1e-8), eye, eye), rtol=1e-10).nu == 2
    A = diagonal(0.5, 0.5, 0.5, 0.5)
    A[0, 1] = A[1, 2] = 1
    g = torch.Generator().manual_seed(0)
    Q, eye = torch.linalg.qr(torch.randn(4, 4, generator=g, dtype=F64)).Q, torch.eye(4, dtype=F64)
    assert eigenvalue_test(System(Q @ A @ Q.mT, eye, eye)).nu == 3


def test_an_undecided_count_names_what_the_poles_left_open():
    c, s, eye = math.cos(math.pi / 4), math.sin(math.pi / 4), torch.eye(2, dtype=F64)
    A = torch.block_diag(torch.tensor([[c, -s], [s, c]], dtype=F64), eye)
    B, C = torch.cat([eye, eye]), torch.cat([eye, 0.25 * eye], 1)
    # M_0 and M_4 are opposite but for rounding, and k = 2 < nu = 3 keeps the pole 1 from deciding.
    count = softmax_head_count(System(*(A, B, C)), len(System(A, B, C).lags(5)))
    certificate = count.evidence
    assert (
        not count.settled and "of the poles: a positive real pole, but k = 2 < nu = 3" in certificate.reason
    )


def test_a_count_by_the_poles_has_no_margin_and_the_spectrum_of_the_first_lags():
    eye = torch.eye(2, dtype=F64)
    system = System(diagonal(0.9, 0.5), eye, eye)
    certificate = softmax_head_count(system, 6).evidence
    assert certificate.kind == "eigenvalue" and math.isnan(certificate.margin) and not certificate.exact
    assert certificate.reason == "a positive real pole and independent R_{s,m}"
    # One lag more than there are states spans them all.
    sigma = torch.linalg.svdvals(system.lags(3).reshape(3, 4))
    assert torch.allclose(certificate.spectrum, sigma)
    assert softmax_head_count(system, 1) == 1  # fewer tokens than poles
    assert softmax_head_count(System(system.A, 0 * eye, eye), 6).method == "zero"
    turn = System(torch.tensor([[0.0, -0.9], [0.9, 0.0]], dtype=F64), eye, eye)
    assert [softmax_head_count(turn, n).method for n in (2, 3)] == ["separating", "eigenvalue"]
    assert torch.allclose(softmax_head_count(5 * system.lags(3)).evidence.spectrum, 5 * sigma)


@pytest.mark.parametrize("p, d", [(1, 1), (3, 2), (1, 3), (3, 1)])
def test_a_skip_is_the_first_row_where_nothing_else_is_and_is_added_where_it_is_as_small(p, d):
    D = 1.0 + torch.arange(p * d, dtype=F64).reshape(p, d)
    unreached = System(diagonal(0.5, 0.25), torch.zeros(2, d, dtype=F64), torch.ones(p, 2, dtype=F64), D)
    rows, exponents = lag_rows(unreached.lags(3), unreached)
    assert rows.tolist() == [D.flatten().tolist(), *[[0.0] * (p * d)] * 2] and not exponents.any()
    B, C = torch.full((1, d), 1e-300, dtype=F64), torch.ones(p, 1, dtype=F64)
    tiny = System(diagonal(0.5), B, C, 1e-300 * D)
    rows, exponents = lag_rows(tiny.lags(4), tiny)
    assert np.array_equal(np.ldexp(rows, exponents[:, None]), tiny.lags(4).flatten(1).numpy())


@pytest.mark.parametrize("spread", [0, 3, 150])
def test_lags_that_all_cancel_need_no_head(spread):
    """Input, output and a delay that never meet: every lag is 0, or what rounding leaves of a sum."""
    rng = np.random.default_rng(spread)
    A, B, C = np.diag(np.ones(3), -1), np.eye(4)[:, 2:3], np.eye(4)[1:2]
    for _ in range(20):
        S, Q = 10.0 ** rng.uniform(-spread, spread, 4), np.linalg.qr(rng.standard_normal((4, 4)))[0]
        turned = S[:, None] * (Q @ A @ Q.T) / S, S[:, None] * (Q @ B), C @ Q.T / S
        system = System(*(torch.from_numpy(m) for m in turned))
        skip = system.replace(D=torch.ones(1, 1, dtype=F64))
        assert softmax_head_count(system, 6) == 0 and softmax_head_count(skip, 6) == 2
        assert softmax_heads_from_ssm(system, 6).H == 0 and softmax_heads_from_ssm(skip, 6).H == 2


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 5), (5, 2)])
def test_rows_of_zeros_span_nothing_and_have_a_spectrum_of_zeros(shape):
    basis, spectrum = span_coordinates(np.zeros(shape), 1e-10)
    assert basis.shape == (0, shape[1]) and spectrum.tolist() == [0.0] * min(shape)


def test_the_power_of_two_above_the_largest_entry_is_that_of_its_size():
    entries = ([-5.0, 1.0], [0.3, -0.2], [4.0], [0.0], [])
    assert [largest_exponent(np.array(row)) for row in entries] == [3, -1, 3, 0, 0]


@pytest.mark.parametrize("a, b", [(1, 1), (1, -1), (-1, 1), (-1, -1)])
def test_a_product_that_cancels_is_zero_whatever_the_signs(a, b):
    for rest, kept in ((1e-14, False), (1e-9, True)):  # what a a - b b (1 - rest) is
        product = _product(np.array([[a, b]]), np.array([[a], [-b * (1 - rest)]]))
        assert product.any() == kept


@pytest.mark.guards("thm-sink-count")
@pytest.mark.parametrize("decay,n", [(0.01, 300), (0.5, 2000), (1e-100, 9)])
def test_a_fading_lag_is_no_zero_lag(decay, n):
    A, one = diagonal(decay), torch.ones(1, 1, dtype=F64)
    M = System(A, one, one).lags(n)
    assert (M == 0).any()
    assert softmax_head_count(System(*(A, one, one)), len(M)) == 1 and softmax_head_count(M) == 2
    heads = softmax_heads_from_ssm(System(A, one, one), n)
    assert heads.H == 1 and heads.certificate.kind == "separating"
    # What float64 cannot hold, the logits do: the last row, by its logarithms.
    row = heads.logits[0, -1]
    size = row - torch.logsumexp(torch.cat([row.new_zeros(1), row]), 0) + heads.V.log().squeeze()
    wanted = math.log(decay) * torch.arange(n - 1, -1, -1, dtype=F64)
    assert (size - wanted).abs().max() < 1e-9
    assert softmax_heads_from_ssm(System(-A, one, one), n).H == 2


@pytest.mark.guards("thm-sink-count")
@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3), st.booleans())
def test_heads_of_fast_systems_are_the_system_lag_by_lag(seed, N, skip):
    rng = np.random.default_rng(seed)
    A = torch.from_numpy(np.diag(rng.uniform(0.0005, 0.005, N)) + 0.002 * np.triu(rng.random((N, N)), 1))
    B, C = (torch.from_numpy(rng.standard_normal(s)) for s in ((N, 2), (2, N)))
    D = torch.from_numpy(rng.standard_normal((2, 2))) if skip else None
    n = 160
    heads = softmax_heads_from_ssm(System(A, B, C, D), n)
    visible = torch.ones(n, n, dtype=torch.bool).tril()
    assert torch.isfinite(heads.logits[:, visible]).all() and heads.relative_error < 1e-10
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
