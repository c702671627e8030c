"""Graders of the chapter *structured-dynamics* and of its deeper page."""

from functools import partial

import torch

from headsandstates.chapters._graded import f64, seeded, seeded_cases
from headsandstates.chapters.structured_dynamics.examples import mass_on_spring
from headsandstates.exercises import grader
from ssmbook.systems import System, hankel_matrix, random_stable, zoh


def _flows():
    """Continuous-time systems, each with its step; the last, a free mass, has a singular A."""
    new = seeded(0)
    random = System(torch.randn(3, 3, **new), torch.randn(3, 2, **new), torch.randn(2, 3, **new))
    return (
        (mass_on_spring(1.0, 0.4, 4.0, dtype=f64), 0.3),
        (random, 0.7),
        (mass_on_spring(2.0, 0.0, 0.0, dtype=f64), 0.5),
    )


def _divided(A, B, delta):
    A_bar = (delta * A).matrix_exp()
    return A_bar, torch.linalg.pinv(A) @ (A_bar - torch.eye(len(A), dtype=f64)) @ B


@grader(
    "structured-dynamics/hold",
    right=zoh,
    hint="not the step of zero-order hold",
    look="one of the systems has no inverse of A, and another has two input channels",
    parts=("A_bar", "B_bar"),
    mistakes={
        "A_bar is the exponential entry by entry, not of the matrix": (
            lambda A, B, delta: ((delta * A).exp(), zoh(A, B, delta)[1])
        ),
        "B_bar is that of the mixed form: the state stands still while the push lasts": (
            lambda A, B, delta: (zoh(A, B, delta)[0], delta * B)
        ),
        "A_bar is right, and B_bar divides by A: a free mass has no inverse of A, and a pseudoinverse loses "
        "what it drops": _divided,
    },
    formula="The upper rows of the exponential of delta times the block matrix (A B; 0 0) are the two",
)
def hold_cases():
    """For a function (A (N, N), B (N, d), delta) -> A_bar (N, N), B_bar (N, d), for every square A."""
    return [(flow.A, flow.B, delta) for flow, delta in _flows()]


def _phi(Z):
    """The sum of Z^m / (m + 1)!, for every square Z: an identity held for one step."""
    return zoh(Z, torch.eye(len(Z), dtype=f64), 1.0)[1]


@grader(
    "structured-dynamics/translate",
    right=lambda A, B, C, delta: C @ torch.linalg.inv(_phi(delta * A)),
    view=lambda C_new, A, B, C, delta: (
        System(A, B, torch.as_tensor(C_new).to(f64)).discretize(delta).lags(12)
    ),
    hint="the lag operators of zero-order hold with your C are not those of the mixed form",
    look="the factor between the two forms of B_bar, and on which side of C it is undone",
    mistakes={
        "C is unchanged: it must undo the factor in B_bar": lambda A, B, C, delta: C,
        "this is the way back, to the mixed form": lambda A, B, C, delta: C @ _phi(delta * A),
    },
    formula="C times the inverse of phi(delta A), where phi(Z) is the sum of Z^m / (m + 1)!",
)
def translate_cases():
    """For a function (A, B, C, delta) -> C (p, N), judged on the first 12 lags of zero-order hold with it."""
    return [(flow.A, flow.B, flow.C, delta) for flow, delta in _flows()]


def _halves(A, B, delta, *, early=0.5, power=1):
    A_bar = (delta * A).matrix_exp()
    return A_bar, delta * (early * torch.linalg.matrix_power(A_bar, power) @ B + (1 - early) * B)


@grader(
    "structured-dynamics/halves",
    right=_halves,
    hint="not half of the push early and half late",
    look="through which matrix each half passes",
    parts=("A_bar", "B_bar"),
    mistakes={
        "in B_bar the whole push is written at the end, as in the mixed form": partial(_halves, early=0.0),
        "in B_bar the whole push is written at the start": partial(_halves, early=1.0),
        "in B_bar the early half passes through two steps": partial(_halves, power=2),
    },
    formula="A_bar is the exponential of delta A, and B_bar is delta / 2 times (A_bar B + B)",
)
def halves_cases():
    """For a function (A (N, N), B (N, d), delta) -> A_bar (N, N), B_bar (N, d)."""
    return [(flow.A, flow.B, delta) for flow, delta in _flows()]


def _balanced(M, N, *, power: float = 0.5, lag: int = 1):
    """Ho and Kalman's system from the singular value decomposition, with a slip where one is wanted."""
    p, d = M.shape[1:]
    U, S, Vh = torch.linalg.svd(hankel_matrix(M, N, N))
    see, reach = U[:, :N] * S[:N] ** power, (S[:N] ** power)[:, None] * Vh[:N]
    A = torch.linalg.pinv(see) @ hankel_matrix(M[lag:], N, N) @ torch.linalg.pinv(reach)
    return System(A, reach[:, :d], see[:p])


def _longer_answer(found, M, N):
    """The lags 0 to 4N - 1 of the system."""
    found = found if isinstance(found, System) else System(*found)
    if found.N != N:
        raise ValueError(f"A must have shape {(N, N)}; got {(found.N, found.N)}")
    return found.lags(4 * N)


@grader(
    "structured-dynamics/realize",
    right=_balanced,
    view=_longer_answer,
    hint="your system does not respond as the hidden one does",
    look="the side on which each factor is undone, and the first lag of the shifted matrix",
    mistakes={
        "the matrix that gives A must start one lag later": partial(_balanced, lag=0),
        "the singular values are in O and in R, and O R is the Hankel matrix": partial(_balanced, power=1.0),
    },
    atol=1e-8,
    formula="A is pinv(O) @ (the Hankel matrix that starts at lag 1) @ pinv(R), B the first d columns of R, "
    "C the first p rows of O",
)
def realize_cases():
    """For a function (M (2N, p, d), N) -> A, B, C or a `System`, judged on later lags too."""
    for like, (N, d, p) in seeded_cases((1, 1, 1), (2, 1, 3), (3, 2, 2), (5, 3, 1)):
        yield random_stable(N, d, p, rho=0.9, **like).lags(2 * N), N
