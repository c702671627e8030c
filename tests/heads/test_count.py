"""The one answer that every count of the book gives."""

import math
import operator

import numpy as np
import pytest
import torch
from helpers import EYE, clock, rotation

from ssmbook import heads
from ssmbook.heads import Count
from ssmbook.systems import System


def test_a_settled_count_is_a_number():
    count, again = Count(3, 3, "spectrum"), Count(3, 3, "another way")
    assert (count.value, int(count), count.short, list(range(count))) == (3, 3, "3", [0, 1, 2])
    assert count == 3 and count == again and count != 4 and {count, again, 3} == {3}
    for number in (torch.tensor(3), np.int64(3), 3.0):
        assert count == number and number == count and count != number + 1
    assert Count(1, 1, "x") != True and Count(1, 1, "x") != torch.tensor(True)  # noqa: E712
    assert str(count) == f"{count}" == "3 heads (spectrum)" and str(Count(1, 1, "x")) == "1 head (x)"


@pytest.mark.parametrize(
    ("count", "short", "sentence"),
    [
        (Count(2, 3, "margin below rounding"), "2 to 3", "2 to 3 heads (margin below rounding)"),
        (Count(2, math.inf, "flattenings"), "at least 2", "at least 2 heads (flattenings)"),
        (Count(math.inf, math.inf, "row sums"), "none", "no number of heads (row sums)"),
    ],
)
def test_an_open_or_impossible_count_gives_no_number(count, short, sentence):
    assert (count.short, str(count)) == (short, sentence)
    assert count != 2 and count != 3 and (count == Count(count.low, count.high, "")) == (short == "none")
    for ask in (lambda: count.value, lambda: int(count), lambda: range(count)):
        with pytest.raises(ValueError):
            ask()


@pytest.mark.parametrize("number", [int, np.int64, torch.tensor])
def test_counts_are_ordered_where_every_number_in_the_interval_agrees(number):
    five, between = Count(5, 5, "spectrum"), Count(4, 6, "flattenings")
    assert five < number(6) and five <= number(5) and five > number(4) and five >= number(5)
    assert not (five < number(5) or five <= number(4) or five > number(5) or five >= number(6))
    assert between < number(7) and between <= number(6) and between > number(3) and between >= number(4)
    assert not (between < number(4) or between <= number(3) or between > number(6) or between >= number(7))
    assert number(4) < five and not number(5) < five
    for compare, other in ((operator.lt, 6), (operator.le, 5), (operator.gt, 4), (operator.ge, 5)):
        with pytest.raises(ValueError):
            compare(between, number(other))


def test_counts_are_ordered_among_themselves():
    one, few, many, none = Count(1, 1, ""), Count(2, 4, ""), Count(4, 9, ""), Count(math.inf, math.inf, "")
    assert one < few < none and few <= many and not many < few and max(few, none, one) is none
    with pytest.raises(ValueError):
        few < many  # noqa: B015


TURN, JORDAN = System(rotation(0.7, 0.9), EYE, EYE), ([[2, 1], [0, 2]], [[1], [1]], [[1, 0]])


@pytest.mark.parametrize(
    ("ask", "low", "high"),
    [
        (lambda: heads.head_count(TURN, 8), 2, 2),
        (lambda: heads.head_count(clock()), 2, 2),
        (lambda: heads.head_count(JORDAN, 4, exact=True), 1, 1),
        (lambda: heads.head_count(TURN, 8, "softmax"), 3, 3),
        (lambda: heads.head_count(TURN, 8, "sinkless"), math.inf, math.inf),
        (lambda: heads.head_count(TURN, 8, "pairwise"), 2, 2),
        (lambda: heads.head_count(TURN, 8, value_rank=1), 3, 3),
        (lambda: heads.bilinear_head_count(2, 2), 2, 2),
        (lambda: heads.head_count(TURN, 8, "any"), 2, 2),
        (lambda: heads.head_count(0 * clock(), coefficients="any"), 0, 0),
    ],
)
def test_every_count_has_one_form(ask, low, high):
    found = ask()
    assert (type(found), found.low, found.high) == (Count, low, high)


def test_options_that_do_not_go_together_are_refused():
    for wrong in ({"coefficients": "none"}, {"value_rank": 1, "exact": True}):
        with pytest.raises(ValueError):
            heads.head_count(TURN, 8, **wrong)
