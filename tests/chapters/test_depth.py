"""Depth as heads: the ranks that residual stacks reach, and what they cannot represent."""

import pytest
import torch
from helpers import randn

from headsandstates.chapters.gates_and_depth.stacks import residual_depth_span, residual_stack_operator
from ssmbook.operators import FactorizedOperator


def stack(L, H, p, n, *, shared=False):
    V = randn(1, H, p, p, seed=1).expand(L, -1, -1, -1) if shared else randn(L, H, p, p, seed=2)
    return randn(L, H, n, n, seed=3).tril(), V


def dense_rank(alpha, V):
    W = residual_stack_operator(alpha, V).to_dense()
    rows = W.reshape(-1, W.shape[-2] * W.shape[-1])
    return int(torch.linalg.matrix_rank(rows / rows.norm(), rtol=1e-10))


@pytest.mark.guards("prop-depth-heads")
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("L", [0, 1, 3])
@pytest.mark.parametrize("H", [0, 1, 2])
@pytest.mark.parametrize(("p", "n"), [(2, 5), (5, 3)])
def test_generic_stacks_attain_the_bound(L, H, p, n, shared):
    alpha, V = stack(L, H, p, n, shared=shared)
    assert dense_rank(alpha, V) == residual_depth_span(L, H, p, n=n, shared=shared)


@pytest.mark.guards("prop-depth-heads")
def test_the_expansion_is_the_composition_of_the_layers():
    alpha, V = stack(3, 2, 3, 5)
    x = randn(5, 3, seed=9)
    y = x
    for layer_alpha, layer_V in zip(alpha, V, strict=True):
        y = y + FactorizedOperator(layer_alpha, layer_V).apply(y)
    stacked = residual_stack_operator(alpha, V)
    assert stacked.H == 27
    torch.testing.assert_close(stacked.apply(x), y)


@pytest.mark.guards("prop-depth-heads")
def test_reaching_a_rank_is_not_representing_every_operator_of_it():
    # Two residual single-head layers reach rank 4, but every such operator has the same fourth head: the
    # coefficient of V_2 V_1 is A_2 A_1, so over strictly causal A_2, A_1 on n = 2 tokens it vanishes.
    alpha, V = randn(2, 1, 2, 2, seed=4).tril(-1), randn(2, 1, 3, 3, seed=5)
    assert dense_rank(alpha, V) == 2 < residual_depth_span(2, 1, 3)
