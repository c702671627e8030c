"""Lag operators against the plain recurrence, at every size near a block boundary."""

import pytest
import torch
from helpers import plain_lags, random_system

from ssmbook.systems import System


@pytest.mark.guards("thm-head-count")
@pytest.mark.parametrize("n", [1, 2, 4, 5, 9, 16, 17, 63, 2000])
def test_equals_the_recurrence_lag_by_lag(n):
    system = System(*random_system(5, 2, 3, 0.9, n))
    M, expected = system.lags(n), plain_lags(system, n)
    assert M.shape == (n, 3, 2)
    relative = torch.linalg.matrix_norm(M - expected) / torch.linalg.matrix_norm(expected)
    assert relative.max() < 1e-12  # down to lags of 1e-90 of the first


def test_batches_and_the_skip_at_lag_zero_only():
    A, B, C, D = random_system(4, 2, 3, 0.7, 1, batch=(2, 3))
    M = System(A, B, C, D).lags(11)
    assert M.shape == (2, 3, 11, 3, 2)
    assert torch.equal(M[..., 1:, :, :], System(A, B, C).lags(11)[..., 1:, :, :])
    for i in range(2):
        for j in range(3):
            torch.testing.assert_close(M[i, j], System(A[i, j], B[i, j], C[i, j], D[i, j]).lags(11))


def test_empty_lengths_states_and_batches():
    A, B, C, D = random_system(3, 2, 4, 0.9, 4)
    assert System(A, B, C, D).lags(0).shape == (0, 4, 2)
    assert System(*(m.expand(0, *m.shape) for m in (A, B, C))).lags(5).shape == (0, 5, 4, 2)
    no_state = System(A[:0, :0], B[:0], C[:, :0], D).lags(3)
    assert torch.equal(no_state, torch.stack([D, torch.zeros_like(D), torch.zeros_like(D)]))


def test_unstable_systems_are_allowed_until_they_overflow():
    system = System(*random_system(3, 2, 2, 1.5, 5)[:3])
    M, expected = system.lags(1000), plain_lags(system, 1000)
    relative = (M - expected).abs().amax((1, 2)) / expected.abs().amax((1, 2))
    assert M.abs().max() > 1e150 and relative.max() < 1e-11
    with pytest.raises(ValueError):
        system.lags(4000)
