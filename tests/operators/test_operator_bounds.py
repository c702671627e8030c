"""Certified bounds on ranks, floors and ε-heads: against the exact spectrum, whatever the spectrum."""

import math
from dataclasses import replace

import pytest
import torch
from helpers import F64, randn
from hypothesis import given, settings
from hypothesis import strategies as st

from ssmbook.maps import SelectiveSSM
from ssmbook.operators import (
    DenseOperator,
    DiagonalOperator,
    FactorizedOperator,
    ModalOperator,
    PointwiseOperator,
    RecurrentOperator,
)
from ssmbook.operators.sketch import RowSketch, ScaledRows, _add_gram


def counts(values, cut):
    """How many values stand above a cut: with its rounding against them, and with it for them."""
    noise = 1e-14 * float(values.max())
    return int((values > cut + noise).sum()), int((values > cut - noise).sum())


def assert_certified(bounds, sigma, rtols=(None, 1e-2, 1e-6), epsilons=(0.5, 0.1, 1e-2, 1e-4)):
    """Hold bounds to a spectrum (m,) that another route found."""
    energy = torch.nn.functional.pad(sigma, (0, 1)).square()
    tails = energy.flip(0).cumsum(0).flip(0) / energy.sum()
    for H in range(len(tails) + 2):
        low, high = bounds.floor(H)
        wanted = float(tails[H]) if H < len(tails) else 0.0
        assert low - 1e-14 <= wanted <= high + 1e-14 and 0 <= low <= high <= 1
    asked = [(bounds.epsilon_heads(eps), counts(tails, eps)) for eps in epsilons]
    # Cuts right above and below each value: nothing is counted that is not there.
    ratios = sigma[sigma > 1e-9 * sigma.max()] / sigma.max()
    rtols = (*rtols, *(float(r) for r in torch.cat([0.999 * ratios, 1.001 * ratios]) if r < 1))
    cuts = [(bounds.rtol if rtol is None else rtol) * float(sigma.max()) for rtol in rtols]
    asked += [(bounds.rank(rtol), counts(sigma, cut)) for rtol, cut in zip(rtols, cuts, strict=True)]
    for count, (fewest, most) in asked:
        assert type(count.low) is type(count.high) is int and count.low <= most and fewest <= count.high


def elements(bounds, batch):
    """The bounds of each element of a batch, as an unbatched operator has them."""
    names = ("energies", "lowest", "tails", "rounding")
    for place in torch.cartesian_prod(*(torch.arange(size) for size in batch)).reshape(-1, len(batch)):
        one = {name: getattr(bounds, name)[tuple(place)] for name in names}
        yield tuple(place), replace(bounds, **one)


@pytest.mark.parametrize("size", [None, 1, 3])
@pytest.mark.parametrize("batch", [(), (2,), (3, 2), (0,)])
def test_bounds_hold_the_spectrum_of_every_kind(dense_spectrum, kind, batch, size):
    W, _ = kind.operator(batch)
    bounds, sigma = W.spectrum_bounds(size, seed=1), dense_spectrum(W)
    assert bounds.missing == (size is not None)  # every kind has more than three directions
    if batch == ():
        assert_certified(bounds, sigma)
        if size is None:
            assert bounds.rank() == W.interaction_rank()
            assert bounds.epsilon_heads(0.1) == W.epsilon_heads(0.1)
            assert max(high - low for low, high in map(bounds.floor, range(4))) < 1e-9
        return
    asked = {"rank": bounds.rank(), "floor": bounds.floor(2), "heads": bounds.epsilon_heads(0.1)}
    assert all(bound.shape == batch for pair in asked.values() for bound in pair)
    for place, one in elements(bounds, batch):
        assert_certified(one, sigma[place])
        counts = {"rank": one.rank(), "heads": one.epsilon_heads(0.1)}
        alone = {name: (count.low, count.high) for name, count in counts.items()} | {"floor": one.floor(2)}
        assert alone == {name: (low[place], high[place]) for name, (low, high) in asked.items()}


@pytest.mark.guards("thm-head-floor")
@pytest.mark.parametrize("size", [None, 3])
@pytest.mark.parametrize("which", [(True, False), (False, True), (True, True)])
def test_bounds_hold_for_inputs_of_any_second_moments(dense_spectrum, kind, which, size):
    W, random = kind.operator()
    roots = randn(5, 5), randn(kind.d, kind.d)
    time, channel = (root @ root.mT if given else None for root, given in zip(roots, which, strict=True))
    bounds = W.spectrum_bounds(size, time_covariance=time, channel_covariance=channel)
    sigma = dense_spectrum(W, time, channel)
    assert_certified(bounds, sigma, rtols=(1e-2, 1e-6))
    if size is None:
        low, high = bounds.floor(1)
        assert low == pytest.approx(W.floor(1, time_covariance=time, channel_covariance=channel), abs=1e-9)
        assert high - low < 1e-9


SPECTRA = {
    "geometric, far below the cut": torch.logspace(0, -14, 30, dtype=F64),
    "flat": torch.ones(30, dtype=F64),
    "two plateaus": torch.cat([torch.ones(7), torch.full((23,), 1e-3)]).double(),
    "one giant": torch.cat([torch.ones(1), torch.full((29,), 1e-7)]).double(),
    "low rank": torch.cat([torch.linspace(1, 0.1, 5), torch.zeros(25)]).double(),
    "at the cut": torch.cat([torch.ones(4), torch.full((3,), 2e-10), torch.full((3,), 5e-11)]).double(),
    "slow": 1 / torch.arange(1, 31, dtype=F64),
}


def with_spectrum(sigma, seed, fill=randn):
    rows = torch.linalg.qr(fill(400, len(sigma), seed=seed)).Q * sigma
    V = torch.linalg.qr(fill(36, len(sigma), seed=seed + 1)).Q
    return DenseOperator((rows @ V.mT).reshape(20, 20, 6, 6))


def spikes(rows, columns, seed):
    """Rows that a random sum of rows may cancel: few entries, nearly all of them in a few places."""
    generator = torch.Generator().manual_seed(seed)
    places = torch.randperm(rows, generator=generator)[:columns]
    return 1e-3 * randn(rows, columns, seed=seed) + torch.eye(rows, dtype=F64)[:, places]


@pytest.mark.parametrize("fill", [randn, spikes])
@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("size", [None, 2, 10, 35])
def test_bounds_hold_on_adversarial_spectra(name, size, fill):
    for seed in range(3):
        bounds = with_spectrum(SPECTRA[name], seed, fill).spectrum_bounds(size, seed=seed)
        assert_certified(bounds, SPECTRA[name], (None, 1e-12, 1e-9, 1e-3), (0.5, 0.1, 1e-2, 1e-6))
    if size is None and name in ("flat", "low rank", "two plateaus", "slow"):
        assert bounds.rank() == int((SPECTRA[name] > 0).sum())


@settings(max_examples=40, deadline=None)
@given(
    width=st.integers(1, 12),
    rank=st.integers(1, 12),
    size=st.integers(1, 14),
    decay=st.floats(0.01, 1.0),
    seed=st.integers(0, 10**6),
)
def test_bounds_hold_whatever_is_drawn(dense_spectrum, width, rank, size, decay, seed):
    sigma = decay ** torch.arange(min(rank, width), dtype=F64)
    rows = randn(49, len(sigma), seed=seed) * sigma
    channels = (rows @ randn(len(sigma), width, seed=seed + 1)).mT.reshape(width, 7, 7, 1, 1)
    W = DiagonalOperator(DenseOperator(channels))
    assert_certified(W.spectrum_bounds(size, seed=seed), dense_spectrum(W))


def test_one_operator_of_a_batch_that_is_settled_does_not_settle_the_others():
    faint = torch.cat([torch.ones(2), torch.full((34,), 1e-9)]).double()
    kinds = [with_spectrum(sigma, 0) for sigma in (torch.ones(36, dtype=F64), faint)]
    low, high = DenseOperator(torch.stack([W.W for W in kinds])).spectrum_bounds().rank()
    assert low.tolist() == high.tolist() == [36, 36]


def test_what_the_gram_matrix_of_all_rows_settles_is_read_once(monkeypatch):
    reads, genuine = [], ScaledRows.__iter__
    monkeypatch.setattr(ScaledRows, "__iter__", lambda rows: reads.append(rows) or genuine(rows))
    assert with_spectrum(torch.ones(36, dtype=F64), 0).spectrum_bounds().rank() == 36
    assert len(reads) == 1


def test_bounds_do_not_depend_on_the_order_of_sizes():
    # The first token's entries are smaller by 170 orders than all others: ratios must not overflow.
    B = torch.ones(4, 1, 2, dtype=F64)
    B[0] = 1e-170
    W = RecurrentOperator(torch.zeros(4, 1, 1, dtype=F64), B, torch.ones(4, 2, 1, dtype=F64))
    for size in (None, 1):
        bounds = W.spectrum_bounds(size)
        assert bounds.rank() == bounds.epsilon_heads(0.1) == 1
        assert bounds.floor(0) == pytest.approx((1, 1)) and bounds.floor(1)[1] < 1e-12
    # beside an element of a batch that needs no other unit, it still gets one
    parts = (
        torch.zeros(2, 4, 1, 1, dtype=F64),
        torch.stack([torch.ones_like(B), B]),
        torch.ones(2, 4, 2, 1).double(),
    )
    bounds = RecurrentOperator(*parts).spectrum_bounds()
    assert [found.tolist() for found in bounds.rank()] == [[1, 1], [1, 1]]
    assert all(torch.allclose(found, torch.ones(2).double()) for found in bounds.floor(0))


def attention(H, width, n):
    """Softmax heads of a layer: alpha from queries and keys, value maps of rank ``width``."""
    d = H * width
    x, queries, keys, out = (randn(*shape, seed=k) for k, shape in enumerate([(n, d), *[(H, d, width)] * 3]))
    scores = (x @ queries) @ (x @ keys).mT / (d * width**0.5)
    future = torch.ones(n, n, dtype=torch.bool).triu(1)
    return FactorizedOperator(
        scores.masked_fill(future, -math.inf).softmax(-1), out @ randn(H, width, d, seed=9)
    )


@pytest.mark.guards("thm-head-floor")
def test_a_small_layer_of_attention_is_certified_and_exact(dense_spectrum):
    W = attention(6, 4, 40)
    sigma, dense = dense_spectrum(W), W.to_dense()
    assert torch.allclose(W.spectrum(), sigma[:6], rtol=1e-11) and W.interaction_rank() == 6
    assert torch.allclose(W.block_norms(), torch.linalg.matrix_norm(dense), rtol=1e-12, atol=1e-14)
    tails = 1 - torch.cat([sigma.new_zeros(1), sigma.square().cumsum(0)]) / sigma.square().sum()
    assert torch.allclose(W.floor(), tails[:7], atol=1e-13)
    for eps in (0.1, 0.01):
        assert W.epsilon_heads(eps) == int((tails > eps).sum()) == W.spectrum_bounds().epsilon_heads(eps).high
    for size in (None, 2, 8):
        assert_certified(W.spectrum_bounds(size), sigma)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_a_selective_layer_without_its_cubes(dtype):
    generator = torch.Generator().manual_seed(0)
    layer = SelectiveSSM(40, N=4, generator=generator, dtype=dtype).requires_grad_(False)
    W = layer.interaction(torch.randn(48, 40, generator=generator, dtype=dtype))
    assert type(W) is DiagonalOperator and type(W.channels) is ModalOperator
    # The 40 numbers of each block by the scan itself: all other entries of the 48² blocks are zero.
    sigma = torch.linalg.svdvals(W.to(F64).to_dense().diagonal(0, -2, -1).flatten(0, 1))
    for size in (None, 10):
        assert_certified(W.spectrum_bounds(size), sigma)
    assert W.interaction_rank() == 40 and W.spectrum_bounds().rank() == 40
    for eps in (0.1, 0.01):
        assert W.spectrum_bounds().epsilon_heads(eps) == W.epsilon_heads(eps)


def test_the_bounds_of_a_wide_layer_come_from_a_sketch():
    # 2,100 channels: wider than what is taken in all directions by default.
    rows = randn(576, 3, seed=1) * torch.tensor([1.0, 0.3, 1e-3], dtype=F64)
    channels = rows @ torch.linalg.qr(randn(2100, 3, seed=2)).Q.mT
    W = DiagonalOperator(DenseOperator(channels.mT.reshape(2100, 24, 24, 1, 1)))
    bounds = W.spectrum_bounds()
    assert bounds.missing and bounds.energies.shape == (256,)
    assert bounds.rank() == 3 and str(bounds.rank()) == "3 heads (certified bounds)"
    assert bounds.rank().evidence is bounds
    assert_certified(bounds, torch.linalg.svdvals(rows))


def test_a_gram_matrix_is_whole_whatever_the_batch():
    block = randn(2, 3, 5, 300)
    gram = torch.zeros(2, 3, 300, 300, dtype=F64)
    _add_gram(gram, block)
    torch.testing.assert_close(gram.tril(), (block.mT @ block).tril())


def test_best_heads_of_a_wide_layer_build_no_square_of_its_width():
    W = FactorizedOperator(randn(3, 4, 4), randn(3, 260, 260))
    # 67,600 wide: a basis of all its directions would fill 36 gigabytes.
    for H in (2, 3, 5):
        heads = W.best_heads(H)
        flat = heads.V.flatten(-2)
        assert torch.allclose(flat @ flat.mT, torch.eye(H, dtype=F64), atol=1e-12)
        missed = sum((a - b).square().sum() for a, b in zip(W.rows(), heads.rows(), strict=True))
        assert float(missed) == pytest.approx(float(W.spectrum()[H:].square().sum()), rel=1e-9, abs=1e-16)


@pytest.mark.parametrize("buckets", [7, 10, 36, 50])
def test_sums_of_rows_have_orthonormal_coefficients(buckets):
    # The rows of the identity: their sums are the coefficients themselves.
    W = DenseOperator(torch.eye(36, dtype=F64).reshape(6, 6, 6, 6))
    S = RowSketch(ScaledRows(W), buckets, False, seed=3).sums
    assert torch.allclose(S @ S.mT, torch.eye(min(buckets, 36), dtype=F64), atol=1e-14)


def test_rows_that_come_in_pieces_share_the_buckets(monkeypatch):
    W = DenseOperator(torch.eye(36, dtype=F64).reshape(6, 6, 6, 6))
    monkeypatch.setattr(DenseOperator, "_span_blocks", lambda self: iter(torch.eye(36, dtype=F64).split(5)))
    S = RowSketch(ScaledRows(W), 12, False, seed=3).sums
    assert torch.allclose(S @ S.mT, torch.eye(12, dtype=F64), atol=1e-14)
    assert ((S != 0).sum(-1) == 3).all()


def test_bounds_are_seeded_and_refuse_what_they_must():
    W = with_spectrum(SPECTRA["slow"], 0)
    first, again = (W.spectrum_bounds(5, seed=3).epsilon_heads(0.1) for _ in range(2))
    assert (first.low, first.high) == (again.low, again.high)
    drawn = [W.spectrum_bounds(5, **seed).energies for seed in ({}, {"seed": 0}, {"seed": 1})]
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[1], drawn[2])
    for bad, message in (({"size": 0}, "size must be"), ({"seed": -1}, "seed must be")):
        with pytest.raises(ValueError, match=message):
            W.spectrum_bounds(**bad)
    with pytest.raises(ValueError, match="W must be finite; got 1 non-finite"):
        PointwiseOperator(torch.full((1, 1, 1), math.nan)).spectrum_bounds()
    bounds = W.spectrum_bounds(5)
    for call, message in ((lambda: bounds.rank(1.0), "rtol"), (lambda: bounds.epsilon_heads(-1.0), "eps")):
        with pytest.raises(ValueError, match=message):
            call()


def test_bands_are_read_alike_whatever_their_size(monkeypatch):
    W = ModalOperator(-randn(9, 3).abs(), randn(2, 9, 3, 2), randn(9, 2, 3), randn(9, 2, 2))
    whole = W.spectrum()
    for band, entries in ((1, 2**22), (4, 1), (32, 30)):
        monkeypatch.setattr("ssmbook.operators.modal._BAND", band)
        monkeypatch.setattr("ssmbook.operators.modal._ENTRIES_AT_ONCE", entries)
        assert torch.allclose(W.spectrum(), whole, atol=1e-12)


def test_what_has_decayed_for_good_is_dropped_and_nothing_else():
    # Decays of e^-8 a token leave the range of float64 within ninety tokens, through its slow subnormals.
    fast = torch.full((150, 1), -8.0, dtype=F64)
    ones = torch.ones(150, 1, 1, dtype=F64)
    entered = ones.clone()
    entered[100] = 0.0  # what is gone is judged by the largest input, not by the least
    W = ModalOperator(fast, entered, ones)
    *_, last = W._span_blocks()
    row = last.flatten()[-150:]
    assert bool((row[:60] == 0).all()) and bool((row[120:] > 0).all())
    assert W.interaction_rank() == 1
    assert float(W.spectrum()) == pytest.approx(float(W.to_dense().norm()), rel=1e-12)


def test_a_table_of_few_tokens_has_no_more_heads_than_entries():
    """Forty wide heads on two tokens: a sketch of two directions knows that four rows have rank four."""
    W = FactorizedOperator(randn(40, 2, 2).tril(), randn(40, 8, 8, seed=1))
    bounds = W.spectrum_bounds(2)
    assert (
        bounds.missing and bounds.rank().high == bounds.epsilon_heads(0.1).high == 4 >= W.interaction_rank()
    )
