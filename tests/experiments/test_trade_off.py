"""The measuring set-ups of the trade-off chapter, its figures and its grader."""

import math

import pytest
import torch
from helpers import F64, like, tokens

from ssmbook.chapters.trade_off import figures
from ssmbook.chapters.trade_off import reach as bench
from ssmbook.exercises import check
from ssmbook.gradients import jacobian_blocks
from ssmbook.maps import LTISSM, Attention, Convolution, FeedForward, RetNet, zoo
from ssmbook.systems import System


def reach(layer, d, distance, seed=0):
    """The typical share and the best of two rounds."""
    typical = bench.typical_reach(layer, d, distance, generator=torch.Generator().manual_seed(seed))
    best = bench.best_reach(layer, d, distance, rounds=2, generator=torch.Generator().manual_seed(seed))
    return typical, best


def test_an_lti_system_keeps_the_ratio_of_its_lags_whatever_the_tokens():
    ssm = LTISSM.random(3, 2, N=4, rho=0.9, **like())
    norms = torch.linalg.matrix_norm(ssm.system.lags(8).detach(), 2)
    for seed in range(3):
        kept = bench.retained_fraction(
            ssm, tokens(5, 3, seed=seed), tokens(5, 3, seed=9), tokens(5, 6, 3, seed=8)
        )
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


@pytest.mark.guards("def-reach")
def test_the_share_does_not_depend_on_the_units_of_the_output():
    head = Attention(3, 3, H=1, head_width=3, **like())
    x = tokens(6, 3), tokens(6, 3, seed=2), tokens(6, 9, 3, seed=3)
    shares = [bench.retained_fraction(lambda tokens, s=s: s * head(tokens), *x) for s in (1e-12, 1.0, 1e12)]
    assert torch.allclose(shares[0], shares[1], rtol=1e-9) and torch.allclose(shares[2], shares[1], rtol=1e-9)
    assert bool(((shares[1] >= 0) & (shares[1] <= 1)).all())


def test_retention_keeps_its_decay_exactly():
    layer = RetNet(3, 3, H=1, head_width=3, decay=[0.7], **like())
    typical, best = reach(layer, 3, 11)
    assert typical == pytest.approx(0.7**10) == best


def test_no_mixing_and_no_sight_keep_nothing():
    for layer in (FeedForward(3, 3, width=4, **like()), Convolution(3, 3, width=3, **like())):
        assert reach(layer, 3, 3) == (0.0, 0.0)
    assert reach(Convolution(3, 3, width=3, **like()), 3, 2)[0] > 0
    assert reach(Convolution(3, 3, width=3, **like()), 3, 1) == (1.0, 1.0)


def test_typical_is_at_most_best_and_the_generator_decides():
    head = Attention(3, 3, H=1, head_width=3, **like())
    first, again = (reach(head, 3, 20, seed=4) for _ in range(2))
    assert first == again and first[0] < 0.3 and first[1] == 1.0
    assert all(type(share) is float for share in first)


@pytest.mark.parametrize("distance", [1, 2, 9, 200])
def test_highway_tokens_give_the_weight_they_promise(distance):
    for seed in range(4):
        head = Attention(4, 4, H=1, head_width=2, **like(seed))
        x = bench.highway_tokens(head, distance)
        assert x.shape == (distance + 1, 4) and bool((x[1:-1] == 0).all())
        assert float(head.coefficients(x)[0, -1, 0].detach()) >= 1 - 2 / (distance + 2)
    V = head.value_maps()[0].detach()
    gap = torch.linalg.matrix_norm(jacobian_blocks(head, x)[0] - V, 2)
    assert distance < 200 or float(gap) < 0.3 * float(torch.linalg.matrix_norm(V, 2))


def test_typical_is_over_32_inputs_and_best_over_16_a_round():
    seen = []

    def layer(x, factor=0.5):
        seen.append(x.shape[-3])
        return factor ** x.shape[-2] * x.cumsum(-2)

    bench.typical_reach(layer, 2, 2)
    assert set(seen) == {32}
    seen.clear()
    assert bench.best_reach(layer, 2, 2, rounds=3) == 0.5 and set(seen) == {16}
    each = len(seen) // 3
    bench.best_reach(layer, 2, 2)
    assert len(seen) == (3 + 12) * each
    seen.clear()
    assert (
        bench.best_reach(lambda x: layer(x, 1.0), 2, 2) == 1.0 and len(seen) == each
    )  # and no search goes on


def test_the_search_finds_a_gap_for_every_layer_that_can_hold_whatever_its_weights():
    layers = zoo(4, 4, 17, H=2, head_width=4, N=6, generator=torch.Generator().manual_seed(107))
    layers = {name: layers[name] for name in figures.GROUPS["content can hold"][1]}
    found = {
        rounds: [
            bench.best_reach(layer, 4, 16, rounds=rounds, generator=torch.Generator().manual_seed(5))
            for layer in layers.values()
        ]
        for rounds in (1, 12)
    }
    assert min(found[12]) > 0.99 and min(found[1]) < 0.9  # sixteen tries alone fall short of some


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
    eye = torch.eye(r, dtype=F64)
    assert bench.recall_missed(LTISSM(System(eye, pick, eye / m)), keys, r) == pytest.approx(
        1 - 1 / m, abs=1e-12
    )


def test_a_residual_layer_can_be_undone():
    layer, u = LTISSM.random(3, 3, N=4, rho=0.7, **like()), tokens(6, 3)
    before = layer.system.lags(6).detach().clone()
    x = bench.undo_residual(layer, u)
    assert torch.allclose(x + layer(x).detach(), u, atol=1e-9)
    assert torch.equal(layer.system.lags(6).detach(), before)


def test_figures_draw_what_they_are_given():
    fig = figures.mix_frame(0.5, [1, 2, 3], [1.0, 0.5, 0.5], [0.4, -0.1, 0.4], [1.0, 1e-9, 1e-12])
    alone, floor, hybrid = ([tuple(point) for point in line.get_xydata()] for line in fig.axes[0].lines)
    assert (alone, floor, hybrid) == ([(1, 1.0)], [(1, 0.4), (3, 0.4)], [(1, 1.0), (2, 0.5), (3, 0.5)])
    ends = {text.get_text(): text.xy for text in fig.axes[0].texts}
    assert ends == {"SSM alone": (1, 1.0), "floor": (3, 0.4), "hybrid": (3, 0.5)}
    assert fig.axes[0].get_title() == "weight of the SSM: 0.5"
    gone = figures.mix_frame(0.5, [1, 2, 3], [1.0, 0.5, 0.5], [0.0] * 3, [1e-8] * 3).axes[0]
    assert len(gone.lines) == 1 and [text.get_text() for text in gone.texts] == ["hybrid"]
    fig = figures.recall([2, 4], {"up": [0.0, 1.0], "near": [0.0, 0.99]})
    drawn = [line.get_xydata().tolist() for line in fig.axes[0].lines]
    assert drawn == [[[2, 0], [4, 1]], [[2, 0], [4, 0.99]]]
    assert [text.get_text() for text in fig.axes[0].texts] == ["up", "near"]
    left, right = figures.recall([4, 8, 256], {"up": [0.0, 0.5, 1.0]}).axes[0].get_xlim()
    assert left < 4 and right > 256
    high, low = (text.xy[1] for text in fig.axes[0].texts)
    assert high == 1.0 and low == pytest.approx(1.0 - 0.085)


def test_the_grader_knows_right_from_wrong():
    def right(M, V, a):
        low = torch.linalg.svdvals(a * V + M)[:, 1] < a * torch.linalg.svdvals(V)[1] / 2
        return int(low.nonzero().max()) + 1 if low.any() else 0

    def first_good(M, V, a):  # forgets that a later lag may fall again
        low = torch.linalg.svdvals(a * V + M)[:, 1] < a * torch.linalg.svdvals(V)[1] / 2
        return int((~low).nonzero()[0]) if (~low).any() else len(M)

    def norms(M, V, a):  # the norm instead of the second singular value
        low = torch.linalg.matrix_norm(a * V + M, 2) < a * torch.linalg.svdvals(V)[1] / 2
        return int(low.nonzero().max()) + 1 if low.any() else 0

    def unweighted(M, V, a):  # a is forgotten in the sum
        low = torch.linalg.svdvals(V + M)[:, 1] < a * torch.linalg.svdvals(V)[1] / 2
        return int(low.nonzero().max()) + 1 if low.any() else 0

    assert check("trade-off/safe-distance", right)
    for wrong in (first_good, norms, unweighted, lambda M, V, a: right(M, V, 1.0), lambda M, V, a: 0, 3):
        assert not check("trade-off/safe-distance", wrong)
