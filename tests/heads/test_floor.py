"""The error curve: equal to the dense optimum, monotone, exact for colored inputs, and never beaten."""

import pytest
import torch
from helpers import F64
from hypothesis import given, settings
from hypothesis import strategies as st

from ssmbook.heads import epsilon_head_count, head_floor
from ssmbook.operators import LagOperator
from ssmbook.systems import System

quick = settings(max_examples=30, deadline=None)
sizes = st.tuples(st.integers(1, 7), st.integers(1, 3), st.integers(1, 3), st.integers(0, 10**6))


def random_lags(n, p, d, seed):
    return torch.randn(n, p, d, generator=torch.Generator().manual_seed(seed), dtype=F64)


def random_covariance(size, seed):
    L = torch.randn(size, size, generator=torch.Generator().manual_seed(seed), dtype=F64)
    return L @ L.mT + 0.1 * torch.eye(size, dtype=F64)


@pytest.mark.guards("thm-head-floor")
@quick
@given(sizes)
def test_the_floor_is_the_error_of_the_dense_best_heads(size):
    n, p, d, seed = size
    M = random_lags(n, p, d, seed)
    floors, W = head_floor(M), LagOperator(M).to_dense()
    assert floors.shape == (min(n, p * d) + 1,) and floors[0] == 1 and floors[-1] == 0
    assert (floors[1:] <= floors[:-1]).all()
    rearranged = torch.linalg.svdvals(W.reshape(n * n, p * d)).square()
    for H, floor in enumerate(floors.tolist()):
        assert floor == pytest.approx(float(rearranged[H:].sum() / rearranged.sum()), abs=1e-12)
        best = LagOperator(M).best_heads(H).to_dense()
        assert floor == pytest.approx(float((W - best).square().sum() / W.square().sum()), abs=1e-12)


@pytest.mark.guards("thm-head-floor")
@quick
@given(sizes)
def test_colored_inputs_separable_covariance_is_exact(size):
    n, p, d, seed = size
    M, time, channel = (
        random_lags(n, p, d, seed),
        random_covariance(n, seed + 1),
        random_covariance(d, seed + 2),
    )
    floors = head_floor(M, time_covariance=time, channel_covariance=channel)
    L_t, L_x = torch.linalg.cholesky(time), torch.linalg.cholesky(channel)
    whitened = torch.einsum("ilpc,lj,cd->ijpd", LagOperator(M).to_dense(), L_t, L_x)
    energy = torch.linalg.svdvals(whitened.reshape(n * n, p * d)).square()
    for H, floor in enumerate(floors.tolist()):
        assert floor == pytest.approx(float(energy[H:].sum() / energy.sum()), abs=1e-10)


@pytest.mark.guards("thm-head-floor")
@pytest.mark.parametrize("colored", [False, True])
def test_the_optimum_is_causal_and_toeplitz_even_for_colored_inputs(colored):
    n, p, d = 6, 2, 2
    M = random_lags(n, p, d, 3)
    L_t = torch.linalg.cholesky(random_covariance(n, 4)) if colored else torch.eye(n, dtype=F64)
    whitened = torch.einsum("ilpd,lj->ijpd", LagOperator(M).to_dense(), L_t).reshape(n * n, p * d)
    U, sigma, _ = torch.linalg.svd(whitened, full_matrices=False)
    for H in range(2):
        alpha = U[:, H].reshape(n, n) @ torch.linalg.inv(L_t)
        assert alpha.triu(1).abs().max() < 1e-10
        for offset in range(n):
            assert torch.diagonal(alpha, -offset).std(correction=0) < 1e-10


@pytest.mark.guards("thm-head-floor")
@quick
@given(sizes, st.integers(1, 3))
def test_no_h_heads_beat_the_floor(size, H):
    n, p, d, seed = size
    M, generator = random_lags(n, p, d, seed), torch.Generator().manual_seed(seed)
    W = LagOperator(M).to_dense().reshape(n * n, p * d)
    V = torch.randn(H, p * d, generator=generator, dtype=F64)
    for _ in range(20):  # alternating least squares: a real attempt, not a random guess
        alpha = torch.linalg.lstsq(V.mT, W.mT, driver="gelsd").solution.mT
        V = torch.linalg.lstsq(alpha, W, driver="gelsd").solution
    error = float((W - alpha @ V).square().sum() / W.square().sum())
    floors = head_floor(M)
    assert error >= float(floors[min(H, len(floors) - 1)]) - 1e-12


@pytest.mark.guards("thm-head-floor")
def test_small_tails_are_not_lost_to_cancellation():
    M = torch.zeros(3, 1, 3, dtype=F64)
    M[0, 0, 0], M[1, 0, 1], M[2, 0, 2] = 1.0, 1e-7, 1e-11
    floors = head_floor(M)
    expected = torch.tensor([2e-14 + 1e-22, 1e-22], dtype=F64) / (3 + 2e-14)
    torch.testing.assert_close(floors[1:3], expected, rtol=1e-9, atol=0.0)


@pytest.mark.guards("thm-head-floor")
def test_one_head_on_the_rotation_by_hand():
    # Lags I and J with weights 3 and 2: one head leaves 2 of 5 (the even and odd lags of a quarter turn).
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=F64)
    eye = torch.eye(2, dtype=F64)
    floors = head_floor(System(turn, eye, eye).lags(2))
    torch.testing.assert_close(floors, torch.tensor([1.0, 1 / 3, 0.0], dtype=F64))


@pytest.mark.guards("prop-epsilon-heads")
@quick
@given(sizes, st.floats(1e-6, 1.5))
def test_epsilon_head_count_is_the_least_h_below_epsilon(size, eps):
    n, p, d, seed = size
    M = random_lags(n, p, d, seed)
    floors, count = head_floor(M), epsilon_head_count(M, eps=eps)
    assert floors[count] <= eps and (count == 0 or floors[count.value - 1] > eps)
    assert count == LagOperator(M).epsilon_heads(eps) and torch.equal(count.evidence, floors)


@pytest.mark.guards("prop-epsilon-heads")
def test_epsilon_counts_of_a_planted_curve():
    M = torch.zeros(4, 2, 2, dtype=F64)
    for tau, energy in enumerate((0.9, 0.09, 0.009, 0.001)):
        M[tau].view(-1)[tau] = (energy / (4 - tau)) ** 0.5
    assert [epsilon_head_count(M, eps=eps) for eps in (1.0, 0.11, 0.02, 0.002, 1e-4)] == [0, 1, 2, 3, 4]
    assert str(epsilon_head_count(M, eps=0.02)) == "2 heads (floor at most 0.02)"


def test_zero_and_empty_lags_need_no_head():
    for M in (torch.zeros(5, 2, 2), torch.zeros(0, 2, 2)):
        assert not head_floor(M).any() and epsilon_head_count(M, eps=0.0) == 0
        assert head_floor(M).shape == (min(len(M), 4) + 1,)


@pytest.mark.guards("thm-head-floor")
@quick
@given(sizes, st.integers(0, 3))
def test_inputs_confined_to_a_subspace_are_exact_too(size, rank):
    n, p, d, seed = size
    M = random_lags(n, p, d, seed)
    L_t, L_x = random_lags(n, 1, n, seed + 1)[:, 0].tril(), random_lags(d, 1, d, seed + 2)[:, 0].tril()
    L_t[:, rank:], L_x[:, max(rank, 1) :] = 0, 0
    floors = head_floor(M, time_covariance=L_t @ L_t.mT, channel_covariance=L_x @ L_x.mT)
    confined = torch.einsum("ilpc,lj,cd->ijpd", LagOperator(M).to_dense(), L_t, L_x)
    energy = torch.linalg.svdvals(confined.reshape(n * n, p * d)).square()
    total = float(energy.sum())
    for H, floor in enumerate(floors.tolist()):
        assert floor == pytest.approx(float(energy[H:].sum()) / total if total else 0.0, abs=1e-9)


def test_covariances_and_errors_that_make_no_sense_are_refused():
    M = torch.ones(4, 2, 2, dtype=F64)
    for covariance in (torch.eye(3), torch.tensor([[1.0, 2], [2, 1]]), torch.ones(2, 2).tril()):
        with pytest.raises(ValueError):
            head_floor(M, channel_covariance=covariance.double())
    for eps in (-0.1, float("nan")):
        with pytest.raises(ValueError):
            epsilon_head_count(M, eps=eps)
