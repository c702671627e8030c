"""The error curve: equal to the dense optimum, by hand, and for colored inputs."""

import pytest
import torch
from helpers import randn

from ssmbook.operators import LagOperator


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
