"""Softmax without a sink: what it reaches, the plateau, and heads that attain both."""

import math
from functools import partial

import pytest
import torch
from helpers import F64, causal_softmax, randn, rotation, toeplitz
from hypothesis import given, settings
from hypothesis import strategies as st

from ssmbook.heads import head_count, sinkless_heads, sinkless_plateau

sinkless_count = partial(head_count, coefficients="sinkless")


def blocks_of(alpha, V):
    return torch.einsum("hij,hpd->ijpd", alpha, V)


def check_sinkless(heads, W):
    n = W.shape[0]
    visible = torch.ones(n, n, dtype=torch.bool).tril()
    alpha = heads.coefficients()
    assert torch.isfinite(heads.logits[:, visible]).all() and (alpha[:, visible] > 0).all()
    assert torch.allclose(alpha.sum(-1), torch.ones((), dtype=F64))
    assert (blocks_of(alpha, heads.V) - W).norm() <= 1e-9 * W.norm()


@pytest.mark.guards("thm-no-sink")
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(1, 3), st.integers(1, 3))
def test_only_memoryless_systems_are_reachable(seed, n, p, d):
    M = randn(n, p, d, seed=seed)
    beyond = sinkless_count(M)
    assert not beyond.possible and beyond.evidence.spread > 0
    with pytest.raises(ValueError, match="equal row sums"):
        sinkless_heads(M)
    M[1:] = 0
    reach = sinkless_count(M)
    assert reach.possible and reach == 2
    check_sinkless(sinkless_heads(M), toeplitz(M))


@pytest.mark.guards("thm-exact-reach")
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 7))
def test_what_heads_make_is_reached_by_as_many(seed, H, n):
    V = randn(H, 2, 3, seed=seed + 1)
    W = blocks_of(causal_softmax(H, n, n, seed=seed), V)
    reach = sinkless_count(W)
    assert reach.settled and reach.value <= H
    check_sinkless(sinkless_heads(W), W)


@pytest.mark.guards("thm-exact-reach")
def test_zero_and_one_token():
    zero = torch.zeros(4, 2, 2, dtype=F64)
    assert sinkless_count(zero) == 0 and sinkless_heads(zero).H == 0
    assert sinkless_count(randn(1, 2, 2)) == 1
    sums = sinkless_count(torch.tensor([1.0, 1.0, -3.0], requires_grad=True).reshape(3, 1, 1))  # 1, 2 and -1
    assert not sums.possible and sums.evidence.spread == pytest.approx(2 / 3)
    with pytest.raises(ValueError):
        sinkless_count(torch.ones(3, 3, 2, 2))  # blocks that see the future


@pytest.mark.guards("prop-plateau")
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(1, 3), st.integers(1, 3))
def test_plateau_bounds_every_sinkless_operator_and_is_attained(seed, n, p, d):
    M = randn(n, p, d, seed=seed)
    plateau = sinkless_plateau(M)
    W = toeplitz(M)
    best = plateau.blocks()
    assert abs(float((best - W).square().sum()) - plateau.error) <= 1e-12 * float(W.square().sum())
    k = int(torch.linalg.matrix_rank(M.flatten(1)))
    heads = sinkless_heads(best)
    assert heads.H <= k + 1
    check_sinkless(heads, best)
    for H in (1, 2, k + 2):
        alpha = causal_softmax(H, n, n, seed=seed + H)
        # The best value maps for these coefficients: linear least squares.
        columns = torch.linalg.lstsq(alpha.flatten(1).T, W.reshape(n * n, -1)).solution
        error = (alpha.flatten(1).T @ columns - W.reshape(n * n, -1)).square().sum()
        assert float(error) >= plateau.error * (1 - 1e-9)


@pytest.mark.guards("prop-plateau")
def test_plateau_by_hand():
    M = torch.tensor([1.0, 1.0], dtype=F64).reshape(2, 1, 1)
    plateau = sinkless_plateau(M)
    # S = 1, 2 with weights 1, 1/2: mean 4/3, error (1/3)^2 + (2/3)^2/2 = 1/3 of an energy of 3.
    assert float(plateau.value_sum) == pytest.approx(4 / 3)
    assert plateau.error == pytest.approx(1 / 3) and plateau.relative == pytest.approx(1 / 9)
    none = sinkless_plateau(0 * M)
    assert none.error == none.relative == 0 and not none.blocks().any()


@pytest.mark.guards("thm-exact-reach")
def test_where_the_sign_stays_open_one_head_more_is_built():
    """Blocks that are turns by 0 to 4 eighths: half a turn of math.pi is closed by rounding alone."""
    R = [rotation(t * math.pi / 4) for t in range(5)]
    W = torch.zeros(3, 3, 2, 2, dtype=F64)
    W[0, 0], W[1, 0], W[1, 1] = R[2], R[1] / 2**0.5, R[3] / 2**0.5
    W[2] = torch.stack([R[0], R[4], R[2]])
    count, heads = sinkless_count(W), sinkless_heads(W.requires_grad_())
    assert (count.method, count.short, heads.H) == ("undecided", "2 to 3", 3)
    check_sinkless(heads, W.detach())
