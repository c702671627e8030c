"""Interaction ranks of the cores, as the table of the zoo states them."""

import pytest
import torch
from helpers import F64, gen, like, tokens

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
    Gated,
    Hybrid,
    LinearAttention,
    Residual,
    RetNet,
    SelectiveSSM,
)
from ssmbook.systems import System

HEADS = {
    "attention": Attention,
    "attention, not causal": lambda d, p, **o: Attention(d, p, causal=False, **o),
    "attention, sink": lambda d, p, **o: Attention(d, p, sink=True, **o),
    "linear attention": lambda d, p, **o: LinearAttention(d, p, feature_map="identity", **o),
    "linear attention, normalized": lambda d, p, **o: LinearAttention(d, p, normalized=True, **o),
    "RetNet": RetNet,
    "GLA": GLA,
    "DeltaNet": DeltaNet,
    "SSD": lambda d, p, **o: SSD(d, p, N=5, **o),
}


@pytest.mark.parametrize("heads", [1, 2, 5])
@pytest.mark.parametrize("name", HEADS)
def test_attention_side_has_one_dimension_a_head(name, heads):
    m = HEADS[name](4, 3, H=heads, head_width=3, **like())
    assert m.interaction(tokens(12, 4)).interaction_rank() == heads
    assert m.interaction(tokens(3, 4)).interaction_rank() <= heads


@pytest.mark.parametrize("name", HEADS)
def test_attention_side_spans_no_more_over_many_inputs(name):
    m = HEADS[name](4, 3, H=2, head_width=3, **like())
    x = torch.stack([tokens(7, 4, seed=s) for s in range(6)])
    assert m.interaction(x).interaction_rank(joint=True) == 2


@pytest.mark.parametrize("N", [1, 2, 8, 32])
def test_scalar_ssm_of_any_state_size_has_rank_one(N):
    assert LTISSM.random(1, 1, N=N, rho=0.9, **like()).interaction(tokens(40, 1)).interaction_rank() == 1


@pytest.mark.parametrize("skip", [False, True])
def test_mimo_ssm_has_the_degree_of_its_minimal_polynomial(skip):
    m = LTISSM.random(4, 4, N=6, rho=0.9, skip=skip, **like())
    assert m.interaction(tokens(32, 4)).interaction_rank() == 6 + skip
    assert m.interaction(tokens(3, 4)).interaction_rank() == 3


def test_rotation_has_rank_two():
    c, s = torch.tensor(0.7, dtype=F64).cos(), torch.tensor(0.7, dtype=F64).sin()
    A = 0.9 * torch.stack([torch.stack([c, -s]), torch.stack([s, c])])
    eye = torch.eye(2, dtype=F64)
    assert LTISSM(System(A, eye, eye)).interaction(tokens(20, 2)).interaction_rank() == 2
    assert LTISSM(System(-0.9 * eye, eye, eye)).interaction(tokens(20, 2)).interaction_rank() == 1


@pytest.mark.parametrize("pairs", [True, False])
@pytest.mark.parametrize(("d", "n"), [(5, 24), (5, 3), (1, 24)])
def test_diagonal_ssm_has_the_rank_of_its_kernels(pairs, d, n):
    m = DiagonalSSM(d, N=4, pairs=pairs, **like())
    with torch.no_grad():
        m.log_delta.copy_(torch.linspace(-1.5, -0.5, d))
    wanted = int(torch.linalg.matrix_rank(m.kernel(n).detach(), rtol=1e-10))
    assert m.interaction(tokens(n, d)).interaction_rank() == wanted == min(d, n)


def test_diagonal_ssm_with_equal_channels_has_rank_one():
    m = DiagonalSSM(4, N=2, **like())
    with torch.no_grad():
        for w in m.parameters():
            w.copy_(w[:1].expand_as(w).clone())
    assert m.interaction(tokens(9, 4)).interaction_rank() == 1


def test_convolution_has_the_rank_of_its_taps():
    m = Convolution(4, 3, width=5, **like())
    assert m.interaction(tokens(9, 4)).interaction_rank() == 5
    assert m.interaction(tokens(2, 4)).interaction_rank() == 2
    with torch.no_grad():
        m.K[3] = 2 * m.K[0] - m.K[1]
    assert m.interaction(tokens(9, 4)).interaction_rank() == 4


@pytest.mark.parametrize("N", [1, 2, 3])
def test_rnn_reaches_rank_of_C_times_rank_of_B(N):
    m = RNN(5, 4, N=N, **like())
    assert m.interaction(tokens(16, 5)).interaction_rank() == N * N


def test_linear_rnn_is_the_lti_ssm():
    m = RNN(5, 4, N=3, activation="identity", **like())
    x = tokens(9, 5)
    linear = LTISSM(System(m.A, m.B, m.C)).interaction(x).to_dense()
    assert torch.allclose(m.interaction(x).to_dense(), linear, rtol=1e-12, atol=1e-14)
    assert m.interaction(x).interaction_rank() == 3


def test_selective_ssm_is_diagonal_with_at_most_d_dimensions():
    m = SelectiveSSM(4, N=3, **like())
    W = m.interaction(tokens(15, 4))
    assert W.interaction_rank() == 4
    off = W.to_dense() * (1 - torch.eye(4, dtype=F64))
    assert torch.equal(off, torch.zeros_like(off))


@pytest.mark.parametrize(("width", "n", "wanted"), [(3, 20, 3), (30, 20, 12), (30, 5, 5)])
def test_feed_forward_rank_is_bounded_by_width_tokens_and_pd(width, n, wanted):
    W = FeedForward(4, 3, width=width, **like()).interaction(tokens(n, 4))
    assert W.interaction_rank() == wanted
    assert W.row_rank(2) == W.column_rank(2) == 1


def test_equal_tokens_count_once():
    m = FeedForward(4, 3, width=30, **like())
    x = tokens(3, 4).repeat(5, 1)
    assert m.interaction(x).interaction_rank() == 3
    assert KAN(4, 3, grid=7, **like()).interaction(x).interaction_rank() == 3


@pytest.mark.parametrize("name", HEADS)
def test_output_gate_widens_the_span_but_not_the_rows(name):
    m = Gated(HEADS[name](5, 4, H=1, head_width=4, **like()), gate="output", generator=gen(2))
    W = m.interaction(tokens(11, 5))
    assert W.interaction_rank() == 4
    assert all(W.row_rank(i) == 1 for i in range(11))
    assert W.column_rank(0) == 4


def test_input_gate_widens_the_span_but_not_the_columns():
    m = Gated(SSD(5, 4, H=1, head_width=4, N=2, **like()), gate="input", generator=gen(2))
    W = m.interaction(tokens(11, 5))
    assert W.interaction_rank() == 5
    assert all(W.column_rank(j) == 1 for j in range(11))
    assert W.row_rank(10) == 5


def test_sum_has_at_most_the_sum_of_ranks():
    parts = [Attention(4, 4, H=2, head_width=4, **like()), LTISSM.random(4, 4, N=3, **like(1))]
    x = tokens(20, 4)
    both = Hybrid(parts, mode="sum").interaction(x)
    assert both.interaction_rank() == 5 == sum(m.interaction(x).interaction_rank() for m in parts)
    twice = Hybrid([parts[0], parts[0]], mode="sum").interaction(x)
    assert twice.interaction_rank() == 2


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_depth_counts_as_heads_only_with_residuals(layers):
    heads = [DeltaNet(4, 4, H=1, head_width=4, **like(seed)) for seed in range(layers)]
    x = tokens(12, 4)
    assert Hybrid(heads, mode="stack").interaction(x).interaction_rank() == 1
    residual = Hybrid([Residual(h) for h in heads], mode="stack").interaction(x)
    assert residual.interaction_rank() == 2**layers
