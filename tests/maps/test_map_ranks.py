"""Interaction ranks of the cores, as the table of the zoo states them."""

import pytest
import torch
from helpers import F64, gen, like, tokens

from ssmbook import maps
from ssmbook.systems import System


def heads(d, p, name=None, H=1, **sizes):
    """The layers of the zoo with one value map a head, or one of them."""
    found = maps.zoo(d, p, 12, H=H, generator=gen(), **sizes)
    found = {key: m for key, m in found.items() if m.family == "key side" and len(m.value_maps()) == H}
    return found[name] if name else list(found)


HEADS = heads(4, 3)


@pytest.mark.parametrize("name", HEADS)
def test_attention_side_has_one_dimension_a_head(name):
    for H in (1, 2, 5):
        m = heads(4, 3, name, H)
        assert m.interaction(tokens(12, 4)).interaction_rank() == H
    x = torch.stack([tokens(7, 4, seed=s) for s in range(6)])
    assert m.interaction(x).interaction_rank(joint=True) == 5  # over many inputs no more
    assert m.interaction(tokens(3, 4)).interaction_rank() <= 5


def test_input_gate_widens_the_span_but_not_the_columns():
    m = maps.Gated(maps.SSD(5, 4, H=1, head_width=4, N=2, **like()), gate="input", generator=gen(2))
    W = m.interaction(tokens(11, 5))
    assert W.interaction_rank() == W.row_rank(10) == 5
    assert all(W.column_rank(j) == 1 for j in range(11))


@pytest.mark.parametrize("pairs", [1, 2, 3, 5])
def test_a_product_of_deltas_has_a_dimension_for_each_value_that_a_token_writes(pairs):
    for rule in ("DeltaNet", "Gated DeltaNet"):
        m = maps.DeltaNet(4, 3, H=2, head_width=3, rule=rule, pairs=pairs, **like())
        assert m.interaction(tokens(12, 4)).interaction_rank() == min(2 * pairs, 12)


@pytest.mark.guards("prop-value-maps")
@pytest.mark.parametrize(("R", "width", "wanted"), [(1, 7, 1), (2, 3, 3), (2, 7, 4), (3, 7, 7), (3, 11, 9)])
def test_a_mimo_head_has_a_dimension_for_each_scaling_of_its_values(R, width, wanted):
    m = maps.Mamba3(12, 11, H=1, head_width=width, N=6, R=R, **like())
    assert m.interaction(tokens(12, 12)).interaction_rank() == wanted
    with torch.no_grad():  # equal scalings, as the layer of the authors starts, are one
        m.x_R[:], m.o_R[:] = 1 / R, 1.0
    assert m.interaction(tokens(12, 12)).interaction_rank() == 1


def test_convolution_has_the_rank_of_its_taps():
    m = maps.Convolution(4, 3, width=5, **like())
    assert [m.interaction(tokens(n, 4)).interaction_rank() for n in (9, 2)] == [5, 2]
    with torch.no_grad():
        m.K[3] = 2 * m.K[0] - m.K[1]
    assert m.interaction(tokens(9, 4)).interaction_rank() == 4


def test_rnn_reaches_rank_of_C_times_rank_of_B_and_the_linear_one_is_an_ssm():
    for N in (1, 2, 3):
        assert maps.RNN(5, 4, N=N, **like()).interaction(tokens(16, 5)).interaction_rank() == N * N
    m, x = maps.RNN(5, 4, N=3, activation="identity", **like()), tokens(9, 5)
    linear = maps.LTISSM(System(m.A, m.B, m.C)).interaction(x).to_dense()
    assert torch.allclose(m.interaction(x).to_dense(), linear, rtol=1e-12, atol=1e-14)
    assert m.interaction(x).interaction_rank() == 3


def test_selective_ssm_is_diagonal_with_at_most_d_dimensions():
    W = maps.SelectiveSSM(4, N=3, **like()).interaction(tokens(15, 4))
    assert maps.RGLRU(4, **like()).interaction(tokens(15, 4)).interaction_rank() == 4
    off = W.to_dense() * (1 - torch.eye(4, dtype=F64))
    assert W.interaction_rank() == 4 and torch.equal(off, torch.zeros_like(off))


@pytest.mark.parametrize(("width", "n", "wanted"), [(3, 20, 3), (30, 20, 12), (30, 5, 5)])
def test_feed_forward_rank_is_bounded_by_width_tokens_and_pd(width, n, wanted):
    W = maps.FeedForward(4, 3, width=width, **like()).interaction(tokens(n, 4))
    assert W.interaction_rank() == wanted
    assert W.row_rank(2) == W.column_rank(2) == 1
    x = tokens(3, 4).repeat(5, 1)  # equal tokens count once
    for m in (maps.FeedForward(4, 3, width=30, **like()), maps.KAN(4, 3, grid=7, **like())):
        assert m.interaction(x).interaction_rank() == 3


def test_depth_counts_as_heads_only_with_residuals():
    x = tokens(12, 4)
    for layers in (1, 2, 3):
        heads = [maps.DeltaNet(4, 4, H=1, head_width=4, **like(seed)) for seed in range(layers)]
        assert maps.Hybrid(heads, mode="stack").interaction(x).interaction_rank() == 1
        residual = maps.Hybrid([maps.Residual(h) for h in heads], mode="stack").interaction(x)
        assert residual.interaction_rank() == 2**layers
