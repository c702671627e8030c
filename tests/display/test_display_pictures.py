"""Operator pictures and the words computed from them."""

import math

import numpy as np
import pytest
import torch

from ssmbook import display, numerics


def rotation(n=5, rho=0.9, theta=0.5, dtype=torch.float64):
    W = torch.zeros(n, n, 2, 2, dtype=dtype)
    for i in range(n):
        for j in range(i + 1):
            c, s = math.cos(theta * (i - j)), math.sin(theta * (i - j))
            W[i, j] = rho ** (i - j) * torch.tensor([[c, -s], [s, c]], dtype=dtype)
    return W


def heatmap_alt(W):
    return display.block_heatmap(W, display.figure()[1])


def spectrum_alt(W, **options):
    return display.span_spectrum(W, display.figure()[1], **options)


class Duck:
    def __init__(self, W):
        self.W = W

    def block_norms(self):
        return self.W.norm(dim=(-2, -1))

    def spectrum(self):
        return torch.linalg.svdvals(self.W.flatten(0, 1).flatten(1))


def test_heatmap_draws_the_norms_i_down_j_across():
    W = rotation()
    before = W.clone()
    _, ax = display.figure(size="panel")
    alt = display.block_heatmap(W, ax)
    image = np.asarray(ax.images[0].get_array())
    assert image[3, 1] == pytest.approx(math.sqrt(2) * 0.9**2) and image[1, 3] == 0
    assert ax.get_xlabel().endswith("j") and ax.get_ylabel().endswith("i")
    assert alt == heatmap_alt(W) == heatmap_alt(Duck(W))
    assert alt == (
        "5 by 5 heat map of block norms; largest 1.41, first at i = 0, j = 0; "
        "10 of 25 blocks are 0 (all j > i among them: causal)"
    )
    assert torch.equal(W, before)


def test_heatmap_words_for_other_patterns():
    eye = torch.eye(3, dtype=torch.float64)[:, :, None, None] * torch.ones(1, 1, 2, 1, dtype=torch.float64)
    assert heatmap_alt(eye).endswith("6 of 9 blocks are 0 (all blocks off the diagonal among them)")
    full = torch.ones(2, 2, 1, 1)
    full[1, 0] = -3
    assert heatmap_alt(full).endswith("largest 3.00, first at i = 1, j = 0; 0 of 4 blocks are 0")
    eye[2, 0] = 1
    assert heatmap_alt(eye).endswith("5 of 9 blocks are 0 (all j > i among them: causal)")
    some = torch.ones(3, 3, 1, 1)
    some[0, 2] = 0
    assert heatmap_alt(some).endswith("1 of 9 blocks are 0")  # causal only where all j > i are
    assert heatmap_alt(torch.zeros(4, 4, 1, 1)) == "4 by 4 heat map of block norms, all 0"
    assert heatmap_alt(torch.ones(1, 1, 1, 1)).endswith("0 of 1 blocks are 0")
    weak = torch.ones(2, 2, 1, 1, dtype=torch.float64)
    weak[0, 1], weak[1, 0] = 2e-12, 5e-13
    assert heatmap_alt(weak).endswith("1 of 4 blocks are 0")  # below 1e-12 of the largest


def test_shared_scale():
    fig, ax = display.figure(size="panel")
    display.block_heatmap(rotation(), ax, vmax=7.0)
    assert ax.images[0].norm.vmax == 7 and len(fig.axes) == 1


@pytest.mark.parametrize(("size", "top"), [(0.0, 1.0), (0.25, 0.25), (3.0, 3.0)])
def test_the_scale_goes_from_zero_to_the_largest_block_or_one_where_all_are_zero(size, top):
    _, ax = display.figure(size="panel")
    display.block_heatmap(size * torch.ones(2, 2, 1, 1), ax)
    assert ax.images[0].get_clim() == (0.0, top)


@pytest.mark.parametrize("wrap", [lambda W: W, Duck])
def test_spectrum_counts_the_rank(wrap):
    _, ax = display.figure(size="panel")
    alt = display.span_spectrum(wrap(rotation()), ax)
    kept, dropped, threshold = ax.get_lines()
    assert len(kept.get_ydata()) == 2 and len(dropped.get_ydata()) == 2
    assert threshold.get_ydata()[0] == pytest.approx(1e-10 * kept.get_ydata()[0])
    expected = torch.linalg.svdvals(rotation().flatten(0, 1).flatten(1))
    assert kept.get_ydata() == pytest.approx(expected[:2].numpy())
    assert list(dropped.get_ydata()) == [float(expected[0]) * 1e-14] * 2  # rounding, on one line anywhere
    assert alt.startswith("4 operator-span singular values, 2 above the threshold, 1e-10 of the largest, ")
    assert alt.endswith(f"from {expected[0]:.2f} down to {expected[1]:.2f}: rank 2")
    assert "rank 2" in ax.texts[0].get_text()


def test_spectrum_tolerance():
    W = torch.zeros(2, 2, 1, 2, dtype=torch.float64)
    W[0, 0, 0, 0], W[1, 1, 0, 1] = 1, 1e-5
    assert spectrum_alt(W).endswith("rank 2")
    assert spectrum_alt(W, rtol=1e-4).endswith("of size 1.00: rank 1")
    assert spectrum_alt(0 * W) == "2 operator-span singular values, all 0: rank 0"
    _, ax = display.figure()
    display.span_spectrum(1e6 * W, ax, rtol=1e-4)  # the threshold moves with the largest value
    assert [len(line.get_ydata()) for line in ax.get_lines()[:2]] == [1, 1]
    # Rounded to float32, the rotation keeps its rank: the threshold follows the type.
    assert spectrum_alt(rotation(20, dtype=torch.float32)).endswith("rank 2")
    with pytest.raises(ValueError, match="rtol must"):
        spectrum_alt(W, rtol=1.5)


def test_pictures_agree_with_the_operators():
    operators = pytest.importorskip("ssmbook.operators")
    for dtype in (torch.float64, torch.float32):
        W = rotation(7, dtype=dtype)
        operator = operators.DenseOperator(W)
        assert heatmap_alt(operator) == heatmap_alt(W)
        assert spectrum_alt(operator) == spectrum_alt(W)
        assert spectrum_alt(operator).endswith(f"rank {operator.interaction_rank()}")
        assert f"{numerics.default_rtol(dtype):.2g}".replace("e-0", "e-") in spectrum_alt(operator)
    half = operators.DenseOperator(rotation(7, dtype=torch.bfloat16))  # numpy has no such numbers
    assert heatmap_alt(half) == heatmap_alt(half.to(torch.float32))


@pytest.mark.parametrize(
    ("W", "error", "message"),
    [
        (torch.zeros(2, 3, 1, 1), ValueError, "W must"),
        (torch.zeros(5, 2, 2, 1, 1), ValueError, "W must"),
        (torch.zeros(0, 0, 1, 1), ValueError, "n >= 1|m >= 1"),
        (torch.full((2, 2, 1, 1), math.nan), ValueError, "W must"),
        (torch.zeros(2, 2, 1, 1, dtype=torch.int64), TypeError, "W must be a floating"),
        (np.zeros((2, 2, 1, 1)), TypeError, "got ndarray"),
        (Duck(torch.zeros(3, 2, 2, 1, 1)), ValueError, "W must be one operator"),
    ],
)
def test_bad_operators(W, error, message):
    with pytest.raises(error, match=message):
        heatmap_alt(W)
    if not isinstance(W, Duck):
        with pytest.raises(error, match=message):
            spectrum_alt(W)
