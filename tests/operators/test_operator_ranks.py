"""Ranks that are known beforehand, and ranks that must not cost what they would densely."""

import math

import pytest
import torch
from helpers import F64, gen, randn
from hypothesis import given, settings
from hypothesis import strategies as st

from ssmbook.operators import (
    DenseOperator,
    DiagonalOperator,
    FactorizedOperator,
    LagOperator,
    PointwiseOperator,
    RecurrentOperator,
    default_rtol,
    numerical_rank,
    operator_span,
    rank_report,
)

DTYPES = [torch.float32, torch.float64]


def orthonormal(rows, columns, g):
    return torch.linalg.qr(torch.randn(rows, columns, generator=g, dtype=torch.float64)).Q


def planted_factors(k, n, p, d, g):
    """Orthonormal alpha and V with singular values falling geometrically from 1 to 1e-5 (k = 1: just 1)."""
    sigma = torch.logspace(0, -5, k, dtype=torch.float64) if k > 1 else torch.ones(1, dtype=torch.float64)
    alpha = (orthonormal(n * n, k, g) * sigma).mT.reshape(k, n, n)
    return alpha, orthonormal(p * d, k, g).mT.reshape(k, p, d), sigma


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", range(1, 13))
def test_planted_ranks_are_found_exactly(k, dtype):
    for seed in range(5):
        alpha, V, sigma = planted_factors(k, 9, 4, 5, gen(seed))
        heads = FactorizedOperator(alpha.to(dtype), V.to(dtype))
        # Dense blocks are summed in the operator's own dtype: the rounding of that sum is part of the test.
        for W in (
            heads,
            DenseOperator(heads.to_dense()),
            1e-30 * heads,
            DenseOperator(heads.to_dense() * 1e20),
        ):
            report = W.rank_report()
            assert report.rank == k and report.rtol == default_rtol(dtype)
            relative = report.spectrum[:k] / report.spectrum[0]
            assert torch.allclose(relative, sigma, rtol=2e-2 if dtype == torch.float32 else 1e-8)
            assert report.gap > 4


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", range(1, 13))
def test_planted_ranks_of_lag_pointwise_and_recurrent_kinds(k, dtype):
    g, n, p, d = gen(k), 40, 4, 5
    sigma = torch.logspace(0, -5, k, dtype=torch.float64) if k > 1 else torch.ones(1, dtype=torch.float64)
    rows = (orthonormal(n, k, g) * sigma) @ orthonormal(p * d, k, g).mT
    weights = (n - torch.arange(n, dtype=torch.float64)).sqrt()
    lag = LagOperator((rows / weights[:, None]).reshape(n, p, d).to(dtype), n)
    assert lag.interaction_rank() == k and DenseOperator(lag.to_dense()).interaction_rank() == k
    assert PointwiseOperator(rows.reshape(n, p, d).to(dtype)).interaction_rank() == k
    # A state that forgets at once: W_ij = C_i B_j at i = j, and C B runs through the planted rows.
    C = torch.eye(p, dtype=dtype).expand(n, p, p)
    forgetful = RecurrentOperator(torch.zeros(n, p, p, dtype=dtype), rows.reshape(n, p, d).to(dtype), C)
    assert forgetful.interaction_rank() == k


def test_default_tolerance_counts_noise_out_and_the_gap_reports_near_ties():
    sigma = torch.tensor([1.0, 0.5, 3e-10, 2e-10, 1e-17], dtype=torch.float64)
    report = rank_report(sigma, 2.5e-10)
    assert report.rank == 3 and report.gap == pytest.approx(1.5)
    assert rank_report(sigma, 1e-3).gap == pytest.approx(0.5 / 3e-10)
    assert rank_report(sigma, 0.0).rank == 5 and rank_report(sigma, 0.0).gap == math.inf
    assert int(report) == 3 and report.threshold == 2.5e-10
    # One rule: above rtol times a scale, the largest value unless another is given.
    scaled = rank_report(sigma, 1e-3, scale=2.5e-7)
    assert scaled.rank == 3 and scaled.threshold == pytest.approx(2.5e-10) and scaled.gap == report.gap
    assert default_rtol(torch.float64) == 1e-10
    assert 1e-7 < default_rtol(torch.float32) < 1e-5


def test_numerical_rank_of_zero_empty_and_batched_spectra():
    assert numerical_rank(torch.zeros(4), 1e-6) == 0
    assert numerical_rank(torch.zeros(0), 1e-6) == 0
    batch = torch.tensor([[1.0, 0.0], [0.0, 0.0], [1e-30, 1e-31]])
    assert numerical_rank(batch, 1e-3).tolist() == [1, 0, 2]
    assert numerical_rank(torch.zeros(0, 3), 1e-3).shape == (0,)
    report = rank_report(batch, 1e-3)
    assert report.rank.tolist() == [1, 0, 2] and bool(report.gap.isinf().all())
    uneven = torch.tensor([[1.0, 0.5, 0.125], [8.0, 2.0, 1.0]])
    report = rank_report(uneven, 0.3)
    assert report.rank.tolist() == [2, 1] and report.gap.tolist() == [4, 4]
    torch.testing.assert_close(report.threshold, torch.tensor([0.3, 2.4]))
    scaled = rank_report(uneven, 0.25, scale=torch.tensor([0.25, 16.0]))
    assert scaled.rank.tolist() == [3, 1] and scaled.threshold.tolist() == [0.0625, 4]
    for bad, message in (
        (torch.ones(()), r"shape \(..., m\); got \(\)"),
        (torch.tensor([[1.0, -2.0]]), "got -2.0"),
    ):
        with pytest.raises(ValueError, match=message):
            numerical_rank(bad, 0.1)


def test_every_rank_of_an_operator_is_cut_at_the_share_asked_for():
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
        DenseOperator(torch.zeros(4, 4, 2, 3, dtype=torch.float64)),
        FactorizedOperator(
            torch.zeros(0, 4, 4, dtype=torch.float64), torch.zeros(0, 2, 3, dtype=torch.float64)
        ),
        LagOperator(torch.zeros(0, 2, 3, dtype=torch.float64), 4),
    ):
        assert W.interaction_rank() == 0 and operator_span(W).shape == (0, 2, 3)
        assert repr(W).startswith(f"{type(W).__name__}(batch_shape=(), n=4, p=2, d=3, dtype=torch.float64")
        assert W.best_heads(0).H == 0 and bool((W.best_heads(2).to_dense() == 0).all())
        assert bool((W.apply(torch.ones(4, 3, dtype=torch.float64)) == 0).all())


def test_the_first_large_entry_of_a_direction_is_positive():
    V = operator_span(DenseOperator(randn(5, 5, 3, 4))).flatten(1)
    sizes = V.abs()
    first = (sizes >= 0.5 * sizes.amax(1, keepdim=True)).int().argmax(1)
    assert bool((V[torch.arange(len(V)), first] > 0).all()) and bool((V[:, 0] < 0).any())


@pytest.mark.parametrize("n", [0, 1])
def test_without_a_past_there_is_no_memory(n):
    W = DenseOperator(torch.ones(n, n, 2, 3, dtype=torch.float64))
    assert W.past_future_rank() == 0
    assert W.coefficients(torch.ones(5, 2, 3, dtype=torch.float64)).shape == (5, n, n)
    assert DenseOperator(torch.ones(3, 4, n, n, 2, 3)).past_future_rank().tolist() == [[0] * 4] * 3


@pytest.mark.parametrize("theta", [0.3, math.pi / 2, math.pi])
def test_rotation_needs_two_heads_unless_it_is_a_reflection_through_the_origin(theta):
    c, s = math.cos(theta), math.sin(theta)
    turn = 0.9 * torch.tensor([[c, -s], [s, c]], dtype=torch.float64)
    M = torch.stack([torch.linalg.matrix_power(turn, tau) for tau in range(12)])
    W = LagOperator(M, 12)
    same = RecurrentOperator(
        *(m.expand(12, 2, 2) for m in (turn, torch.eye(2).double(), torch.eye(2).double()))
    )
    assert torch.allclose(W.to_dense(), same.to_dense(), atol=1e-14)
    wanted = 1 if theta == math.pi else 2
    assert W.interaction_rank() == wanted and same.interaction_rank() == wanted
    assert torch.allclose(W.best_heads(wanted).to_dense(), W.to_dense(), atol=1e-14)


def test_best_heads_of_a_lag_operator_are_causal_toeplitz_and_beat_any_other():
    g = gen(3)
    W = LagOperator(torch.randn(8, 3, 4, generator=g, dtype=torch.float64), 8)
    heads = W.best_heads(2)
    assert bool((heads.alpha.triu(1) == 0).all())
    for lag in range(8):
        diagonal = heads.alpha.diagonal(-lag, -2, -1)
        assert torch.allclose(diagonal, diagonal[:, :1].expand_as(diagonal))
    best = (W - heads).to_dense().norm()
    for _ in range(20):
        V = heads.V + 0.1 * torch.randn(2, 3, 4, generator=g, dtype=torch.float64)
        basis = torch.linalg.qr(V.flatten(1).mT).Q.mT.reshape(2, 3, 4)
        assert (W - FactorizedOperator(W.coefficients(basis), basis)).to_dense().norm() > best


def test_signs_of_value_maps_do_not_depend_on_the_sign_of_the_operator():
    alpha, V, _ = planted_factors(3, 6, 3, 4, gen(1))
    W = FactorizedOperator(alpha, V)
    assert torch.allclose(W.best_heads(3).V, (-W).best_heads(3).V, atol=1e-9)


def test_a_value_map_begins_with_a_positive_entry_among_its_large_ones():
    for row in ([0.3, -0.6, -0.7], [-0.3, 0.6, 0.7], [-0.4, 0.0, 0.7], [0.7]):
        row = torch.tensor(row, dtype=torch.float64)
        lead = next(float(entry) for entry in row if abs(entry) >= 0.5 * row.abs().max())
        for W in (PointwiseOperator(row[None, None]), PointwiseOperator(-row[None, None])):
            found = W.leading_value_maps(1).flatten()
            assert torch.allclose(found, math.copysign(1, lead) * row / row.norm(), atol=1e-14)


def test_a_long_lag_operator_is_ranked_and_applied_without_its_blocks():
    # n² blocks of 64 entries would take 2 TiB here.
    n, p, d, g = 65_536, 8, 8, gen(0)
    taps = torch.randn(n, 5, generator=g, dtype=torch.float64)
    maps = torch.randn(5, p, d, generator=g, dtype=torch.float64)
    W = LagOperator(torch.einsum("lk,kpd->lpd", taps, maps), n)
    assert W.interaction_rank() == 5
    assert W.leading_value_maps(5).shape == (5, p, d)
    x = torch.randn(n, d, generator=g, dtype=torch.float64)
    y = W.apply(x)
    for i in (0, 1, 777, n - 1):
        wanted = torch.einsum("jpd,jd->p", W.row(i), x)
        assert torch.allclose(y[i], wanted, rtol=0, atol=1e-12 * float(y.abs().max()))


def test_structured_kinds_work_where_dense_blocks_would_not_fit():
    # 64 · n² float32 entries: 4.3 GB for the heads, were they dense.
    n, g = 4096, gen(0)
    heads = FactorizedOperator(torch.ones(2, n, n), torch.randn(2, 8, 8, generator=g))
    assert heads.interaction_rank() == 1
    pointwise = PointwiseOperator(torch.randn(100_000, 2, 2, generator=g, dtype=torch.float64))
    assert pointwise.interaction_rank() == 4


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 40),
    L=st.integers(0, 40),
    p=st.integers(1, 3),
    d=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_fft_and_direct_sums_agree(n, L, p, d, seed):
    g = gen(seed)
    W = LagOperator(torch.randn(2, min(L, n), p, d, generator=g, dtype=torch.float64), n)
    x = torch.randn(2, n, d, generator=g, dtype=torch.float64)
    direct = W.apply(x)
    assert torch.allclose(direct, torch.einsum("...ijpd,...jd->...ip", W.to_dense(), x), atol=1e-12)
    if W.L:
        assert torch.allclose(W._apply_fft(x), direct, rtol=0, atol=1e-12 * (1 + float(direct.abs().max())))


def test_direct_sum_in_parts_equals_the_whole(monkeypatch):
    g = gen(0)
    W = LagOperator(torch.randn(7, 2, 3, generator=g, dtype=torch.float64), 11)
    x = torch.randn(4, 11, 3, generator=g, dtype=torch.float64)
    whole = W.apply(x)
    monkeypatch.setattr("ssmbook.operators.lag._WINDOW_ENTRIES", 200)
    assert torch.allclose(W.apply(x), whole, rtol=1e-14)


def test_structure_survives_algebra_where_it_can():
    g = gen(0)

    def random(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    long, short = LagOperator(random(6, 3, 3), 6), LagOperator(random(2, 3, 3), 6)
    heads, more = (
        FactorizedOperator(random(2, 6, 6), random(2, 3, 3)),
        FactorizedOperator(random(6, 6)[None], random(1, 3, 3)),
    )
    points = PointwiseOperator(random(6, 3, 3))
    assert type(long + short) is LagOperator and type(short @ short) is LagOperator and (short @ short).L == 3
    assert (heads + more).H == 3 and (heads @ more).H == 2 and type(points @ points) is PointwiseOperator
    assert type(points + points) is PointwiseOperator
    assert (heads + heads).interaction_rank() == 2
    for first, second in ((long, short), (short, short), (heads, more), (points, points), (long, heads)):
        product = torch.einsum("ikpq,kjqd->ijpd", first.to_dense(), second.to_dense())
        assert torch.allclose((first @ second).to_dense(), product, atol=1e-12)
        assert torch.allclose((first + second).to_dense(), first.to_dense() + second.to_dense(), atol=1e-12)


def test_heads_that_cancel_leave_no_span_whatever_their_scale():
    alpha, V, _ = planted_factors(3, 6, 3, 4, gen(2))
    scale = torch.tensor([1e-20, 1.0, 1e20], dtype=torch.float64)[:, None, None]
    heads = FactorizedOperator(alpha, V)
    assert (heads - heads).interaction_rank() == 0
    assert FactorizedOperator(alpha * scale, V / scale).interaction_rank() == 3
    assert (heads - heads + 1e-3 * heads).interaction_rank() == 3


def forbid(monkeypatch, kind, *names):
    """Let a kind fail as soon as it builds blocks."""

    def build(*_):
        raise AssertionError("blocks were built")

    for name in names:
        monkeypatch.setattr(kind, name, build)


def test_twelve_heads_of_a_wide_layer_are_counted_from_their_factors(monkeypatch):
    g, n, d, H = gen(0), 160, 768, 12
    alpha = torch.randn(H, n, n, generator=g).tril()
    left, right = torch.randn(H, d, 64, generator=g), torch.randn(H, 64, d, generator=g)
    W = FactorizedOperator(alpha, left @ right / d)
    forbid(monkeypatch, FactorizedOperator, "row", "rows", "column", "to_dense")
    assert W.interaction_rank() == 12
    # The singular values of A V from the Gram matrices of the factors, by another road.
    gram = torch.einsum("hij,gij->hg", alpha.double(), alpha.double())
    gram = gram @ torch.einsum("hpd,gpd->hg", W.V.double(), W.V.double())
    wanted = torch.linalg.eigvals(gram).real.sort(descending=True).values.sqrt()
    assert torch.allclose(W.spectrum(), wanted, rtol=1e-6)
    energy = wanted.square()
    assert W.floor(5) == pytest.approx(float(energy[5:].sum() / energy.sum()), rel=1e-6)
    assert W.epsilon_heads(0.0) == 12 and W.epsilon_heads(1.0) == 0
    norms = W.block_norms()
    for i, j in ((0, 0), (100, 7), (159, 158)):
        block = torch.einsum("h,hpd->pd", alpha[:, i, j], W.V)
        assert float(norms[i, j]) == pytest.approx(float(block.norm()), rel=1e-5)


def test_a_wide_diagonal_layer_is_counted_without_its_zeros(monkeypatch):
    g, n, d = gen(0), 24, 600
    kernels = torch.randn(d, 5, generator=g) @ torch.randn(5, n, generator=g)
    W = DiagonalOperator(LagOperator(kernels[..., None, None]))
    forbid(monkeypatch, torch, "diag_embed")
    x = torch.randn(n, d, generator=g)
    wanted = torch.stack([(kernels[:, : i + 1].flip(1).mT * x[: i + 1]).sum(0) for i in range(n)])
    assert torch.allclose(W @ x, wanted, atol=1e-4)
    assert W.interaction_rank() == 5
    assert W.row_rank(n - 1) == 5 and W.column_rank(0) == 5
    assert torch.allclose(W.block_norms()[:, 0], torch.linalg.vector_norm(kernels, dim=0), rtol=1e-5)
    assert W.T.interaction_rank() == 5 and (W + W).interaction_rank() == 5


def test_best_heads_of_a_wide_layer_build_no_square_of_its_width():
    W = FactorizedOperator(randn(3, 4, 4), randn(3, 260, 260))
    # 67,600 wide: a basis of all its directions would fill 36 gigabytes.
    for H in (2, 3, 5):
        heads = W.best_heads(H)
        flat = heads.V.flatten(-2)
        assert torch.allclose(flat @ flat.mT, torch.eye(H, dtype=F64), atol=1e-12)
        missed = sum((a - b).square().sum() for a, b in zip(W.rows(), heads.rows(), strict=True))
        assert float(missed) == pytest.approx(float(W.spectrum()[H:].square().sum()), rel=1e-9, abs=1e-16)
