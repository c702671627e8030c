"""Margin, dilution and ALiBi: what a softmax weight can be, on random, extreme and tight logits."""

import math

import pytest
import torch
from helpers import F64, gen
from hypothesis import given, settings
from hypothesis import strategies as st

from ssmbook import gradients


@pytest.mark.guards("prop-margin")
@given(n=st.integers(2, 400), scale=st.floats(0.01, 20.0), seed=st.integers(0, 10**6))
@settings(max_examples=100, deadline=None)
def test_the_margin_over_the_log_mean_exp_is_an_identity(n, scale, seed):
    s = scale * torch.randn(n, generator=gen(seed), dtype=F64)
    alpha = torch.softmax(s, 0)[0]
    margin = s[0] - (torch.logsumexp(s[1:], 0) - math.log(n - 1))
    assert float(gradients.weight_from_margin(margin, n)) == pytest.approx(
        float(alpha), rel=1e-10, abs=1e-300
    )
    if 1e-12 < float(alpha) < 1 - 1e-12:
        assert float(gradients.required_margin(alpha, n)) == pytest.approx(float(margin), abs=1e-3)
        again = gradients.weight_from_margin(gradients.required_margin(alpha, n), n)
        assert float(again) == pytest.approx(float(alpha), rel=1e-10)


@pytest.mark.guards("prop-margin")
@pytest.mark.guards("prop-logarithmic-price")
def test_the_margin_grows_by_the_log_of_the_competitors_and_not_with_distance():
    n = torch.tensor([2, 11, 101, 1001])
    margin = gradients.required_margin(0.9, n)
    assert margin.dtype == F64
    assert torch.allclose(margin - torch.log((n - 1).double()), torch.full((4,), math.log(9), dtype=F64))
    for count in (11, 1001):
        s = torch.zeros(count, dtype=F64)
        s[3] = float(gradients.required_margin(0.9, count))
        assert float(torch.softmax(s, 0)[3]) == pytest.approx(0.9, rel=1e-12)
        assert float(torch.softmax(s - 1e-3 * (torch.arange(count) == 3), 0)[3]) < 0.9


@pytest.mark.guards("prop-dilution")
@given(n=st.integers(1, 300), B=st.floats(0, 12), seed=st.integers(0, 10**6))
@settings(max_examples=100, deadline=None)
def test_bounded_logits_dilute(n, B, seed):
    s = B * (2 * torch.rand(n, generator=gen(seed), dtype=F64) - 1)
    bound = float(gradients.dilution_bound(B, n))
    assert float(torch.softmax(s, 0).max()) <= bound * (1 + 1e-12)
    s = torch.full((n,), -B, dtype=F64)
    s[n // 2] = B
    assert float(torch.softmax(s, 0)[n // 2]) == pytest.approx(bound, rel=1e-11)


@pytest.mark.guards("prop-dilution")
def test_dilution_is_one_over_n_and_does_not_overflow():
    n = torch.tensor([1, 10**3, 10**6])
    bound = gradients.dilution_bound(1.0, n)
    assert float(bound[0]) == 1.0
    assert float(bound[2] * 10**6) == pytest.approx(math.e**2, rel=1e-5)
    assert float(gradients.dilution_bound(500.0, 10)) == 1.0
    assert gradients.dilution_bound(torch.tensor(1.0), n).dtype == torch.float32


@pytest.mark.guards("prop-alibi")
@given(
    n=st.integers(1, 60),
    B=st.floats(0, 6),
    slope=st.floats(0, 3),
    seed=st.integers(0, 10**6),
    sharp=st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_alibi_starves_the_far_tokens(n, B, slope, seed, sharp):
    content = B * (2 * torch.rand(n, generator=gen(seed), dtype=F64) - 1)
    if sharp:
        content = B * torch.sign(content)
    distance = torch.arange(n).flip(0)
    alpha = torch.softmax(content - slope * distance, 0)
    assert bool((alpha <= gradients.alibi_bound(B, slope, distance) * (1 + 1e-12)).all())


@pytest.mark.guards("prop-alibi")
def test_alibi_decays_at_the_rate_of_its_slope_even_when_matched():
    # the best a far token can do, its logit at B and all others at -B, is a constant factor off the bound
    B, slope = 2.0, 0.25
    ratios = []
    for tau in (50, 100, 200):
        distance = torch.arange(tau + 1).flip(0)
        content = torch.full((tau + 1,), -B, dtype=F64)
        content[0] = B
        alpha = torch.softmax(content - slope * distance, 0)[0]
        ratios.append(float(alpha / gradients.alibi_bound(B, slope, tau)))
    assert ratios[2] == pytest.approx(1 - math.exp(-slope), rel=1e-3)
    assert ratios[0] == pytest.approx(ratios[2], rel=1e-2)


def test_equal_logits_and_no_slope_are_allowed():
    assert float(gradients.dilution_bound(0.0, 4)) == pytest.approx(0.25)
    assert gradients.alibi_bound(0.0, 0.0, torch.tensor([0, 5])).tolist() == [1.0, 1.0]


def test_bad_arguments_are_refused_by_name():
    column, pair = torch.rand(2, 1), torch.tensor([3, 4])  # no pair of equal shapes, though they broadcast
    bad = [
        (lambda: gradients.weight_from_margin(column, pair), ValueError, "n must"),
        (lambda: gradients.dilution_bound(column, pair), ValueError, "n must"),
        (lambda: gradients.alibi_bound(column, 0.1, pair), ValueError, "B must"),
        (lambda: gradients.alibi_bound(0.1, column, pair), ValueError, "slope must"),
        (lambda: gradients.required_margin(1.0, 5), ValueError, "alpha must lie in \\(0.0, 1.0\\)"),
        (lambda: gradients.required_margin(0.5, 1), ValueError, "n must be at least 2"),
        (lambda: gradients.required_margin(0.5, 2.5), TypeError, "n must"),
        (
            lambda: gradients.required_margin(torch.rand(3), torch.tensor([3, 4])),
            ValueError,
            "n must",
        ),
        (lambda: gradients.weight_from_margin(0.5, 1), ValueError, "n must be at least 2"),
        (lambda: gradients.weight_from_margin(math.nan, 4), ValueError, "margin must"),
        (lambda: gradients.dilution_bound(-1.0, 4), ValueError, "B must lie in \\[0.0, inf\\)"),
        (lambda: gradients.dilution_bound(1.0, 0), ValueError, "n must be at least 1"),
        (lambda: gradients.alibi_bound(1.0, -0.1, 3), ValueError, "slope must lie"),
        (lambda: gradients.alibi_bound(1.0, 0.1, torch.rand(3)), TypeError, "distance must be"),
    ]
    for call, error, words in bad:
        with pytest.raises(error, match=words):
            call()
