"""The interaction rank gap and its forms for one head, by exhaustion, by optimizers and in fractions."""

import math
from fractions import Fraction
from functools import partial

import pytest
import torch
from helpers import EYE, F64, clock, like, rotation

from headsandstates.chapters.interaction_rank_gap.one_head import one_head_coefficients, one_head_witness
from ssmbook import maps
from ssmbook.heads import head_count
from ssmbook.operators import LagOperator

exact_head_count = partial(head_count, exact=True)


def reached(M, V, seed=0, n=None):
    x = torch.randn(10, len(M) if n is None else n, V.shape[1], **like(seed))
    try:
        one_head_coefficients(M, V, x)
    except ValueError:
        return False
    return True


# ------------------------------------------------------------------ thm-rank-gap


@pytest.mark.guards("thm-rank-gap")
def test_fixed_coefficients_fitted_to_outputs_miss_the_same_share():
    n, M = 6, clock(n=6)
    x = torch.randn(20000, n, 2, **like(0))
    y = LagOperator(M).apply(x)
    V = LagOperator(M).best_heads(1).V[0]
    values, missed = x @ V.mT, 0.0
    for i in range(n):
        design = values[:, : i + 1].mT.reshape(-1, i + 1)
        target = y[:, i].reshape(-1, 1)
        alpha = torch.linalg.lstsq(design, target).solution
        missed += float((design @ alpha - target).pow(2).sum())
    sigma = LagOperator(M).spectrum() ** 2
    assert missed / float(y.pow(2).sum()) == pytest.approx(float(sigma[1] / sigma.sum()), rel=0.02)


@pytest.mark.guards("thm-rank-gap")
@pytest.mark.parametrize("theta", [0.0, 1e-3, -2.0])
@pytest.mark.parametrize(("rho", "n"), [(0.3, 60), (1.0, 1), (1.05, 60)])
def test_the_two_singular_values_of_the_clock(theta, rho, n):
    weights = [(n - t) * rho ** (2 * t) for t in range(n)]
    P = sum(weights)
    Z = abs(sum(w * complex(math.cos(2 * theta * t), math.sin(2 * theta * t)) for t, w in enumerate(weights)))
    sigma = LagOperator(clock(theta, rho, n)).spectrum() ** 2
    assert float(sigma[0]) == pytest.approx(P + Z, rel=1e-10)
    assert float(sigma[1:].sum()) == pytest.approx(P - Z, rel=1e-7, abs=1e-10 * P)


@pytest.mark.guards("thm-rank-gap")
def test_every_pythagorean_clock_counts_two_and_half_turns_one():
    unit = [[1, 0], [0, 1]]
    for m, k in ((2, 1), (3, 2), (4, 1), (7, 4)):
        c, s = Fraction(m * m - k * k, m * m + k * k), Fraction(2 * m * k, m * m + k * k)
        count = exact_head_count(([[c, -s], [s, c]], unit, unit), 9)
        assert count == 2 and count.evidence.verify()
    half = exact_head_count(([[-1, 0], [0, -1]], unit, unit), 9)
    assert half == 1 and half.evidence.verify()


# ------------------------------------------------------------------ thm-single-head


@pytest.mark.guards("thm-single-head")
@pytest.mark.parametrize("p,d", [(1, 1), (1, 4), (2, 2), (3, 5), (5, 3)])
def test_multiples_have_no_witness_and_everything_else_has_one(p, d):
    for r in range(min(p, d) + 1):
        V = torch.randn(p, r, **like(r)) @ torch.randn(r, d, **like(r + 50))
        scale = torch.tensor([1.0, -3.0, 0.0], dtype=F64)[:, None, None]
        assert one_head_witness(scale * V, V=V) is None
        if p * d == 1 and r == 1:
            continue
        for M in (torch.randn(4, p, d, **like(9)), V + 1e-7 * torch.randn(4, p, d, **like(9))):
            lag, token, gap = one_head_witness(M, V=V)
            assert float(token.norm()) == pytest.approx(1) and gap > 0
            image, target = V @ token, M[lag] @ token
            if image.norm() < 1e-9:
                assert gap == pytest.approx(float(target.norm()), rel=1e-6)
            else:
                rest = target - image * (image @ target) / (image @ image)
                assert gap == pytest.approx(float(rest.norm()), rel=1e-5, abs=1e-13)


@pytest.mark.guards("thm-single-head")
def test_nothing_but_zero_is_a_multiple_of_zero():
    M, V = torch.stack([EYE, 3 * EYE]), torch.zeros(2, 2, dtype=F64)
    witness = one_head_witness(M, V=V)
    assert (witness.lag, witness.gap) == (1, 3.0) and float(witness.token.norm()) == 1.0
    assert one_head_witness(0 * M, V=V) is None


@pytest.mark.guards("thm-single-head")
@pytest.mark.parametrize("seed", range(2))
def test_every_layer_with_one_head_fails_on_its_witness(seed):
    one, n, M = {"H": 1, "head_width": 2, **like(seed)}, 12, clock()
    layers = [
        maps.Attention(2, 2, **one),
        maps.Attention(2, 2, alibi=True, **one),
        maps.Attention(2, 2, sink=True, **one),
        maps.LinearAttention(2, 2, **one),
        maps.DeltaNet(2, 2, **one),
        maps.GLA(2, 2, **one),
        maps.SSD(2, 2, N=3, **one),
    ]
    for layer in layers:
        layer.requires_grad_(False)
        V = layer.interaction(torch.randn(n, 2, **like(1))).V[0]
        lag, token, gap = one_head_witness(M, V=V)
        lonely = torch.zeros(n, 2, dtype=F64)
        lonely[0] = token
        missed = (layer(lonely) - LagOperator(M).apply(lonely))[lag].norm()
        assert missed >= gap - 1e-12 and gap > 0.5


# ------------------------------------------------------------------ prop-almost-every


@pytest.mark.guards("prop-almost-every")
def test_the_head_that_is_the_clock():
    M, x = clock(n=20), torch.randn(3, 50, 20, 2, **like(0))
    alpha = one_head_coefficients(M, EYE, x)
    assert alpha.shape == (3, 50, 20, 20) and not alpha.triu(1).any()
    y = LagOperator(M).apply(x.reshape(-1, 20, 2)).reshape(x.shape)
    torch.testing.assert_close(alpha @ x, y, rtol=1e-9, atol=1e-9)
    later = x.clone()
    later[..., 12:, :] = torch.randn(3, 50, 8, 2, **like(1))
    torch.testing.assert_close(one_head_coefficients(M, EYE, later)[..., :12, :], alpha[..., :12, :])
    for V in (rotation(0.05), torch.diag(EYE[0]), torch.randn(2, 2, **like(2))):
        assert not reached(M, V)


# ------------------------------------------------------------------ prop-locally-bounded


@pytest.mark.guards("prop-locally-bounded", "prop-bounded-error")
def test_limits_of_bounded_coefficients_serve_the_inputs_left_out():
    V, M = torch.stack([EYE, rotation(math.pi / 2)]), torch.randn(6, 2, 2, **like(0))

    def coefficients(x):  # bounded, and wrong on purpose where a token vanishes
        images = torch.einsum("hpd,jd->hjp", V, x)
        targets = torch.einsum("ijpd,jd->ijp", LagOperator(M).to_dense(), x)
        return torch.einsum("hjp,ijp->hij", images, targets) / x.square().sum(-1).clamp_min(1e-300)

    x = torch.randn(6, 2, **like(1))
    x[2:] = 0
    assert not coefficients(x)[:, :, 2:].any()
    steps = [coefficients(x + 10.0**-m * torch.ones(6, 2, dtype=F64)) for m in (6, 9, 12)]
    torch.testing.assert_close(steps[1], steps[2], rtol=1e-6, atol=1e-6)
    limit = torch.einsum("hij,hpd,jd->ip", steps[2], V, x)
    torch.testing.assert_close(limit, LagOperator(M).apply(x), rtol=1e-9, atol=1e-9)
    assert (steps[2].abs() <= torch.linalg.matrix_norm(LagOperator(M).to_dense(), 2) + 1e-9).all()
