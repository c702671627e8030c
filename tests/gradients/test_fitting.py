"""Fitted slopes: exact on exact decays, scipy's line, windows."""

import math

import pytest
import scipy.stats
import torch
from helpers import F64

from ssmbook import gradients


def noise(n, seed):
    return torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=F64)


def test_exact_decay():
    tau = torch.arange(5, 105)
    fit = gradients.fit_log_slope(tau, 3.0 * 0.97 ** tau.double())
    assert fit.slope == pytest.approx(math.log(0.97), rel=1e-12) and fit.intercept == pytest.approx(
        math.log(3), rel=1e-12
    )
    assert fit.points == 100


def test_the_line_is_scipys():
    tau = torch.arange(30)
    logs = -0.1 * tau + 0.3 * noise(30, 1)
    fit = gradients.fit_log_slope(tau, torch.exp(logs))
    want = scipy.stats.linregress(tau.numpy(), logs.numpy())
    assert fit.slope == pytest.approx(want.slope, rel=1e-10)
    assert fit.intercept == pytest.approx(want.intercept, rel=1e-9)


def test_window_and_order_of_points():
    tau = torch.arange(100)
    norms = torch.where(tau < 50, 0.5 ** tau.double(), 0.5**50 * 0.9 ** (tau - 50).double())
    assert gradients.fit_log_slope(tau, norms, window=(0, 49)).slope == pytest.approx(math.log(0.5))
    late = gradients.fit_log_slope(tau, norms, window=(50, 99))
    assert late.slope == pytest.approx(math.log(0.9)) and late.points == 50
    assert gradients.fit_log_slope(tau, norms * (tau < 50), window=(0, 49)).points == 50  # zeros outside it
    assert gradients.fit_log_slope(tau, norms, window=(0, 2)).points == 3  # as few as there may be
    shuffle = torch.randperm(100, generator=torch.Generator().manual_seed(0))
    assert gradients.fit_log_slope(tau[shuffle], norms[shuffle], window=(50, 99)).slope == pytest.approx(
        late.slope
    )


def test_bad_arguments_are_refused_by_name():
    tau, norms = torch.arange(6), 0.5 ** torch.arange(6, dtype=F64)
    bad = [
        (lambda: gradients.fit_log_slope(tau[:5], norms), ValueError, "distances must"),
        (lambda: gradients.fit_log_slope(tau.double(), norms), TypeError, "distances must be"),
        (lambda: gradients.fit_log_slope(tau, -norms), ValueError, "norms must be at least 0"),
        (lambda: gradients.fit_log_slope(tau, norms * math.nan), ValueError, "norms must"),
        (lambda: gradients.fit_log_slope(tau, norms * (tau != 3)), ValueError, "norms must be positive"),
        (lambda: gradients.fit_log_slope(tau, norms, window=(4, 9)), ValueError, "at least 3 different"),
        (lambda: gradients.fit_log_slope(tau % 2, norms), ValueError, "at least 3 different .*; got 2"),
        (lambda: gradients.fit_log_slope(tau, norms, window=(1, 3, 5)), TypeError, "window must be two"),
        (lambda: gradients.fit_log_slope(tau, norms, window=4), TypeError, "window must be two .*; got 4"),
        (lambda: gradients.fit_log_slope(tau, norms, window=(0, 3.5)), TypeError, "window must be an int"),
        (lambda: gradients.fit_log_slope(tau, norms, window=(2, 3)), ValueError, "at least 3 .*; got 2"),
        (lambda: gradients.fit_log_slope(tau, norms[None]), ValueError, "norms must"),
    ]
    for call, error, words in bad:
        with pytest.raises(error, match=words):
            call()
