"""The preface's slider and the pictures of *one-hour*."""

import json
import re
from pathlib import Path

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
    axes = figures.turning_state(theta).axes
    assert axes[1].get_title() == f"the best head misses {missed:.3f} of it"
    for ax in axes:  # a line between any two blocks, none through one
        across = sorted({line.get_ydata()[0] for line in ax.get_lines() if np.ptp(line.get_ydata()) == 0})
        assert across == [2 * edge - 0.5 for edge in range(1, figures.LENGTH)]
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


CHAPTERS = Path(__file__).parents[2] / "chapters"
PROMISES = [
    (
        "A state of 64 numbers: 64 heads exactly, 13 for all but 1 %",
        "3-three-theorems/head-count",
        r"random stable: exact \[.*, 64\],\s+at 1 % \[.*, 13\]",
    ),
    ("counts 27 layers", "1-one-operator/zoo", r"27 layers by interaction rank"),
    ("a chain of 8,190 operations", "2-two-constructions/scans-deeper", r"\bchain 8,190\b"),
    ("cut down to 24", "2-two-constructions/scans-deeper", r"doubling, 4,096 +[\d,]+ +[\d,]+ +24\b"),
    (
        "has 12 heads a layer, and 3 to 6",
        "1-one-operator/zoo",
        r"90 % of the energy:\s+\[(3|6|5)(, [3-6])*\]",
    ),
]


def printed(page):
    cells = json.loads((CHAPTERS / f"{page}.ipynb").read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    return "\n".join("".join(out.get("text", out.get("data", {}).get("text/plain", ""))) for out in outputs)


@pytest.mark.parametrize(("words", "page", "number"), PROMISES)
def test_what_the_preface_promises_is_printed_in_its_chapter(words, page, number):
    preface = json.loads((CHAPTERS / "preface.ipynb").read_text(encoding="utf-8"))
    assert any(words in "".join(cell["source"]) for cell in preface["cells"])
    assert re.search(number, printed(page))
