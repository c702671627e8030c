"""Draw the picture of the README and of shared links: one operator, written as two heads.

    python -m ssmbook._book.card    # writes chapters/assets/card.png

A state that turns by a fixed angle and shrinks has lag operators ρ^τ R(θ)^τ = ρ^τ cos(τθ) I + ρ^τ sin(τθ) J:
two mixing matrices, two value maps, no more and no fewer.
"""

from pathlib import Path

import matplotlib
import numpy as np

from ssmbook.display import DIVERGING

TARGET = Path("chapters/assets/card.png")
LENGTH, RHO, THETA = 8, 0.93, 0.55
INK = "#1b1f24"


def operators():
    """The block matrix, the two mixing matrices and the two value maps."""
    lag = np.subtract.outer(np.arange(LENGTH), np.arange(LENGTH))
    fade = np.where(lag >= 0, RHO ** np.abs(lag), 0.0)
    mixing = fade * np.cos(lag * THETA), fade * np.sin(lag * THETA)
    values = np.eye(2), np.array([[0.0, -1.0], [1.0, 0.0]])
    turn = np.array([[np.cos(THETA), -np.sin(THETA)], [np.sin(THETA), np.cos(THETA)]])
    blocks = [
        [fade[i, j] * np.linalg.matrix_power(turn, max(i - j, 0)) for j in range(LENGTH)]
        for i in range(LENGTH)
    ]
    whole = np.block(blocks)
    assert np.allclose(whole, sum(np.kron(a, v) for a, v in zip(mixing, values, strict=True)))
    return whole, mixing, values


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
