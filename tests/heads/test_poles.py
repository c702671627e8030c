"""The eigenvalue test: which systems need the extra softmax head, and from which length on."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from helpers import F64, diagonal, gen, random_system, rotation, seen
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from headsandstates.chapters.how_many_heads_really.positive import PositiveMultiple, least_positive_multiple
from ssmbook.heads import eigenvalue_test, head_count
from ssmbook.systems import System

softmax_count = partial(head_count, coefficients="softmax")

# Pairs r exp(+-i theta) and negative poles as factors with integer coefficients, from z^0 up.
FACTORS = [[1, -1, 1], [1, -1, 2], [1, 0, 1], [4, -2, 1], [3, -3, 1], [5, -4, 1], [1, 1], [2, 1], [0, 1]]


def times(factors):
    product = [1]
    for factor in factors:
        product = np.convolve(product, factor)
    return [int(c) for c in product]


def companion(mu):
    """A system with independent residues and the minimal polynomial mu, up to the unit of time."""
    N = len(mu) - 1
    A = torch.diag(torch.ones(N - 1, dtype=F64), -1)
    A[:, -1] = -torch.tensor(mu[:-1], dtype=F64) / mu[-1]
    return seen(A / torch.linalg.eigvals(A).abs().max() * 0.8)


def least_degree_by_floats(mu, highest):
    """The least degree of a nonnegative multiple g mu, sum 1: a program over the coefficients of g."""
    for degree in range(len(mu) - 1, highest + 1):
        free = degree - len(mu) + 2
        shifts = np.zeros((degree + 1, free))
        for s in range(free):
            shifts[s : s + len(mu), s] = mu
        bounds, zeros = [(None, None)] * free, np.zeros(degree + 1)
        if linprog(np.zeros(free), -shifts, zeros, shifts.sum(0)[None], [1], bounds=bounds).status == 0:
            return degree
    return None


@pytest.mark.guards("prop-eigenvalue-test")
def test_verdicts_on_random_systems_are_the_counts_of_their_lags():
    g = gen(1)
    undecided, both = 0, {"k": 0, "k+1": 0}
    for seed in range(100):
        N, p = (int(torch.randint(1, high, (1,), generator=g)) for high in (6, 4))
        system = System(*random_system(N, -(-N // p) + seed % 2, p, 0.9, seed)[:3])
        test = eigenvalue_test(system)
        assert test.k == test.nu == N
        both[test.verdict] += 1
        poles = torch.linalg.eigvals(system.A)
        assert (test.verdict == "k") == bool(((poles.imag == 0) & (poles.real > 0)).any())
        cases = [(N, 0), (12, 0)] if test.verdict == "k" else [(test.n0_low - 1, 0), (test.n0_high, 1)]
        for n, extra in cases:
            count = softmax_count(system.lags(n))
            undecided += not count.settled
            assert count.low <= count.evidence.k + extra <= count.high, (seed, n, test)
    assert min(both.values()) > 20 and undecided <= 4


@pytest.mark.guards("prop-eigenvalue-test")
@pytest.mark.parametrize("theta", [0.2, 0.7, 1.3, 2.9, *(math.pi / turns for turns in (3, 7, 13, 57, 161))])
def test_one_pair_needs_the_extra_head_from_half_a_turn_on(theta):
    test = eigenvalue_test(seen(0.9 * rotation(theta)))
    assert test.verdict == "k+1" and test.n0_low == test.n0_high == 1 + math.ceil(math.pi / theta - 1e-9)


@pytest.mark.guards("prop-eigenvalue-test")
@pytest.mark.parametrize(
    "poles,n0",
    [
        ([(0.9, 1.0, 1), (0.9, 2.0, 1)], 6),
        ([(0.9, 0.5, 1), (0.7, 0.9, 1)], 11),
        ([(0.9, 1.0, 2)], 8),
        ([(0.9, 0.4, 2), (0.9, 0.3, 1)], 27),
    ],
)
def test_the_interval_closes(poles, n0):
    blocks = []
    for rho, theta, index in poles:
        shift = torch.kron(torch.diag(torch.ones(index - 1, dtype=F64), 1), torch.eye(2, dtype=F64))
        blocks.append(torch.block_diag(*[rotation(theta, rho)] * index) + shift)
    A = torch.block_diag(*blocks)
    test = eigenvalue_test(seen(A))
    assert (test.n0_low, test.n0_high) == (n0, n0)
    test = eigenvalue_test(seen(torch.block_diag(A, torch.diag(torch.ones(1, dtype=F64), 1))))
    assert (test.n0_low, test.n0_high) == (n0 + 2, n0 + 2)  # two steps of delay beside it
    counts = [softmax_count(seen(A).lags(n)).value for n in (n0 - 1, n0)]
    assert counts == [len(A), len(A) + 1]


@pytest.mark.guards("prop-eigenvalue-test")
def test_positive_pole_without_independence_decides_nothing():
    ones, C = torch.ones(2, 1, dtype=F64), torch.tensor([[1.0, 2]], dtype=F64)
    test = eigenvalue_test(System(diagonal(1.0, -1.0), ones, C))
    assert test.verdict == "inconclusive" and (test.k, test.nu) == (1, 2)
    assert softmax_count(System(diagonal(1.0, -1.0), ones, C), 4) == 2
    hidden = eigenvalue_test(System(diagonal(0.5, -0.5), torch.tensor([[0.0], [1]], dtype=F64), C))
    assert hidden.verdict == "k+1" and hidden.nu == 1


@pytest.mark.guards("prop-eigenvalue-test")
def test_other_states_change_no_verdict():
    for seed in range(5):
        P = torch.randn(3, 3, generator=gen(seed), dtype=F64)
        nilpotent = P @ torch.diag(torch.ones(2, dtype=F64), 1) @ torch.linalg.inv(P)
        assert eigenvalue_test(seen(nilpotent)).verdict == "k+1"


# ------------------------------------------------------------------ least nonnegative multiples


@pytest.mark.guards("prop-eigenvalue-test", "thm-sink-count")
@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(FACTORS), min_size=1, max_size=3))
def test_the_least_multiple_is_proved_and_says_when_the_extra_head_is_needed(factors):
    mu = times(factors)
    found = least_positive_multiple(mu)
    assert found.verify() and found.polynomial == tuple(mu)
    turns = [math.ceil(math.pi / np.angle(max(np.roots(f[::-1]), key=np.imag)) - 1e-9) if any(f[:-1]) else 1
             for f in factors]  # fmt: skip
    assert len(mu) - 1 <= found.degree <= sum(turns)
    least = np.array([float(c) for c in mu]) * 1.7 ** np.arange(len(mu))  # another unit of z changes nothing
    assert least_degree_by_floats(least / abs(least).max(), sum(turns)) == found.degree
    system = companion(mu)
    for n, extra in ((found.degree, 0), (found.degree + 1, 1), (found.degree + 5, 1)):
        count, k = softmax_count(system.lags(n)), min(n, len(mu) - 1)
        assert count.low <= k + extra <= count.high and count.evidence.k == k
    test = eigenvalue_test(system)
    if test.verdict == "k+1" and test.k == test.nu:  # no doubt about clusters of poles
        assert test.n0_low <= found.degree + 1 <= test.n0_high


@pytest.mark.guards("prop-eigenvalue-test")
def test_on_the_border_only_rational_arithmetic_decides():
    assert least_positive_multiple(times([[1, 0, 1], [1, 0, 1]])).degree == 4  # (1 + z^2)^2 is nonnegative
    border = times([[1, -1, 1], [1, 1]])  # z^3 + 1: of degree 3, with two coefficients that are 0 just so
    test = eigenvalue_test(companion(border))
    assert least_positive_multiple(border).degree == 3 and test.n0_low <= 4 <= test.n0_high
    # (z^2 - z + 1)(z^2 + 1) divides (z^3 + 1)(z^2 + 1), of degree 5; nothing of degree 4 is >= 0.
    assert least_positive_multiple(times([[1, -1, 1], [1, 0, 1]])).degree == 5
    assert least_positive_multiple([0, 0, 3]).solution == (1, 1)
    assert least_positive_multiple([2]).multiple == (1,)


def test_a_wrong_proof_is_found():
    found = least_positive_multiple([1, -1, 1])
    mu, (q, u) = found.polynomial, (found.multiple, found.solution)
    assert not PositiveMultiple(mu, (q[0], q[1] + 1, *q[2:]), u).verify()
    assert not PositiveMultiple(mu, q, (u[0], u[1] + 1, *u[2:])).verify()
    assert not PositiveMultiple(mu, (0 * q[0],) * 3, u[:2]).verify()
