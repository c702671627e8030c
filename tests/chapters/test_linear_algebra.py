"""Pictures of *linear-algebra*: ellipses, spectra, powers and half-planes are where the facts put them."""

import numpy as np
import pytest
import torch
from helpers import F64, points, randn

from ssmbook.chapters.linear_algebra import figures


@pytest.mark.guards("prop-weyl")
def test_no_ellipse_fits_into_the_circle_and_no_dot_leaves_its_bar():
    P = torch.tensor([[1.5, 0.7], [-0.2, 1.0]], dtype=F64)
    changes = randn(4, 2, 1, seed=1) @ randn(4, 1, 2, seed=2)
    R, rank_one = randn(5, 5, seed=3), randn(9, 5, 1, seed=4) @ randn(9, 1, 5, seed=5)
    fig, alt = figures.weyl(P, changes, R, rank_one)
    plane, values = fig.axes
    *ellipses, of_P, circle = (np.linalg.norm(points(line), axis=1) for line in plane.get_lines())
    assert np.allclose(circle, of_P.min(), rtol=3e-3) and len(ellipses) == 4
    assert min(ellipse.max() for ellipse in ellipses) >= circle[0] * (1 - 1e-3)
    sigma = np.linalg.svd(R.numpy(), compute_uv=False)
    for r in range(5):
        bar, dots, mark = (points(line)[:, 1] for line in values.get_lines()[3 * r : 3 * r + 3])
        assert np.allclose(mark, sigma[r]) and len(dots) == 9
        assert bar[0] - 1e-12 <= dots.min() and dots.max() <= bar[1] + 1e-12
        assert bar[0] == pytest.approx([*sigma[1:], 0][r], abs=1e-12)
        assert r == 0 or bar[1] == pytest.approx(sigma[r - 1])
    assert "4 ellipses" in alt and "9 spectra of 5 values" in alt


def test_the_powers_stay_between_their_bounds():
    A = torch.tensor([[0.9, 5.0], [0.0, 0.8]], dtype=F64)
    norms = [float(torch.linalg.matrix_norm(A.matrix_power(t), 2)) for t in range(41)]
    kappa = float(torch.linalg.cond(torch.linalg.eig(A)[1]))
    fig, alt = figures.powers(norms, 0.9, kappa)
    low, high, drawn, top = (points(line) for line in fig.axes[0].get_lines())
    assert np.allclose(drawn[:, 1], norms) and top[0, 1] == max(norms)
    assert (low[:, 1] <= drawn[:, 1] + 1e-12).all() and (drawn[:, 1] <= high[:, 1] + 1e-12).all()
    assert low[10, 1] == pytest.approx(0.9**10) and high[10, 1] == pytest.approx(kappa * 0.9**10)
    assert f"up to {max(norms):.1f} at τ = {int(top[0, 0])}" in alt


def test_a_half_plane_holds_all_vectors_or_their_hull_holds_zero():
    sets = [
        np.array([[1.5, 0.2], [0.4, 0.5], [1.0, -0.8]]),
        np.array([[1.0, 0.2], [-0.9, 0.6], [-0.2, -1.0]]),
    ]
    fig, alt = figures.separate_or_surround(sets)
    for ax, m in zip(fig.axes, sets, strict=True):
        assert any(points(line).shape == m.shape and np.allclose(points(line), m) for line in ax.get_lines())
    u = points(fig.axes[0].get_lines()[0])[1]
    assert (sets[0] @ u).min() == pytest.approx(u @ u) and f"at least {u @ u:.3f}" in alt
    weights = np.array([float(text.get_text()) for text in fig.axes[1].texts])
    assert np.allclose(weights @ sets[1], 0, atol=0.01) and weights.sum() == pytest.approx(1, abs=0.02)
    shade = fig.axes[0].patches[0].get_xy()
    assert min(shade @ u) > -1e-9
