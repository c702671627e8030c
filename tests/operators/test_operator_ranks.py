"""Ranks that are known beforehand, and ranks that must not cost what they would densely."""

import pytest
import torch
from helpers import F64, gen, randn

from ssmbook.operators import (
    DenseOperator,
    DiagonalOperator,
    FactorizedOperator,
    LagOperator,
    operator_span,
)
from ssmbook.operators.recurrent import ModalOperator


def orthonormal(rows, columns, g):
    return torch.linalg.qr(torch.randn(rows, columns, generator=g, dtype=F64)).Q


def planted_factors(k, n, p, d, g):
    """Orthonormal alpha and V with singular values falling geometrically from 1 to 1e-5 (k = 1: just 1)."""
    sigma = torch.logspace(0, -5, k, dtype=F64) if k > 1 else torch.ones(1, dtype=F64)
    alpha = (orthonormal(n * n, k, g) * sigma).mT.reshape(k, n, n)
    return alpha, orthonormal(p * d, k, g).mT.reshape(k, p, d), sigma


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("k", [1, 2, 5, 12])
def test_planted_ranks_are_found_exactly(k, dtype):
    for seed in range(5):
        alpha, V, sigma = planted_factors(k, 9, 4, 5, gen(seed))
        heads = FactorizedOperator(alpha.to(dtype), V.to(dtype))
        # Dense blocks are summed in the operator's own dtype: the rounding of that sum is part of the test.
        for W in (heads, DenseOperator(heads.to_dense()), 1e-30 * heads):
            report = W.rank_report()
            assert report.rank == k and report.rtol == (1e-10 if dtype == F64 else 16 * 2.0**-23)
            relative = report.spectrum[:k] / report.spectrum[0]
            assert torch.allclose(relative, sigma, rtol=2e-2 if dtype == torch.float32 else 1e-8)
            assert report.gap > 4


def test_every_rank_of_an_operator_is_cut_at_rtol():
    entries = torch.tensor([[[0.0, 1e-3], [0.0, 0.0]], [[1.0, 1e-3], [0.0, 1e-3]]])
    W = DenseOperator(torch.diag_embed(entries))
    for rtol, wanted in ((None, 2), (1e-2, 1)):
        assert [W.interaction_rank(rtol), W.row_rank(1, rtol), W.column_rank(0, rtol)] == [wanted] * 3
        assert len(operator_span(W, rtol)) == W.past_future_rank(rtol) == wanted


def test_each_batch_element_is_cut_at_its_own_scale():
    alpha, V, _ = planted_factors(3, 6, 3, 3, gen(0))
    W = FactorizedOperator(torch.stack([alpha, 1e-12 * alpha, 0 * alpha]), V)
    assert W.interaction_rank().tolist() == [3, 3, 0]
    assert W.interaction_rank(joint=True) == 3


def test_the_zero_operator_has_rank_zero_and_no_heads():
    for W in (
        DenseOperator(torch.zeros(4, 4, 2, 3, dtype=F64)),
        FactorizedOperator(torch.zeros(0, 4, 4, dtype=F64), torch.zeros(0, 2, 3, dtype=F64)),
        LagOperator(torch.zeros(0, 2, 3, dtype=F64), 4),
    ):
        assert W.interaction_rank() == 0 and operator_span(W).shape == (0, 2, 3)
        assert repr(W).startswith(f"{type(W).__name__}(batch_shape=(), n=4, p=2, d=3, dtype=torch.float64")
        assert W.floor(99) == W.epsilon_heads(0) == W.best_heads(0).H == 0 and bool(
            (W.best_heads(2).to_dense() == 0).all()
        )
        assert bool((W.apply(torch.ones(4, 3, dtype=F64)) == 0).all())


def test_the_first_large_entry_of_a_direction_is_positive():
    for W in (DenseOperator(randn(5, 5, 3, 4)), DenseOperator(-randn(5, 5, 3, 4))):
        V = operator_span(W).flatten(1)
        sizes = V.abs()
        first = (sizes >= 0.5 * sizes.amax(1, keepdim=True)).int().argmax(1)
        assert bool((V[torch.arange(len(V)), first] > 0).all()) and bool((V[:, 0] < 0).any())


def test_a_long_lag_operator_is_ranked_and_applied_without_its_blocks():
    # n² blocks of 64 entries would take 2 TiB here.
    n, p, d, g = 65_536, 8, 8, gen(0)
    taps = torch.randn(n, 5, generator=g, dtype=F64)
    maps = torch.randn(5, p, d, generator=g, dtype=F64)
    W = LagOperator(torch.einsum("lk,kpd->lpd", taps, maps), n)
    assert W.interaction_rank() == 5
    assert operator_span(W).shape == (5, p, d)
    x = torch.randn(n, d, generator=g, dtype=F64)
    y = W.apply(x)
    for i in (0, 1, 777, n - 1):
        wanted = torch.einsum("jpd,jd->p", W.row(i), x)
        assert torch.allclose(y[i], wanted, rtol=0, atol=1e-12 * float(y.abs().max()))


def test_heads_that_cancel_leave_no_span_whatever_their_scale():
    alpha, V, _ = planted_factors(3, 6, 3, 4, gen(2))
    scale = torch.tensor([1e-20, 1.0, 1e20], dtype=F64)[:, None, None]
    heads = FactorizedOperator(alpha, V)
    assert (heads - heads).interaction_rank() == 0
    assert FactorizedOperator(alpha * scale, V / scale).interaction_rank() == 3
    assert (heads - heads + 1e-3 * heads).interaction_rank() == 3


def test_twelve_heads_of_a_wide_layer_are_counted_from_their_factors():
    # Dense blocks would take 19 GB.
    g, n, d, H = gen(0), 64, 768, 12
    alpha = torch.randn(H, n, n, generator=g).tril()
    left, right = torch.randn(H, d, 64, generator=g), torch.randn(H, 64, d, generator=g)
    W = FactorizedOperator(alpha, left @ right / d)
    assert W.interaction_rank() == 12
    # The singular values of A V from the Gram matrices of the factors.
    gram = torch.einsum("hij,gij->hg", alpha.double(), alpha.double())
    gram = gram @ torch.einsum("hpd,gpd->hg", W.V.double(), W.V.double())
    wanted = torch.linalg.eigvals(gram).real.sort(descending=True).values.sqrt()
    assert torch.allclose(W.spectrum(), wanted, rtol=1e-6)
    energy = wanted.square()
    assert W.floor(5) == pytest.approx(float(energy[5:].sum() / energy.sum()), rel=1e-6)
    assert W.epsilon_heads(0.0) == 12 and W.epsilon_heads(1.0) == 0
    norms = W.block_norms()
    for i, j in ((0, 0), (50, 7), (63, 62)):
        assert float(norms[i, j]) == pytest.approx(float(W[i, j].norm()), rel=1e-5)


def test_best_heads_of_a_wide_layer_build_no_square_of_its_width():
    W = FactorizedOperator(randn(3, 4, 4), randn(3, 260, 260))
    # 67,600 wide: a basis of all its directions would fill 36 gigabytes.
    for H in (2, 5):
        heads = W.best_heads(H)
        flat = heads.V.flatten(-2)
        assert torch.allclose(flat @ flat.mT, torch.eye(H, dtype=F64), atol=1e-12)
        missed = sum((a - b).square().sum() for a, b in zip(W.rows(), heads.rows(), strict=True))
        assert float(missed) == pytest.approx(float(W.spectrum()[H:].square().sum()), rel=1e-9, abs=1e-16)


def test_a_wide_diagonal_layer_is_counted_without_its_zeros():
    # A row of blocks would take 19 GB in float64.
    g, n, d = gen(0), 24, 10_000
    kernels = torch.randn(d, 5, generator=g) @ torch.randn(5, n, generator=g)
    W = DiagonalOperator(LagOperator(kernels[..., None, None]))
    x = torch.randn(n, d, generator=g)
    wanted = torch.stack([(kernels[:, : i + 1].flip(1).mT * x[: i + 1]).sum(0) for i in range(n)])
    assert torch.allclose(W @ x, wanted, atol=1e-4)
    assert W.row_rank(n - 1) == 5 and W.column_rank(0) == 5
    assert torch.allclose(W.block_norms()[:, 0], torch.linalg.vector_norm(kernels, dim=0), rtol=1e-5)
    small = DiagonalOperator(LagOperator(kernels[:200, :, None, None]))
    assert small.interaction_rank() == small.T.interaction_rank() == (small + small).interaction_rank() == 5


def test_a_long_recurrence_in_modes_is_that_of_its_blocks():
    W = ModalOperator(-randn(80, 3).abs(), randn(2, 80, 3, 2), randn(80, 2, 3), randn(80, 2, 2))
    wanted = DenseOperator(W.to_dense())
    assert torch.allclose(W.spectrum(), wanted.spectrum(), rtol=1e-12)
    # Decays of e^-8 per token leave the range of float64 within ninety tokens, through its slow subnormals.
    ones = torch.ones(150, 1, 1, dtype=F64)
    fast = ModalOperator(torch.full((150, 1), -8.0, dtype=F64), ones, ones)
    assert fast.interaction_rank() == 1
    assert float(fast.spectrum()) == pytest.approx(float(fast.to_dense().norm()), rel=1e-12)
