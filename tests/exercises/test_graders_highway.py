"""Graders of the last two chapters of Part III: each mistake gets its own sentence, formulas wait."""

import math

import pytest
import torch

from ssmbook.chapters.gradient_highway import graders as highway
from ssmbook.chapters.trade_off import graders as trade
from ssmbook.exercises import check


def lanes(x, W_Q, W_K, V):  # by autograd: another route than the closed form
    def last(x):
        return torch.softmax((x @ W_K.mT) @ (W_Q @ x[-1]) / d, 0) @ x @ V.mT

    d = math.sqrt(len(W_Q))
    J = torch.func.jacrev(last)(x)[:, :-1].movedim(1, 0)
    alpha = torch.softmax((x @ W_K.mT) @ (W_Q @ x[-1]) / d, 0)[:-1]
    return torch.linalg.matrix_norm(J, ord=2) / alpha / torch.linalg.svdvals(V)[1]


def held(z, A):
    share = 1.0
    for step in torch.log1p(torch.exp(z)).tolist():
        share *= math.exp(A * step)
    return share


def margin(n, c):
    low, high = -50.0, 50.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if math.exp(middle) / (math.exp(middle) + n - 1) < c else (low, middle)
    return low


def safe(M, V, a):
    floor = float(torch.linalg.svdvals(V)[1]) * a / 2
    T = len(M)
    while T and float(torch.linalg.svdvals(a * V + M[T - 1])[1]) >= floor:
        T -= 1
    return T


def share(a):
    T, t, largest = len(a), 1, float(a[-1])
    while t < T:
        largest, t = max(largest, float(a[t - 1])), 2 * t
    return float(a[-1]) / largest if largest else 0.0


def state(K, v):
    Q, R = torch.linalg.qr(K)  # the projection onto the columns of K, without a pseudoinverse
    return Q @ Q.mT @ v


CATALOGUES = {
    "gradient-highway/lanes": (lanes, highway.LANES_MISTAKES),
    "gradient-highway/held": (held, highway.HELD_MISTAKES),
    "gradient-highway/margin": (margin, highway.MARGIN_MISTAKES),
    "trade-off/safe-distance": (safe, trade.SAFE_MISTAKES),
    "trade-off/share": (share, trade.SHARE_MISTAKES),
    "trade-off/state": (state, trade.STATE_MISTAKES),
}


@pytest.mark.parametrize("name", CATALOGUES)
def test_right_answers_pass_and_each_mistake_gets_its_own_sentence(name, each_mistake):
    right, mistakes = CATALOGUES[name]
    assert check(name, right)
    assert len(mistakes) >= 4
    each_mistake(name, mistakes)


def test_an_unknown_mistake_is_shown_its_first_wrong_entry():
    assert "entry (0)" in check("gradient-highway/lanes", lambda x, W_Q, W_K, V: x[:-1, 0] * 0).hint
    assert "your number is 7, wanted" in check("trade-off/safe-distance", lambda M, V, a: 7).hint
