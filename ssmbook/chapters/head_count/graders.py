"""Graders of the chapter *head-count*."""

from functools import partial

import torch

from ssmbook.chapters._graded import f64, rank, seeded
from ssmbook.exercises import close, grader
from ssmbook.experiments.learning_heads import population_error
from ssmbook.heads import head_floor
from ssmbook.numerics import toeplitz
from ssmbook.operators import LagOperator
from ssmbook.systems import random_stable


def _svd_heads(M, H, weight=True, out=True):
    """Kernels and value maps from the rows √(n−τ) vec M_τ; without the weight, or with it left in."""
    root = torch.arange(len(M), 0, -1, dtype=M.dtype).sqrt()[:, None]
    rows = root * M.flatten(1) if weight else M.flatten(1)
    V = torch.linalg.svd(rows, full_matrices=False).Vh[:H]
    return V @ (M.flatten(1) if out else rows).T, V.reshape(H, *M.shape[1:])


BEST_MISTAKES = {
    "your value maps are those of lags that all count alike: lag τ stands n − τ times in the table": (
        partial(_svd_heads, weight=False)
    ),
    "your value maps are right and your kernels are not: the weight √(n − τ) is still in them": (
        partial(_svd_heads, out=False)
    ),
}


def _left(columns, target):
    """The share of the target that no combination of the columns reaches."""
    fit = torch.linalg.lstsq(columns, target, driver="gelsd").solution
    return (target - columns @ fit).square().sum() / target.square().sum()


def _which_half(c, V, M, floor):
    """Which of kernels and value maps reach the floor with the best partner there is."""
    root = torch.arange(len(M), 0, -1, dtype=M.dtype).sqrt()[:, None]
    rows = root * M.flatten(1)
    halves = {"c": (root * c.T, rows), "V": (V.flatten(1).T, rows.T)}
    good = [name for name, half in halves.items() if not close(_left(*half), floor, "more", atol=1e-12)]
    return {
        (): "neither c nor V is right",
        ("c",): "c is right, V is not",
        ("V",): "V is right, c is not",
        ("c", "V"): "c and V are each right alone and not together: compare signs, scales and order",
    }[tuple(good)]


def _shortfall(answer, M, H):
    """What is wrong with the heads an answer returns for (M, H), judged by their error alone."""
    n, p, d = M.shape
    c, V = (torch.as_tensor(part) for part in answer(M, H))
    for name, given, shape in (("c", c, (H, n)), ("V", V, (H, p, d))):
        if tuple(given.shape) != shape:
            return f"{name} must have shape {shape} for H = {H}; got {tuple(given.shape)}"
    c, V = c.double(), V.double()
    error, floor = population_error(toeplitz(c), V, M), head_floor(M)[H]
    if not close(error, floor, "more", atol=1e-12):
        return None
    missed = f"at H = {H} your heads miss {float(error):.4f} of the energy, {float(floor):.4f} is possible"
    if not error.isfinite():
        return missed
    made = torch.einsum("ht,hpd->tpd", c, V)
    for sentence, wrong in BEST_MISTAKES.items():
        if torch.allclose(made, torch.einsum("ht,hpd->tpd", *wrong(M, H))):
            return f"{missed}; {sentence}"
    return f"{missed}; {_which_half(c, V, M, floor)}"


@grader(
    "head-count/best-heads",
    judge=_shortfall,
    formula="Take the value maps from the singular value decomposition of the rows √(n − τ) vec M_τ; the "
    "kernels are projections of the lags themselves, c_h(τ) = <M_τ, V_h>",
)
def best_heads_cases():
    """For a function (M (n, p, d), H) -> kernels c (H, n), value maps V (H, p, d)."""
    for seed, (N, d, p, n) in enumerate(((5, 3, 2, 12), (4, 2, 2, 30), (9, 2, 3, 6), (3, 1, 4, 8))):
        M = random_stable(N, d, p, rho=0.9, **seeded(seed)).lags(n)
        yield from ((M, H) for H in (1, 2, min(n, p * d), 0))


def _matrix(W, mixed=False):
    """The blocks (i, j, p, d) in the order (i, p), (j, d), or ``mixed`` up."""
    i, j, p, d = W.shape
    return (W if mixed else W.transpose(1, 2)).reshape(i * p, j * d)


def _two_ranks(W, past=1, cuts=range, mixed=False):
    states = max((rank(_matrix(W[m:, : m + past], mixed)) for m in cuts(len(W))), default=0)
    return states, rank(W.flatten(2).flatten(0, 1))


def _tables():
    """Causal tables: two poles, one head whose early cuts are the widest, a delay, random, no memory."""
    R = torch.randn(2, 2, 3, **seeded(1))
    two = torch.einsum("st,spd->tpd", torch.tensor([0.9, -0.5], dtype=f64)[:, None] ** torch.arange(8), R)
    delay = torch.zeros(5, 2, 2, dtype=f64)
    delay[3] = torch.eye(2, dtype=f64)
    early = torch.zeros(9, 9, 2, 2, dtype=f64)
    early[2:5, :3] = torch.randn(3, 3, 1, 1, **seeded(2)) * torch.randn(2, 2, **seeded(3))
    causal = torch.ones(6, 6, dtype=f64).tril()[:, :, None, None]
    loose = causal * torch.randn(6, 6, 1, 2, **seeded(4))
    memoryless = torch.diag_embed(torch.ones(4, dtype=f64))[:, :, None, None] * torch.ones(2, 2, dtype=f64)
    return [LagOperator(two).to_dense(), early, LagOperator(delay).to_dense(), loose, memoryless]


@grader(
    "head-count/two-ranks",
    right=_two_ranks,
    hint="the pair (states, heads) is not right",
    mistakes={
        "your cut mixes rows and columns: bring (i, j, p, d) into the order (i, p, j, d) first": (
            partial(_two_ranks, mixed=True)
        ),
        "your past ends before the cut: without a skip token m reaches output m through the state too": (
            partial(_two_ranks, past=0)
        ),
        "you cut in the middle alone: the state must be wide enough for every cut": (
            partial(_two_ranks, cuts=lambda n: [n // 2])
        ),
        "you have the two numbers in the wrong order: states first, then heads": (
            lambda W: _two_ranks(W)[::-1]
        ),
        "you took the rank of the whole table: state is only what crosses a cut, from inputs up to m to "
        "outputs from m on": lambda W: (rank(_matrix(W)), _two_ranks(W)[1]),
    },
    formula="States: the largest rank of W[m:, :m + 1] as a matrix with rows (i, p) and columns (j, d). "
    "Heads: the rank of W as a matrix with rows (i, j) and columns (p, d)",
)
def two_ranks_cases():
    """For a function W (n, n, p, d), causal -> (states, heads)."""
    return [(W,) for W in _tables()]


def _from_modes(R):
    return sum(rank(r) for r in R), rank(R.flatten(1))


@grader(
    "head-count/modes",
    right=_from_modes,
    hint="the pair (N, k) is not right",
    mistakes={
        "your N counts every pole once: a pole with a residue of rank r needs r states": (
            lambda R: (len(R), _from_modes(R)[1])
        ),
        "your k counts poles: residues that are combinations of others need no head of their own": (
            lambda R: (_from_modes(R)[0], len(R))
        ),
        "your k counts states: the rank inside a residue makes states, not heads": (
            lambda R: [_from_modes(R)[0]] * 2
        ),
        "your k is the rank of one matrix: it is the number of independent ones": (
            lambda R: (_from_modes(R)[0], rank(R.sum(0)))
        ),
        "your N is the rank of all residues together: two poles share no state, even with equal residues": (
            lambda R: (rank(R.transpose(0, 1).flatten(1)), _from_modes(R)[1])
        ),
    },
    formula="N is the sum of the ranks of the R_s, k the rank of the table with rows vec R_s",
)
def modes_cases():
    """For a function (residues R (ν, p, d) of simple poles) -> (N, k), the states and the heads."""
    planted = [torch.randn(3, 4, r, **seeded(r)) @ torch.randn(3, r, 3, **seeded(9)) for r in (1, 2, 3)]
    equal = planted[1][:1].expand(3, 4, 3).clone()
    tied = torch.cat([planted[0][:2], planted[0][:2].sum(0, keepdim=True)])
    return [(R,) for R in (*planted, equal, tied, torch.ones(5, 1, 1, dtype=f64))]
