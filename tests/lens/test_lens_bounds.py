"""Certified bounds on ranks and ε-heads: against the exact spectrum, whatever the spectrum."""

import math

import pytest
import torch
from helpers import F64, randn

from ssmbook.lens._bounds import spectrum_bounds
from ssmbook.maps import SelectiveSSM
from ssmbook.operators import DenseOperator, DiagonalOperator, PointwiseOperator

EPSILONS = (0.5, 0.1, 1e-2, 1e-4)


def assert_certified(bounds, sigma, rtol=1e-10):
    """The bounds hold what the spectrum (m,), found by another route, gives."""
    tails = torch.nn.functional.pad(sigma, (0, 1)).square().flip(0).cumsum(0).flip(0) / sigma.square().sum()
    pairs = [(bounds.epsilon_heads(eps), tails, eps) for eps in EPSILONS]
    pairs.append((bounds.rank(), sigma, rtol * float(sigma.max())))
    for count, values, cut in pairs:
        # A value at the cut may be counted or not.
        noise = 1e-14 * float(values.max())
        assert count.low <= int((values > cut - noise).sum())
        assert int((values > cut + noise).sum()) <= count.high


SPECTRA = {
    "geometric, far below the cut": torch.logspace(0, -14, 30, dtype=F64),
    "flat": torch.ones(30, dtype=F64),
    "two plateaus": torch.cat([torch.ones(7), torch.full((23,), 1e-3)]).double(),
    "one giant": torch.cat([torch.ones(1), torch.full((29,), 1e-7)]).double(),
    "low rank": torch.cat([torch.linspace(1, 0.1, 5), torch.zeros(25)]).double(),
    "at the cut": torch.cat([torch.ones(4), torch.full((3,), 2e-10), torch.full((3,), 5e-11)]).double(),
    "zero": torch.zeros(3, dtype=F64),
}


def spikes(rows, columns, seed):
    """Rows that a random sum of rows may cancel: few entries, nearly all of them in a few places."""
    return 1e-3 * randn(rows, columns, seed=seed) + torch.eye(rows, columns, dtype=F64)


@pytest.mark.parametrize("fill", [randn, spikes])
@pytest.mark.parametrize("size", [None, 2, 10, 35])
def test_bounds_hold_on_adversarial_spectra(size, fill):
    for seed, (name, sigma) in enumerate(SPECTRA.items()):
        rows = torch.linalg.qr(fill(400, len(sigma), seed=seed)).Q * sigma
        V = torch.linalg.qr(fill(36, len(sigma), seed=seed + 1)).Q
        bounds = spectrum_bounds(DenseOperator((rows @ V.mT).reshape(20, 20, 6, 6)), size, seed)
        assert_certified(bounds, sigma)
        if size is None and name != "geometric, far below the cut" and name != "at the cut":
            assert bounds.rank() == int((sigma > 0).sum())


def test_a_selective_layer_is_settled_without_its_zeros():
    layer = SelectiveSSM(40, N=4, generator=torch.Generator().manual_seed(0), dtype=F64).requires_grad_(False)
    W = layer.interaction(randn(48, 40))
    for size in (None, 10):
        assert_certified(spectrum_bounds(W, size), W.spectrum())
    assert spectrum_bounds(W).rank() == 40
    assert all(spectrum_bounds(W).epsilon_heads(eps) == W.epsilon_heads(eps) for eps in (0.1, 0.01))


def test_the_bounds_of_a_wide_layer_come_from_a_sketch():
    # 2,100 channels: wider than what is taken in all directions by default.
    rows = randn(576, 3, seed=1) * torch.tensor([1.0, 0.3, 1e-3], dtype=F64)
    channels = rows @ torch.linalg.qr(randn(2100, 3, seed=2)).Q.mT
    bounds = spectrum_bounds(DiagonalOperator(DenseOperator(channels.mT.reshape(2100, 24, 24, 1, 1))))
    assert bounds.missing and bounds.energies.shape == (256,) and bounds.rank() == 3
    assert_certified(bounds, torch.linalg.svdvals(rows))


def test_blocks_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match="W must be finite"):
        spectrum_bounds(PointwiseOperator(torch.full((1, 1, 1), math.nan)))
