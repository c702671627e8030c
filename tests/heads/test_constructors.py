"""Heads from a system: exact, exactly k, best below k; and what gates buy."""

import pytest
import torch
from helpers import randn, random_system
from hypothesis import given, settings
from hypothesis import strategies as st

from ssmbook.heads import head_count
from ssmbook.systems import System

quick = settings(max_examples=25, deadline=None)


def all_heads(system, n):
    """The operator of a system, and its best heads, as many as the count says."""
    W = system.operator(n)
    return W, W.best_heads(head_count(system, n).value)


@pytest.mark.guards("thm-head-count")
@pytest.mark.parametrize(("N", "rho"), [(1, 0.5), (9, 0.99), (32, 0.95)])
def test_exact_on_random_stable_systems_of_length_512(N, rho):
    A, B, C, D = random_system(N, 8, 8, rho, N)
    for skip in (None, D):
        W, heads = all_heads(System(A, B, C, skip), 512)
        assert heads.H == min(N + (skip is not None), 64)
        x = randn(512, 8, seed=5)
        assert (heads.apply(x) - W.apply(x)).norm() <= 1e-10 * W.apply(x).norm()
        first_column = torch.einsum("hi,hpd->ipd", heads.alpha[:, :, 0], heads.V)
        missed = torch.linalg.matrix_norm(first_column - W.M) / torch.linalg.matrix_norm(W.M)
        assert missed.max() < 1e-8  # lag by lag, down to lags of norm 0.5^511


@pytest.mark.guards("thm-head-count")
@quick
@given(st.integers(1, 6), st.integers(1, 3), st.integers(1, 3), st.integers(1, 9), st.integers(0, 10**6))
def test_dense_equality_causality_and_toeplitz_coefficients(N, d, p, n, seed):
    A, B, C, D = random_system(N, d, p, 0.9, seed)
    W, heads = all_heads(System(A, B, C, D), n)
    assert heads.H == min(n, N + 1, p * d)
    assert (heads - W).block_norms().norm() <= 1e-10 * W.block_norms().norm()
    assert not heads.alpha.triu(1).any()
    assert torch.equal(heads.alpha[:, 1:, 1:], heads.alpha[:, :-1, :-1])


@pytest.mark.guards("thm-head-count")
def test_the_zero_system_gets_no_heads():
    A, B, C, D = random_system(3, 2, 4, 0.9, 0)
    _, heads = all_heads(System(A, 0 * B, C, 0 * D), 7)
    assert heads.H == 0 and heads.alpha.shape == (0, 7, 7) and heads.V.shape == (0, 4, 2)
    assert all_heads(System(A, B, C), 0)[1].H == 0
