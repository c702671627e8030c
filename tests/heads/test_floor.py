"""The error curve: equal to the dense optimum, by hand, and for colored inputs."""

import pytest
import torch
from helpers import F64, randn

from ssmbook.operators import LagOperator
from ssmbook.systems import System


@pytest.mark.guards("thm-head-floor")
@pytest.mark.parametrize("colored", [False, True])
def test_the_optimum_is_causal_and_toeplitz_even_for_colored_inputs(colored):
    n, p, d = 6, 2, 2
    M = randn(n, p, d, seed=3)
    L_t = torch.eye(n, dtype=F64)
    if colored:
        L_t = L_t + randn(n, 1, n, seed=4)[:, 0].tril(-1)
    whitened = torch.einsum("ilpd,lj->ijpd", LagOperator(M).to_dense(), L_t).reshape(n * n, p * d)
    U, sigma, _ = torch.linalg.svd(whitened, full_matrices=False)
    for H in range(2):
        alpha = U[:, H].reshape(n, n) @ torch.linalg.inv(L_t)
        assert alpha.triu(1).abs().max() < 1e-10
        for offset in range(n):
            assert torch.diagonal(alpha, -offset).std(correction=0) < 1e-10


@pytest.mark.guards("thm-head-floor")
def test_one_head_on_the_rotation_by_hand():
    # Lags I and J with weights 3 and 2: one head leaves 2 of 5 (the even and odd lags of a quarter turn).
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=F64)
    eye = torch.eye(2, dtype=F64)
    floors = System(turn, eye, eye).operator(2).floor()
    torch.testing.assert_close(floors, torch.tensor([1.0, 1 / 3, 0.0], dtype=F64))


@pytest.mark.guards("prop-epsilon-heads")
def test_epsilon_counts_of_a_planted_curve():
    M = torch.zeros(4, 2, 2, dtype=F64)
    for tau, energy in enumerate((0.9, 0.09, 0.009, 0.001)):
        M[tau].view(-1)[tau] = (energy / (4 - tau)) ** 0.5
    assert [LagOperator(M).epsilon_heads(eps) for eps in (1.0, 0.11, 0.02, 0.002, 1e-4)] == [0, 1, 2, 3, 4]


def test_zero_and_empty_lags_need_no_head():
    for M in (torch.zeros(5, 2, 2), torch.zeros(0, 2, 2)):
        floors = LagOperator(M).floor()
        assert not floors.any() and LagOperator(M).epsilon_heads(0.0) == 0
        assert floors.shape == (min(len(M), 4) + 1,)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_moments_of_fewer_tokens_than_channels_are_taken_as_they_are_rounded(dtype):
    X = randn(5, 16).to(dtype)
    moments, W = X.T @ X / 5, LagOperator(randn(6, 16, 16))
    wanted = W.floor(2, channel_covariance=X.double().T @ X.double() / 5)
    assert W.floor(2, channel_covariance=moments) == pytest.approx(wanted, abs=40 * torch.finfo(dtype).eps)
    unequal = torch.tensor([[1.0, 1e-7], [0.0, 1.0]])  # not its own mirror image, by rounding
    W = LagOperator(randn(3, 2, 2))
    assert torch.allclose(W.floor(channel_covariance=unequal), W.floor(), rtol=1e-6)


def test_what_is_no_covariance_is_refused():
    for weights in (
        {"time_covariance": torch.eye(3)},
        {"time_covariance": torch.full((4, 4), float("nan"))},
        {"channel_covariance": randn(3, 3)},
        {"channel_covariance": torch.diag(torch.tensor([1.0, 1.0, -1e-10], dtype=torch.float64))},
        {"channel_covariance": torch.eye(3) + 1e-4 * torch.ones(3, 3).triu()},
    ):
        with pytest.raises(ValueError, match="covariance"):
            LagOperator(randn(4, 3, 3)).floor(**weights)
