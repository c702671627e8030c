"""Pairwise coefficients: the count, its bounds, and heads that are the function almost everywhere."""

from functools import partial

import pytest
import torch
from helpers import F64, gen, in_another_basis, randn, random_system
from hypothesis import given, settings
from hypothesis import strategies as st

from ssmbook.heads import head_count, pairwise_heads
from ssmbook.operators import LagOperator
from ssmbook.systems import System

pairwise_head_count = partial(head_count, coefficients="pairwise")


@pytest.mark.guards("thm-pairwise-count")
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 4), st.integers(1, 4), st.integers(1, 9))
def test_bounds_similarity_and_exactness(seed, N, p, d, n):
    A, B, C, _ = random_system(N, d, p, 0.9, seed)
    M = System(A, B, C).lags(n)
    found = pairwise_head_count(M)
    k = found.evidence.k
    assert -(-k // d) <= found.value <= min(k, p) and k <= min(n, N, p * d)
    g = gen(seed)
    turned, condition = in_another_basis(A, B, C, g)
    assert condition > 1e3 or pairwise_head_count(turned.lags(n)) == found
    heads = pairwise_heads(M)
    x = torch.randn(2, n, d, generator=g, dtype=F64)
    y, target = heads(x), LagOperator(M) @ x
    size = 1 + float(heads.coefficients(x).abs().max() if heads.H else 0)
    assert heads.H == found and (y - target).norm() <= 1e-12 * size * (target.norm() + M.norm())


def test_pairwise_heads_take_fewer_tokens_and_any_size_of_them():
    M = System(*random_system(6, 4, 3, 0.9, 2)[:3]).lags(12)
    heads, x = pairwise_heads(M), randn(5, 4)
    torch.testing.assert_close(heads(x), LagOperator(M[:5]) @ x)
    with pytest.raises(ValueError):
        heads(x / 0)


@pytest.mark.guards("thm-pairwise-count")
def test_coefficients_blow_up_near_the_wall():
    M = System(*random_system(6, 4, 2, 0.9, 0)[:3]).lags(8)
    heads = pairwise_heads(M)
    g = gen(3)
    a, b = torch.randn(2, 4, generator=g, dtype=F64)

    def volume(t):
        return torch.linalg.det(torch.einsum("hpd,d->ph", heads.V, a + t * b))

    ends = torch.linspace(-30, 30, 2001, dtype=F64)
    signs = torch.stack([volume(t) for t in ends]).sign()
    crossing = int((signs[1:] != signs[:-1]).nonzero()[0])
    low, high = ends[crossing], ends[crossing + 1]
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if volume(middle) * volume(low) > 0 else (low, middle)
    sizes = []
    for distance in (1e-2, 1e-3, 1e-4):
        x = (a + (low + distance) * b).expand(1, 1, 4)
        sizes.append(float(heads.coefficients(x.expand(1, 8, 4)).abs().max()))
    assert 8 < sizes[1] / sizes[0] < 12 and 8 < sizes[2] / sizes[1] < 12


def test_zero_system_and_zero_tokens():
    nothing = torch.zeros(3, 2, 2, dtype=F64)
    assert pairwise_head_count(nothing) == 0
    heads = pairwise_heads(nothing)
    assert heads.H == 0 and heads(torch.ones(3, 2, dtype=F64)).abs().max() == 0
    M = System(*random_system(4, 3, 2, 0.9, 0)[:3]).lags(6)
    heads = pairwise_heads(M)
    x = torch.randn(6, 3, dtype=F64, generator=gen(0))
    x[2] = 0
    assert torch.isfinite(heads.coefficients(x)).all() and (heads.coefficients(x)[:, :, 2] == 0).all()
    assert torch.allclose(heads(x), LagOperator(M) @ x)
