"""Graders of the chapter *how-many-heads-really*."""

import math
from functools import partial

import torch

from headsandstates.chapters._graded import f64, rank, seeded
from headsandstates.exercises import grader
from ssmbook.maps import Attention
from ssmbook.systems import rotation


def _not_the_rotation(heads, theta, n):
    alpha, V = (torch.as_tensor(part).detach().to(f64) for part in heads)
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
    judge=_not_the_rotation,
    formula="Two maps just outside the ends of an arc shorter than pi, three at equal distances otherwise; "
    "three sum to zero, so a constant may be added to all their coefficients",
)
def rotation_cases():
    """For a function (theta, n >= 2) -> alpha (H, n) by lag, positive, V (H, 2, 2), the fewest heads."""
    return [(0.7, 2), (0.7, 5), (0.7, 6), (0.1, 20), (-0.4, 8), (-2.5, 3), (3.0, 2), (1.0, 30)]


def _plateau(M, *, weighted=True, repeated=True):
    """The plateau over the energy; the keywords make two natural mistakes."""
    S, length = M.cumsum(0).flatten(1), torch.arange(1.0, len(M) + 1, dtype=f64)
    weight = 1 / length
    center = weight @ S / weight.sum() if weighted else S.mean(0)
    energy = M.flatten(1).square().sum(1)
    return weight @ (S - center).square().sum(1) / (length.flip(0) @ energy if repeated else energy.sum())


@grader(
    "how-many-heads-really/plateau",
    right=_plateau,
    hint="not the plateau",
    mistakes={
        "in the mean, partial sum i has the weight 1 / (i + 1)": partial(_plateau, weighted=False),
        "in the energy, lag tau occurs n - tau times": partial(_plateau, repeated=False),
    },
    formula="Sum |S_i - mean|^2 / (i + 1) over i with S_i = M_0 + ... + M_i and their mean with weights "
    "1 / (i + 1), and divide by the sum of (n - tau) |M_tau|^2",
)
def plateau_cases():
    """For a function (M (n, p, d)) -> share of the energy that softmax without a sink must miss."""
    return [(_lags(n, p, d),) for n, p, d in ((2, 1, 1), (5, 2, 3), (9, 3, 2))]


def _lags(n, p, d):
    return torch.randn(n, p, d, **seeded(n + 10 * p + 100 * d))


@grader(
    "how-many-heads-really/pairwise",
    right=lambda M: max(rank(M @ x) for x in torch.randn(3, M.shape[2], **seeded(1))),
    hint="not the count",
    mistakes={
        "that is k: apply the lags to a token first, then count": lambda M: rank(M.flatten(1)),
        "some systems do not hear the first unit vector": lambda M: rank(M[:, :, 0]),
    },
    formula="The rank of the n x p matrix with rows M_tau x, for a random token x",
)
def pairwise_cases():
    """For a function (M (n, p, d)) -> the largest dimension of span{M_tau x} over tokens x."""
    # Lags of two matrices, of one column and of one row, deaf to the simplest token, and cross products.
    two = torch.einsum("nr,rpd->npd", torch.randn(6, 2, **seeded(2)), _lags(2, 4, 3))
    deaf = _lags(8, 3, 4)
    deaf[:, :, 0] = 0
    skew = torch.zeros(3, 4, 3, dtype=f64)  # one token at a time reaches a plane
    for tau, (a, b) in enumerate(((1, 2), (2, 0), (0, 1))):
        skew[tau, a, b], skew[tau, b, a] = -1.0, 1.0
    return [(M,) for M in (two, _lags(9, 3, 1), _lags(9, 1, 4), deaf, skew)]


def _moves(layer, d, equal=True):
    """Whether the outputs of equal tokens, or of random ones, differ from the first."""
    x = torch.randn(1 if equal else 9, d, **seeded(3)).expand(9, d)
    y = layer(x)
    return bool((y - y[0]).norm() > 1e-6 * y.norm())


@grader(
    "how-many-heads-really/sink",
    right=_moves,
    hint="one of the layers is judged wrongly",
    mistakes={"random tokens change the outputs with a sink and without one": partial(_moves, equal=False)},
    formula="Feed the same token at every position: without a sink all outputs are equal",
)
def sink_cases():
    """For a function (layer, d) -> bool; layer maps (n, d) to (n, p), causal softmax without positions."""
    for seed, sink in enumerate((False, True, False, True)):
        layer = Attention(3, 3, H=1 + seed, head_width=2, sink=sink, **seeded(seed)).requires_grad_(False)
        yield layer, 3
