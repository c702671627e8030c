"""Where the closed form must equal what extraction from outside finds."""

import pytest
import torch
from helpers import F64, close, like, tokens

from ssmbook import systems
from ssmbook.maps import (
    GLA,
    KAN,
    LTISSM,
    RNN,
    SSD,
    Attention,
    Convolution,
    DeltaNet,
    DiagonalSSM,
    FeedForward,
    LinearAttention,
    RetNet,
    SelectiveSSM,
)
from ssmbook.operators import jacobian_operator, path_operator


@pytest.mark.parametrize(
    "m",
    [
        Convolution(3, 2, width=3, **like()),
        LTISSM.random(3, 2, N=4, skip=True, **like()),
        DiagonalSSM(3, N=4, **like()),
        DiagonalSSM(3, N=3, pairs=False, **like()),
        RNN(3, 2, N=4, activation="identity", **like()),
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
    m = FeedForward(3, 2, width=5, activation=activation, **like())
    x = tokens(2, 4, 3)
    close(path_operator(m, x, points=40).to_dense(), m.interaction(x).to_dense(), tol=1e-10)


def test_relu_recurrence_secant_is_its_jacobian():
    m = RNN(3, 2, N=5, activation="relu", **like())
    x = tokens(6, 3)
    close(jacobian_operator(m, x).to_dense(), m.interaction(x).to_dense())


def test_a_fresh_delta_net_corrects_half_of_what_it_reads():
    m = DeltaNet(3, 2, H=2, head_width=3, **like())
    close(torch.sigmoid(m.b_beta), torch.full((2,), 0.5, dtype=m.b_beta.dtype))


def constant_gate_delta_net():
    m = DeltaNet(3, 2, H=2, head_width=3, **like())
    torch.nn.init.zeros_(m.W_beta)
    torch.nn.init.constant_(m.b_beta, 0.4)
    return m


@pytest.mark.parametrize(
    ("m", "degree"),
    [
        (LinearAttention(3, 2, H=2, head_width=3, feature_map="identity", **like()), 3),
        (RetNet(3, 2, H=2, head_width=3, **like()), 3),
        (
            LinearAttention(3, 2, H=1, head_width=3, feature_map="identity", normalized=True, **like()),
            1,
        ),
        (constant_gate_delta_net(), 2),
        (RNN(3, 2, N=4, activation="relu", **like()), 1),
    ],
    ids=["linear attention", "RetNet", "normalized linear attention", "DeltaNet", "ReLU RNN"],
)
def test_homogeneous_map_has_path_operator_jacobian_over_degree(m, degree):
    x = tokens(5, 3)
    close(m(2 * x), 2**degree * m(x))
    J = jacobian_operator(m, x).to_dense()
    close(path_operator(m, x).to_dense(), J / degree, tol=1e-10)
    close(torch.einsum("ijpd,jd->ip", J, x) / degree, m(x), tol=1e-10)


def test_frozen_and_path_operator_of_softmax_differ_and_both_give_y():
    m = Attention(4, 3, H=1, head_width=3, **like())
    x = tokens(7, 4)
    frozen, path = m.interaction(x), path_operator(m, x, rtol=1e-12)
    close(path.apply(x), m(x), tol=1e-10)
    assert frozen.interaction_rank() == 1
    assert path.interaction_rank() > 1


@pytest.mark.parametrize(
    "m",
    [
        FeedForward(3, 2, width=5, **like()),
        KAN(3, 2, grid=5, **like()),
        RNN(3, 2, N=4, **like()),
    ],
    ids=lambda m: type(m).__name__,
)
def test_secant_at_zero_is_the_limit_of_small_inputs(m):
    x = tokens(5, 3)
    limit = m.interaction(torch.zeros_like(x)).to_dense()
    close(m.interaction(1e-8 * x).to_dense(), limit, tol=1e-7)
    close(jacobian_operator(m, torch.zeros_like(x)).to_dense(), limit)


def test_kan_edges_are_the_piecewise_linear_functions_of_their_slopes():
    m = KAN(1, 1, grid=3, reach=3.0, dtype=F64)
    with torch.no_grad():
        m.slopes.copy_(torch.tensor([[[10.0, 1.0, -2.0]]]))
    x = torch.tensor([-4.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 5.0], dtype=F64)[:, None]
    wanted = torch.tensor([-31.0, -1.0, -0.5, 0.0, 0.5, 1.0, -1.0, -7.0], dtype=F64)[:, None]
    close(m(x), wanted)
    default, said = (KAN(2, 2, **given, **like()) for given in ({}, {"grid": 5, "reach": 2.0}))
    x = tokens(9, 2)
    close(default(3 * x), said(3 * x))


@pytest.mark.parametrize("given, temperature", [({"temperature": 1.0}, 1.0), ({}, 16.0)])
def test_gla_memory_forgets_as_defined(given, temperature):
    m = GLA(3, 2, H=2, head_width=4, **given, **like())
    torch.nn.init.constant_(m.b_a, -0.7)
    x = tokens(6, 3)
    y = torch.zeros(6, 2, dtype=F64)
    with torch.no_grad():
        for h in range(2):
            S = torch.zeros(4, 4, dtype=F64)
            for i in range(6):
                a = torch.sigmoid(m.W_a[h] @ x[i] + m.b_a[h]) ** (1 / temperature)
                S = torch.diag(a) @ S + torch.outer(m.W_K[h] @ x[i], m.W_V[h] @ x[i])
                y[i] += m.W_O[h] @ (S.mT @ (m.W_Q[h] @ x[i])) / 2
    close(m(x), y)


def test_diagonal_systems_start_from_the_published_poles():
    for pairs, poles in ((True, systems.s4d_lin(4, dtype=F64)), (False, -torch.arange(1, 5, dtype=F64))):
        m = DiagonalSSM(3, N=4, pairs=pairs, **like())
        log_lam, _, _ = m._modes()
        close(log_lam / m.log_delta.exp()[:, None], poles.expand(3, -1))


@pytest.mark.parametrize("given, rho", [({}, 0.9), ({"rho": 0.5}, 0.5), ({"rho": 0}, 0.0)])
def test_a_random_system_has_the_radius_asked_for(given, rho):
    m = LTISSM.random(3, 2, N=4, **given, **like())
    assert float(m.system.spectral_radius()) == pytest.approx(rho)


def test_selective_decays_start_at_the_published_rates():
    rates = torch.arange(1, 4, dtype=F64)  # of heads in Mamba-2, of the states of each channel in Mamba
    close(SSD(3, 2, H=3, head_width=2, N=4, **like()).log_A.exp(), rates)
    close(SelectiveSSM(2, N=3, **like()).log_A.exp(), rates.expand(2, 3))


def test_retnet_default_decays_are_the_published_ones():
    m = RetNet(3, 2, H=3, head_width=4, **like())
    assert m.decay.tolist() == [31 / 32, 63 / 64, 127 / 128]
    alpha = m.coefficients(tokens(1, 3).expand(6, 3))
    close(alpha[:, 5, 2] / alpha[:, 5, 5], m.decay**3)
    assert RetNet(3, 2, H=2, head_width=4, decay=[1, 0.5]).decay.tolist() == [1, 0.5]  # 1 forgets nothing
