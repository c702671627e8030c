"""What every floor shares: one rule of tolerance, and Toeplitz tables."""

import numpy as np
import pytest
import scipy.linalg
import torch

from ssmbook.numerics import default_rtol, numerical_rank, rank_report, toeplitz, tolerance


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.complex128, torch.int64])
@pytest.mark.parametrize(("L", "n"), [(4, None), (3, 7), (1, 1), (0, 2), (0, 0)])
def test_toeplitz_tables_are_scipys_and_zero_above_the_diagonal(L, n, dtype):
    values = torch.arange(1, L + 1).to(dtype) * (1 + 2j if dtype.is_complex else 1)
    column = np.concatenate([values.numpy(), np.zeros((L if n is None else n) - L)])
    wanted = scipy.linalg.toeplitz(column, np.zeros_like(column)) if len(column) else np.zeros((0, 0))
    table = toeplitz(values, n)
    assert table.dtype == dtype and np.array_equal(table.numpy(), wanted)
    blocks = toeplitz(torch.stack([values, 3 * values], -1)[None, :, None], n, dim=-3)
    assert torch.equal(blocks[0, :, :, 0, 1], 3 * table) and blocks.shape == (1, *table.shape, 1, 2)


def test_a_tolerance_is_the_callers_or_that_of_the_real_dtype():
    assert tolerance(None, torch.complex128) == tolerance(None, torch.float64) == 1e-10
    assert tolerance(None, torch.complex64) == default_rtol(torch.float32) == 16 * 2.0**-23
    assert str(tolerance(0, torch.float64)) == "0.0" and tolerance(1e-3, torch.float32) == 1e-3
    for bad, error in ((1.0, ValueError), (-1e-9, ValueError), (float("nan"), ValueError), ("0", TypeError)):
        with pytest.raises(error, match="rtol"):
            tolerance(bad, torch.float64)


def test_batched_spectra_are_cut_each_at_its_own_scale():
    assert numerical_rank(torch.zeros(0), 1e-6) == numerical_rank(torch.zeros(4), 1e-6) == 0
    uneven = torch.tensor([[1.0, 0.5, 0.125], [8.0, 2.0, 1.0], [0.0, 0.0, 0.0]])
    report = rank_report(uneven, 0.3)
    assert report.rank.tolist() == [2, 1, 0] and report.gap.tolist() == [4, 4, float("inf")]
    assert rank_report(uneven, 0.25, scale=torch.tensor([0.25, 16.0, 1.0])).rank.tolist() == [3, 1, 0]
    with pytest.raises(ValueError, match="singular_values"):
        numerical_rank(torch.tensor([float("nan")]), 0.1)
