"""Operator pictures and the words computed from them."""

import math

import numpy as np
import pytest
import torch

from ssmbook import display
from ssmbook.operators import DenseOperator


def rotation(n=5, rho=0.9, theta=0.5, dtype=torch.float64):
    W = torch.zeros(n, n, 2, 2, dtype=dtype)
    for i in range(n):
        for j in range(i + 1):
            c, s = math.cos(theta * (i - j)), math.sin(theta * (i - j))
            W[i, j] = rho ** (i - j) * torch.tensor([[c, -s], [s, c]], dtype=dtype)
    return DenseOperator(W)


def test_heatmap_draws_the_norms_i_down_j_across():
    _, ax = display.figure(size="panel")
    display.block_heatmap(rotation(), ax, vmax=7.0)
    image = np.asarray(ax.images[0].get_array())
    assert image[3, 1] == pytest.approx(math.sqrt(2) * 0.9**2) and image[1, 3] == 0
    assert ax.images[0].get_clim() == (0.0, 7.0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_spectrum_counts_the_rank(dtype):
    W = rotation(dtype=dtype)
    _, ax = display.figure(size="panel")
    alt = display.span_spectrum(W, ax)
    kept, dropped, threshold = ax.get_lines()
    assert len(kept.get_ydata()) == W.interaction_rank() == 2 and len(dropped.get_ydata()) == 2
    rtol = 1e-10 if dtype == torch.float64 else 16 * torch.finfo(dtype).eps
    assert threshold.get_ydata()[0] == pytest.approx(rtol * kept.get_ydata()[0])
    first, second = W.spectrum()[:2]
    assert alt.endswith(f"from {first:.2f} down to {second:.2f}: rank 2")


def test_spectrum_of_few_values():
    W, ax = DenseOperator(torch.eye(2, dtype=torch.float64)[..., None, None]), display.figure()[1]
    assert display.span_spectrum(W, ax).endswith("of size 1.41: rank 1")
    assert display.span_spectrum(0 * W, ax) == "1 operator-span singular values, all 0: rank 0"
