"""Graders of the chapter *interaction-rank-gap*."""

from functools import partial

import torch

from headsandstates.chapters._graded import f64, missed, misshaped, rank, seeded
from headsandstates.exercises import grader
from ssmbook.systems import System, rotation


def _missed(a: float, b: float, n: int, **how) -> float:
    return missed(torch.tensor([a, b], dtype=f64) ** torch.arange(n)[:, None], 1, **how)


def _alone(a: float, b: float, n: int) -> float:
    """What a head misses that keeps only the larger of the two entries."""
    tau = torch.arange(n, dtype=f64)
    first, second = (float(((n - tau) * z ** (2 * tau)).sum()) for z in (a, b))
    return min(first, second) / (first + second)


@grader(
    "interaction-rank-gap/diagonal-gap",
    right=_missed,
    hint="that is not the share missed",
    mistakes={
        "the share is one of the energy, not of the norm": lambda a, b, n: _missed(a, b, n) ** 0.5,
        "count how often each lag occurs": partial(_missed, repeated=False),
        "that is what the head keeps, not what it misses": lambda a, b, n: 1 - _missed(a, b, n),
        "divide by the whole energy, not by what the head keeps": lambda a, b, n: (
            _missed(a, b, n) / (1 - _missed(a, b, n))
        ),
        "the best value map is a mixture of both diagonal entries, not one of them": _alone,
        "the product ab keeps its sign": lambda a, b, n: _missed(abs(a), abs(b), n),
    },
    formula="Lag τ is diag(a^τ, b^τ) and occurs n − τ times; the smaller eigenvalue of the 2 x 2 Gram matrix "
    "over its trace is the share (n = 1 and a = b give 0, and 0^0 is 1)",
)
def diagonal_gap_cases():
    """For a function (a, b, n) -> share of the energy that one head misses of A = diag(a, b), B = C = I."""
    return [(0.9, 0.5, 20), (0.9, -0.9, 7), (0.3, 0.3, 12), (1.0, 0.0, 5), (-0.7, 0.2, 1), (1.1, 0.99, 40)]


def _off(V, M, x) -> float:
    """The distance of Mx from the line of Vx, relative to the largest that |x| allows."""
    v, m = V @ x, M @ x
    if v.norm() > 1e-9 * torch.linalg.matrix_norm(V, 2) * x.norm():
        m = m - (v @ m) / (v @ v) * v
    return float(m.norm() / (torch.linalg.matrix_norm(M, 2) * x.norm()))


def _not_lonely(x, V, M):
    """What is wrong with the token returned for one pair."""
    if rank(torch.stack([V.flatten(), M.flatten()])) < 2:
        said = "you returned a token where M is a multiple of V: there every token agrees, return None"
        return None if x is None else said
    if x is None:
        told = "with M = diag(1, 2, 2) and V = I each basis vector agrees, and their sum does not"
        if rank(V) < V.shape[1]:
            told = "V has a kernel: take a basis that contains one of the kernel, and sum its other vectors"
        return f"you found no token where there is one: {told}"
    x = torch.as_tensor(x).detach().double()
    if tuple(x.shape) != (V.shape[1],):
        return f"expected a token of shape ({V.shape[1]},); got {tuple(x.shape)}"
    if x.norm() == 0 or not x.isfinite().all():
        return "a token must be finite and not zero"
    if _off(V, M, x) > 1e-6:
        return None
    return "Mx is a multiple of Vx at your token: try sums of basis vectors, and kernels"


@grader(
    "interaction-rank-gap/lonely-token",
    judge=_not_lonely,
    formula="Take a basis b_1, …, b_d whose last d − r vectors span the kernel of V, and try its vectors and "
    "the sum b_1 + … + b_r",
)
def lonely_token_cases():
    """For a function (V, M), both (p, d) -> a token (d,) with Mx not on the line of Vx, or None if M = cV."""
    # Every basis vector agrees, only the kernel tells (the second time the standard basis and its sum agree),
    # generic, and a multiple.
    eye = torch.eye(3, dtype=f64)
    v, w, m = torch.randn(3, 4, **seeded(1))
    V = torch.randn(2, 3, **seeded(2))
    yield eye, torch.diag(torch.tensor([1.0, 2.0, 2.0], dtype=f64))
    yield torch.outer(v[:3], w), torch.outer(v[:3], m)
    yield torch.tensor([[[1, 1], [0, 0]], [[1, 2], [0, 0]]], dtype=f64).unbind()
    yield V, torch.randn(2, 3, **seeded(3))
    yield V, -3 * V


def _hole(V, M, *, images=True, early=True):
    """Whether one head with value map V has the outputs of the lags M for almost every input."""
    r = rank(V)
    inside = not images or rank(torch.cat([V, *M], 1)) == r
    lags = M[: max(0, r - 1)] if early else ()
    return inside and all(rank(torch.stack([V.flatten(), lag.flatten()])) == 1 for lag in lags)


@grader(
    "interaction-rank-gap/hole",
    right=_hole,
    hint="a case is decided wrongly",
    mistakes={
        "early lags matter: token 0 alone has nothing to combine": partial(_hole, early=False),
        "images matter: no coefficients leave the image of V": partial(_hole, images=False),
    },
    formula="With r the rank of V: the image of every M_τ lies in that of V, and for τ <= r − 2 M_τ is a "
    "multiple of V",
)
def hole_cases():
    """For a function (V (p, d), M (n, p, d)) -> bool: one head with free coefficients, almost every input."""
    turn, eye = rotation(0.7, dtype=f64), torch.eye(2, dtype=f64)
    clock = System(turn, eye, eye).lags(6)
    left, right = torch.randn(4, 3, **seeded(4)), torch.randn(3, 5, **seeded(5))
    inside = left @ torch.randn(6, 3, 5, **seeded(6))
    later = torch.cat([torch.tensor([2.0, -1.0]).double()[:, None, None] * (left @ right), inside[2:]])
    yield eye, clock
    yield turn, clock
    yield torch.diag(torch.tensor([1.0, 0.0], dtype=f64)), clock
    yield left @ right, inside
    yield left @ right, later
    yield left @ right, torch.cat([later[:2], torch.randn(3, 4, 5, **seeded(9))])


def _around(theta, n, forward=1, backward=-1):
    """Rotations of the outputs by ``forward`` and of the tokens by ``backward`` times their positions."""
    turns = [[rotation(sign * theta * i, dtype=f64) for i in range(n)] for sign in (forward, backward)]
    return tuple(torch.stack(part) for part in turns)


@grader(
    "interaction-rank-gap/rotate-values",
    right=_around,
    judge=lambda found, theta, n: misshaped(found, G=(n, 2, 2), U=(n, 2, 2)),
    view=lambda found, theta, n: torch.einsum("iab,jbc->ijac", *(part.double() for part in found)),
    hint="G_i U_j must be the rotation by θ(i − j); of these blocks",
    mistakes={
        "tokens must be rotated backward, by −θj": partial(_around, backward=1),
        "G and U are exchanged: outputs are rotated forward, tokens backward": partial(
            _around, forward=-1, backward=1
        ),
        "rotate the tokens, too": partial(_around, backward=0),
    },
    formula="G_i = R(θi) and U_j = R(−θj), because R(θi) R(−θj) = R(θ(i − j))",
)
def rotate_values_cases():
    """For a function (θ, n) -> G (n, 2, 2), U (n, 2, 2), between which a head with V = I has weights 1."""
    return [(0.7, 6), (-2.0, 3), (0.01, 9)]
