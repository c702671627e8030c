"""The measuring set-ups of the trade-off chapter, its figures and its grader."""

import math

import pytest
import torch
from helpers import F64, gen, like, tokens

from headsandstates.chapters.trade_off import reach as bench
from ssmbook.maps import LTISSM, Attention, Convolution, FeedForward
from ssmbook.operators import jacobian_operator
from ssmbook.systems import System


def reach(layer, d, distance, seed=0):
    """The typical share and the best of two rounds."""
    typical = bench.typical_reach(layer, d, distance, generator=gen(seed))
    return typical, bench.best_reach(layer, d, distance, rounds=2, generator=gen(seed))


def test_an_lti_system_keeps_the_ratio_of_its_lags_whatever_the_tokens():
    ssm = LTISSM.random(3, 2, N=4, rho=0.9, **like())
    norms = torch.linalg.matrix_norm(ssm.system.lags(8).detach(), 2)
    for seed in range(3):
        source, target, gap = tokens(5, 3, seed=seed), tokens(5, 3, seed=9), tokens(5, 6, 3, seed=8)
        kept = bench.retained_fraction(ssm, source, target, gap)
        share = norms[7] / norms[[1, 2, 4, 7]].max()
        assert kept.shape == (5,) and torch.allclose(kept, share.expand(5), rtol=1e-9)
    typical, best = reach(ssm, 3, 7)
    assert typical == pytest.approx(float(share)) == best


def taps(width, **values):
    layer = Convolution(1, 1, width=width, **like())
    with torch.no_grad():
        layer.K.zero_()
        for lag, value in values.items():
            layer.K[int(lag[1:])] = value
    return layer


@pytest.mark.guards("def-reach")
def test_a_small_denominator_is_not_rewarded():
    """The first lag is 1e-9: a ratio to it would call every later lag large."""
    layer = taps(66, M1=1e-9, M2=1.0, M64=1e-3)
    assert reach(layer, 1, 64) == pytest.approx((1e-3, 1e-3), rel=1e-12)
    assert reach(layer, 1, 1) == (1.0, 1.0) and reach(layer, 1, 65) == (0.0, 0.0)
    assert reach(taps(65, M1=1e-9, M64=1e-6), 1, 64) == (1.0, 1.0)  # nothing nearer is wider
    far = taps(66, M1=1e-9, M64=1.0, M65=1e-9)
    assert reach(far, 1, 64) == (1.0, 1.0)  # its widest path is this long
    assert reach(far, 1, 65) == pytest.approx((1e-9, 1e-9), rel=1e-12)


def test_no_mixing_and_no_sight_keep_nothing():
    for layer in (FeedForward(3, 3, width=4, **like()), Convolution(3, 3, width=3, **like())):
        assert reach(layer, 3, 3) == (0.0, 0.0)
    assert reach(Convolution(3, 3, width=3, **like()), 3, 2)[0] > 0
    assert reach(Convolution(3, 3, width=3, **like()), 3, 1) == (1.0, 1.0)


@pytest.mark.parametrize("distance", [1, 2, 9, 200])
def test_highway_tokens_give_the_weight_they_promise(distance):
    for seed in range(4):
        head = Attention(4, 4, H=1, head_width=2, **like(seed))
        x = bench.highway_tokens(head, distance)
        assert x.shape == (distance + 1, 4) and bool((x[1:-1] == 0).all())
        assert float(head.coefficients(x)[0, -1, 0].detach()) >= 1 - 2 / (distance + 2)
    V = head.value_maps()[0].detach()
    gap = torch.linalg.matrix_norm(jacobian_operator(head, x)[-1, 0] - V, 2)
    assert distance < 200 or float(gap) < 0.3 * float(torch.linalg.matrix_norm(V, 2))


def test_recall_reads_the_slots():
    keys, values = torch.eye(3, 4, dtype=F64), tokens(2, 3, 5)
    x = bench.recall_tokens(keys, values, 1)
    assert x.shape == (2, 4, 13)
    assert torch.equal(x[0, :3, :4], keys) and torch.equal(x[:, :3, 8:], values)
    assert torch.equal(x[0, 3, 4:8], keys[1]) and float(x[0, 3].sum()) == 1
    head = bench.recall_head(4, 5, math.log(9.0))
    alpha = head.coefficients(x)[0, 0, -1]
    assert torch.allclose(alpha, torch.tensor([1, 9, 1, 1], dtype=F64) / 12)
    assert torch.allclose(head(x)[:, -1], (values * alpha[:3, None]).sum(1))


@pytest.mark.parametrize("m", [1, 3])
def test_the_share_missed_is_that_of_a_sample(m):
    c, r = 2, 2
    keys, values = tokens(m, c), tokens(20_000, m, r, seed=3)
    layer = LTISSM.random(2 * c + r, r, N=3, rho=0.9, **like())
    with torch.no_grad():
        answers = torch.stack([layer(bench.recall_tokens(keys, values, t))[:, -1] for t in range(m)], dim=1)
    sampled = float((answers - values).pow(2).mean())
    assert bench.recall_missed(layer, keys, r) == pytest.approx(sampled, rel=0.03)
    pick = torch.cat([torch.zeros(r, 2 * c, dtype=F64), torch.eye(r, dtype=F64)], dim=1)
    mean = LTISSM(System(torch.eye(r, dtype=F64), pick, torch.eye(r, dtype=F64) / m))
    assert bench.recall_missed(mean, keys, r) == pytest.approx(1 - 1 / m, abs=1e-12)


def test_a_residual_layer_can_be_undone():
    layer, u = LTISSM.random(3, 3, N=4, rho=0.7, **like()), tokens(6, 3)
    before = layer.system.lags(6).detach().clone()
    x = bench.undo_residual(layer, u)
    assert torch.allclose(x + layer(x).detach(), u, atol=1e-9)
    assert torch.equal(layer.system.lags(6).detach(), before)
