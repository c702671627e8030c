"""Graders of the last two chapters of Part III: each mistake gets its own sentence, formulas wait."""

import math

import pytest
import torch

from ssmbook.exercises import check


def lanes(x, W_Q, W_K, V, width=None, order=2, over=1, by_weight=True):
    """By autograd: another route than the closed form."""

    def weights(x):
        return torch.softmax((x @ W_K.mT) @ (W_Q @ x[-1]) / math.sqrt(width or len(W_Q)), 0)

    J = torch.func.jacrev(lambda x: weights(x) @ x @ V.mT)(x)[:, :-1].movedim(1, 0)
    norms = torch.linalg.matrix_norm(J, ord=order) / torch.linalg.svdvals(V)[over]
    return norms / weights(x)[:-1] if by_weight else norms


LANES = [
    lambda *given: lanes(*given, width=1),
    lambda x, *given: lanes(x, *given, width=x.shape[1]),
    lambda x, W_Q, W_K, V: lanes(x, W_K, W_Q, V),
    lambda x, W_Q, W_K, V: lanes(x, 0 * W_Q, W_K, V),
    lambda *given: lanes(*given, order="fro"),
    lambda *given: lanes(*given, over=0),
    lambda *given: lanes(*given, by_weight=False),
]


def held(z, A, step=lambda z: math.log1p(math.exp(z))):
    share = 1.0
    for entry in z.tolist():
        share *= math.exp(A * step(entry))
    return share


HELD = [
    lambda z, A: held(z, A, step=lambda z: z),
    lambda z, A: held(z.mean()[None], A),
    lambda z, A: held(z.mean().expand_as(z), A),
    lambda z, A: 1 / held(z, A),
    lambda z, A: held(z, A, step=math.exp),
]


def margin(n, c):
    low, high = -50.0, 50.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if math.exp(middle) / (math.exp(middle) + n - 1) < c else (low, middle)
    return low


MARGIN = [
    lambda n, c: margin(n + 1, c),
    lambda n, c: margin(n, c / (1 + c)),
    lambda n, c: margin(2, c),
    lambda n, c: margin(n, c) / math.log(2),
]


def sigma(A, which=1):
    return float(torch.linalg.svdvals(A)[which])


def is_safe(M, V, a, tau):
    return sigma(a * V + M[tau]) >= a * sigma(V) / 2


def safe(M, V, a, is_safe=is_safe):
    T = len(M)
    while T and is_safe(M, V, a, T - 1):
        T -= 1
    return T


def first_safe(M, V, a):
    return next((tau for tau in range(len(M)) if is_safe(M, V, a, tau)), len(M))


SAFE = [
    first_safe,
    lambda *given: safe(*given, lambda M, V, a, tau: sigma(a * V + M[tau], 0) >= a * sigma(V) / 2),
    lambda *given: safe(*given, lambda M, V, a, tau: sigma(M[tau], 0) <= a * sigma(V) / 2),
    lambda *given: max(0, safe(*given) - 1),
]


def share(a, last=True):
    T, t, largest = len(a), 1, float(a[-1]) if last else 0.0
    while t < T or (t == T and not last):
        largest, t = max(largest, float(a[t - 1])), 2 * t
    return float(a[-1]) / largest if largest else 0.0


SHARE = [
    lambda a: a.tolist()[-1] / a.tolist()[0],
    lambda a: a.tolist()[-1] / max(a.tolist()),
    lambda a: share(a, last=False),
    lambda a: a.tolist()[-1],
]


def state(K, v):
    Q, R = torch.linalg.qr(K)  # the projection onto the columns of K, without a pseudoinverse
    return Q @ Q.mT @ v


STATE = [
    lambda K, v: torch.einsum("ic,jc,jr->ir", K, K, v),
    lambda K, v: v,
    lambda K, v: torch.ones_like(K[:, :1]) @ v.sum(0, keepdim=True) / len(v),
    lambda K, v: torch.stack([((K @ key).exp() @ v) / (K @ key).exp().sum() for key in K]),
]


CATALOGUES = {
    "gradient-highway/lanes": (lanes, LANES),
    "gradient-highway/held": (held, HELD),
    "gradient-highway/margin": (margin, MARGIN),
    "trade-off/safe-distance": (safe, SAFE),
    "trade-off/share": (share, SHARE),
    "trade-off/state": (state, STATE),
}


@pytest.mark.parametrize("name", CATALOGUES)
def test_right_answers_pass_and_each_mistake_gets_its_own_sentence(name, each_mistake):
    right, anew = CATALOGUES[name]
    assert check(name, right)
    each_mistake(name, anew=anew)


def test_a_sum_may_be_safe_from_no_distance_of_the_table_on():
    """Where the last lag is a hole the answer is n, a distance that the table does not hold."""
    verdict = check("trade-off/safe-distance", lambda M, V, a: min(safe(M, V, a), len(M) - 1))
    assert not verdict and "your number is 11, wanted 12" in verdict.hint


def test_an_unknown_mistake_is_shown_its_first_wrong_entry():
    assert "entry (0)" in check("gradient-highway/lanes", lambda x, W_Q, W_K, V: x[:-1, 0] * 0).hint
    assert "your number is 7, wanted" in check("trade-off/safe-distance", lambda M, V, a: 7).hint
