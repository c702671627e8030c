"""A count does not depend on the units, tells apart what n tokens tell apart, and warns in time."""

import warnings
from functools import partial

import numpy as np
import pytest
import scipy.linalg
import torch
from helpers import EYE, F64, gen, randn
from hypothesis import given, settings
from hypothesis import strategies as st

from ssmbook.heads import (
    HeadCountTieWarning,
    exact_minimal_degree,
    head_count,
    head_count_bound,
    heads_from_ssm,
)
from ssmbook.systems import System, hippo_legs, random_stable

exact_head_count = partial(head_count, exact=True)

many = settings(max_examples=60, deadline=None)
KINDS = "dense sparse jordan nilpotent repeated companion unreached unobserved delay".split()


@st.composite
def integer_systems(draw):
    """A small integer system of each kind, with a skip that may cancel lag 0, and a generator."""
    kind, rng = draw(st.sampled_from(KINDS)), np.random.default_rng(draw(st.integers(0, 10**6)))
    N, p, d = (int(size) for size in rng.integers(1, (8, 4, 4)))
    entries = [0, 0, 0, 1, -1] if kind == "sparse" else [-2, -1, 0, 1, 2]
    A, B, C = (rng.choice(entries, shape) for shape in ((N, N), (N, d), (p, N)))
    if kind == "jordan":
        A = rng.integers(-2, 3) * np.eye(N, dtype=int) + np.diag(np.ones(N - 1, dtype=int), 1)
    if kind == "nilpotent":
        A = np.triu(A, 1)
    if kind == "repeated":
        mix = np.tril(rng.integers(-1, 2, (N, N)), -1) + np.eye(N, dtype=int)
        A = mix @ np.diag(rng.choice([-2, -1, 1, 2], N)) @ np.linalg.inv(mix).round().astype(int)
    if kind == "companion":
        A = np.diag(np.ones(N - 1, dtype=int), 1)
        A[-1] = rng.integers(-3, 4, N)
    if kind == "unreached":
        A[N // 2 :, : N // 2], B[N // 2 :] = 0, 0
    if kind == "unobserved":
        A[: N // 2, N // 2 :], C[:, N // 2 :] = 0, 0
    if kind == "delay":
        A = np.diag(np.ones(N - 1, dtype=int), -1)
        B, C = ((rng.random(shape) < 0.3).astype(int) for shape in ((N, d), (p, N)))
    D = [None, rng.integers(-1, 2, (p, d)), -C @ B][rng.integers(3)]
    return [None if part is None else torch.from_numpy(part) for part in (A, B, C, D)], rng


def in_other_units(A, B, C, D, rng, spread=6):
    """The same system with states, inputs, outputs and steps in units from 10^-spread to 10^spread."""
    state, column, row = (torch.from_numpy(10 ** rng.uniform(-spread, spread, size))
                          for size in (len(A), B.shape[1], len(C)))  # fmt: skip
    return System(
        10 ** rng.uniform(-spread, spread) * state[:, None] * A / state,
        state[:, None] * B * column,
        row[:, None] * C / state,
        None if D is None else row[:, None] * D * column,
    )


@pytest.mark.filterwarnings("ignore::ssmbook.heads.HeadCountTieWarning")
@pytest.mark.guards("thm-head-count", "prop-what-k-is")
@many
@given(integer_systems(), st.integers(0, 14), st.booleans())
def test_counts_in_any_units_agree_with_rational_arithmetic(system, n, turned):
    (*integers, D), rng = system
    k, nu = exact_head_count((*integers, D), n).value, exact_minimal_degree(integers)
    A, B, C = (part.double() for part in integers)
    D = None if D is None else D.double()
    if turned:
        Q = torch.linalg.qr(torch.from_numpy(rng.standard_normal(A.shape)))[0]
        A, B, C = Q @ A @ Q.mT, Q @ B, C @ Q.mT
    scaled = in_other_units(A, B, C, D, rng)
    report = head_count(scaled, n).evidence
    assert report.rank == k or report.near_tie, str(report)
    assert head_count_bound(scaled, n) >= report.rank
    report = head_count(scaled.replace(D=None), 3 * len(A)).evidence
    assert report.degree == nu or report.near_tie, str(report)
    assert scaled.minimal().N <= len(A)


@pytest.mark.filterwarnings("error::ssmbook.heads.HeadCountTieWarning")
@pytest.mark.guards("thm-head-count")
@pytest.mark.parametrize("N", [8, 32, 100])
def test_large_systems_are_counted_without_a_warning(N):
    """Random, HiPPO-LegS, repeated poles in a random basis and the badly balanced companion matrix."""
    B, C, rng = randn(N, 12, seed=1), randn(12, N, seed=2), np.random.default_rng(N)
    mix = randn(N, N, seed=3)
    doubled = (
        mix @ torch.diag(torch.linspace(-0.9, 0.95, N // 2, dtype=F64).repeat(2)) @ torch.linalg.inv(mix)
    )
    legs = torch.from_numpy(scipy.linalg.expm(0.01 * hippo_legs(min(N, 64), dtype=F64)[0].numpy()))
    small = torch.from_numpy(scipy.linalg.companion(np.poly(0.1 * np.arange(1, 7))))
    for A, k in (
        (random_stable(N, 1, 1, rho=0.95, generator=gen(N), dtype=F64).A, N),
        (legs, len(legs)),
        (doubled, N // 2),
        (small, len(small)),
    ):
        system = System(A, B[: len(A)], C[:, : len(A)])
        for n in (k // 2, 300, 100_000):
            assert head_count(system, n) == min(n, k)
        assert head_count(in_other_units(*system, rng, spread=3), 300) == k
        assert head_count(system.replace(D=randn(12, 12, seed=4)), 300) == k + 1


@pytest.mark.guards("thm-head-count")
@pytest.mark.parametrize("s", [1e-5, 1e-15, 1e-50, 1e-150, 1e13, 1e150])
def test_two_modes_in_units_that_differ(s):
    A = torch.diag(torch.tensor([0.9, -0.5], dtype=F64))
    B, C = torch.tensor([[1.0], [s]], dtype=F64), torch.tensor([[1.0, 1 / s]], dtype=F64)
    system = System(A, B, C)
    report = head_count(system, 12).evidence
    assert report.rank == head_count_bound(system, 12) == 1 and report.degree == system.minimal().N == 2
    both = System(A, torch.tensor([[1.0, 1.0], [s, -s]], dtype=F64), C)
    assert head_count(both, 12) == head_count_bound(both, 12) == 2
    torch.testing.assert_close(both.minimal().lags(9), both.lags(9), rtol=1e-12, atol=1e-12)
    heads_from_ssm(both, 9)  # refuses what is not exact


def narrow(e):
    return System(torch.diag(torch.tensor([1.0, 1 - e], dtype=F64)), EYE, EYE)


@pytest.mark.guards("thm-head-count")
@pytest.mark.parametrize("e, n", [(1e-12, 10**4), (1e-12, 10**6), (1e-14, 10**6), (1e-9, 100), (1e-6, 10**6)])
def test_poles_that_n_tokens_tell_apart_are_two(e, n):
    """The lags of the two poles drift apart by n e, so the distance that counts depends on n."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeadCountTieWarning)
        assert (
            head_count(narrow(e), n) == exact_head_count(narrow(e), n) == head_count_bound(narrow(e), n) == 2
        )
        assert heads_from_ssm(narrow(e), 3000).H == (2 if 3000 * e > 1e-10 else 1)


def test_a_gap_too_narrow_for_n_tokens_is_warned_about():
    for system, n in ((narrow(1e-12), 99), (narrow(1e-12), 101), (narrow(1e-14), 10**6)):
        with pytest.warns(HeadCountTieWarning):
            head_count(system, n)
    defective = System(torch.block_diag(torch.tensor([[0.5, 1], [0, 0.5]]), narrow(1e-12).A).double(),
                       *torch.eye(4, dtype=F64).expand(2, 4, 4))  # fmt: skip
    with pytest.warns(HeadCountTieWarning):
        head_count(defective, 10**4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert head_count(narrow(1e-15), 100) == head_count(narrow(0.0), 10**9) == 1
        assert head_count(narrow(1e-3), 10**9) == 2


@pytest.mark.filterwarnings("error::ssmbook.heads.HeadCountTieWarning")
@pytest.mark.parametrize("N, k", [(12, 12), (32, 16)])
def test_float32_raises_no_false_alarm(N, k):
    for seed in range(60):
        assert (
            head_count(random_stable(N, 4, 4, rho=0.95, generator=gen(seed), dtype=torch.float32), 200) == k
        )
