"""Fitted slopes: exact on exact decays, scipy's interval, honest coverage, envelopes, windows."""

import math

import pytest
import scipy.stats
import torch
from helpers import F64

from ssmbook import gradients


def noise(n, seed):
    return torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=F64)


def test_exact_decay_and_its_tiny_interval():
    tau = torch.arange(5, 105)
    fit = gradients.fit_log_slope(tau, 3.0 * 0.97 ** tau.double())
    assert fit.slope == pytest.approx(math.log(0.97), rel=1e-12) and fit.intercept == pytest.approx(
        math.log(3), rel=1e-12
    )
    assert fit.interval[1] - fit.interval[0] < 1e-12 and fit.points == 100


def test_interval_is_scipys():
    tau = torch.arange(30)
    logs = -0.1 * tau + 0.3 * noise(30, 1)
    fit = gradients.fit_log_slope(tau, torch.exp(logs), confidence=0.9)
    want = scipy.stats.linregress(tau.numpy(), logs.numpy())
    half = scipy.stats.t.ppf(0.95, 28) * want.stderr
    assert fit.slope == pytest.approx(want.slope, rel=1e-10) and fit.stderr == pytest.approx(
        want.stderr, rel=1e-10
    )
    assert fit.intercept == pytest.approx(want.intercept, rel=1e-9)
    assert fit.interval == pytest.approx((want.slope - half, want.slope + half), rel=1e-9)
    usual = gradients.fit_log_slope(tau, torch.exp(logs)).interval  # of 95 percent
    half = scipy.stats.t.ppf(0.975, 28) * want.stderr
    assert usual == pytest.approx((want.slope - half, want.slope + half), rel=1e-9)


def test_interval_covers_as_often_as_it_says():
    tau, hits = torch.arange(8), 0
    for seed in range(1000):
        low, high = gradients.fit_log_slope(
            tau, torch.exp(-0.2 * tau + noise(8, seed)), confidence=0.8
        ).interval
        hits += low <= -0.2 <= high
    assert 760 <= hits <= 840


@pytest.mark.parametrize("degree", [1, 2, 4.5])
def test_polynomial_factor_is_taken_off(degree):
    tau = torch.arange(300)
    norms = tau.double() ** degree * 0.9 ** tau.double()
    fit = gradients.fit_log_slope(tau, norms, skip_polynomial=degree)
    assert fit.slope == pytest.approx(math.log(0.9), rel=1e-12) and fit.points == 299
    assert gradients.fit_log_slope(tau[1:], norms[1:]).slope > math.log(0.9) + 0.005


@pytest.mark.parametrize("rho", [0.5, 0.95, 1.02])
@pytest.mark.parametrize("theta", [0.3, 1.1, math.pi / 2])
def test_envelope_of_an_oscillating_profile(rho, theta):
    tau = torch.arange(400)
    norms = rho ** tau.double() * torch.cos(theta * tau).abs()
    norms[norms < 1e-15 * rho ** tau.double()] = 0.0
    fit = gradients.fit_log_slope(tau, norms, envelope=True)
    assert fit.slope == pytest.approx(math.log(rho), abs=5e-4) and fit.points < 250
    assert fit.intercept == pytest.approx(0.0, abs=0.06)


def test_both_ends_of_a_flat_top_are_peaks():
    norms = torch.tensor([1.0, 2.0, 2.0] * 3 + [1.0], dtype=F64)
    fit = gradients.fit_log_slope(torch.arange(10), norms, envelope=True)
    assert fit.points == 6 and fit.intercept == pytest.approx(math.log(2))


def test_window_and_order_of_points():
    tau = torch.arange(100)
    norms = torch.where(tau < 50, 0.5 ** tau.double(), 0.5**50 * 0.9 ** (tau - 50).double())
    assert gradients.fit_log_slope(tau, norms, window=(0, 49)).slope == pytest.approx(math.log(0.5))
    late = gradients.fit_log_slope(tau, norms, window=(50, 99))
    assert late.slope == pytest.approx(math.log(0.9)) and late.points == 50
    shuffle = torch.randperm(100, generator=torch.Generator().manual_seed(0))
    assert gradients.fit_log_slope(tau[shuffle], norms[shuffle], window=(50, 99)).slope == pytest.approx(
        late.slope
    )
    wavy = norms * torch.cos(0.7 * tau).abs()
    mixed = gradients.fit_log_slope(tau[shuffle], wavy[shuffle], envelope=True)
    straight = gradients.fit_log_slope(tau, wavy, envelope=True)
    assert mixed.slope == pytest.approx(straight.slope) and mixed.points == straight.points


def test_bad_arguments_are_refused_by_name():
    tau, norms = torch.arange(6), 0.5 ** torch.arange(6, dtype=F64)
    bad = [
        (lambda: gradients.fit_log_slope(tau[:5], norms), ValueError, "distances must"),
        (lambda: gradients.fit_log_slope(tau.double(), norms), TypeError, "distances must be"),
        (lambda: gradients.fit_log_slope(tau, -norms), ValueError, "norms must be at least 0"),
        (lambda: gradients.fit_log_slope(tau, norms * math.nan), ValueError, "norms must"),
        (lambda: gradients.fit_log_slope(tau, norms * (tau != 3)), ValueError, "norms must be positive"),
        (lambda: gradients.fit_log_slope(tau, norms, window=(4, 9)), ValueError, "at least 3 points"),
        (lambda: gradients.fit_log_slope(tau * 0, norms), ValueError, "at least 3 points"),
        (lambda: gradients.fit_log_slope(tau, norms * 0, envelope=True), ValueError, "at least 3 points"),
        (lambda: gradients.fit_log_slope(tau, norms, confidence=1.0), ValueError, "confidence must lie"),
        (
            lambda: gradients.fit_log_slope(tau, norms, skip_polynomial=-1),
            ValueError,
            "skip_polynomial must lie",
        ),
        (lambda: gradients.fit_log_slope(tau, norms[None]), ValueError, "norms must"),
    ]
    for call, error, words in bad:
        with pytest.raises(error, match=words):
            call()
