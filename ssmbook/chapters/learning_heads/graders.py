"""Graders of the chapter *learning-heads*."""

from functools import partial

import torch

from ssmbook.chapters._graded import rank, seeded
from ssmbook.exercises import grader
from ssmbook.experiments.learning_heads import population_error
from ssmbook.numerics import toeplitz


def _best_count(floor, n, p, d, m, noise, misfit=1.0, less=lambda H: H, table=None):
    """The H of the least predicted error, with another price or number of parameters where one is given."""
    table = n * (n + 1) // 2 if table is None else table(n)
    errors = []
    for H, left in enumerate(floor):
        free = H * (table + p * d - less(H))
        errors.append(left + free * (noise + misfit * left) / (m * n * p))
    return min(range(len(errors)), key=errors.__getitem__)


@grader(
    "learning-heads/worth-training",
    right=_best_count,
    hint="not the best H",
    mistakes={
        "what a head cannot fit is noise to the others, and you leave it out": (
            partial(_best_count, misfit=0.0)
        ),
        "your tables are full: a causal one has n (n + 1) / 2 numbers": (
            partial(_best_count, table=lambda n: n * n)
        ),
        "you count all parameters, and some of them change nothing": partial(_best_count, less=lambda H: 0),
        "you always take the most heads: on few data they fit the noise": (
            lambda floor, *given: len(floor) - 1
        ),
    },
    formula="Take the least of floor[H] + f_H (noise + floor[H]) / (m n p) with "
    "f_H = H (n (n + 1) / 2 + p d - H)",
)
def worth_training_cases():
    """For a function (floor, n, p, d, m, noise) -> the H with the least predicted error on m sequences."""
    for floor in ([1.0, 0.3, 0.05, 0.004, 0.0], [1.0, 0.5, 0.0], [1.0, 0.2, 0.1, 0.09, 0.01, 0.0]):
        for n, p, d in ((16, 3, 3), (8, 1, 6), (2, 2, 2)):
            for m in (5, 40, 300, 100_000):
                yield from ((floor, n, p, d, m, noise) for noise in (0.0, 0.1, 2.0))


def _descended(alpha, V, M, rate):
    """One step by autograd, the error from the library."""
    alpha, V = (part.clone().requires_grad_() for part in (alpha, V))
    slopes = torch.autograd.grad(population_error(alpha, V, M), (alpha, V))
    return tuple(part.detach() - rate * slope for part, slope in zip((alpha, V), slopes, strict=True))


def _step(alpha, V, M, rate, *, twice=2.0, share=True, causal=False, alone=False, in_turn=False, flip=False):
    """One step by hand, or one of the steps that are taken for it."""
    W = toeplitz(M, dim=-3)
    W = W.transpose(0, 1) if flip else W

    def slopes(alpha):
        made = alpha[:, :, :, None, None] * V[:, None, None]
        missed = (made if alone else made.sum(0, keepdim=True)) - W
        if causal:
            missed = missed * torch.ones(len(M), len(M), dtype=M.dtype).tril()[:, :, None, None]
        missed = twice * missed.expand_as(made) / (W.square().sum() if share else 1.0)
        return (missed * V[:, None, None]).sum((3, 4)), (missed * alpha[..., None, None]).sum((1, 2))

    moved = alpha - rate * slopes(alpha)[0]
    return moved, V - rate * slopes(moved if in_turn else alpha)[1]


@grader(
    "learning-heads/step",
    right=_descended,
    hint="not the step",
    parts=("alpha", "V"),
    mistakes={
        "yours is the slope of half the error: the square brings a factor of two": partial(_step, twice=1.0),
        "you go uphill: the gradient is subtracted": partial(_step, twice=-2.0),
        "the error is a share: divide by the energy of the teacher": partial(_step, share=False),
        "your V already sees the new alpha: both step from where they stand": partial(_step, in_turn=True),
        "each of your heads goes after the teacher alone: what is missed is missed by their sum": (
            partial(_step, alone=True)
        ),
        "you tell the student causality: its entries above the diagonal are errors as well": (
            partial(_step, causal=True)
        ),
        "your teacher reads the future: W_ij is M_(i-j), with j up to i": partial(_step, flip=True),
    },
    formula="With D_ij = sum_h alpha^h_ij V_h - W_ij and c = 2 / energy the slopes are c <D_ij, V_h> for "
    "alpha^h_ij and c sum_ij alpha^h_ij D_ij for V_h",
)
def step_cases():
    """For a function (alpha (H, n, n), V (H, p, d), M (n, p, d), rate) -> both after one step of descent."""
    for seed, (H, n, p, d, rate) in enumerate(((2, 4, 3, 2, 0.7), (1, 3, 2, 2, 0.1), (3, 5, 2, 4, 2.0))):
        new = seeded(seed)
        yield *(torch.randn(shape, **new) for shape in ((H, n, n), (H, p, d), (n, p, d))), rate


def _directions(alpha, V, table=lambda n: n * (n + 1) // 2, twice=1):
    """The dimension of (all tables) ⊗ span V + span alpha ⊗ (all maps), which meet in a b dimensions."""
    a, b = rank(V.flatten(1)), rank(alpha.flatten(1))
    return a * table(alpha.shape[1]) + b * V[0].numel() - twice * a * b


def _counted(alpha, V, less):
    H, n, _ = alpha.shape
    return H * (n * (n + 1) // 2 + V[0].numel()) - less(H)


@grader(
    "learning-heads/free-numbers",
    right=_directions,
    hint="not the count",
    mistakes={
        "you count the parameters: mixed heads have other parameters and are the same operator": (
            partial(_counted, less=lambda H: 0)
        ),
        "you take one scale off each head: heads may also be mixed with each other": (
            partial(_counted, less=lambda H: H)
        ),
        "right for independent heads alone: with dependent ones the operator has fewer ways to go": (
            partial(_counted, less=lambda H: H * H)
        ),
        "your tables are full: the numbers above the diagonal stay zero": (
            partial(_directions, table=lambda n: n * n)
        ),
        "you count ways twice that a table and a value map both can go": (partial(_directions, twice=0)),
    },
    formula="Take the rank of the table with one row for each number, the way in which the operator moves "
    "with it: V_h in one block for an entry of a causal table, alpha^h in one place of all blocks for one "
    "of a value map",
)
def free_numbers_cases():
    """For a function (alpha (H, n, n) lower triangular, V (H, p, d)) -> ways the operator can move."""
    # Independent heads, dependent value maps, dependent tables, a silent head, more heads than maps hold.
    new = seeded(8)
    sizes = ((2, 4, 3, 2), (1, 3, 2, 2), (3, 4, 2, 3), (2, 3, 3, 3), (2, 4, 1, 3), (5, 4, 2, 2))
    cases = [(torch.randn(H, n, n, **new).tril(), torch.randn(H, p, d, **new)) for H, n, p, d in sizes]
    cases[2][1][2] = cases[2][1][0] + cases[2][1][1]
    cases[3][0][1] = -2 * cases[3][0][0]
    cases[4][0][1], cases[4][1][1] = 0.0, 0.0
    return cases
