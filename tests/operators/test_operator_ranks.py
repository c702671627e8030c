"""Ranks that are known beforehand, and ranks that must not cost what they would densely."""

import pytest
import torch
from helpers import F64, gen, like, randn, tokens

from ssmbook import maps
from ssmbook.operators import (
    DenseOperator,
    DiagonalOperator,
    FactorizedOperator,
    HalfPrecisionWarning,
    LagOperator,
    PointwiseOperator,
    RecurrentOperator,
    operator_span,
    sketch,
)
from ssmbook.operators.combined import ComposedOperator, SumOperator
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
    # Dense blocks would take 5 GB.
    g, n, d, H = gen(0), 64, 384, 12
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


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("H", [8, 16])
def test_heads_in_half_precision_are_the_numbers_they_store(H, half):
    for seed in range(8):
        layer = maps.SSD(16, 16, H=H, head_width=4, N=16, **like(seed) | {"dtype": torch.float32}).to(half)
        W = layer.interaction(tokens(40, 16, seed=seed).to(half))
        same = DenseOperator(FactorizedOperator(W.alpha.double(), W.V.double()).to_dense())
        assert W.interaction_rank() == same.interaction_rank() == H
        assert W.row_rank(39) == same.row_rank(39) and W.column_rank(0) == same.column_rank(0)
        assert W.T.interaction_rank() == len(operator_span(W)) == W.best_heads().H == H
        wide = layer.double().interaction(tokens(40, 16, seed=seed).to(half).double())
        assert wide.interaction_rank() == H


@pytest.mark.filterwarnings("error")
def test_recurrences_gates_and_sums_of_them_are_stored_in_half_precision_too():
    A, B, C = 0.4 * randn(9, 5, 5), randn(9, 5, 3, seed=1), randn(9, 3, 5, seed=2)
    modal = ModalOperator(-randn(9, 5).abs(), B, C)
    heads = FactorizedOperator(randn(2, 9, 9), randn(2, 3, 3))
    channels = DiagonalOperator(ModalOperator(-randn(3, 9, 2).abs(), randn(3, 9, 2, 1), randn(3, 9, 1, 2)))
    gate = DiagonalOperator(PointwiseOperator(randn(3, 9, 1, 1)))
    for W in (RecurrentOperator(A, B, C), modal, channels, heads + channels, gate @ heads, (gate @ modal).T):
        half = W.to(torch.bfloat16)
        exact = DenseOperator(half.to(F64).to_dense())
        assert half.interaction_rank() == exact.interaction_rank()
        assert half.row_rank(8) == exact.row_rank(8)
        report = half.rank_report()
        assert report.high is None and report.rtol == 1e-10


def test_the_rank_of_blocks_rounded_to_half_precision_is_a_lower_bound_and_says_so():
    alpha, V, _ = planted_factors(4, 9, 4, 5, gen(0))
    W = DenseOperator(FactorizedOperator(alpha, V).to_dense().to(torch.bfloat16))
    with pytest.warns(HalfPrecisionWarning, match="lower bounds"):
        report = W.rank_report()
    assert report.rank <= 4 <= report.high
    for rank in (W.interaction_rank, lambda: W.row_rank(0), W.best_heads, lambda: operator_span(W)):
        with pytest.warns(HalfPrecisionWarning):
            rank()
    assert W.rank_report(0.2).high is None  # a tolerance of one's own is no open question


GATE = DiagonalOperator(PointwiseOperator(randn(6, 12, 1, 1)))
HEADS = FactorizedOperator(randn(2, 12, 12), randn(2, 6, 6))
HEAD = FactorizedOperator(randn(1, 12, 12, seed=2), randn(1, 6, 6, seed=3))
JOINED = {
    "heads and channels": HEADS + DiagonalOperator(LagOperator(randn(6, 4, 1, 1), 12)),
    "heads and lags of two states": HEADS + LagOperator((randn(12, 2) @ randn(2, 36)).reshape(12, 6, 6)),
    "heads and tokens": HEADS + PointwiseOperator(randn(12, 1, 1, seed=4) * randn(6, 6, seed=5)),
    "gate before and after": GATE @ HEADS @ GATE,
    "sum of compositions": LagOperator(randn(2, 6, 6), 12) @ HEADS + HEADS.T,
    "heads that cancel": HEADS + LagOperator(randn(1, 6, 6), 12) - HEADS,
    "gated heads": GATE @ HEADS,
    "heads of gated tokens": HEADS @ GATE,
    "gates twice, and a head beside": GATE @ (GATE @ HEADS) + HEAD,
    "gated heads after a head": GATE @ HEADS @ HEAD,
    "gated heads that cancel": GATE @ HEAD - GATE @ HEAD,
    "a gate of 1e200": 1e200 * (GATE @ HEADS),
    "fewer heads with a gate than without": GATE @ HEADS + HEADS + HEADS.T,
}


@pytest.mark.parametrize("name", JOINED)
def test_what_is_made_of_few_heads_has_the_spectrum_and_best_heads_of_its_blocks(name):
    W = JOINED[name]
    wanted = DenseOperator(W.to_dense())
    assert W.interaction_rank() == wanted.interaction_rank()
    found = W.spectrum()
    assert torch.allclose(found, wanted.spectrum()[: len(found)], rtol=1e-9, atol=1e-12)
    assert torch.allclose(W.best_heads(2).to_dense(), wanted.best_heads(2).to_dense(), atol=1e-10)
    assert W.T.interaction_rank() == wanted.interaction_rank()


def test_layers_with_a_residual_or_another_kind_beside_them_build_no_blocks(monkeypatch):
    for kind in (FactorizedOperator, DiagonalOperator, PointwiseOperator, SumOperator, ComposedOperator):
        monkeypatch.setattr(kind, "_row", None)  # blocks of a row would take 2 GB here, all 32 GB
    d, x = 256, tokens(256, 256)
    ssd = maps.SSD(d, d, H=4, head_width=8, N=4, **like())
    assert maps.Residual(ssd).interaction(x).interaction_rank() == 5
    gated = maps.Gated(maps.SSD(d, d, H=2, head_width=8, N=4, **like()), generator=gen(2))
    assert gated.interaction(x).interaction_rank() == 2 * d - 1  # the first token has one row of blocks
    W = maps.Hybrid([ssd, maps.Convolution(d, d, width=3, **like(1))]).interaction(x)
    assert W.interaction_rank() == 7 and W.floor(7) < 1e-20 < W.floor(6)
    assert (W @ maps.Residual(ssd).interaction(x)).interaction_rank() == 31  # 5 * 7 less one for each head


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("decay", [0.0, 0.5, 3.0])
def test_the_bounds_of_a_sketch_hold_against_full_decompositions(decay, seed):
    sigma = torch.exp(-decay * torch.arange(42, dtype=F64))
    rows = orthonormal(100, 42, gen(seed)) * sigma @ orthonormal(42, 42, gen(seed + 50)).mT
    W = DenseOperator(rows.reshape(10, 10, 6, 7))
    found = sketch(W, 3, seed=seed)
    curve, m = W.floor(), len(found.spectrum)
    assert found.rank_low <= W.interaction_rank() <= found.rank_high
    assert bool((found.spectrum <= W.spectrum()[:m] + 1e-14).all())
    assert bool((W.spectrum()[:m].square() <= found.spectrum.square() + found.missed + 1e-14).all())
    heads = FactorizedOperator(W.coefficients(found.V), found.V)
    missed = sum((a - b).square().sum() for a, b in zip(W.rows(), heads.rows(), strict=True))
    assert found.missed == pytest.approx(float(missed), rel=1e-6, abs=1e-20) and m == 13
    for H in (0, 1, 3, 13, 42):
        low, high = found.floor(H)
        assert low <= float(curve[H]) + 1e-14 and float(curve[H]) <= high + 1e-14
    if decay == 3.0:  # what is left lies below the tolerance: the rank is proved
        assert found.rank_low == found.rank_high == W.interaction_rank() and found.floor(2)[1] < 0.01


def test_a_sketch_of_few_heads_is_exact_and_knows_it():
    layer = maps.Gated(maps.SSD(9, 9, H=1, head_width=3, N=4, **like()), generator=gen(1))
    W = layer.interaction(tokens(2, 14, 9))
    found = sketch(W, 8)
    assert found.rank_low == found.rank_high == W.interaction_rank(joint=True) == 9
    assert torch.allclose(found.spectrum[:9], W.spectrum(joint=True)[:9])
    zero = sketch(0 * W, 3)
    assert (zero.rank_low, zero.rank_high, zero.floor(1)) == (0, 0, (0.0, 0.0))


def test_a_long_recurrence_in_modes_is_that_of_its_blocks():
    W = ModalOperator(-randn(80, 3).abs(), randn(2, 80, 3, 2), randn(80, 2, 3), randn(80, 2, 2))
    wanted = DenseOperator(W.to_dense())
    assert torch.allclose(W.spectrum(), wanted.spectrum(), rtol=1e-12)
    # Decays of e^-8 per token leave the range of float64 within ninety tokens, through its slow subnormals.
    ones = torch.ones(150, 1, 1, dtype=F64)
    fast = ModalOperator(torch.full((150, 1), -8.0, dtype=F64), ones, ones)
    assert fast.interaction_rank() == 1
    assert float(fast.spectrum()) == pytest.approx(float(fast.to_dense().norm()), rel=1e-12)
