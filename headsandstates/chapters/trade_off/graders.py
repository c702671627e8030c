"""Graders of the chapter *trade-off*."""

from functools import partial

import torch

from headsandstates.chapters._graded import f64, seeded_cases
from headsandstates.exercises import grader
from ssmbook.maps import LTISSM


def _safe_from(M, V, a, *, value=1, first=False):
    """The first T such that sigma_2(a V + M_tau) >= a sigma_2(V) / 2 for every tau from T to the end."""
    floor = a * torch.linalg.svdvals(V)[1] / 2
    bad = (torch.linalg.svdvals(a * V + M)[:, value] < floor).tolist()
    if first:
        return [*bad, False].index(False)
    return max((tau + 1 for tau, each in enumerate(bad) if each), default=0)


@grader(
    "trade-off/safe-distance",
    right=_safe_from,
    hint="the distance is wrong",
    mistakes={
        "a later lag may fall below the floor again": partial(_safe_from, first=True),
        "a large norm can hide a hole: take the second singular value": partial(_safe_from, value=0),
    },
    formula="take the second singular value of a * V + M[tau] for every tau; the answer is one more than the "
    "last tau where it is below half of a * sigma_2(V), 0 if there is none",
)
def safe_distance_cases():
    """For a function (M (n, p, d), V (p, d), a) -> int: the distance from which the sum's floor stays up."""
    for like, (n, weight) in seeded_cases((40, 0.5), (64, 0.1), (25, 1.0), (30, 0.002)):
        M = LTISSM.random(4, 3, N=5, rho=0.8, **like).system.lags(n).detach()
        yield M, torch.randn(3, 4, **like), weight
    V = torch.eye(2, dtype=f64)
    M = torch.zeros(12, 2, 2, dtype=f64)
    M[5] = -V  # a hole far out: nothing before it is safe
    yield M, V, 1.0
    yield M / 2, V, 0.5  # and one that only the weighted head has
    M = M.clone()
    M[7] = torch.tensor([[3.0, 0.0], [0.0, -1.0]], dtype=f64)  # a large norm hides the hole
    yield M, V, 1.0


def _share(a):
    T = len(a)
    largest = a[[t - 1 for t in {T} | {2**e for e in range(T.bit_length())}]].max()
    return a[-1] / largest if largest > 0 else a[-1]


@grader(
    "trade-off/share",
    right=_share,
    hint="the share is wrong",
    mistakes={
        "compare with all of these distances, not with the nearest": lambda a: a[-1] / a[0],
        "compare with the powers of two and T, not with every distance": lambda a: a[-1] / a.max(),
    },
    formula="divide a_T by the largest of a_1, a_2, a_4, ... and a_T; where that is 0 the share is 0",
)
def share_cases():
    """For a function (a (T,)) -> the share kept at distance T."""
    rows = ((3.0,), (1e-9, 0.5, 7.0, 0.2), (1.0, 2.0, 9.0, 3.0, 0.5, 4.0), (1.0, 1.0, 5.0))
    return [(torch.tensor(row, dtype=f64),) for row in rows]


@grader(
    "trade-off/state",
    right=lambda K, v: K @ torch.linalg.pinv(K) @ v,
    hint="the answers are not the best ones",
    mistakes={
        "that is linear attention: the keys overlap": lambda K, v: K @ K.mT @ v,
        "exact answers need a larger state": lambda K, v: v,
    },
    formula="S = (pinv(K) v)^T is the best state, so the answers are K pinv(K) v",
)
def state_cases():
    """For a function (K (m, c), v (m, r)) -> the best answers (m, r) of a linear state."""
    for like, (m, c, r) in seeded_cases((3, 5, 2), (8, 4, 3), (12, 5, 1)):
        yield torch.randn(m, c, **like), torch.randn(m, r, **like)
