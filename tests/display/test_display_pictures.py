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


def heatmap_alt(blocks):
    return display.block_heatmap(DenseOperator(blocks), display.figure()[1])


def test_heatmap_draws_the_norms_i_down_j_across():
    _, ax = display.figure(size="panel")
    alt = display.block_heatmap(rotation(), ax, vmax=7.0)
    image = np.asarray(ax.images[0].get_array())
    assert image[3, 1] == pytest.approx(math.sqrt(2) * 0.9**2) and image[1, 3] == 0
    assert ax.images[0].get_clim() == (0.0, 7.0)
    assert alt == (
        "5 by 5 heat map of block norms; largest 1.41, first at i = 0, j = 0; "
        "10 of 25 blocks are 0 (all j > i among them: causal)"
    )


def test_heatmap_words_for_other_patterns():
    eye = torch.eye(3, dtype=torch.float64)[:, :, None, None] * torch.ones(1, 1, 2, 1, dtype=torch.float64)
    assert heatmap_alt(eye).endswith("6 of 9 blocks are 0 (all blocks off the diagonal among them)")
    full = torch.ones(2, 2, 1, 1)
    full[1, 0] = -3
    assert heatmap_alt(full).endswith("largest 3.00, first at i = 1, j = 0; 0 of 4 blocks are 0")
    some = torch.ones(3, 3, 1, 1)
    some[0, 2] = 0
    assert heatmap_alt(some).endswith("1 of 9 blocks are 0")  # causal only where all j > i are
    assert heatmap_alt(torch.zeros(4, 4, 1, 1)) == "4 by 4 heat map of block norms, all 0"
    weak = torch.ones(2, 2, 1, 1, dtype=torch.float64)
    weak[0, 1], weak[1, 0] = 2e-12, 5e-13
    assert heatmap_alt(weak).endswith("1 of 4 blocks are 0")  # below 1e-12 of the largest


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


def test_spectrum_tolerance():
    W = torch.zeros(2, 2, 1, 2, dtype=torch.float64)
    W[0, 0, 0, 0], W[1, 1, 0, 1] = 1, 1e-5
    W, ax = DenseOperator(W), display.figure()[1]
    assert display.span_spectrum(W, ax).endswith("rank 2")
    assert display.span_spectrum(W, ax, rtol=1e-4).endswith("of size 1.00: rank 1")
    assert display.span_spectrum(0 * W, ax) == "2 operator-span singular values, all 0: rank 0"
