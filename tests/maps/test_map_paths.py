"""Closed forms against extraction from outside, against loops, and against the published initial values."""

import math

import pytest
import torch
from helpers import F64, close, like, randn, tokens

from ssmbook import maps, systems
from ssmbook.operators import jacobian_operator, path_operator


@pytest.mark.parametrize(
    "m",
    [
        maps.Convolution(3, 2, width=3, **like()),
        maps.LTISSM.random(3, 2, N=4, skip=True, **like()),
        maps.DiagonalSSM(3, N=4, **like()),
        maps.DiagonalSSM(3, N=3, conjugate=False, **like()),
        maps.RNN(3, 2, N=4, activation="identity", **like()),
    ],
    ids=lambda m: type(m).__name__,
)
def test_linear_map_has_one_operator(m):
    x = tokens(6, 3)
    W = m.interaction(x).to_dense()
    close(path_operator(m, x).to_dense(), W)
    close(jacobian_operator(m, x).to_dense(), W)


@pytest.mark.parametrize("activation", ["tanh", "silu", "gelu"])
def test_feed_forward_secant_is_its_path_operator(activation):
    m = maps.FeedForward(3, 2, width=5, activation=activation, **like())
    x = tokens(2, 4, 3)
    close(path_operator(m, x, points=40).to_dense(), m.interaction(x).to_dense(), tol=1e-10)


def test_relu_recurrence_secant_is_its_jacobian():
    m = maps.RNN(3, 2, N=5, activation="relu", **like())
    x = tokens(6, 3)
    close(jacobian_operator(m, x).to_dense(), m.interaction(x).to_dense())


@pytest.mark.parametrize(
    "m",
    [
        maps.FeedForward(3, 2, width=5, **like()),
        maps.KAN(3, 2, grid=5, **like()),
        maps.RNN(3, 2, N=4, **like()),
    ],
    ids=lambda m: type(m).__name__,
)
def test_secant_at_zero_is_the_limit_of_small_inputs(m):
    x = tokens(5, 3)
    limit = m.interaction(torch.zeros_like(x)).to_dense()
    close(m.interaction(1e-8 * x).to_dense(), limit, tol=1e-7)
    close(jacobian_operator(m, torch.zeros_like(x)).to_dense(), limit)


def test_kan_edges_are_the_piecewise_linear_functions_of_their_slopes():
    m = maps.KAN(1, 1, grid=3, dtype=F64)
    with torch.no_grad():
        m.slopes.copy_(torch.tensor([[[10.0, 1.0, -2.0]]]))
    x = torch.tensor([-12.0, -2.0, -1.0, 0.0, 1.0, 2.0, 5.0, 14.0], dtype=F64)[:, None] / 3
    wanted = torch.tensor([-102.0, -2.0, -1.0, 0.0, 1.0, 2.0, -4.0, -22.0], dtype=F64)[:, None] / 3
    close(m(x), wanted)


def test_products_of_decays_do_not_cancel():
    one, log_a = torch.ones(1, 1200, 1, dtype=F64), torch.full((1, 1200), -1e-3, dtype=F64)
    log_a[:, :10] = -1e9
    L = maps.scalar_decay_coefficients(one, one, log_a)
    assert float(L[0, -1, 200]) == pytest.approx(math.exp(-1e-3 * 999), rel=1e-12)


def test_normalized_linear_coefficients_sum_to_one_or_are_zero():
    q, k = randn(2, 6, 3), randn(2, 6, 3, seed=1)
    close(maps.linear_coefficients(q, k), (q @ k.mT).tril())
    close(maps.linear_coefficients(q, k, normalized=True).sum(-1), torch.ones(2, 6, dtype=F64), tol=1e-11)
    q, k = torch.ones(1, 3, 1, dtype=F64), torch.tensor([2.0, -2.0, 1.0], dtype=F64)[None, :, None]
    alpha = maps.linear_coefficients(q, k, normalized=True)  # the second row sums to 2 - 2
    assert alpha[0].tolist() == [[1, 0, 0], [0, 0, 0], [2, -2, 1]]


def test_maps_start_from_the_published_values():
    for conjugate, poles in ((True, systems.s4d_lin(4, dtype=F64)), (False, -torch.arange(1, 5, dtype=F64))):
        m = maps.DiagonalSSM(3, N=4, conjugate=conjugate, **like())
        found = -m.log_decay.exp()
        close(torch.complex(found, m.frequency) if conjugate else found, poles.expand(3, -1))
    rates = torch.arange(1, 4, dtype=F64)  # of heads in Mamba-2, of the states of each channel in Mamba
    close(maps.SSD(3, 2, H=3, head_width=2, N=4, **like()).log_A.exp(), rates)
    close(maps.SelectiveSSM(2, N=3, **like()).log_A.exp(), rates.expand(2, 3))
    m = maps.RetNet(3, 2, H=3, head_width=4, **like())
    assert m.decay.tolist() == [31 / 32, 63 / 64, 127 / 128]
    alpha = m.coefficients(tokens(1, 3).expand(6, 3))
    close(alpha[:, 5, 2] / alpha[:, 5, 5], m.decay**3)
