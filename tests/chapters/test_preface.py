"""The preface's slider and the pictures of *one-hour*."""

import numpy as np
import pytest
import torch

from ssmbook.chapters.preface import figures
from ssmbook.operators import DenseOperator


@pytest.mark.parametrize("theta", [0, 0.2, 0.55, 3.14])
def test_the_turning_state_stands_beside_its_best_head(theta):
    left, right = (np.asarray(ax.get_images()[0].get_array()) for ax in figures.turning_state(theta).axes)
    A = figures.RHO * np.array([[np.cos(theta), -np.sin(theta)], [np.sin(theta), np.cos(theta)]])
    for i in range(figures.LENGTH):
        for j in range(figures.LENGTH):
            block = np.linalg.matrix_power(A, i - j) if i >= j else np.zeros((2, 2))
            assert np.allclose(left[2 * i : 2 * i + 2, 2 * j : 2 * j + 2], block)
    W = DenseOperator(figures.turning_blocks(theta))
    best = W.best_heads(1).to_dense().transpose(1, 2).reshape(left.shape)
    assert np.allclose(right, best, atol=1e-12)
    missed = ((left - right) ** 2).sum() / (left**2).sum()
    assert missed == pytest.approx(figures.best_head(W.to_dense())[1], abs=1e-12)
    assert figures.turning_state(theta).axes[1].get_title() == f"the best head misses {missed:.3f}"
    assert W.interaction_rank(rtol=1e-8) == (1 if theta == 0 else 2)


def test_gradients_are_drawn_as_given():
    T = [2, 4, 8]
    given = [0.9**t for t in T], [1.0, 0.9, 0.8], [1e-1, 1e-2, 1e-3]
    fig, alt = figures.gradients(T, *given)
    drawn = [line.get_xydata().tolist() for line in fig.axes[0].get_lines()]
    assert torch.tensor(drawn).allclose(
        torch.tensor([list(zip(T, values, strict=True)) for values in (given[1], given[2], given[0])])
    )
    assert "At 8: a state that keeps nine tenths 4e-01, a head that asks for the token 0.80" in alt
