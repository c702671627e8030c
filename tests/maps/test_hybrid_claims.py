"""Hybrids: span and gradient floor of a sum, span and highway of a stack; what recall asks for."""

import math

import pytest
import torch
from helpers import F64, like, tokens

from headsandstates.chapters.trade_off.reach import (
    highway_tokens,
    recall_head,
    recall_missed,
    recall_tokens,
    undo_residual,
)
from ssmbook.gradients import fit_log_slope
from ssmbook.maps import GLA, LTISSM, Attention, Convolution, Hybrid, Residual
from ssmbook.operators import jacobian_operator
from ssmbook.systems import System


def norm(J):
    return torch.linalg.matrix_norm(J.detach(), 2)


def one_head(d=4, seed=0, head_width=3):
    return Attention(d, d, H=1, head_width=head_width, **like(seed))


@pytest.mark.guards("prop-hybrid-sum")
@pytest.mark.parametrize("n", [3, 17])
def test_the_span_of_a_sum_lies_between_difference_and_sum(n):
    x = tokens(n, 4)
    layers = {
        "two heads": Attention(4, 4, H=2, head_width=3, **like()),
        "SSM": LTISSM.random(4, 4, N=5, rho=0.9, **like(1)),
        "gla": GLA(4, 4, H=1, head_width=3, **like(2)),
    }
    for one in layers.values():
        for two in layers.values():
            W_1, W_2 = one.interaction(x), two.interaction(x)
            k_1, k_2 = W_1.interaction_rank(), W_2.interaction_rank()
            W = Hybrid([one, two], mode="sum").interaction(x)
            assert abs(k_1 - k_2) <= W.interaction_rank() <= k_1 + k_2
            rows = [V.row_rank(n - 1) for V in (W_1, W_2, W)]
            assert abs(rows[0] - rows[1]) <= rows[2] <= rows[0] + rows[1]
    W = layers["SSM"].interaction(x)
    assert (W - W).interaction_rank() == 0


@pytest.mark.guards("prop-hybrid-sum")
@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
def test_the_gradient_of_a_sum_stays_over_its_floor(scale):
    head, ssm = one_head(seed=3), LTISSM.random(4, 4, N=5, rho=0.9, **like(4))
    V = head.value_maps()[0].detach()
    for seed in range(8):
        x = scale * tokens(21, 4, seed=seed)
        J = norm(jacobian_operator(Hybrid([head, ssm], mode="sum"), x)[-1])[:-1]
        M, alpha = ssm.system.lags(21).detach().flip(0)[:-1], head.coefficients(x)[0, -1, :-1].detach()
        floor = torch.linalg.svdvals(alpha[:, None, None] * V + M)[:, 1]
        assert (J >= floor * (1 - 1e-9)).all()
        assert (floor >= alpha * torch.linalg.svdvals(V)[1] - norm(M) - 1e-12).all()


@pytest.mark.guards("prop-hybrid-sum")
def test_a_sum_is_safe_beyond_the_promised_distance_and_may_have_a_hole_before():
    head, n = one_head(seed=5, head_width=4), 60
    V = head.value_maps()[0].detach()
    sigma = torch.linalg.svdvals(V)
    x = torch.cat([tokens(n - 1, 4), torch.zeros(1, 4, dtype=F64)])  # weight 1/n on every token
    hole, c = 30, float(sigma[1]) / n
    rho, eye = 0.8, torch.eye(4, dtype=F64)
    ssm = LTISSM(System(rho * eye, eye, -V / (n * rho**hole)))
    J = norm(jacobian_operator(Hybrid([head, ssm], mode="sum"), x)[-1]).flip(0)
    promised = math.log(2 * float(sigma[0]) / (n * rho**hole) / c) / math.log(1 / rho)
    assert J[hole] < 1e-10 < c / 2
    assert hole < promised < n - 5 and (J[math.ceil(promised) :] >= c / 2).all()


@pytest.mark.guards("prop-hybrid-stack")
def test_the_span_of_a_stack_is_at_most_the_product():
    x = tokens(20, 4)
    pool = [
        one_head(seed=1),
        LTISSM.random(4, 4, N=2, **like(2)),
        Convolution(4, 4, width=3, **like(3)),
    ]
    for one in pool:
        for two in pool:
            k_1, k_2 = (m.interaction(x).interaction_rank() for m in (one, two))
            k = Hybrid([one, two], mode="stack").interaction(x).interaction_rank()
            residual = Hybrid([Residual(one), Residual(two)], mode="stack").interaction(x).interaction_rank()
            assert k <= min(k_1 * k_2, 16) and residual <= min((1 + k_1) * (1 + k_2), 16)
    assert Hybrid(pool[:1] * 2, mode="stack").interaction(x).interaction_rank() == 1


@pytest.mark.guards("prop-hybrid-stack")
@pytest.mark.parametrize("layers", [1, 3])
def test_a_stack_without_attention_decays_at_the_slowest_rate(layers):
    parts = [Residual(LTISSM.random(2, 2, N=2, rho=0.8, **like(seed))) for seed in range(layers)]
    J = norm(jacobian_operator(Hybrid(parts, mode="stack"), torch.zeros(301, 2, dtype=F64))[-1]).flip(0)
    slope = fit_log_slope(torch.arange(301), J, window=(200, 300))
    assert math.log(0.8) - 0.02 <= slope <= math.log(0.85)


@pytest.mark.guards("prop-hybrid-stack")
@pytest.mark.parametrize("head_width", [1, 3])
def test_one_attention_layer_gives_a_stack_a_highway(head_width):
    head, eye = one_head(seed=7, head_width=head_width), torch.eye(4, dtype=F64)
    low, high = (LTISSM.random(4, 4, N=5, rho=rho, **like(seed)) for rho, seed in ((0.9, 8), (0.85, 9)))
    with torch.no_grad():
        low.C.mul_(0.5 / norm(low.system.lags(300)).sum())
    stack = Hybrid([Residual(low), Residual(head), Residual(high)], mode="stack")
    limit = ((eye + high.C @ high.B) @ head.value_maps()[0] @ (eye + low.C @ low.B)).detach()
    errors = []
    for tau in (32, 128, 512):
        x = undo_residual(low, highway_tokens(head, tau))
        errors.append(float(norm(jacobian_operator(stack, x)[-1, 0] - limit) / norm(limit)))
    assert errors[1] < errors[0] / 2 and errors[2] < errors[1] / 2 and errors[2] < 0.05


@pytest.mark.guards("prop-recall-state")
@pytest.mark.parametrize("m", [2, 3, 9])
def test_linear_maps_miss_all_but_the_mean(m):
    c, r = 5, 2
    keys = torch.nn.functional.normalize(tokens(m, c), dim=1)
    pick = torch.cat([torch.zeros(r, 2 * c, dtype=F64), torch.eye(r, dtype=F64)], dim=1)
    mean = LTISSM(System(torch.eye(r, dtype=F64), pick, torch.eye(r, dtype=F64) / m))
    for layer, tight in ((mean, True), (LTISSM.random(2 * c + r, r, N=30, rho=0.95, **like()), False)):
        share = recall_missed(layer, keys, r)
        assert share >= 1 - 1 / m - 1e-12
        assert not tight or abs(share - (1 - 1 / m)) < 1e-12


@pytest.mark.guards("prop-recall-state")
@pytest.mark.parametrize("m", [1, 2, 40])
@pytest.mark.parametrize("beta", [0.5, 20.0])
def test_one_head_recalls_within_its_bound(m, beta):
    c, r = 6, 3
    keys, values = torch.nn.functional.normalize(tokens(m, c), dim=1), tokens(m, r, seed=5)
    mu = max(0.0, float((keys @ keys.mT - 2 * torch.eye(m, dtype=F64)).max()))
    head = recall_head(c, r, beta)
    bound = 2 * m * math.exp(-beta * (1 - mu)) * float(values.norm(dim=1).max())
    for t in range(m):
        x = recall_tokens(keys, values, t)
        assert float((head(x)[-1] - values[t]).detach().norm()) <= bound * (1 + 1e-9)
        assert head.interaction(x).interaction_rank() == 1
