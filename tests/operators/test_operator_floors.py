"""What fewer heads miss, and the memory that a cut in time needs."""

import math

import pytest
import torch
from helpers import F64, randn

from ssmbook.operators import (
    DenseOperator,
    DiagonalOperator,
    FactorizedOperator,
    LagOperator,
    PointwiseOperator,
    RecurrentOperator,
)
from ssmbook.operators.recurrent import ModalOperator


def tails(sigma):
    """The Eckart–Young tails of a spectrum, relative to the whole."""
    energy = sigma.square()
    left = energy.flip(-1).cumsum(-1).flip(-1)
    return torch.nn.functional.pad(left, (0, 1)) / left[..., :1]


def assert_same_curve(curve, wanted, tol=1e-12):
    shared = min(curve.shape[-1], wanted.shape[-1])
    assert torch.allclose(curve[..., :shared], wanted[..., :shared], rtol=0, atol=tol)
    assert bool((curve[..., shared:] < tol).all()) and bool((wanted[..., shared:] < tol).all())


@pytest.mark.guards("thm-head-floor")
def test_the_floor_is_the_tail_of_the_spectrum(kind):
    W, _ = kind.operator((3, 2))
    curve = W.floor()
    assert curve.dtype == F64 and curve.shape == (3, 2, W.spectrum().shape[-1] + 1)
    assert_same_curve(curve, tails(torch.linalg.svdvals(W.to_dense().flatten(-4, -3).flatten(-2))))
    assert bool((curve[..., 1:] <= curve[..., :-1]).all()) and bool((curve[..., -1] == 0).all())


@pytest.mark.guards("thm-head-floor", "thm-kronecker", "prop-epsilon-heads")
def test_the_best_heads_miss_the_floor(kind):
    W, _ = kind.operator((2,))
    curve = W.floor()
    assert torch.equal(torch.as_tensor(W.epsilon_heads(0.2)), (curve > 0.2).sum(-1))
    best = W.best_heads(2)
    assert best.H == 2 and best.V.shape[:-3] == (2,)
    missed, whole = ((each.to_dense() ** 2).sum((-4, -3, -2, -1)) for each in (W - best, W))
    assert torch.allclose(missed / whole, curve[..., 2], atol=1e-9)
    for eps in (-1e-3, math.nan):
        with pytest.raises(ValueError, match="eps"):
            W.epsilon_heads(eps)


@pytest.mark.guards("thm-head-floor")
@pytest.mark.parametrize("white", ["", "time", "channel"])
def test_colored_inputs_weigh_what_the_best_heads_miss(kind, white):
    """E of the squared error, over E of the squared output, for x = L e with white e."""
    W, _ = kind.operator((2,))
    roots = {"time": randn(5, 5, seed=1), "channel": randn(W.d, W.d, seed=2)}
    roots["channel"][:, 0] = 0  # singular
    covariances = {f"{name}_covariance": L @ L.mT for name, L in roots.items() if name != white}
    roots |= {white: torch.eye(len(roots[white]), dtype=F64)} if white else {}
    best = W.best_heads(2, **covariances)
    missed, whole = (
        torch.einsum("bilpc,lj,cd->bijpd", each.to_dense(), roots["time"], roots["channel"]).flatten(1)
        for each in (W - best, W)
    )
    error = missed.square().sum(-1) / whole.square().sum(-1)
    assert torch.allclose(error, W.floor(2, **covariances), rtol=0, atol=1e-9)
    assert_same_curve(W.floor(**covariances), tails(torch.linalg.svdvals(whole.reshape(2, 25, -1))), 1e-9)
    assert torch.equal(W.epsilon_heads(0.2, **covariances), (W.floor(**covariances) > 0.2).sum(-1))


def test_without_a_number_the_best_heads_are_all_of_them(kind):
    W, _ = kind.operator((2,))
    heads = W.best_heads()
    assert heads.H == int(W.interaction_rank().max())
    assert torch.allclose(heads.to_dense(), W.to_dense(), atol=1e-9)


@pytest.mark.parametrize("N", [1, 5])
def test_a_recurrence_needs_no_more_memory_than_its_states(N):
    n = 12
    A, B, C = 0.9 * torch.linalg.qr(randn(N, N)).Q, randn(N, 2, seed=1), randn(2, N, seed=2)
    same = (matrix.expand(n, *matrix.shape) for matrix in (A, B, C))
    assert RecurrentOperator(*same).past_future_rank() == N
    lags = torch.stack([C @ torch.linalg.matrix_power(A, t) @ B for t in range(n)])
    assert LagOperator(lags).past_future_rank() == N
    # The skip stays inside one token, and a pure delay of s tokens holds s of them.
    assert PointwiseOperator(randn(n, 2, 2)).past_future_rank() == 0
    delay = torch.zeros(5, 1, 1, dtype=F64)
    delay[4] = 1
    assert LagOperator(delay, n).past_future_rank() == 4
    # Rounding at a cut that nothing crosses is measured by the other cuts.
    W = torch.zeros(6, 6, 1, 1, dtype=F64)
    W[1, 0], W[4, 2], W[5, 3] = 1.0, 1e-17, 1e-17
    assert DenseOperator(W).past_future_rank() == 1


@pytest.mark.parametrize("t", [1, 5])
def test_what_crosses_one_cut_alone_is_seen_at_the_first_and_at_the_last(t):
    W, B, C = torch.zeros(6, 6, 1, 1, dtype=F64), *torch.zeros(2, 6, 1, 1, dtype=F64)
    W[t, t - 1] = B[t - 1] = C[t] = 1
    kinds = [
        DenseOperator(W),
        RecurrentOperator(torch.ones_like(B), B, C),
        ModalOperator(0 * B[..., 0], B, C),
    ]
    channels = DenseOperator(torch.stack([W, 0 * W])), ModalOperator(0 * B[..., 0], B.expand(2, 6, 1, 1), C)
    assert [kind.past_future_rank() for kind in (*kinds, *map(DiagonalOperator, channels))] == [1, 1, 1, 1, 2]
    with pytest.raises(ValueError, match="W must be causal"):
        DenseOperator(W).T.past_future_rank()


def test_channels_add_their_memories():
    decays = -randn(7, 3).abs().expand(4, 7, 3)
    layer = DiagonalOperator(ModalOperator(decays, randn(4, 7, 3, 1), randn(4, 7, 1, 3, seed=1)))
    assert layer.channels.past_future_rank().tolist() == [3] * 4 and layer.past_future_rank() == 12
    heads = FactorizedOperator(randn(2, 7, 7).tril(), randn(2, 2, 2))
    assert heads.mixing.past_future_rank().tolist() == [3, 3]
