"""Counts, degrees and minimal realizations do not depend on the units of the states, however far apart."""

import itertools
import warnings

import numpy as np
import pytest
import torch
from helpers import F64
from hypothesis import given, settings
from hypothesis import strategies as st

from ssmbook import systems
from ssmbook.heads import (
    HeadCountTieWarning,
    exact_head_count,
    exact_minimal_degree,
    head_count,
    head_count_bound,
    heads_from_ssm,
)
from ssmbook.heads.fixed.counts import spectrum_report
from ssmbook.systems import System
from ssmbook.systems._units import (
    _faint,
    _same_lags,
    _step_unit,
    rounding_cleared,
    rounding_elsewhere,
    sizes,
    standard_form,
    unit_exponents,
)

many = settings(max_examples=60, deadline=None)


def test_sizes_are_norms_without_overflow_and_one_for_nothing():
    found = sizes(torch.tensor([[3e300, 4e300], [3e-300, 4e-300], [0.0, 0.0]], dtype=F64), 1)
    torch.testing.assert_close(found[:, 0], torch.tensor([5e300, 5e-300, 1.0], dtype=F64), rtol=1e-14, atol=0)


def in_other_units(A, B, C, exponents):
    S = 10.0 ** torch.as_tensor(exponents, dtype=F64)
    return S[:, None] * A / S, S[:, None] * B, C / S


@st.composite
def rational_systems(draw):
    """Integer systems of four families and the units, from 1e-150 to 1e150, to give them in."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    family = draw(st.sampled_from(["dense", "sparse", "jordan", "delay"]))
    N, p, d = (int(v) for v in rng.integers(1, (8, 4, 4)))
    entries = [0, 0, 0, 1, -1] if family == "sparse" else [-2, -1, 0, 1, 2]
    B, C = rng.choice(entries, (N, d)), rng.choice(entries, (p, N))
    A = rng.choice(entries, (N, N))
    if family == "jordan":
        A = rng.integers(-2, 3) * np.eye(N, dtype=int) + np.diag(np.ones(N - 1, dtype=int), 1)
    if family == "delay":
        A = np.diag(np.ones(N - 1, dtype=int), -1)
        B, C = (rng.random(s) < 0.3 for s in ((N, d), (p, N)))
    D = torch.from_numpy(rng.integers(-1, 2, (p, d))) if draw(st.booleans()) else None
    spread = draw(st.sampled_from([3, 10, 15, 40, 150]))
    return *(torch.from_numpy(m.astype(int)) for m in (A, B, C)), D, rng.uniform(-spread, spread, N)


@pytest.mark.guards("thm-head-count")
@pytest.mark.parametrize("s", [1e-5, 1e-10, 1e-13, 1e-15, 1e-50, 1e-150, 1e13, 1e150])
def test_two_modes_in_units_that_differ(s):
    A = torch.diag(torch.tensor([0.9, -0.5], dtype=F64))
    B, C = torch.tensor([[1.0], [s]], dtype=F64), torch.tensor([[1.0, 1 / s]], dtype=F64)
    report = spectrum_report(System(A, B, C), 12)
    assert report.rank == head_count_bound(System(A, B, C), 12) == 1 and report.degree == 2
    assert System(A, B, C).minimal().N == 2
    B = torch.tensor([[1.0, 1.0], [s, -s]], dtype=F64)
    report = spectrum_report(System(A, B, C), 12)
    assert report.rank == head_count_bound(System(A, B, C), 12) == 2 and report.smallest_kept > 0.1
    # The numbers alone cannot tell 1e-15 of a column from a rounding error: the report says so.
    assert report.near_tie == ("NEAR-TIE" in str(report)) == (s == 1e-15)


@pytest.mark.guards("thm-head-count", "prop-what-k-is")
@many
@given(rational_systems(), st.integers(0, 14), st.booleans())
def test_counts_in_any_units_agree_with_rational_arithmetic(system, n, turned):
    *integers, D, exponents = system
    k, nu = exact_head_count((*integers, D), n).value, exact_minimal_degree(integers)
    A, B, C = (m.double() for m in integers)
    D = None if D is None else D.double()
    if turned:
        Q = torch.linalg.qr(torch.from_numpy(np.random.default_rng(n).standard_normal(A.shape)))[0]
        A, B, C = Q @ A @ Q.mT, Q @ B, C @ Q.mT
    scaled = in_other_units(A, B, C, exponents)
    report = spectrum_report(System(*scaled, D), n)
    assert report.rank == k or report.near_tie, str(report)
    assert report.rank == k or report.other == k
    assert head_count_bound(System(*scaled, D), n) >= report.rank
    without_skip = spectrum_report(System(*scaled), 3 * len(A))
    assert without_skip.near_tie or without_skip.degree == nu


@pytest.mark.guards("thm-head-count")
@pytest.mark.parametrize("seed", range(12))
def test_powers_of_two_change_not_a_bit_and_raise_no_warning(seed):
    rng = np.random.default_rng(seed)
    N, n = int(rng.integers(1, 16)), int(rng.integers(1, 40))
    g = torch.Generator().manual_seed(seed)
    A, B, C, _ = systems.random_stable(N, 2, 3, rho=0.9, generator=g, dtype=F64)
    scaled = []
    for _ in range(2):
        S = torch.from_numpy(np.ldexp(1.0, rng.integers(-498, 499, N)))
        scaled.append((S[:, None] * A / S, S[:, None] * B, C / S))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert head_count(System(*scaled[-1]), n) == head_count(System(A, B, C), n)
    here, there = (standard_form(*system) for system in scaled)
    for name in ("A", "B", "C", "scale"):
        assert torch.equal(getattr(here, name), getattr(there, name))


@pytest.mark.parametrize("seed", range(4))
def test_units_of_inputs_outputs_and_steps_stand_in_the_scale_and_the_step_alone(seed):
    rng = np.random.default_rng(seed)
    A, B, C = (torch.from_numpy(rng.standard_normal(s)) for s in ((5, 5), (5, 2), (3, 5)))
    inputs, outputs = (torch.from_numpy(np.ldexp(1.0, rng.integers(-90, 90, m))) for m in (2, 3))
    here, there = standard_form(A, B, C), standard_form(2**7 * A, B * inputs, outputs[:, None] * C)
    for name in "ABC":
        assert torch.equal(getattr(here, name), getattr(there, name))
    assert torch.equal(there.scale, outputs[:, None] * here.scale * inputs)
    assert there.step[0] == here.step[0] and there.step[1] == here.step[1] + 7


@pytest.mark.parametrize("size, told", [(1e-5, False), (1e-6, False), (1e-7, True)])
def test_a_path_of_small_entries_is_rounding_only_if_one_is_below_the_root_of_it(size, told):
    """Three entries whose product is of rounding size, beside a path of size one."""
    A, B, C = torch.zeros(3, 3, dtype=F64), torch.zeros(3, 1, dtype=F64), torch.zeros(1, 3, dtype=F64)
    A[0, 0], B[0, 0], C[0, 0] = 0.9, 1.0, 1.0
    A[1, 2] = B[2, 0] = C[0, 1] = size
    found = rounding_elsewhere(A, B, C, F64)
    assert (found is not None) == told


@pytest.mark.guards("prop-what-k-is")
@many
@given(rational_systems())
def test_rounding_errors_in_place_of_zeros_stay_zeros_or_are_named(system):
    *integers, D, _ = system
    A, B, C = (m.double() for m in integers)
    k = exact_head_count((*integers, D), 12).value
    Q = torch.linalg.qr(torch.from_numpy(np.random.default_rng(k).standard_normal(A.shape)))[0]
    there_and_back = Q.mT @ (Q @ A @ Q.mT) @ Q, Q.mT @ (Q @ B), (C @ Q.mT) @ Q
    report = spectrum_report(System(*there_and_back, None if D is None else D.double()), 12)
    assert report.rank == k or report.near_tie, str(report)


def there_and_back(A, B, C, seed):
    Q = torch.linalg.qr(torch.from_numpy(np.random.default_rng(seed).standard_normal(A.shape)))[0]
    return Q.mT @ (Q @ A @ Q.mT) @ Q, Q.mT @ (Q @ B), (C @ Q.mT) @ Q


@pytest.mark.guards("thm-head-count")
@many
@given(rational_systems(), st.integers(0, 12))
def test_rounding_errors_in_units_nobody_knows_are_named_or_change_nothing(system, n):
    """A rounding error in place of a zero may be as large as any entry once the states have other units."""
    *integers, D, exponents = system
    noisy = there_and_back(*(m.double() for m in integers), n)
    D = None if D is None else D.double()
    k, here = (
        exact_head_count((*integers, D if D is None else D.long()), n),
        spectrum_report(System(*noisy, D), n),
    )
    report = spectrum_report(System(*in_other_units(*noisy, exponents), D), n)
    assert report.rank == k or report.near_tie or report.rank == here.rank, (str(report), str(here))


@pytest.mark.guards("thm-head-count")
@pytest.mark.parametrize("spread", [15, 40, 150])
def test_a_delay_whose_ends_never_meet_is_no_silent_head(spread):
    """Every lag is zero, every number in it a rounding error: the states' units hide that, and the count, 1,
    must not come without a word."""
    A, B, C = (torch.from_numpy(m) for m in (np.diag(np.ones(4), -1), np.eye(5)[:, 3:4], np.eye(5)[1:2]))
    rng = np.random.default_rng(spread)
    for seed in range(30):
        noisy = in_other_units(*there_and_back(A, B, C, seed), rng.uniform(-spread, spread, 5))
        report = spectrum_report(System(*noisy), 3)
        assert report.rank == 0 or report.near_tie
    assert report.foreign and "entries of rounding size in other units of the states" in str(report)


@pytest.mark.guards("thm-head-count")
def test_an_unreached_state_and_its_rounding_errors_in_other_units():
    A, B, C = ([[2.0, 1], [0, 2]], [[-2.0], [0]], [[1.0, 2], [-1, -1], [-2, 2]])
    system = [torch.tensor(m, dtype=F64) for m in (A, B, C)]
    for seed in range(40):
        exponents = np.random.default_rng(seed).uniform(-150, 150, 2)
        report = spectrum_report(System(*in_other_units(*there_and_back(*system, seed), exponents)), 8)
        assert report.rank == 1 or report.near_tie, str(report)


@pytest.mark.guards("thm-head-count")
@pytest.mark.parametrize("spread", [2, 8, 13, 16, 30, 150])
def test_units_alone_raise_hardly_any_warning(spread):
    """Dense, diagonal, triangular and sparse systems: once up to two in three were called near-ties."""
    rng, warned, draws = np.random.default_rng(spread), 0, 120
    for draw in range(draws):
        N, n = int(rng.integers(1, 13)), int(rng.integers(1, 30))
        A = rng.standard_normal((N, N)) / np.sqrt(N)
        A = (A, np.diag(rng.uniform(-1, 1, N)), np.triu(A), A * (rng.random((N, N)) < 0.5))[draw % 4]
        B, C = rng.standard_normal((N, 2)), rng.standard_normal((3, N))
        system = [torch.from_numpy(m) for m in (A, B, C)]
        here = spectrum_report(System(*system), n)
        there = spectrum_report(System(*in_other_units(*system, rng.uniform(-spread, spread, N))), n)
        assert there.rank == here.rank or there.near_tie or here.near_tie
        warned += there.near_tie and not here.near_tie
    assert warned <= 0.1 * draws


def test_a_faint_chain_in_plain_units_is_no_rounding_error():
    A = 0.9 * torch.eye(10, dtype=F64) + torch.diag(torch.full((9,), 0.01, dtype=F64), -1)
    B, C = torch.eye(10, dtype=F64)[:, :1], torch.eye(10, dtype=F64)
    report = spectrum_report(System(A, B, C), 30)
    assert report.rank == 10 and not report.foreign and report.other is None


def test_a_count_that_rounding_errors_decide_is_warned_about():
    A = torch.tensor([[0.5, 0.0], [1e-17, 0.5]], dtype=F64)
    B, C = torch.tensor([[1.0], [0.0]], dtype=F64), torch.eye(2, dtype=F64)
    report = spectrum_report(System(A, B, C), 9)
    assert (report.rank, report.other) == (1, 2) and report.near_tie
    with pytest.warns(HeadCountTieWarning, match="entries of rounding size decide between 1 and 2"):
        head_count(System(A, B, C), 9)
    single = [m.float() for m in (A + 1e-7 * torch.eye(2).flip(0), B, C)]
    assert spectrum_report(System(*single), 9).other == 2


@pytest.mark.guards("thm-head-count")
@many
@given(st.integers(0, 10**6), st.integers(1, 7), st.sampled_from([5, 40, 140]))
def test_standard_form_and_minimal_realization_keep_the_lags(seed, N, spread):
    rng = np.random.default_rng(seed)
    A, B, C = (torch.from_numpy(rng.standard_normal(s)) for s in ((N, N), (N, 2), (3, N)))
    A = A * torch.from_numpy(rng.random((N, N)) < 0.6)
    M = System(A, B, C).lags(9)
    scaled = in_other_units(A, B, C, rng.uniform(-spread, spread, N))
    form = standard_form(*scaled)
    assert max((float(t.abs().max()) for t in (form.A, form.B, form.C) if t.numel()), default=0) <= 1 + 1e-15
    for system in (form.restore(form.A, form.B, form.C), System(*scaled).minimal()):
        assert (System(*system).lags(9) - M).abs().max() <= 1e-12 * M.abs().max().clamp(min=1)
        assert len(next(iter(system))) <= len(A)
    heads = heads_from_ssm(System(*form.restore(form.A, form.B, form.C)), 9)
    assert (heads.to_dense()[8].flip(0) - M).abs().max() <= 1e-9 * M.abs().max().clamp(min=1)


def test_no_states_no_paths_and_zero_matrices():
    none = torch.zeros(0, 0, dtype=F64), torch.zeros(0, 2, dtype=F64), torch.zeros(3, 0, dtype=F64)
    assert standard_form(*none).scale.shape == (3, 2)
    A, B, C = torch.ones(2, 2, dtype=F64).tril(), torch.eye(2, dtype=F64), torch.eye(2, dtype=F64)
    # Input into state 1 alone, output from state 0 alone, and no way from 1 to 0.
    assert len(standard_form(A, B[:, 1:], C[:1]).A) == 0 and head_count(System(A, B[:, 1:], C[:1]), 5) == 0
    assert head_count(System(0 * A, B, C), 5) == head_count(System(A, B, C), 1) == 1


def test_the_step_of_a_chain_is_the_steepest_way_to_a_lag():
    """Lags of sizes 1, 2^1, 2^10 and no cycle: a step of 2^5 makes none of them larger than the first."""
    nowhere = -np.inf
    a = np.full((3, 3), nowhere)
    a[1, 0], a[2, 1] = 1, 9
    b, c = np.array([[0], [nowhere], [nowhere]]), np.zeros((1, 3))
    assert _step_unit(a, b, c) == 5
    assert _step_unit(a[:2, :2], b[:2], c[:, :2]) == 1
    assert _step_unit(a[:1, :1], b[:1], c[:, :1]) == 0


@pytest.mark.parametrize(
    "A, B, C, cleared",
    [
        # No entry is smaller, or not much.
        ([[0.9, 1e-16], [0, 0.5]], [[1, 0], [0, 1]], [[1, 0], [0, 1]], 1),
        ([[0.9, 0.03], [3e14, 0.5]], [[1], [1e7]], [[1, 1e-7]], 3),
        ([[0.9, 1e-40], [0, 0.5]], [[1, 0], [0, 1]], [[1, 0], [0, 1]], 0),  # no rounding leaves as little
        ([[0.9, 5e-15], [3e14, 0.5]], [[1], [1e14]], [[1, 1e-14]], 0),  # two states in other units
        # Others are smaller, and the path from one input is as faint: beside another input ...
        ([[0.9, 0], [1e-16, 0.5]], [[1, 0], [1e-40, 1]], [[0, 1]], 1),
        # ... and beside its own largest, in units of its own of 1e-60.
        (
            [[0.9, 1e-16, 0], [0, 0.5, 0], [0, 0, 0.8]],
            [[1e-60, 0, 0], [0, 1e-60, 0], [0, 0, 1]],
            [[1, 0, 0], [0, 1, 0], [1e-40, 0, 1]],
            1,
        ),
    ],
)
def test_a_number_of_rounding_size_is_one_along_paths_too_or_where_none_is_smaller(A, B, C, cleared):
    parts = [torch.tensor(rows, dtype=F64) for rows in (A, B, C)]
    found = rounding_cleared(*parts, F64)
    assert (found is not None) == bool(cleared)
    if cleared:
        changed = [number for one, other in zip(parts, found, strict=True) for number in other[one != other]]
        assert changed == [0] * cleared


@pytest.mark.parametrize("size, faint", [(1e-16, True), (1e-23, False)])
def test_three_rounding_errors_in_a_row_are_faint_and_less_than_four_is_a_unit(size, faint):
    A = torch.tensor([[0.5, size, 0], [0, 0.5, 0], [0, 0, 0.5]], dtype=F64)
    B, C = (torch.tensor([numbers], dtype=F64) for numbers in ([0, size, 1], [size, 0, 1]))
    for alone, unit in itertools.product((True, False), (1e-60, 1.0, 1e60)):
        masks = _faint((A, unit * B.mT, C), F64, alone=alone)
        assert bool(masks[0][0, 1]) == bool(masks[1][1, 0]) == bool(masks[2][0, 0]) == faint
        assert not masks[0][2, 2] and not masks[1][2, 0] and not masks[2][0, 2]


def test_an_input_in_smaller_units_than_another_is_no_rounding_error():
    A, C = (torch.tensor(rows, dtype=F64) for rows in ([[0.9, 0.0], [0.0, 0.5]], [[1.0, 1e-9], [1.0, 1.0]]))
    B = torch.tensor([[1.0, 1e-16], [1.0, 2e-16]], dtype=F64)
    assert rounding_elsewhere(A, B, C, F64) is None


def test_systems_are_told_apart_by_their_last_deciding_lag():
    """Of N states each, two systems may share all lags but one of the first 2 N."""
    for N in (1, 3):
        A = torch.diag(torch.ones(N - 1, dtype=F64), -1)
        first, last = torch.eye(N, dtype=F64)[:, :1], torch.eye(N, dtype=F64)[-1:]
        looped = A.clone()
        looped[0, -1] = 0.5  # what left the line comes back: seen N steps later
        assert _same_lags((A, first, last), (A, first, last), None, 1e-12)
        assert not _same_lags((A, first, last), (looped, first, last), None, 1e-12)


@pytest.mark.parametrize("D", [None, 1e-3, 30.0])
@pytest.mark.parametrize("seed", range(3))
def test_systems_differ_as_their_lags_do_beside_the_largest_or_the_skip(seed, D):
    rng = np.random.default_rng(seed)
    A = torch.from_numpy(np.linalg.qr(rng.standard_normal((3, 3)))[0])  # in steps of size one
    B, C, more = (torch.from_numpy(rng.standard_normal(s)) for s in ((3, 2), (2, 3), (3, 2)))
    B, C = B * torch.tensor([1.0, 0.37]), torch.tensor([[1.0], [0.23]]) * C
    other = B + 1e-4 * more
    D = None if D is None else torch.tensor([[0, D], [0, 0]], dtype=F64)
    M, changed = System(A, B, C).lags(6), System(A, other, C).lags(6)
    largest = max(float(part.abs().max()) for part in (M, D) if part is not None)
    share = float((M - changed).abs().max()) / largest
    for read in (C, -C):  # the largest entry of either sign
        assert _same_lags((A, B, read), (A, other, read), D, 1.001 * share)
        assert not _same_lags((A, B, read), (A, other, read), D, 0.999 * share)


@pytest.mark.parametrize("seed", range(4))
def test_a_state_gets_the_unit_in_which_it_is_as_far_from_the_inputs_as_from_the_outputs(seed):
    rng, inf = np.random.default_rng(seed), np.inf
    # Side by side: the way in is the largest entry of B, the way out that of C.
    a = np.where(np.eye(5, dtype=bool), rng.uniform(-60, 60, (5, 5)), -inf)
    b, c = rng.uniform(-60, 60, (5, 3)), rng.uniform(-60, 60, (2, 5))
    _, states, _, columns, rows = unit_exponents(a, b, c)
    into, out = (b - states[:, None] - columns).max(1), (c + states - rows).max(0)
    assert abs(into - out).max() <= 1 + 1e-9
    # The longest way of every input and, in their units, of every output has size one.
    assert abs((b - columns + c.max(0)[:, None]).max(0)).max() <= 0.5 + 1e-9
    assert abs(((b - columns).max(1) + c - rows).max(1)).max() <= 0.5 + 1e-9
    # In a row: the way in is through all the states before.
    steps, ends = rng.uniform(-60, 60, 4), rng.uniform(-60, 60, 2)
    a = np.full((5, 5), -inf)
    a[range(1, 5), range(4)] = steps
    b, c = np.full((5, 1), -inf), np.full((1, 5), -inf)
    b[0], c[0, -1] = ends
    _, states, step, columns, rows = unit_exponents(a, b, c)
    assert abs(ends.sum() + (steps - step).sum() - columns[0, 0]) <= 0.5 + 1e-9
    into = ends[0] - columns[0, 0] + np.cumsum([0, *(steps - step)]) - states
    out = ends[1] - rows[0, 0] + np.cumsum([0, *(steps - step)[::-1]])[::-1] + states
    assert abs(into - out).max() <= 1 + 1e-9
