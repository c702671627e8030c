"""The softmax gradient in closed form and the sigma_2 highway, against autograd."""

import math

import pytest
import torch
from helpers import F64, gen

from ssmbook import gradients
from ssmbook.operators import jacobian_operator


def head(W_Q, W_K, V, bias=None, sink=None):
    """Causal single-head softmax attention written once more, with no shared code."""

    def F(x):
        n = x.shape[-2]
        s = (x @ W_Q.mT) @ (x @ W_K.mT).mT / math.sqrt(W_Q.shape[0])
        if bias is not None:
            s = s + bias
        s = s.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -math.inf)
        if sink is not None:  # one more key, whose value is 0
            s = torch.nn.functional.pad(s, (0, 1), value=sink)
        return s.softmax(-1)[..., :n] @ (x @ V.mT)

    return F


def draw(n, d, p, k, seed, scale=1.0, batch=()):
    g = gen(seed)
    x, W_Q, W_K, V = (
        torch.randn(s, generator=g, dtype=F64) for s in ((*batch, n, d), (k, d), (k, d), (p, d))
    )
    return x, scale * W_Q, W_K, V


CASES = [(1, 1, 1, 1), (2, 3, 2, 1), (9, 2, 5, 3), (13, 5, 3, 8)]


@pytest.mark.guards("thm-gradient-highway", "prop-softmax-jacobian")
@pytest.mark.parametrize(("n", "d", "p", "k"), CASES)
@pytest.mark.parametrize("sink", [None, 2.5])
@pytest.mark.parametrize("scale", [0.0, 30.0])
def test_closed_form_is_autograd(n, d, p, k, sink, scale):
    x, W_Q, W_K, V = draw(n, d, p, k, seed=n, scale=scale, batch=(2,))
    x[1, : n // 2] = x[1, :1]  # repeated tokens
    position = torch.arange(n, dtype=F64)
    bias = -0.5 * (position[:, None] - position)
    for target in {-1, 0, n // 2}:
        i = range(n)[target]
        want = jacobian_operator(head(W_Q, W_K, V, bias=bias, sink=sink), x)[target]
        got = gradients.softmax_jacobian_row(x, W_Q, W_K, V, target, bias=bias[i], sink=sink)
        assert got.shape == (2, i + 1, p, d)
        assert torch.allclose(got, want[:, : i + 1], atol=1e-11, rtol=1e-11)
        assert float(want[:, i + 1 :].abs().sum()) == 0


@pytest.mark.guards("prop-sigma2-highway")
def test_the_token_itself_is_not_covered():
    # W_Q = -c W_K with V = I: at j = i the query path subtracts up to k directions at once.
    least = math.inf
    for seed in range(200):
        x, _, W_K, _ = draw(6, 2, 2, 2, seed)
        own = jacobian_operator(head(-2.0 * W_K, W_K, torch.eye(2, dtype=F64)), x)[-1, -1]
        floor = torch.softmax(-2.0 * x @ W_K.mT @ W_K @ x[-1] / 2**0.5, 0)[-1]  # times sigma_2(V) = 1
        least = min(least, float(torch.linalg.matrix_norm(own, ord=2) / floor))
    assert least < 1
