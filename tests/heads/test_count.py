"""The one answer that every count of the book gives."""

import math
import operator

import numpy as np
import pytest
import torch
from helpers import EYE, F64, clock, rotation

from ssmbook import heads
from ssmbook._count import Count
from ssmbook.systems import System


def test_a_settled_count_is_a_number():
    count = Count(3, 3, "spectrum")
    assert (count.value, int(count), count.short, list(range(count))) == (3, 3, "3", [0, 1, 2])
    assert (
        count == 3
        and count == Count(3, 3, "another way")
        and count != 4
        and hash(count) == hash(Count(3, 3, ""))
    )
    assert repr(Count(3, 3, "spectrum", "long evidence")) == "Count(low=3, high=3, method='spectrum')"
    assert str(count) == "3 heads (spectrum)" and str(Count(1, 1, "x")) == "1 head (x)"


@pytest.mark.parametrize(
    ("count", "short", "sentence"),
    [
        (Count(2, 3, "margin below rounding"), "2 to 3", "2 to 3 heads (margin below rounding)"),
        (Count(1, 2, "margin"), "1 to 2", "1 to 2 heads (margin)"),
        (Count(2, math.inf, "flattenings"), "at least 2", "at least 2 heads (flattenings)"),
        (Count(math.inf, math.inf, "row sums"), "none", "no number of heads (row sums)"),
    ],
)
def test_an_open_or_impossible_count_gives_no_number(count, short, sentence):
    assert (count.short, str(count)) == (short, sentence)
    assert count != 2 and count != 3
    for ask in (lambda: count.value, lambda: int(count), lambda: range(count)):
        with pytest.raises(ValueError, match="no single number"):
            ask()


def test_a_count_is_written_as_a_sentence_or_in_a_column_of_numbers():
    assert f"{Count(3, 3, 'spectrum')}|{Count(1, 1, 'x'):>11}|{Count(13, 13, 'x'):4d}|" == (
        "3 heads (spectrum)| 1 head (x)|  13|"
    )
    with pytest.raises(ValueError, match="no single number: 2 to 3 heads"):
        f"{Count(2, 3, 'margin'):d}"


@pytest.mark.parametrize("number", [int, float, np.int64, torch.tensor])
def test_counts_are_ordered_where_every_number_in_the_interval_agrees(number):
    five, between = Count(5, 5, "spectrum"), Count(4, 6, "flattenings")
    assert five < number(6) and five <= number(5) and five > number(4) and five >= number(5)
    assert not (five < number(5) or five <= number(4) or five > number(5) or five >= number(6))
    assert between < number(7) and between <= number(6) and between > number(3) and between >= number(4)
    assert not (between < number(4) or between <= number(3) or between > number(6) or between >= number(7))
    assert number(4) < five and not number(5) < five
    for compare, other in ((operator.lt, 6), (operator.le, 5), (operator.gt, 4), (operator.ge, 5)):
        with pytest.raises(ValueError, match="the order is not known: 4 to 6 heads"):
            compare(between, number(other))


def test_counts_are_ordered_among_themselves():
    one, few, many, none = Count(1, 1, ""), Count(2, 4, ""), Count(4, 9, ""), Count(math.inf, math.inf, "")
    assert one < few < none and few <= many and not many < few and max(few, none, one) is none
    for below, above in ((few, many), (Count(3, 3, ""), few)):
        with pytest.raises(ValueError, match="the order is not known"):
            below < above  # noqa: B015
    with pytest.raises(TypeError, match="not supported"):
        few < "many"  # noqa: B015


def test_open_counts_are_never_equal_and_impossible_ones_are():
    assert Count(2, 3, "") != Count(2, 3, "")
    assert Count(math.inf, math.inf, "") == math.inf and Count(0, 0, "") == 0 and Count(1, 1, "") != True  # noqa: E712


def test_a_count_equals_a_number_of_numpy_or_torch():
    count, rank = Count(5, 5, "spectrum"), torch.tensor(5)
    assert count == rank and rank == count and count == np.int64(5) and count != torch.tensor(4)
    assert Count(4, 6, "") != rank and Count(1, 1, "") != torch.tensor(True)


def test_equal_counts_have_one_hash_that_of_their_number():
    settled, again, unsettled = Count(5, 5, "spectrum"), Count(5, 5, "exact"), Count(5, 6, "margin")
    assert {settled, again, 5} == {5} and settled in {5: "five"} and settled != unsettled
    assert len({unsettled, Count(5, 6, "margin")}) == 2 and Count(math.inf, math.inf, "") in {math.inf}


@pytest.mark.parametrize(("low", "high"), [(3, 2), (-1, 0), (math.nan, 1)])
def test_bounds_out_of_order_are_refused(low, high):
    with pytest.raises(ValueError, match="0 <= low <= high"):
        Count(low, high, "")


TURN, JORDAN = System(rotation(0.7, 0.9), EYE, EYE), ([[2, 1], [0, 2]], [[1], [1]], [[1, 0]])


@pytest.mark.parametrize(
    ("ask", "low", "high", "method"),
    [
        (lambda: heads.head_count(TURN, 8), 2, 2, "spectrum, modal"),
        (lambda: heads.head_count(clock()), 2, 2, "spectrum, lags"),
        (lambda: heads.epsilon_head_count(TURN, 8, eps=0.1), 2, 2, "floor at most 0.1"),
        (lambda: heads.head_count(JORDAN, 4, exact=True), 1, 1, "exact, over the rationals"),
        (lambda: heads.head_count(TURN, 8, "softmax"), 3, 3, "eigenvalue"),
        (lambda: heads.head_count(clock(n=3), coefficients="softmax"), 2, 2, "separating"),
        (lambda: heads.head_count(TURN, 8, "sinkless"), math.inf, math.inf, "row sums differ"),
        (lambda: heads.head_count(TURN, 8, "pairwise"), 2, 2, "rank at random tokens"),
        (lambda: heads.head_count(EYE[None], None, "pairwise", exact=True), 1, 1, "rational rank"),
        (lambda: heads.head_count(TURN, 8, value_rank=1), 3, 3, "value maps of rank at most 1"),
        (lambda: heads.bounded_head_count(2, 2), 2, 2, "nonsingular bilinear maps"),
        (lambda: heads.head_count(TURN, 8, "any"), 2, 2, "nonsingular bilinear maps"),
        (lambda: heads.head_count(0 * clock(), coefficients="any"), 0, 0, "the zero system"),
    ],
)
def test_every_count_has_one_form(ask, low, high, method):
    found = ask()
    assert (type(found), found.low, found.high, found.method) == (Count, low, high, method)


@pytest.mark.parametrize(
    "wrong",
    [
        {"coefficients": "none"},
        {"coefficients": "softmax", "exact": True},
        {"coefficients": "softmax", "value_rank": 1},
        {"value_rank": 1, "exact": True},
    ],
)
def test_options_that_do_not_go_together_are_refused(wrong):
    with pytest.raises(ValueError):
        heads.head_count(TURN, 8, **wrong)


def test_the_bound_that_needs_no_lag_is_an_int():
    one = System(0.5 * EYE, EYE[:, :1], EYE[:1], torch.ones(1, 1, dtype=F64))
    modes, ones = torch.diag(torch.tensor([0.9, 0.5, -0.5], dtype=F64)), torch.ones(3, 2, dtype=F64)
    flat = System(modes, ones, ones.mT)  # B and C of rank one, three modes
    assert heads.head_count_bound(flat, 8) == 1
    for system in (TURN, one, flat):
        for n in (0, 1, 8):
            assert type(heads.head_count_bound(system, n)) is int
