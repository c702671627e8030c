"""Head counts in float64: examples, bounds, near-ties, agreement with rational arithmetic in any units."""

import math
import warnings
from functools import partial

import numpy as np
import pytest
import scipy.linalg
import torch
from helpers import EYE, F64, diagonal, floats, gen, randn, random_system, rotation, seen
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.overrides import TorchFunctionMode

from ssmbook.heads import (
    HeadCountTieWarning,
    exact_minimal_degree,
    head_count,
    head_count_at_most,
)
from ssmbook.systems import System, hippo_legs, random_stable

exact_head_count = partial(head_count, exact=True)
quick = settings(max_examples=40, deadline=None)
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


def in_other_units(A, B, C, D, rng, spread):
    """The same system with states, inputs, outputs and steps in units from 10^-spread to 10^spread."""
    state, column, row = (torch.from_numpy(10 ** rng.uniform(-spread, spread, size))
                          for size in (len(A), B.shape[1], len(C)))  # fmt: skip
    return System(
        10 ** rng.uniform(-spread, spread) * state[:, None] * A / state,
        state[:, None] * B * column,
        row[:, None] * C / state,
        None if D is None else row[:, None] * D * column,
    )


@pytest.mark.guards("prop-what-k-is")
def test_no_tokens_no_inputs_and_no_states():
    A, B, C, D = random_system(9, 4, 3, 0.9, 1)
    assert head_count(System(A, B, C), 0) == 0
    assert head_count(System(A, 0 * B, C), 50) == 0 and head_count(System(A, 0 * B, C, D), 50) == 1
    assert head_count(System(0 * A, B, C), 50) == 1
    assert head_count(System(A[:0, :0], B[:0], C[:, :0], D), 5) == 1


@pytest.mark.guards("prop-what-k-is")
@quick
@given(integer_systems(), st.integers(0, 14))
def test_the_bounds_hold_and_enough_lags_decide(system, n):
    (A, B, C, D), _ = system
    N, pd = len(A), len(C) * B.shape[1]
    k = exact_head_count((A, B, C, D), n).value
    nu, skip = exact_minimal_degree((A, B, C)), D is not None and bool(D.any())
    rank = lambda m: int(torch.linalg.matrix_rank(m.double()))  # noqa: E731
    assert k <= min(n, nu + skip, pd, N + skip, rank(B) * rank(C) + skip)
    assert k <= head_count_at_most(System(*floats(A, B, C), floats(D)[0]), n)
    singular = abs(float(torch.linalg.det(A.double()))) < 0.5
    deciding = N + (skip and not singular)
    assert exact_head_count((A, B, C, D), deciding).value == exact_head_count((A, B, C, D), 3 * N + 2).value


@pytest.mark.guards("prop-what-k-is")
def test_with_a_skip_n_lags_are_not_enough_unless_a_is_singular():
    A, B, C = torch.diag(torch.tensor([2, 3])), torch.tensor([[1, 0], [0, 1]]), torch.tensor([[1, 0], [0, 1]])
    D = torch.tensor([[0, 1], [0, 0]])
    counts = [exact_head_count((A, B, C, D), n).value for n in (2, 3, 4)]
    assert counts == [2, 3, 3] and exact_head_count((A, B, C), 9).value == 2
    assert head_count_at_most(System(*floats(A, B, C), D.double()), 9) == 3
    A = torch.diag(torch.tensor([2, 0]))
    assert [exact_head_count((A, B, C, D), n).value for n in (1, 2, 9)] == [1, 2, 2]
    assert head_count_at_most(System(*floats(A, B, C), D.double()), 9) == 2


@pytest.mark.guards("prop-what-k-is")
@quick
@given(st.integers(1, 10), st.integers(1, 3), st.integers(1, 3), st.integers(1, 14), st.integers(0, 10**6))
def test_generic_systems_meet_the_bound_and_similarity_changes_nothing(N, d, p, n, seed):
    A, B, C, D = random_system(N, d, p, 0.9, seed)
    assert head_count(System(A, B, C), n) == min(n, N, p * d)
    with_skip = head_count(System(A, B, C, D), n)
    assert with_skip == min(n, N + 1, p * d)
    generator = torch.Generator().manual_seed(seed + 1)
    U, V = (torch.linalg.qr(torch.randn(N, N, generator=generator, dtype=F64))[0] for _ in range(2))
    T = U @ torch.diag(torch.logspace(0, 2, N, dtype=F64)) @ V
    back = torch.linalg.inv(T)
    assert head_count(System(T @ A @ back, T @ B, C @ back, D), n) == with_skip


@pytest.mark.guards("prop-what-k-is")
@quick
@given(integer_systems(), integer_systems(), st.integers(1, 12))
def test_the_count_of_a_sum_is_at_most_the_sum_of_the_counts(one, two, n):
    (A, B, C, _), (a, b, c, _) = one[0], two[0]
    d, p = min(B.shape[1], b.shape[1]), min(len(C), len(c))
    B, C, b, c = B[:, :d], C[:p], b[:, :d], c[:p]
    both = torch.block_diag(A, a), torch.cat([B, b]), torch.cat([C, c], 1)
    one, two, total = (exact_head_count(system, n).value for system in ((A, B, C), (a, b, c), both))
    assert total <= one + two


@pytest.mark.guards("prop-what-k-is")
def test_a_skip_that_cancels_lag_zero_adds_no_head():
    A, B, C, _ = random_system(3, 3, 3, 0.9, 8)
    T = torch.linalg.qr(random_system(3, 3, 3, 0.9, 9)[0])[0]
    # C T^T T B rounds differently from C B, so M_0 is about 1e-16 instead of 0.
    assert head_count(System(T @ A @ T.mT, T @ B, C @ T.mT, -(C @ B)), 3) == 2
    assert head_count(System(T @ A @ T.mT, T @ B, C @ T.mT, -(C @ B)), 9) == 3


@pytest.mark.guards("prop-what-k-is")
def test_a_small_skip_that_nothing_cancels_adds_a_head():
    """M_0 = G + 1e-6 E_22 and M_tau = G / 2^tau: what is small is not what is left of a cancellation."""
    eye, G = torch.eye(2, dtype=F64), torch.tensor([[1.0, 1.0], [1.0, 0.0]], dtype=F64)
    D = torch.diag(torch.tensor([0.0, 1e-6], dtype=F64))
    assert head_count(System(0.5 * eye, eye, G, D), 5) == 2
    assert head_count(System(0.5 * eye, eye, G), 5) == 1


@pytest.mark.parametrize("planted", [1, 5, 12])
def test_planted_ranks_are_found_from_lags(planted):
    generator = torch.Generator().manual_seed(planted)
    left = torch.linalg.qr(torch.randn(40, planted, generator=generator, dtype=F64))[0]
    right = torch.linalg.qr(torch.randn(15, planted, generator=generator, dtype=F64))[0]
    M = (left * torch.logspace(3, 3 - 5 * (planted > 1), planted, dtype=F64)) @ right.mT
    count = head_count(M.reshape(40, 3, 5))
    report = count.evidence
    assert count == planted and not report.near_tie and report.gap > 1e6
    assert report.spectrum[0] == pytest.approx(1.0)


@pytest.mark.filterwarnings("ignore::ssmbook.heads.HeadCountTieWarning")
@pytest.mark.guards("thm-head-count", "prop-what-k-is")
@settings(max_examples=80, deadline=None)
@given(integer_systems(), st.integers(0, 14), st.booleans(), st.sampled_from([0, 6]))
def test_counts_in_any_units_agree_with_rational_arithmetic(system, n, turned, spread):
    (*integers, D), rng = system
    k, nu = exact_head_count((*integers, D), n).value, exact_minimal_degree(integers)
    A, B, C = (part.double() for part in integers)
    D = None if D is None else D.double()
    if turned:
        Q = torch.linalg.qr(torch.from_numpy(rng.standard_normal(A.shape)))[0]
        A, B, C = Q @ A @ Q.mT, Q @ B, C @ Q.mT
    scaled = in_other_units(A, B, C, D, rng, spread)
    report = head_count(scaled, n).evidence
    assert report.rank == k or report.near_tie and (spread or turned), str(report)
    assert head_count_at_most(scaled, n) >= report.rank
    report = head_count(scaled.replace(D=None), 3 * len(A)).evidence
    assert report.degree == nu or report.near_tie, str(report)


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


def narrow(e):
    return seen(diagonal(1.0, 1 - e))


@pytest.mark.filterwarnings("ignore::ssmbook.heads.HeadCountTieWarning")
@pytest.mark.guards("thm-head-count")
@pytest.mark.parametrize("e, n", [(1e-12, 10**4), (1e-12, 10**6), (1e-14, 10**6), (1e-9, 100), (1e-6, 10**6)])
def test_poles_that_n_tokens_tell_apart_are_two(e, n):
    """The lags of the two poles drift apart by n e, so the distance that counts depends on n."""
    system = narrow(e)
    count = head_count(system, n)
    assert count.evidence.rank == exact_head_count(system, n) == head_count_at_most(system, n) == 2
    assert (count.low, count.high) == (1 if count.evidence.near_tie else 2, 2)


def test_a_gap_too_narrow_for_n_tokens_is_warned_about():
    for system, n in ((narrow(1e-12), 99), (narrow(1e-12), 101), (narrow(1e-14), 10**6)):
        with pytest.warns(HeadCountTieWarning):
            head_count(system, n)
    defective = seen(torch.block_diag(torch.tensor([[0.5, 1], [0, 0.5]], dtype=F64), narrow(1e-12).A))
    with pytest.warns(HeadCountTieWarning):
        head_count(defective, 10**4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert head_count(narrow(1e-15), 100) == head_count(narrow(0.0), 10**9) == 1
        assert head_count(narrow(1e-3), 10**9) == 2


@pytest.mark.filterwarnings("ignore::ssmbook.heads.HeadCountTieWarning")
@pytest.mark.parametrize("condition", [1e3, 1e6, 1e8])
def test_a_count_in_bad_coordinates_is_right_or_open(condition):
    settled = 0
    for seed in range(60):
        system = random_stable(4, 4, 4, rho=0.95, generator=gen(seed), dtype=F64)
        U, V = torch.linalg.qr(randn(2, 4, 4, seed=seed)).Q
        T = U @ torch.diag(torch.logspace(0, math.log10(condition), 4, dtype=F64)) @ V
        back = torch.linalg.inv(T)
        count = head_count(System(T @ system.A @ back, T @ system.B, system.C @ back), 50)
        assert count.low <= 4 <= count.high and count.settled != count.evidence.near_tie
        settled += count.settled
    assert settled > 58 or condition > 1e7


class IndexDtypes(TorchFunctionMode):
    """The dtypes of the indices that functions of torch are given."""

    def __init__(self):
        self.seen = set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if any(word in getattr(func, "__name__", "") for word in ("scatter", "gather", "index_")):
            given = [part for part in (*args, *(kwargs or {}).values()) if isinstance(part, torch.Tensor)]
            self.seen |= {part.dtype for part in given if not (part.is_floating_point() or part.is_complex())}
        return func(*args, **kwargs or {})


def test_indices_are_int64_as_older_versions_of_torch_want_them():
    systems = [seen(diagonal(0.9, 0.9, 0.5)), System(rotation(0.7), EYE, EYE)]
    systems.append(random_stable(4, 2, 2, rho=0.9, generator=gen(), dtype=F64))
    with IndexDtypes() as indices:
        for system in systems:
            for n in (3, 50):
                head_count(system, n)
                head_count(system, n, "softmax")
                head_count(system, n, "pairwise")
                system.operator(n).best_heads(1).rank_report().gap  # noqa: B018
    assert indices.seen == {torch.int64}


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_a_system_in_half_precision_is_the_numbers_it_stores(half):
    for seed in range(8):
        system = random_stable(6, 4, 4, rho=0.95, generator=gen(seed), dtype=F64).to(half)
        assert head_count(system, 50) == head_count(system.double(), 50) == 6
    with pytest.warns(HeadCountTieWarning, match="rounded"):
        count = head_count(system.lags(50))
    assert count.low <= 6 <= count.high and not count.settled


@pytest.mark.filterwarnings("error::ssmbook.heads.HeadCountTieWarning")
@pytest.mark.parametrize("N, k", [(12, 12), (32, 16)])
def test_float32_raises_no_false_alarm(N, k):
    for seed in range(60):
        assert (
            head_count(random_stable(N, 4, 4, rho=0.95, generator=gen(seed), dtype=torch.float32), 200) == k
        )
