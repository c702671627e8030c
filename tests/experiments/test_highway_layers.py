"""The set-ups of the gradient highway: what they promise about logits, steps and gradients."""

import math
from functools import partial

import pytest
import torch
from helpers import F64, gen, randn

from headsandstates.chapters.gradient_highway import layers as flow
from ssmbook import gradients
from ssmbook.maps import RNN
from ssmbook.operators import jacobian_operator
from ssmbook.systems import System


@pytest.mark.guards("prop-alibi")
@pytest.mark.parametrize("slope", [0.0, -0.25])
@pytest.mark.parametrize("distance", [1, 7, 12])
def test_matching_head_gives_the_logit_to_the_answer_alone_and_a_bias_per_distance(distance, slope):
    bias = slope * torch.arange(13, dtype=F64)
    head = flow.matching_head(randn(4, 4, seed=1), logit=3.0, bias=bias)
    alpha = head.coefficients(flow.place_match(randn(13, 4), distance))[0, -1]
    logits = bias.flip(0).clone()
    logits[-1 - distance] += 3.0
    assert torch.allclose(alpha, logits.softmax(0), rtol=1e-12)


@pytest.mark.guards("thm-gradient-highway", "prop-sigma2-highway")
def test_the_matched_gradient_does_not_know_the_distance():
    V = torch.linalg.qr(randn(4, 4, seed=2)).Q
    head = flow.matching_head(V, logit=float(gradients.required_margin(0.9, 129)))
    filler = randn(129, 4, seed=3)
    norms = flow.placed_profile(head, lambda tau: flow.place_match(filler, tau), [1, 2, 17, 64, 128])
    assert float(norms.max() / norms.min()) < 1.1 and bool((norms >= 0.9 * (1 - 1e-9)).all())


@pytest.mark.guards("prop-selective-hold")
@pytest.mark.parametrize("z", [-6.0, 1.0])
def test_the_gated_reader_fades_by_its_steps(z):
    layer = flow.gated_reader(3, pre_activation=z, generator=gen(1), dtype=F64)
    filler = randn(21, 3, seed=4)
    norms = flow.placed_profile(layer, lambda tau: flow.place_source(filler, tau), [1, 6, 20])
    passed = math.log1p(math.exp(z)) * torch.tensor([0.0, 5.0, 19.0], dtype=F64)
    assert torch.allclose(norms, norms[0] * torch.exp(-passed), rtol=1e-10)


def test_slopes_and_transport_of_a_tanh_network():
    net, x = RNN(2, 2, N=4, generator=gen(5), dtype=F64), torch.cat([0 * randn(1, 2), randn(8, 2, seed=6)])
    A, h, rows = net.A.detach(), torch.zeros(4, dtype=F64), []
    for x_t in x:
        rows.append(A @ h + net.B.detach() @ x_t)
        h = torch.tanh(rows[-1])
    z = torch.stack(rows)
    tangent, chord = flow.rnn_slopes(net, x)
    torch.testing.assert_close(tangent, torch.cosh(z) ** -2)
    torch.testing.assert_close(chord[1:], torch.tanh(z[1:]) / z[1:])
    assert torch.equal(chord[0], torch.ones(4, dtype=F64))  # a first step at z = 0
    logs, product = flow.transport_norms(tangent, A), torch.eye(4, dtype=F64)
    for tau in range(9):
        product = product @ (tangent[8 - tau][:, None] * A)
        assert float(logs[tau]) == pytest.approx(float(torch.linalg.svdvals(product)[0].log()), rel=1e-10)


def test_linear_recurrence_has_the_lag_operators_for_gradient():
    A, B, C = randn(4, 4) / 3, randn(4, 2, seed=1), randn(3, 4, seed=2)
    blocks = jacobian_operator(flow.linear_recurrence(System(A, B, C)), randn(11, 2, seed=3))[-1]
    for tau in range(11):
        assert torch.allclose(blocks[10 - tau], C @ torch.linalg.matrix_power(A, tau) @ B, rtol=1e-10)


@pytest.mark.guards("prop-sigma2-highway")
@pytest.mark.parametrize("seed", range(3))
def test_lanes_hold_under_attack_and_agree_with_autograd(seed):
    weights, start = [randn(3, 4, seed=10 * seed + k) for k in range(3)], randn(6, 4, seed=seed + 99)
    x = flow.attack_lane(start, weights, steps=80)
    found = flow.lanes(x, *weights)
    assert float(found.lower.min()) >= 1 - 1e-9 and float(found.upper.max()) <= 1 + 1e-9
    assert float(found.bend.max()) < 1e-9 and found.lower[0] < flow.lanes(start, *weights).lower[0]
    W_Q, W_K, V = weights
    blocks = jacobian_operator(partial(_head, W_Q=W_Q, W_K=W_K, V=V), x)[5][:-1]
    norms, alpha = torch.linalg.matrix_norm(blocks, ord=2), _weights(x, W_Q, W_K)
    assert torch.allclose(found.lower * alpha[:-1] * torch.linalg.svdvals(V)[1], norms, rtol=1e-9)
    slope = (x[-1] @ W_Q.mT @ W_K).norm() / 3**0.5  # of the logits, three numbers wide
    v = x @ V.mT
    upper = torch.linalg.matrix_norm(V, ord=2) + (v[:-1] - alpha @ v).norm(dim=-1) * slope
    assert torch.allclose(found.upper * alpha[:-1] * upper, norms)


def _weights(x, W_Q, W_K):
    """The weights of the last token of a softmax head."""
    return torch.softmax(x @ W_K.T @ W_Q @ x[-1] / len(W_Q) ** 0.5, 0)


def _head(x, W_Q, W_K, V):
    """One causal softmax head, written out."""
    logits = (x @ W_Q.T) @ (x @ W_K.T).T / len(W_Q) ** 0.5
    return torch.softmax(logits.masked_fill(torch.ones_like(logits).triu(1) > 0, -math.inf), 1) @ x @ V.T


@pytest.mark.guards("thm-gradient-highway")
@pytest.mark.parametrize("rank", [1, 4])
@pytest.mark.parametrize(("n", "c"), [(2, 0.2), (3, 0.05), (65, 0.95)])
def test_highway_input_keeps_its_share_of_every_singular_value(n, c, rank):
    """Also where equal weights would do (c < 1/n) and where V has rank one: no second lane is needed."""
    for seed in range(3):
        W_Q, W_K = randn(2, 5, seed=1 + 7 * seed), randn(2, 5, seed=2 + 7 * seed)
        V = randn(4, rank, seed=3 + 7 * seed) @ randn(rank, 5, seed=4 + 7 * seed)
        x = flow.highway_input(W_K.T @ W_Q / 2**0.5, n, c, generator=gen(seed))
        assert float(_weights(x, W_Q, W_K)[0]) == pytest.approx(max(c, 1 / n), rel=1e-9)
        whole = lambda first, x=x, parts=(W_Q, W_K, V): _head(torch.cat([first[None], x[1:]]), *parts)  # noqa: E731
        sigma, J = torch.linalg.svdvals(V), torch.func.jacfwd(whole)(x[0])[1:]
        assert bool((torch.linalg.svdvals(J) >= c * sigma - 1e-12 * sigma[0]).all())
