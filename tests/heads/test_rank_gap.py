"""The interaction rank gap and its forms for one head, by other formulas and in limits."""

import math

import pytest
import torch
from helpers import EYE, F64, clock, like, rotation

from headsandstates.chapters.interaction_rank_gap.one_head import one_head_coefficients, one_head_witness
from ssmbook.operators import LagOperator

# ------------------------------------------------------------------ thm-rank-gap


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
