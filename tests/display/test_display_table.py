"""Tables: numbers to three digits, aligned text, semantic HTML."""

import math

import numpy as np
import pytest
import torch
from bs4 import BeautifulSoup
from hypothesis import given
from hypothesis import strategies as st

from ssmbook import display

ROWS = [["softmax <1>", 1, 0.5], ["rotation, ρ", 12, 1e-7]]
HEADER = ["map", "rank", "error"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.500"),
        (-2.0, "-2.00"),
        (0.0, "0"),
        (-0.0, "0"),
        (9.996, "10.0"),
        (0.0009996, "0.00100"),
        (0.0001234, "1.23e-04"),
        (1234.5, "1230"),
        (12345.6, "12,300"),
        (99999.0, "1.00e+05"),
        (math.inf, "inf"),
        (math.nan, "nan"),
        (9999, "9999"),
        (-10000, "-10,000"),
        (True, "yes"),
        (np.bool_(False), "no"),
        (None, "–"),
        ("text", "text"),
        (np.float32(0.1), "0.100"),
        (torch.tensor(3), "3"),
    ],
)
def test_number(value, text):
    assert display.number(value) == text


@given(st.floats(-1e300, 1e300), st.integers(1, 6))
def test_number_keeps_its_digits(value, digits):
    read = float(display.number(value, digits).replace(",", ""))
    assert math.isclose(read, value, rel_tol=0.51 * 10 ** (1 - digits), abs_tol=1e-320)


def test_text_is_aligned():
    assert repr(display.table(ROWS, HEADER)).splitlines() == [
        "map          rank     error",
        "-----------  ----  --------",
        "softmax <1>     1     0.500",
        "rotation, ρ    12  1.00e-07",
    ]


def test_html_has_scoped_titles_and_escapes():
    soup = BeautifulSoup(display.table(ROWS, HEADER, caption='A & "B"')._repr_html_(), "html.parser")
    assert [th.text for th in soup.find_all("th", scope="col")] == HEADER
    assert [th.text for th in soup.find_all("th", scope="row")] == ["softmax <1>", "rotation, ρ"]
    assert [td.text for td in soup.find_all("td")] == ["1", "0.500", "12", "1.00e-07"]
    assert soup.caption.text == soup.div["aria-label"] == 'A & "B"' and soup.div["tabindex"] == "0"
    assert {cell["style"] for cell in soup.find_all("td")} == {"text-align:right"}


def test_markdown():
    markdown = display.table([["a|b", 1 / 3]], ["x", "y"], align="rl", digits=5)._repr_markdown_()
    assert markdown.splitlines() == ["| x | y |", "| --: | :-- |", "| a\\|b | 0.33333 |"]
