"""Graders of the chapter *how-many-heads-really*."""

import math
from functools import partial

import torch

from ssmbook.chapters._graded import f64, rank, seeded
from ssmbook.exercises import grader
from ssmbook.systems import rotation


def _rotation_hint(answer, theta, n):
    alpha, V = (torch.as_tensor(part).detach().to(f64) for part in answer(theta, n))
    H, where = 2 if (n - 1) * abs(theta) < math.pi else 3, f"at theta = {theta}, n = {n}"
    if V.ndim != 3 or V.shape[1:] != (2, 2) or alpha.shape != (len(V), n):
        return f"{where}, expected alpha (H, n) and V (H, 2, 2); got {tuple(alpha.shape)}, {tuple(V.shape)}"
    if not (alpha > 0).all():
        return f"{where}, a coefficient is not positive: no finite logit gives it"
    if not (alpha.sum(1) < 1).all():
        return f"{where}, the coefficients of a head sum to 1 or more: nothing is left for the sink"
    lags = rotation(theta * torch.arange(n, dtype=f64))
    error = float((torch.einsum("hn,hpd->npd", alpha, V) - lags).abs().max())
    if not error < 1e-8:
        return f"{where}, the heads miss a lag operator by {error:.1e}"
    return None if len(V) == H else f"{where}, {H} heads suffice; got {len(V)}"


@grader(
    "how-many-heads-really/rotation",
    judge=_rotation_hint,
    formula="Two maps just outside the ends of an arc shorter than pi, three at equal distances otherwise; "
    "three sum to zero, so a constant may be added to all their coefficients",
)
def rotation_cases():
    """For a function (theta, n >= 2) -> alpha (H, n) by lag, positive, V (H, 2, 2), the fewest heads."""
    return [(0.7, 2), (0.7, 5), (0.7, 6), (0.1, 20), (-0.4, 8), (-2.5, 3), (3.0, 2), (1.0, 30)]


def _missed(M, *, rows="length", mean="weighted", energy="visible"):
    """The plateau over the energy; the keywords make the natural mistakes."""
    S, length = M.double().cumsum(0).flatten(1), torch.arange(1.0, len(M) + 1, dtype=f64)
    weight = 1 / length
    center = {"weighted": weight @ S / weight.sum(), "plain": S.mean(0), "last": S[-1]}[mean]
    squares = (S - center).square().sum(1)
    occurs = length.flip(0) if energy == "visible" else torch.ones_like(length)
    share = occurs @ M.double().flatten(1).square().sum(1) if energy else torch.tensor(1.0)
    return (squares @ (weight if rows == "length" else torch.ones_like(weight))) / share


@grader(
    "how-many-heads-really/plateau",
    right=_missed,
    hint="not the plateau",
    mistakes={
        "your common row sum is the plain mean of the partial sums: row i counts with weight 1 / (i + 1)": (
            partial(_missed, mean="plain")
        ),
        "your common row sum is the last partial sum; another one misses less": partial(_missed, mean="last"),
        "a row spreads what it misses over its i + 1 blocks: the squared error of row i is divided "
        "by i + 1": partial(_missed, rows="whole"),
        "your energy counts each lag once; lag tau stands in n - tau blocks": partial(_missed, energy="lags"),
        "that is the error itself; asked is its share of the energy": partial(_missed, energy=None),
    },
    formula="Sum |S_i - mean|^2 / (i + 1) over i with S_i = M_0 + ... + M_i and their mean with weights "
    "1 / (i + 1), and divide by the sum of (n - tau) |M_tau|^2",
)
def plateau_cases():
    """For a function (M (n, p, d)) -> share of the energy that softmax without a sink must miss."""
    return [(_lags(n, p, d),) for n, p, d in ((2, 1, 1), (5, 2, 3), (9, 3, 2))]


def _lags(n, p, d, span=None):
    """Random lags, of interaction rank ``span`` where it is given."""
    like = seeded(n + 10 * p + 100 * d)
    M = torch.randn(span or n, p, d, **like)
    return torch.einsum("nr,rpd->npd", torch.randn(n, span, **like), M) if span else M


def _pairwise(M):
    return max(rank(M.double() @ x) for x in torch.randn(3, M.shape[2], **seeded(1)))


@grader(
    "how-many-heads-really/pairwise",
    right=_pairwise,
    hint="not the count",
    mistakes={
        "that is k: apply the lags to a token first, then count": lambda M: rank(M.flatten(1)),
        "you feed the first unit vector, and some systems do not hear it": lambda M: rank(M[:, :, 0]),
        "you feed the token of ones, and some systems do not hear it": lambda M: rank(M.sum(2)),
        "that is p, the most there can be; lags that map a token into fewer dimensions need fewer": (
            lambda M: M.shape[1]
        ),
        "that is the dimension all lags reach with all tokens together; one token at a time may reach less": (
            lambda M: rank(M.transpose(0, 1).flatten(1))
        ),
    },
    formula="The rank of the n x p table with rows M_tau x, for a random token x",
)
def pairwise_cases():
    """For a function (M (n, p, d)) -> the largest dimension of span{M_tau x} over tokens x."""
    # Dense lags, one row space (all hear one token entry), one column space, deaf to the simplest tokens.
    rows, columns = _lags(9, 3, 1), _lags(9, 1, 4)
    deaf = _lags(8, 3, 4)
    deaf[:, :, 0] = 0
    silent = (4 * _lags(7, 3, 4)).round()  # whole numbers: the token of ones gives zeros, not rounding
    silent[:, :, 0] = -silent[:, :, 1:].sum(2)
    skew = torch.zeros(3, 4, 3, dtype=f64)  # the cross products: one token at a time reaches a plane
    for tau, (a, b) in enumerate(((1, 2), (2, 0), (0, 1))):
        skew[tau, a, b], skew[tau, b, a] = -1.0, 1.0
    return [(M,) for M in (_lags(6, 4, 3, span=2), rows, columns, deaf, silent, skew)]
