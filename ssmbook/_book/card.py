"""Draw the picture of the README and of shared links: one operator, written as two heads.

    python -m ssmbook._book.card    # writes chapters/assets/card.png

A state that turns by a fixed angle and shrinks has lag operators ρ^τ R(θ)^τ = ρ^τ cos(τθ) I + ρ^τ sin(τθ) J:
two mixing matrices, two value maps, no more and no fewer.
"""

from pathlib import Path

import matplotlib
import torch

from ssmbook.chapters.preface.figures import LENGTH, turning_blocks
from ssmbook.display import DIVERGING

TARGET = Path("chapters/assets/card.png")
THETA = 0.55
INK = "#1b1f24"


def operators():
    """The block matrix, the two mixing matrices and the two value maps."""
    W = turning_blocks(THETA)
    mixing = W[..., 0].movedim(-1, 0)  # the first columns of the blocks
    values = torch.tensor([[[1.0, 0], [0, 1]], [[0, -1], [1, 0]]], dtype=W.dtype)
    assert torch.allclose(W, torch.einsum("hij,hpd->ijpd", mixing, values))
    return W.transpose(1, 2).reshape(2 * LENGTH, 2 * LENGTH), mixing, values


def panel(figure, box, matrix, title):
    ax = figure.add_axes(box)
    ax.imshow(matrix, cmap=DIVERGING, vmin=-1, vmax=1)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set_title(title, fontsize=19, color=INK, pad=8)


def draw():
    matplotlib.use("Agg")
    from matplotlib import pyplot

    whole, mixing, values = operators()
    figure = pyplot.figure(figsize=(12, 6.3), dpi=100, facecolor="white")
    figure.text(0.04, 0.865, "Heads and States", fontsize=40, color=INK, family="serif")
    figure.text(
        0.04, 0.79, "attention and state space models through one operator", fontsize=20, color="#4a525b"
    )
    panel(figure, (0.04, 0.08, 0.30, 0.57), whole, r"a rotating state: $W_{ij}$")
    for left, symbol in ((0.355, "="), (0.535, r"$\otimes$"), (0.665, "+"), (0.855, r"$\otimes$")):
        figure.text(left, 0.355, symbol, fontsize=30, color=INK)
    panel(figure, (0.395, 0.24, 0.135, 0.257), mixing[0], r"$A_1$")
    panel(figure, (0.585, 0.31, 0.06, 0.114), values[0], r"$V_1$")
    panel(figure, (0.71, 0.24, 0.135, 0.257), mixing[1], r"$A_2$")
    panel(figure, (0.905, 0.31, 0.06, 0.114), values[1], r"$V_2$")
    figure.text(0.395, 0.12, "two heads, exactly; one is not enough", fontsize=20, color="#a8400a")
    figure.savefig(TARGET)
    pyplot.close(figure)


if __name__ == "__main__":
    draw()
