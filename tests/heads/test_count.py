"""The one answer that every count of the book gives."""

import inspect
import math

import numpy as np
import pytest
import torch

from ssmbook import heads
from ssmbook.heads.count import Count


def test_a_settled_count_is_a_number():
    count = Count(3, 3, "spectrum")
    assert (count.value, int(count), count.short, list(range(count))) == (3, 3, "3", [0, 1, 2])
    assert (
        count == 3
        and count == Count(3, 3, "another way")
        and count != 4
        and hash(count) == hash(Count(3, 3, ""))
    )
    assert str(count) == "3 heads (spectrum)" and str(Count(1, 1, "x")) == "1 head (x)"


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
    assert count != 2 and count != 3
    for ask in (lambda: count.value, lambda: int(count), lambda: range(count)):
        with pytest.raises(ValueError, match="no single number"):
            ask()


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


def test_every_count_is_one():
    """What a system is called with to be counted answers in one form, whatever the class of heads."""
    counts = [
        getattr(heads, name) for name in heads.__all__ if name.endswith("_count") or name == "sinkless_reach"
    ]
    assert len(counts) == 10
    assert {inspect.signature(count, eval_str=True).return_annotation for count in counts} == {Count}
