"""The set-ups of the gradient-flow figure: what they promise about logits, steps and gradients."""

import math
from functools import partial

import pytest
import torch
from helpers import F64, randn

from ssmbook import gradients
from ssmbook.chapters.gradient_highway import bounds
from ssmbook.experiments import _gradient_flow
from ssmbook.experiments import gradient_flow as flow
from ssmbook.maps import RNN, Attention
from ssmbook.systems import System


@pytest.mark.parametrize("distance", [1, 5, 12])
def test_matching_head_gives_the_logit_to_the_answer_alone(distance):
    x = flow.place_match(randn(13, 4), distance)
    alpha = flow.matching_head(randn(4, 4, seed=1), logit=3.0).coefficients(x)[0, -1]
    want = torch.ones(13, dtype=F64)
    want[-1 - distance] = math.exp(3.0)
    assert torch.allclose(alpha, want / want.sum(), rtol=1e-12)
    assert flow.matching_head(randn(4, 4, seed=1), logit=3.0)(x).shape == (13, 4)


@pytest.mark.guards("prop-alibi")
def test_a_bias_is_added_per_distance():
    bias = -0.25 * torch.arange(13, dtype=F64)
    head = flow.matching_head(randn(4, 4), logit=3.0, bias=bias)
    alpha = head.coefficients(flow.place_match(randn(13, 4), 7))
    logits = bias.flip(0).clone()
    logits[-8] += 3.0
    assert torch.allclose(alpha[0, -1], torch.softmax(logits, 0), rtol=1e-12)


@pytest.mark.guards("thm-gradient-highway")
@pytest.mark.guards("prop-sigma2-highway")
def test_the_matched_gradient_does_not_know_the_distance():
    V = torch.linalg.qr(randn(4, 4, seed=2)).Q
    head = flow.matching_head(V, logit=float(gradients.required_margin(0.9, 129)))
    filler = randn(129, 4, seed=3)
    norms = flow.placed_profile(head, lambda tau: flow.place_match(filler, tau), [1, 2, 17, 64, 128])
    assert float(norms.max() / norms.min()) < 1.1
    assert bool((norms >= 0.9 * (1 - 1e-9)).all())


@pytest.mark.guards("prop-selective-hold")
@pytest.mark.parametrize("z", [-6.0, 0.0, 1.0])
def test_the_gated_reader_fades_by_its_steps(z):
    layer = flow.gated_reader(3, pre_activation=z, generator=torch.Generator().manual_seed(1), dtype=F64)
    filler = randn(21, 3, seed=4)
    norms = flow.placed_profile(layer, lambda tau: flow.place_source(filler, tau), [1, 6, 20])
    passed = math.log1p(math.exp(z)) * torch.tensor([0.0, 5.0, 19.0], dtype=F64)
    assert torch.allclose(norms, norms[0] * torch.exp(-passed), rtol=1e-10)


def test_placing_marks_its_tokens_and_leaves_the_filler_alone():
    filler = randn(6, 3)
    assert flow.place_source(filler, 3)[:, 0].tolist() == [0, 1, 1, 1]
    assert flow.place_match(filler, 3)[:, :2].tolist() == [[0, 0], [0, 0], [0, 1], [0, 0], [0, 0], [1, 0]]
    kept = filler.clone()
    flow.place_match(filler, 2), flow.place_source(filler, 2)
    assert torch.equal(filler, kept)


def test_transport_norms_are_the_norms_of_the_products():
    layer = RNN(2, 2, N=4, generator=torch.Generator().manual_seed(5), dtype=F64)
    x = randn(9, 2, seed=6)
    slopes = 1 - torch.tanh(layer._pre_activations(x)) ** 2
    logs = flow.transport_norms(slopes.detach(), layer.A.detach())
    product = torch.eye(4, dtype=F64)
    for tau in range(9):
        product = product @ (slopes[8 - tau][:, None] * layer.A).detach()
        assert float(logs[tau]) == pytest.approx(float(torch.linalg.svdvals(product)[0].log()), rel=1e-10)
    assert flow.transport_norms(slopes[:0].detach(), layer.A.detach()).shape == (0,)


def test_linear_recurrence_has_the_lag_operators_for_gradient():
    A, B, C = randn(4, 4) / 3, randn(4, 2, seed=1), randn(3, 4, seed=2)
    blocks = gradients.jacobian_blocks(flow.linear_recurrence(System(A, B, C)), randn(11, 2, seed=3))
    for tau in range(11):
        assert torch.allclose(blocks[10 - tau], C @ torch.linalg.matrix_power(A, tau) @ B, rtol=1e-10)


@pytest.mark.guards("prop-sigma2-highway")
@pytest.mark.parametrize("seed", range(4))
def test_lanes_hold_under_attack_and_agree_with_autograd(seed):
    weights = [randn(3, 4, seed=10 * seed + k) for k in range(3)]
    x = flow.attack_lane(randn(6, 4, seed=seed + 99), weights, steps=80)
    found = flow.lanes(x, *weights)
    assert float(found.lower.min()) >= 1 - 1e-9 and float(found.upper.max()) <= 1 + 1e-9
    assert float(found.bend.max()) < 1e-9
    blocks = gradients.softmax_jacobian_row(x, *weights)[:-1]
    alpha = gradients.softmax_row_weights(x, *weights[:2])[:-1]
    floor = alpha * torch.linalg.svdvals(weights[2])[1]
    norms = torch.linalg.matrix_norm(blocks, ord=2)
    assert torch.allclose(found.lower * floor, norms, rtol=1e-9)
    W_Q, W_K, V = weights
    slope = (x[-1] @ W_Q.mT @ W_K).norm() / 3**0.5  # of the logits, three numbers wide
    v = x @ V.mT
    apart = (v[:-1] - torch.cat([alpha, 1 - alpha.sum()[None]]) @ v).norm(dim=-1)
    assert torch.allclose(found.upper * alpha * (torch.linalg.matrix_norm(V, ord=2) + apart * slope), norms)


def test_the_attack_is_adam_on_the_lane():
    """Two steps as the algorithm is published, from gradients that are not added up."""
    weights, x = [randn(3, 4, seed=k) for k in range(3)], randn(6, 4, seed=9)
    moved, first, second = x.clone(), 0, 0
    for t in (1, 2):
        here = moved.requires_grad_()
        (slope,) = torch.autograd.grad(flow.lanes(here, *weights).lower[0], here)
        first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
        step = first / (1 - 0.9**t) / ((second / (1 - 0.999**t)).sqrt() + 1e-8)
        moved = (moved - 0.02 * step).detach()
    given = x.clone()
    found = flow.attack_lane(x, weights, steps=2)
    assert torch.equal(x, given)
    torch.testing.assert_close(found, moved, rtol=0, atol=1e-12)
    assert not (found.requires_grad or x.requires_grad)


@pytest.mark.guards("prop-softmax-jacobian")
@pytest.mark.parametrize("options", [{}, {"sink": True}, {"alibi": True}, {"sink": True, "alibi": True}])
@pytest.mark.parametrize("target", [0, 5, 10])
def test_the_closed_form_is_autograd_of_the_books_head(options, target):
    generator = torch.Generator().manual_seed(7)
    layer = Attention(4, 3, H=1, head_width=2, **options, generator=generator, dtype=F64)
    layer.requires_grad_(False)
    x = 2 * randn(11, 4, seed=8)
    bias = layer.relative_bias(11)[0, target] if layer.alibi else None
    weights = layer.W_Q[0], layer.W_K[0], layer.W_O[0] @ layer.W_V[0]
    formula = gradients.softmax_jacobian_row(x, *weights, target, bias=bias, sink=0.0 if layer.sink else None)
    blocks = gradients.jacobian_blocks(layer, x, target)
    assert torch.allclose(formula, blocks[: target + 1], rtol=1e-9, atol=1e-13)
    assert not bool(blocks[target + 1 :].any())


@pytest.mark.guards("prop-pole-price")
@pytest.mark.parametrize("s", [2.0, 0.3, 0.01])
def test_the_price_of_a_pole_is_the_sum_of_its_squared_derivatives(s):
    lag, lam = torch.arange(8000, dtype=F64), torch.tensor(math.exp(-s), dtype=F64, requires_grad=True)
    kernels = {False: lam**lag, True: (1 - lam**2).sqrt() * lam**lag}
    for normalized, kernel in kernels.items():
        tangent = torch.zeros_like(kernel, requires_grad=True)
        (pulled,) = torch.autograd.grad(kernel, lam, tangent, create_graph=True)
        (derivative,) = torch.autograd.grad(pulled, tangent)
        price = float(bounds.pole_sensitivity(lam.detach(), normalized=normalized))
        assert float(derivative.square().sum()) == pytest.approx(price, rel=1e-9)
        if normalized:  # by nu, lam = exp(-exp(nu))
            assert price * (s * math.exp(-s)) ** 2 == pytest.approx((s / (2 * math.sinh(s))) ** 2, rel=1e-12)


@pytest.mark.guards("thm-gradient-highway")
@pytest.mark.parametrize("rank", [1, 2, 4])
@pytest.mark.parametrize(("n", "c"), [(2, 0.2), (3, 0.05), (65, 0.95), (200, 0.999)])
def test_highway_input_keeps_its_share_of_every_singular_value(n, c, rank):
    """Also where equal weights would do (c < 1/n) and where V has rank one: no second lane is needed."""
    for seed in range(5):
        W_Q, W_K = randn(2, 5, seed=1 + 7 * seed), randn(2, 5, seed=2 + 7 * seed)
        V = randn(4, rank, seed=3 + 7 * seed) @ randn(rank, 5, seed=4 + 7 * seed)
        generator = torch.Generator().manual_seed(seed)
        x = flow.highway_input(W_K.T @ W_Q / 2**0.5, n, c, generator=generator)
        sigma = torch.linalg.svdvals(V)
        for i in (1, n // 2 or 1, n - 1):
            weight = float(gradients.softmax_row_weights(x, W_Q, W_K, i)[0])
            assert weight >= c * (1 - 1e-12)
        assert weight == pytest.approx(max(c, 1 / n), rel=1e-9)
        J = torch.func.jacfwd(partial(_head, W_Q=W_Q, W_K=W_K, V=V, others=x[1:]))(x[0])[1:]
        assert bool((torch.linalg.svdvals(J) >= c * sigma - 1e-12 * sigma[0]).all())


def test_a_map_that_drops_some_coordinates_has_a_highway_too():
    M = torch.diag(torch.tensor([1.0, 0.0, 2.0], dtype=F64))
    x = flow.highway_input(M, 5, 0.9, generator=torch.Generator().manual_seed(0))
    margin = (x[0] - x[1]) @ M @ x[1]  # of the last token's logit for the first over that for another
    assert float(margin) == pytest.approx(math.log(4) + math.log(9)) and x[0, 1] == x[1, 1]


def _head(first, others, W_Q, W_K, V):
    """One causal softmax head, written out."""
    x = torch.cat([first[None], others])
    logits = (x @ W_Q.T) @ (x @ W_K.T).T / len(W_Q) ** 0.5
    return torch.softmax(logits.masked_fill(torch.ones_like(logits).triu(1) > 0, -math.inf), 1) @ x @ V.T


def test_rnn_slopes_are_derivative_and_chord():
    layer = RNN(2, 2, N=4, generator=torch.Generator().manual_seed(5), dtype=F64)
    x = torch.cat([torch.zeros(1, 2, dtype=F64), randn(9, 2, seed=6)])  # a first step at z = 0
    z = layer._pre_activations(x).detach()
    tangent, chord = flow.rnn_slopes(layer, x)
    assert torch.allclose(tangent, torch.cosh(z) ** -2, rtol=1e-12)
    assert torch.equal(chord[0], torch.ones(4, dtype=F64))
    assert torch.allclose(chord[1:], torch.tanh(z[1:]) / z[1:], rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: flow.matching_head(randn(3, 4), logit=1.0), "V must have shape"),
        (lambda: flow.matching_head(randn(1, 1), logit=1.0), "d must be at least 2"),
        (lambda: flow.matching_head(randn(3, 3), logit=math.nan), "logit must be finite"),
        (lambda: flow.matching_head(torch.full((3, 3), math.nan), logit=1.0), "V must be finite"),
        (lambda: flow.place_match(randn(5, 3), 5), "distance must be between 1 and 4"),
        (lambda: flow.place_match(randn(5, 3), 0), "distance must be between 1 and 4"),
        (lambda: flow.place_source(randn(5, 1), 2), "d must be at least 2"),
        (lambda: flow.gated_reader(3, pre_activation=math.inf), "pre_activation must be finite"),
        (
            lambda: flow.gated_reader(1, pre_activation=0.0),
            "d must be at least 2",
        ),  # no channel beside the flag
        (
            lambda: flow.placed_profile(lambda x: x, lambda tau: randn(4, 2), []),
            "at least one distance; got none",
        ),
        (lambda: flow.linear_recurrence(System(randn(3, 3), randn(2, 1), randn(1, 3))), "B must"),
        (lambda: flow.linear_recurrence(System(*(randn(2, 2) for _ in "ABCD"))), "must have no skip"),
        (
            lambda: flow.linear_recurrence(System(*(randn(5, 2, 2) for _ in "ABC"))),
            "system must be one system",
        ),
        (lambda: flow.highway_input(torch.zeros(3, 3, dtype=F64), 5, 0.5), "got M w = 0"),
        (lambda: flow.highway_input(randn(3, 3), 5, 1.0), "c must be a number in .0, 1."),
        (lambda: flow.highway_input(randn(3, 3), 5, 0.0), "c must be a number in .0, 1."),
        (lambda: flow.highway_input(math.nan * randn(3, 3), 5, 0.5), "M must be finite"),
        (
            lambda: flow.rnn_slopes(RNN(2, 2, N=3, activation="relu", dtype=F64), randn(4, 2)),
            "must have the activation tanh",
        ),
        (lambda: flow.rnn_slopes(RNN(2, 2, N=3, dtype=F64), math.nan * randn(4, 2)), "x must be finite"),
        (lambda: flow.transport_norms(randn(5, 3), randn(4, 4)), "A must"),
        (lambda: flow.transport_norms(math.nan * randn(5, 3), randn(3, 3)), "slopes must be finite"),
    ],
)
def test_bad_input_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_the_run_of_one_layer_at_growing_distances():
    given = {"grid": [2, 3], "seeds": 2, "batch": 4}
    found = _gradient_flow._reach(given, "LTI", 0.9, "SGD", 3)
    assert (found["layer"], found["rho"], found["steps"]) == ("LTI", 0.9, 3)
    assert found["T"] == [2, 3] and found["error"].shape == (2, 2) and len(found["weight"]) == 2


def test_the_law_of_attention_is_no_decay_and_that_of_alibi_its_slope():
    law, _ = _gradient_flow._attention(torch.Generator().manual_seed(0))
    assert law == 0
    law, fitted = _gradient_flow._attention(torch.Generator().manual_seed(0), alibi=True)
    assert law == -(2.0**-8)  # the slope of the one head
