"""The least nonnegative multiple of a polynomial: from which length on softmax needs its extra head."""

import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import torch
from helpers import F64
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from ssmbook.heads import eigenvalue_test, head_count, least_positive_multiple
from ssmbook.heads.softmax.eigenvalues import verdict_of_poles
from ssmbook.heads.softmax.positive import PositiveMultiple, positive_weights
from ssmbook.systems import System

softmax_head_count = partial(head_count, coefficients="softmax")

# Pairs r exp(+-i theta) and negative poles as factors with integer coefficients, from z^0 up.
FACTORS = [
    [1, -1, 1],
    [1, -1, 2],
    [1, 0, 1],
    [4, -2, 1],
    [2, -2, 1],
    [3, -3, 1],
    [5, -4, 1],
    [1, 1],
    [2, 1],
    [0, 1],
    [13, -6, 1],
]


def times(factors):
    product = [1]
    for factor in factors:
        product = np.convolve(product, factor)
    return [int(c) for c in product]


def companion(mu):
    """A system with independent residues and the minimal polynomial mu: the companion matrix, all seen."""
    N = len(mu) - 1
    A = torch.diag(torch.ones(N - 1, dtype=F64), -1)
    A[:, -1] = -torch.tensor(mu[:-1], dtype=F64) / mu[-1]
    eye = torch.eye(N, dtype=F64)
    return System(A / torch.linalg.eigvals(A).abs().max() * 0.8, eye, eye)


def least_degree_by_floats(mu, highest):
    """The least degree of a nonnegative multiple g mu, sum 1: a program over the coefficients of g."""
    for degree in range(len(mu) - 1, highest + 1):
        free = degree - len(mu) + 2
        shifts = np.zeros((degree + 1, free))
        for s in range(free):
            shifts[s : s + len(mu), s] = mu
        found = linprog(
            np.zeros(free),
            -shifts,
            np.zeros(degree + 1),
            shifts.sum(0)[None],
            [1],
            bounds=[(None, None)] * free,
        )
        if found.status == 0:
            return degree
    return None


@pytest.mark.guards("prop-eigenvalue-test")
@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from(FACTORS), min_size=1, max_size=4))
def test_the_least_multiple_is_proved_and_another_program_agrees(factors):
    mu = times(factors)
    found = least_positive_multiple(mu)
    assert found.verify() and found.polynomial == tuple(mu)
    turns = [math.ceil(math.pi / np.angle(max(np.roots(f[::-1]), key=np.imag)) - 1e-9) if any(f[:-1]) else 1
             for f in factors]  # fmt: skip
    assert len(mu) - 1 <= found.degree <= sum(turns)
    least = np.array([float(c) for c in mu]) * 1.7 ** np.arange(len(mu))  # another unit of z changes nothing
    assert least_degree_by_floats(least / abs(least).max(), sum(turns)) == found.degree


@pytest.mark.guards("prop-eigenvalue-test", "thm-sink-count")
@settings(max_examples=12, deadline=None)
@given(st.lists(st.sampled_from(FACTORS), min_size=1, max_size=3))
def test_the_lags_need_the_extra_head_from_the_degree_on(factors):
    mu = times(factors)
    system, degree = companion(mu), least_positive_multiple(mu).degree
    for n, extra in ((degree, 0), (degree + 1, 1), (degree + 5, 1)):
        count = softmax_head_count(system.lags(n))
        k = min(n, len(mu) - 1)
        assert count.low <= k + extra <= count.high and count.evidence.k == k
    test = eigenvalue_test(system)
    if test.verdict == "k+1" and test.independent:  # no doubt about clusters of poles
        assert test.n0_low <= degree + 1 <= test.n0_high


@pytest.mark.guards("prop-eigenvalue-test")
@pytest.mark.parametrize(
    "poles,old,n0",
    [
        ([(0.9, 1.0, 1), (0.9, 2.0, 1)], (5, 7), 6),
        ([(0.9, 0.5, 1), (0.7, 0.9, 1)], (8, 12), 11),
        ([(0.9, 1.0, 2)], (5, 9), 8),
        ([(0.9, 0.4, 2)], (9, 17), 17),
        ([(0.9, 0.4, 2), (0.9, 0.3, 1)], (12, 28), 27),
    ],
)
def test_the_interval_closes(poles, old, n0):
    blocks = []
    for rho, theta, index in poles:
        turn = rho * torch.tensor(
            [[math.cos(theta), -math.sin(theta)], [math.sin(theta), math.cos(theta)]], dtype=F64
        )
        shift, eye = torch.diag(torch.ones(index - 1, dtype=F64), 1), torch.eye(2, dtype=F64)
        blocks.append(torch.block_diag(*[turn] * index) + torch.kron(shift, eye))
    A = torch.block_diag(*blocks)
    eye = torch.eye(len(A), dtype=F64)
    system = System(A, eye, eye)
    rough, test = verdict_of_poles(system), eigenvalue_test(system)
    assert (rough.n0_low, rough.n0_high) == old and (test.n0_low, test.n0_high) == (n0, n0)
    delayed = torch.block_diag(A, torch.diag(torch.ones(1, dtype=F64), 1))  # two steps of delay beside it
    eye = torch.eye(len(delayed), dtype=F64)
    test = eigenvalue_test(System(delayed, eye, eye))
    assert (test.n0_low, test.n0_high) == (n0 + 2, n0 + 2)
    counts = [softmax_head_count(system.lags(n)).value for n in (n0 - 1, n0)]
    assert counts == [len(A), len(A) + 1]


@pytest.mark.guards("prop-eigenvalue-test")
def test_on_the_border_only_rational_arithmetic_decides():
    mu = times([[1, 0, 1], [1, 0, 1]])  # a double pair at a right angle: (1 + z^2)^2 is nonnegative itself
    assert least_positive_multiple(mu).degree == 4
    A = torch.tensor([[0.0, -1, 1, 0], [1, 0, 0, 1], [0, 0, 0, -1], [0, 0, 1, 0]], dtype=F64)
    test = eigenvalue_test(System(A, torch.eye(4, dtype=F64), torch.eye(4, dtype=F64)))
    assert (test.n0_low, test.n0_high) == (5, 5)
    border = times([[1, -1, 1], [1, 1]])  # z^3 + 1: of degree 3, with two coefficients that are 0 just so
    test = eigenvalue_test(companion(border))
    assert least_positive_multiple(border).degree == 3 and (test.n0_low, test.n0_high) == (4, 5)
    # (z^2 - z + 1)(z^2 + 1) divides (z^3 + 1)(z^2 + 1), of degree 5; nothing of degree 4 is >= 0.
    assert least_positive_multiple(times([[1, -1, 1], [1, 0, 1]])).degree == 5


def test_a_delay_and_constants():
    found = least_positive_multiple([0, 0, 3])
    assert found.degree == 2 and found.verify() and found.solution == (1, 1)
    found = least_positive_multiple([2])
    assert (found.degree, found.multiple, found.solution) == (0, (1,), ()) and found.verify()


def test_positive_weights_of_points():
    points = [[Fraction(v) for v in row] for row in ((1, 0), (0, 1), (-1, -1), (5, 5))]
    assert positive_weights(points) == [Fraction(1, 3)] * 3 + [0]
    assert positive_weights(points[:2]) is None
    assert positive_weights([[Fraction(0)]]) == [1]


@pytest.mark.parametrize("seed", range(60))
def test_positive_weights_are_there_where_a_linear_program_finds_them(seed):
    g = np.random.default_rng(seed)
    size, count = g.integers(2, 6), g.integers(5, 14)
    points = g.integers(-6, 7, (count, size)) + (seed % 3)
    found = positive_weights([[Fraction(int(v)) for v in row] for row in points])
    equations = np.vstack([points.T, np.ones(count)])
    foreign = linprog(np.zeros(count), A_eq=equations, b_eq=[0] * size + [1], bounds=(0, None))
    assert (found is not None) == foreign.success
    if found is not None:
        assert min(found) >= 0 and sum(found) == 1
        assert all(sum(w * int(v) for w, v in zip(found, axis, strict=True)) == 0 for axis in points.T)


@pytest.mark.parametrize("change", ["multiple", "solution"])
def test_a_wrong_proof_is_found(change):
    found = least_positive_multiple([1, -1, 1])
    numbers = list(getattr(found, change))
    numbers[1] += 1
    object.__setattr__(found, change, tuple(numbers))
    assert not found.verify()


def test_zero_is_no_nonnegative_multiple():
    mu, one = (Fraction(1), Fraction(-1), Fraction(1)), Fraction(1)
    forged = PositiveMultiple(mu, (Fraction(0),) * 3, (one, one))  # divisible, and every sum with it is 0
    assert not forged.verify()


@pytest.mark.parametrize(
    "bad,error,words",
    [
        ([-1, 1], ValueError, "no positive root"),
        ([1, -2, 1], ValueError, "no positive root"),
        ([0, 0], ValueError, "must end with"),
        ([], ValueError, "must end with"),
        ([1, math.nan], TypeError, "finite real numbers"),
        ([1j, 1], TypeError, "finite real numbers"),
        (3, TypeError, "finite real numbers"),
    ],
)
def test_bad_polynomials_are_named(bad, error, words):
    with pytest.raises(error, match=words):
        least_positive_multiple(bad)


@pytest.mark.guards("prop-eigenvalue-test")
@pytest.mark.parametrize("turns", [3, 6, 7, 13, 29, 49, 57, 98, 103, 107, 161])
def test_a_turn_by_a_whole_part_of_pi_closes_when_it_is_back(turns):
    """Of a turn by pi / k the least multiple is 1 + z^k: from k + 1 tokens on it needs one head more."""
    theta, eye = math.pi / turns, torch.eye(2, dtype=F64)
    A = [[math.cos(theta), -math.sin(theta)], [math.sin(theta), math.cos(theta)]]
    test = verdict_of_poles(System(torch.tensor(A, dtype=F64), eye, eye))
    assert (test.verdict, test.n0_low, test.n0_high) == ("k+1", turns + 1, turns + 1)
