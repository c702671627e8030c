"""Graders of *structured-dynamics*: a natural mistake gets its own sentence, no formula at first."""

import torch
from helpers import F64

from ssmbook.chapters.structured_dynamics import graders
from ssmbook.exercises import check
from ssmbook.systems import ho_kalman


def series(Z):
    """phi(Z) by its power series: another route than the block exponential."""
    total, term = torch.eye(len(Z), dtype=F64), torch.eye(len(Z), dtype=F64)
    for m in range(1, 60):
        term = term @ Z / (m + 1)
        total = total + term
    return total


def held(A, B, delta):
    Z = delta * A
    return torch.eye(len(A), dtype=F64) + Z @ series(Z), series(Z) @ B * delta


WRONG_A = [
    lambda A, B, delta: delta * A + (0 * A).matrix_exp(),
    lambda A, B, delta: torch.e ** (delta * A),
    lambda A, B, delta: held(A, B, 1.0)[0],
]
WRONG_B = [
    lambda A, B, delta: B * delta,
    lambda A, B, delta: series(delta * A) @ B,
    lambda A, B, delta: held(A, B, delta)[0] @ B * delta,
]


def by_inverse(A, B, delta):
    A_bar = (delta * A).matrix_exp()
    return A_bar, torch.linalg.solve(A, (A_bar - torch.eye(len(A), dtype=F64)) @ B)


def test_hold_names_part_and_mistake(each_mistake):
    name = "structured-dynamics/hold"
    assert check(name, held)
    parts = graders.HOLD_MISTAKES
    wrong_A = [lambda *c, f=f: (f(*c), held(*c)[1]) for f in WRONG_A]
    wrong_B = [lambda *c, f=f: (held(*c)[0], f(*c)) for f in WRONG_B]
    each_mistake(name, [*parts["A_bar"], *parts["B_bar"], graders.SINGULAR], [*wrong_A, *wrong_B, by_inverse])
    assert check(name, wrong_B[0]).hint.startswith("A_bar is right; B_bar: ")
    assert "expected a function; got int" in check(name, 3).hint
    assert not check(name, lambda A, B, delta: A)


def test_translate(each_mistake):
    name = "structured-dynamics/translate"

    def right(A, B, C, delta):
        return C @ torch.linalg.inv(series(delta * A))

    def through_inverse(A, B, C, delta):
        Z, one = delta * A, torch.eye(len(A), dtype=F64)
        return C @ torch.linalg.inv(torch.linalg.solve(Z, Z.matrix_exp() - one))

    assert check(name, right)
    wrong = [
        lambda A, B, C, delta: C,
        lambda A, B, C, delta: C @ series(delta * A),
        lambda A, B, C, delta: right(A, B, C, 1.0),
        through_inverse,
    ]
    each_mistake(name, [*graders.TRANSLATE_MISTAKES, graders.SINGULAR], wrong)
    assert "not those of the mixed form" in check(name, lambda A, B, C, delta: 2 * C).hint
    assert "expected a function; got NoneType" in check(name, None).hint


def test_realize(each_mistake):
    name = "structured-dynamics/realize"
    assert check(name, ho_kalman)

    def twice(M, N):
        """The singular values of the Hankel matrix in O and in R."""
        found, past = ho_kalman(M, N), [torch.cat(list(M[i : i + N]), 1) for i in range(N)]
        root = torch.linalg.svdvals(torch.cat(past))[:N].sqrt()
        return found.A / root / root[:, None], root[:, None] * found.B, found.C * root

    same = lambda M, N: ho_kalman(M, N).replace(A=torch.eye(N, dtype=F64))  # noqa: E731
    turned = lambda M, N: ho_kalman(M, N).replace(A=ho_kalman(M, N).A.T)  # noqa: E731
    each_mistake(name, graders.REALIZE_MISTAKES, [same, twice, turned])
    assert "expected a function; got NoneType" in check(name, None).hint
    larger = check(name, lambda M, N: tuple(M.new_ones(size) for size in ((2, 2), (2, 1), (1, 2))))
    assert "ValueError: A must have shape (1, 1); got (2, 2)" in larger.hint
    other = check(name, lambda M, N: ho_kalman(M, N).replace(A=0 * torch.eye(N, dtype=F64)))
    assert "does not answer as the hidden one does: entry" in other.hint
