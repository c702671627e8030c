"""Bounded pairwise heads: exact for every input, zero tokens and canceling ones included."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ssmbook.heads.pairwise.bounded import complex_heads, hankel_heads, quaternion_heads

F64 = torch.float64


def awkward_tokens(n, d, g):
    """Random tokens, zero ones, tiny, huge, sparse and alternating ones."""
    x = torch.randn(6, n, d, generator=g, dtype=F64)
    x[0, ::2] = 0
    x[1] *= 1e-200
    x[2] *= 1e150
    x[3] *= torch.rand(n, d, generator=g, dtype=F64) < 0.3
    x[4] = torch.tensor([(-1.0) ** b for b in range(d)], dtype=F64)
    return x


def check_bounded(heads, M, x):
    n = x.shape[-2]
    assert torch.isfinite(heads.coefficients(x)).all()
    lag = torch.arange(n)[:, None] - torch.arange(n)
    norms = torch.linalg.matrix_norm(M, 2)[lag.clamp(min=0)] * (lag >= 0)
    assert (heads.coefficients(x).square().sum(-3).sqrt() <= heads.bound * norms * (1 + 1e-9)).all()
    y, target = heads(x), heads.target(x)
    scale = M.norm() * n * x.shape[-1] * x.abs().amax((1, 2), keepdim=True)
    assert ((y - target).abs() <= 1e-12 * heads.bound * scale).all()


@pytest.mark.guards("prop-bounded-heads")
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 5), st.integers(1, 7))
def test_hankel_heads(seed, p, d, n):
    g = torch.Generator().manual_seed(seed)
    M = torch.randn(n, p, d, generator=g, dtype=F64)
    heads = hankel_heads(M)
    assert heads.H == p + d - 1
    check_bounded(heads, M, awkward_tokens(n, d, g))


@pytest.mark.guards("prop-bounded-heads")
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 4), st.integers(1, 7))
def test_division_algebra_heads(seed, p, d, n):
    g = torch.Generator().manual_seed(seed)
    M = torch.randn(n, p, d, generator=g, dtype=F64)
    x = awkward_tokens(n, d, g)
    heads = quaternion_heads(M)
    assert heads.H == 4 and heads.bound == 1
    check_bounded(heads, M, x)
    if max(p, d) <= 2:
        assert complex_heads(M).H == 2
        check_bounded(complex_heads(M), M, x)


@pytest.mark.guards("prop-bounded-heads")
def test_full_rank_systems_by_few_heads():
    g = torch.Generator().manual_seed(0)
    M = torch.randn(20, 4, 4, generator=g, dtype=F64)
    assert torch.linalg.matrix_rank(M.flatten(1)) == 16
    assert hankel_heads(M).H == 7 and quaternion_heads(M).H == 4
    M = torch.randn(8, 2, 2, generator=g, dtype=F64)
    assert torch.linalg.matrix_rank(M.flatten(1)) == 4 and complex_heads(M).H == 2
    assert complex_heads(M).V.tolist() == [[[1, 0], [0, 1]], [[0, -1], [1, 0]]]


@pytest.mark.guards("prop-bounded-heads")
def test_images_of_a_token_span_with_the_stated_singular_value():
    g = torch.Generator().manual_seed(1)
    for p, d in [(4, 4), (2, 5), (3, 2)]:
        heads = hankel_heads(torch.zeros(1, p, d, dtype=F64))
        x = torch.randn(500, d, generator=g, dtype=F64)
        x = x / x.norm(dim=1, keepdim=True)
        images = torch.einsum("hpd,md->mph", heads.V, x)
        assert torch.linalg.svdvals(images).amin() >= 1 / heads.bound
    V = quaternion_heads(torch.zeros(1, 4, 4, dtype=F64)).V
    gram = torch.einsum("apd,bpe->abde", V, V)
    skew = gram + gram.transpose(2, 3)
    assert torch.equal(
        skew, 2 * torch.einsum("ab,de->abde", torch.eye(4, dtype=F64), torch.eye(4, dtype=F64))
    )


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="p, d <= 4"):
        quaternion_heads(torch.zeros(3, 5, 4, dtype=F64))
    with pytest.raises(ValueError, match="p, d <= 2"):
        complex_heads(torch.zeros(3, 3, 2, dtype=F64))
    with pytest.raises(ValueError, match="M must be finite"):
        hankel_heads(torch.full((2, 2, 2), float("inf"), dtype=F64))
    with pytest.raises(ValueError, match="p, d >= 1"):
        hankel_heads(torch.zeros(2, 0, 2, dtype=F64))
