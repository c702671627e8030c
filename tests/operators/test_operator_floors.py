"""What fewer heads miss, certified bounds on it, and the memory that a cut in time needs."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ssmbook.heads import epsilon_head_count, head_floor
from ssmbook.maps import SelectiveSSM
from ssmbook.operators import (
    DenseOperator,
    DiagonalOperator,
    FactorizedOperator,
    LagOperator,
    ModalOperator,
    PointwiseOperator,
    RecurrentOperator,
)

F64 = torch.float64


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def covariance(size, seed, rank=None):
    L = random(size, rank or size, seed=seed)
    return L @ L.mT


def dense_curve(W, time=None, channel=None):
    """The Eckart–Young tails of the rearranged W (L_t ⊗ L_x), block by block."""
    blocks = W.to_dense().to(F64)
    if time is not None:
        blocks = torch.einsum("...ijpd,jl->...ilpd", blocks, torch.linalg.cholesky(time))
    if channel is not None:
        blocks = blocks @ torch.linalg.cholesky(channel)
    energy = torch.linalg.svdvals(blocks.flatten(-4, -3).flatten(-2)).square()
    tails = energy.flip(-1).cumsum(-1).flip(-1)
    return torch.nn.functional.pad(tails, (0, 1)) / tails[..., :1]


def assert_same_curve(curve, wanted, tol=1e-12):
    shared = min(curve.shape[-1], wanted.shape[-1])
    assert torch.allclose(curve[..., :shared], wanted[..., :shared], rtol=0, atol=tol)
    assert bool((curve[..., shared:] < tol).all()) and bool((wanted[..., shared:] < tol).all())


@pytest.mark.guards("thm-head-floor")
@pytest.mark.parametrize("batch", [(), (2,), (3, 2)])
def test_the_floor_is_what_the_best_heads_miss(kind, batch):
    W, _ = kind.operator(batch)
    curve = W.floor()
    assert curve.dtype == F64 and curve.shape == (*batch, W.spectrum().shape[-1] + 1)
    assert_same_curve(curve, dense_curve(W))
    assert bool((curve[..., 1:] <= curve[..., :-1]).all()) and bool((curve[..., -1] == 0).all())
    size = W.to_dense().square().sum((-4, -3, -2, -1))
    for H in (0, 1, 3):
        missed = (W.to_dense() - W.best_heads(H).to_dense()).square().sum((-4, -3, -2, -1)) / size
        floor = W.floor(H)
        assert isinstance(floor, float) if batch == () else floor.shape == batch
        assert torch.allclose(torch.as_tensor(floor, dtype=F64), missed, atol=1e-12)
    for eps in (0.5, 0.1, 1e-3):
        heads = W.epsilon_heads(eps)
        assert isinstance(heads, int) if batch == () else heads.dtype == torch.int64
        assert torch.equal(torch.as_tensor(heads), (curve > eps).sum(-1))
    assert torch.equal(torch.as_tensor(W.floor(99)), torch.zeros(batch, dtype=F64).to(F64)) or batch == ()


@pytest.mark.guards("thm-head-floor")
@pytest.mark.parametrize("which", [(True, False), (False, True), (True, True)])
def test_inputs_of_any_second_moments_weigh_the_floor(kind, which):
    W, _ = kind.operator((2,))
    time, channel = covariance(5, 1) if which[0] else None, covariance(kind.d, 2) if which[1] else None
    curve = W.floor(time_covariance=time, channel_covariance=channel)
    assert_same_curve(curve, dense_curve(W, time, channel), 1e-9)
    heads = W.epsilon_heads(0.2, time_covariance=time, channel_covariance=channel)
    assert torch.equal(heads, (curve > 0.2).sum(-1))


@pytest.mark.guards("thm-head-floor", "prop-epsilon-heads")
@settings(max_examples=30, deadline=None)
@given(st.tuples(st.integers(1, 7), st.integers(1, 3), st.integers(1, 3), st.integers(0, 10**6)))
def test_it_is_the_closed_form_of_a_time_invariant_target(sizes):
    n, p, d, seed = sizes
    M = random(n, p, d, seed=seed)
    given = {
        "time_covariance": covariance(n, seed + 1) + torch.eye(n, dtype=F64),
        "channel_covariance": covariance(d, seed + 2) + torch.eye(d, dtype=F64),
    }
    for names in ((), ("time_covariance",), ("channel_covariance",), tuple(given)):
        colored = {name: given[name] for name in names}
        curve, wanted = LagOperator(M).floor(**colored), head_floor(M, **colored)
        assert curve.shape == wanted.shape and torch.allclose(curve, wanted, atol=1e-11)
        for eps in (0.3, 1e-3, 1e-9):
            assert LagOperator(M).epsilon_heads(eps, **colored) == epsilon_head_count(M, eps, **colored)


def test_the_floor_of_inputs_that_leave_directions_out():
    W = DenseOperator(random(4, 4, 3, 3))
    # Inputs along one direction of the channels only: what W does to the others costs nothing.
    one = covariance(3, 5, rank=1)
    assert W.epsilon_heads(1e-12, channel_covariance=one) <= 3 < W.epsilon_heads(1e-12)
    silent = torch.zeros(4, 4, dtype=F64)
    assert W.floor(0, time_covariance=silent) == 0
    bad = [
        ({"time_covariance": torch.eye(3, dtype=F64)}, "time_covariance must have shape"),
        ({"channel_covariance": random(3, 3)}, "channel_covariance must be symmetric"),
        (
            {"channel_covariance": -torch.eye(3, dtype=F64)},
            "channel_covariance must be positive semidefinite",
        ),
        ({"time_covariance": torch.full((4, 4), math.nan, dtype=F64)}, "time_covariance must be finite"),
    ]
    for colored, message in bad:
        with pytest.raises(ValueError, match=message):
            W.floor(**colored)
    for call, error in ((lambda: W.floor(-1), ValueError), (lambda: W.floor(1.5), TypeError)):
        with pytest.raises(error, match="H must be"):
            call()
    for eps, error in ((-1e-3, ValueError), (math.inf, ValueError), ("0", TypeError), (True, TypeError)):
        with pytest.raises(error, match="eps must be"):
            W.epsilon_heads(eps)


def test_the_zero_operator_has_floor_zero_at_any_scale_the_same_curve():
    zero = LagOperator(torch.zeros(3, 2, 2, dtype=F64))
    assert bool((zero.floor() == 0).all()) and zero.epsilon_heads(0) == 0
    assert zero.spectrum_bounds().floor(0) == (0, 0) and zero.spectrum_bounds().rank() == (0, 0)
    W = DenseOperator(random(4, 4, 2, 3))
    for scale in (1e-200, 1e200):
        assert torch.allclose((W * scale).floor(), W.floor(), atol=1e-14)
        assert (W * scale).spectrum_bounds().rank() == (6, 6)


def exact_within(bounds, W, rtols=(None, 1e-2, 1e-6), epsilons=(0.5, 0.1, 1e-2, 1e-4)):
    """Whether every exact answer lies between its bounds (for a batch: for every element)."""
    pairs = [(bounds.rank(rtol), W.interaction_rank(rtol)) for rtol in rtols]
    pairs += [(bounds.epsilon_heads(eps), W.epsilon_heads(eps)) for eps in epsilons]
    pairs += [(bounds.floor(H), W.floor(H)) for H in (0, 1, 2, 5, 40)]
    for (low, high), exact in pairs:
        low, high, exact = (torch.as_tensor(value, dtype=F64) for value in (low, high, exact))
        if not bool(((low <= exact + 1e-12) & (exact <= high + 1e-12)).all()):
            return False
    return True


@pytest.mark.parametrize("size", [None, 1, 3])
@pytest.mark.parametrize("batch", [(), (2,), (0,)])
def test_bounds_hold_the_exact_values_of_every_kind(kind, batch, size):
    W, _ = kind.operator(batch)
    bounds = W.spectrum_bounds(size, seed=1)
    assert exact_within(bounds, W)
    if size is None and batch == ():
        assert bounds.rank() == (W.interaction_rank(), W.interaction_rank())
        assert bounds.epsilon_heads(0.1) == (W.epsilon_heads(0.1), W.epsilon_heads(0.1))
        low, high = bounds.floor(2)
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


def with_spectrum(sigma, seed):
    rows = torch.linalg.qr(random(400, len(sigma), seed=seed)).Q * sigma
    V = torch.linalg.qr(random(36, len(sigma), seed=seed + 1)).Q
    return DenseOperator((rows @ V.mT).reshape(20, 20, 6, 6))


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("size", [None, 2, 10, 35])
def test_bounds_hold_on_adversarial_spectra(name, size):
    for seed in range(3):
        W = with_spectrum(SPECTRA[name], seed)
        bounds = W.spectrum_bounds(size, seed=seed)
        assert exact_within(bounds, W, (None, 1e-12, 1e-9, 1e-3), (0.5, 0.1, 1e-2, 1e-6))
    if size is None and name in ("flat", "low rank", "two plateaus", "slow"):
        assert bounds.rank() == (W.interaction_rank(),) * 2


@settings(max_examples=40, deadline=None)
@given(
    width=st.integers(1, 12),
    rank=st.integers(0, 12),
    size=st.integers(1, 14),
    decay=st.floats(0.01, 1.0),
    seed=st.integers(0, 10**6),
)
def test_bounds_hold_whatever_is_drawn(width, rank, size, decay, seed):
    sigma = decay ** torch.arange(min(rank, width), dtype=F64)
    rows = random(49, len(sigma), seed=seed) * sigma
    W = DiagonalOperator(
        DenseOperator((rows @ random(len(sigma), width, seed=seed + 1)).mT.reshape(width, 7, 7, 1, 1))
    )
    assert exact_within(W.spectrum_bounds(size, seed=seed), W)


def test_bounds_are_seeded_and_refuse_what_they_must():
    W = with_spectrum(SPECTRA["slow"], 0)
    assert W.spectrum_bounds(5, seed=3).epsilon_heads(0.1) == W.spectrum_bounds(5, seed=3).epsilon_heads(0.1)
    for bad, message in (({"size": 0}, "size must be"), ({"seed": -1}, "seed must be")):
        with pytest.raises(ValueError, match=message):
            W.spectrum_bounds(**bad)
    with pytest.raises(ValueError, match="W must be finite; got 1 non-finite"):
        PointwiseOperator(torch.full((1, 1, 1), math.nan)).spectrum_bounds()
    bounds = W.spectrum_bounds(5)
    for call, message in ((lambda: bounds.rank(1.0), "rtol"), (lambda: bounds.epsilon_heads(-1.0), "eps")):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_a_selective_layer_without_its_cubes(dtype):
    generator = torch.Generator().manual_seed(0)
    layer = SelectiveSSM(160, N=4, generator=generator, dtype=dtype).requires_grad_(False)
    W = layer.interaction(torch.randn(48, 160, generator=generator, dtype=dtype))
    # More than the entries of W's 48² blocks: nothing here may build them.
    assert type(W) is DiagonalOperator and type(W.channels) is ModalOperator
    assert exact_within(W.spectrum_bounds(), W) and exact_within(W.spectrum_bounds(30), W)
    rank = W.interaction_rank()
    assert W.spectrum_bounds().rank() == (rank, rank) == (160, 160)


def test_bands_are_read_alike_whatever_their_size(monkeypatch):
    W = ModalOperator(-random(9, 3).abs(), random(2, 9, 3, 2), random(9, 2, 3), random(9, 2, 2))
    whole = W.spectrum()
    for band, entries in ((1, 2**22), (4, 1), (32, 30)):
        monkeypatch.setattr("ssmbook.operators.modal._BAND", band)
        monkeypatch.setattr("ssmbook.operators.modal._ENTRIES_AT_ONCE", entries)
        assert torch.allclose(W.spectrum(), whole, atol=1e-12)


def test_what_has_decayed_for_good_is_dropped_and_nothing_else():
    # Decays of e^-8 a token leave the range of float64 within ninety tokens, through its slow subnormals.
    fast = torch.full((150, 1), -8.0, dtype=F64)
    ones = torch.ones(150, 1, 1, dtype=F64)
    W = ModalOperator(fast, ones, ones)
    *_, last = W._span_blocks()
    row = last.flatten()[-150:]
    assert bool((row[:60] == 0).all()) and bool((row[120:] > 0).all())
    assert W.interaction_rank() == 1
    assert float(W.spectrum()) == pytest.approx(float(W.to_dense().norm()), rel=1e-12)


def brute_force(W, t):
    blocks = W.to_dense()[t:, :t]
    return int(torch.linalg.matrix_rank(blocks.transpose(-3, -2).flatten(2).flatten(0, 1), rtol=1e-9))


def test_the_past_future_rank_is_the_largest_over_the_cuts(kind):
    W, _ = kind.operator()
    if not kind.causal:
        with pytest.raises(ValueError, match="W must be causal"):
            W.past_future_rank()
        return
    assert W.past_future_rank() == max(brute_force(W, t) for t in range(1, 5))
    batched, _ = kind.operator((3, 2))
    ranks = batched.past_future_rank()
    assert ranks.dtype == torch.int64 and ranks.shape == (3, 2)
    alone, _ = kind.operator((), 1)
    assert alone.past_future_rank() == 0


@pytest.mark.parametrize("N", [1, 2, 5])
def test_a_recurrence_needs_no_more_memory_than_its_states(N):
    n = 12
    A, B, C = 0.9 * torch.linalg.qr(random(N, N)).Q, random(N, 2, seed=1), random(2, N, seed=2)
    same = (matrix.expand(n, *matrix.shape) for matrix in (A, B, C))
    assert RecurrentOperator(*same).past_future_rank() == N
    lags = torch.stack([C @ torch.linalg.matrix_power(A, t) @ B for t in range(n)])
    assert LagOperator(lags).past_future_rank() == N
    # The skip stays inside one token, and a pure delay of s tokens holds s of them.
    assert PointwiseOperator(random(n, 2, 2)).past_future_rank() == 0
    delay = torch.zeros(5, 1, 1, dtype=F64)
    delay[4] = 1
    assert LagOperator(delay, n).past_future_rank() == 4
    # Rounding at a cut that nothing crosses is measured by the other cuts.
    W = torch.zeros(6, 6, 1, 1, dtype=F64)
    W[1, 0], W[4, 2], W[5, 3] = 1.0, 1e-17, 1e-17
    assert DenseOperator(W).past_future_rank() == 1


def test_channels_add_their_memories():
    decays = -random(7, 3).abs().expand(4, 7, 3)
    layer = DiagonalOperator(ModalOperator(decays, random(4, 7, 3, 1), random(4, 7, 1, 3, seed=1)))
    assert layer.channels.past_future_rank().tolist() == [3] * 4 and layer.past_future_rank() == 12
    heads = FactorizedOperator(random(2, 7, 7).tril(), random(2, 2, 2))
    assert heads.mixing.past_future_rank().tolist() == [3, 3]
