"""Graders of the chapter *learning-heads*."""

from functools import partial

import torch

from headsandstates.chapters._graded import rank, seeded
from headsandstates.exercises import grader
from headsandstates.experiments.learning_heads import population_error


def _best_count(floor, n, p, d, m, noise, *, misfit=1.0, scales=True):
    """The H of the least predicted error."""
    errors = []
    for H, left in enumerate(floor):
        free = H * (n * (n + 1) // 2 + p * d - (H if scales else 0))
        errors.append(left + free * (noise + misfit * left) / (m * n * p))
    return min(range(len(errors)), key=errors.__getitem__)


@grader(
    "learning-heads/worth-training",
    right=_best_count,
    hint="not the best H",
    mistakes={
        "what the heads cannot fit acts as noise, too": partial(_best_count, misfit=0.0),
        "some of the parameters change nothing": partial(_best_count, scales=False),
    },
    formula="Take the least of floor[H] + f_H (noise + floor[H]) / (m n p) with "
    "f_H = H (n (n + 1) / 2 + p d - H)",
)
def worth_training_cases():
    """For a function (floor, n, p, d, m, noise) -> the H with the least predicted error on m sequences."""
    for floor in ([1.0, 0.3, 0.05, 0.004, 0.0], [1.0, 0.2, 0.1, 0.09, 0.01, 0.0]):
        for n, p, d in ((16, 3, 3), (8, 1, 6), (2, 2, 2)):
            for m in (5, 40, 300, 100_000):
                yield from ((floor, n, p, d, m, noise) for noise in (0.0, 0.1, 2.0))


def _descended(alpha, V, M, rate, *, in_turn=False):
    """One step of descent on both, or on alpha first."""
    alpha, V = (part.clone().requires_grad_() for part in (alpha, V))
    by_alpha, by_V = torch.autograd.grad(population_error(alpha, V, M), (alpha, V))
    moved = alpha - rate * by_alpha
    if in_turn:
        (by_V,) = torch.autograd.grad(population_error(moved.detach(), V, M), V)
    return moved.detach(), (V - rate * by_V).detach()


@grader(
    "learning-heads/step",
    right=_descended,
    hint="not the step",
    parts=("alpha", "V"),
    mistakes={
        "the derivative of a square has a factor of two": lambda *case: _descended(*case[:3], case[3] / 2),
        "your V already sees the new alpha: move both at once": partial(_descended, in_turn=True),
    },
    formula="With D_ij = sum_h alpha^h_ij V_h - W_ij and c = 2 / energy the slopes are c <D_ij, V_h> for "
    "alpha^h_ij and c sum_ij alpha^h_ij D_ij for V_h",
)
def step_cases():
    """For a function (alpha (H, n, n), V (H, p, d), M (n, p, d), rate) -> both after one step of descent."""
    for seed, (H, n, p, d, rate) in enumerate(((2, 4, 3, 2, 0.7), (1, 3, 2, 2, 0.1), (3, 5, 2, 4, 2.0))):
        new = seeded(seed)
        yield *(torch.randn(shape, **new) for shape in ((H, n, n), (H, p, d), (n, p, d))), rate


def _directions(alpha, V):
    """The dimension of (all tables) ⊗ span V + span alpha ⊗ (all maps), which meet in a b dimensions."""
    n, a, b = alpha.shape[1], rank(V.flatten(1)), rank(alpha.flatten(1))
    return a * (n * (n + 1) // 2) + b * V[0].numel() - a * b


def _parameters(alpha, V, less=lambda H: 0):
    H, n, _ = alpha.shape
    return H * (n * (n + 1) // 2 + V[0].numel()) - less(H)


@grader(
    "learning-heads/free-numbers",
    right=_directions,
    hint="not the count",
    mistakes={
        "mixed heads have other parameters and are the same operator": _parameters,
        "dependent heads have fewer ways to move": partial(_parameters, less=lambda H: H * H),
    },
    formula="Take the rank of the table with one row for each number, the way in which the operator moves "
    "with it: V_h in one block for an entry of a causal table, alpha^h in one place of all blocks for one "
    "of a value map",
)
def free_numbers_cases():
    """For a function (alpha (H, n, n) lower triangular, V (H, p, d)) -> ways the operator can move."""
    # Independent heads, one head, dependent value maps, dependent tables, more heads than maps hold.
    new = seeded(8)
    sizes = ((2, 4, 3, 2), (1, 3, 2, 2), (3, 4, 2, 3), (2, 3, 3, 3), (5, 4, 2, 2))
    cases = [(torch.randn(H, n, n, **new).tril(), torch.randn(H, p, d, **new)) for H, n, p, d in sizes]
    cases[2][1][2] = cases[2][1][0] + cases[2][1][1]
    cases[3][0][1] = -2 * cases[3][0][0]
    return cases
