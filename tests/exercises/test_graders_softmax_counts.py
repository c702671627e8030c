"""Graders of *how-many-heads-really*: right answers pass, each mistake gets its own sentence."""

import torch
from helpers import F64

from ssmbook.exercises import check
from ssmbook.heads import head_count, sinkless_plateau


def plateau(M, mean="weighted", share=lambda i: 1 / (i + 1), energy=lambda n, tau: n - tau):
    """Row by row in plain numbers."""
    n = len(M)
    sums = [sum(M[: i + 1]) for i in range(n)]
    weights = {"weighted": [1 / (i + 1) for i in range(n)], "plain": [1] * n, "last": [0] * (n - 1) + [1]}[
        mean
    ]
    center = sum(w * S for w, S in zip(weights, sums, strict=True)) / sum(weights)
    missed = sum(share(i) * (S - center).square().sum() for i, S in enumerate(sums))
    return missed / sum(energy(n, tau) * lag.square().sum() for tau, lag in enumerate(M))


PLATEAU = [
    lambda M: plateau(M, mean="plain"),
    lambda M: plateau(M, mean="last"),
    lambda M: plateau(M, share=lambda i: 1),
    lambda M: plateau(M, energy=lambda n, tau: 1),
    lambda M: sinkless_plateau(M).error,
]


def test_plateau(each_mistake):
    def by_least_squares(M):  # all blocks of row i are free, up to their sum, which is common
        n = len(M)
        visible = [(i, j) for i in range(n) for j in range(i + 1)]
        wanted = torch.stack([M[i - j].flatten() for i, j in visible])
        basis = torch.zeros(len(visible), 1 + n * (n - 1) // 2, dtype=F64)
        column = 1
        for row, (_, j) in enumerate(visible):
            if j == 0:
                basis[row, 0], first = 1.0, row  # the common sum, less what the others take
            else:
                basis[row, column], basis[first, column] = 1.0, -1.0
                column += 1
        fitted = basis @ torch.linalg.lstsq(basis, wanted).solution
        return (wanted - fitted).square().sum() / wanted.square().sum()

    assert check("how-many-heads-really/plateau", by_least_squares)
    assert check("how-many-heads-really/plateau", lambda M: sinkless_plateau(M).relative)
    each_mistake("how-many-heads-really/plateau", anew=PLATEAU)
    assert "your number is 0.5, wanted" in check("how-many-heads-really/plateau", lambda M: 0.5).hint


def rank_of(rows):
    return int(torch.linalg.matrix_rank(torch.stack(list(rows)), rtol=1e-9))


PAIRWISE = [
    lambda M: rank_of(lag.flatten() for lag in M),
    lambda M: rank_of(lag @ torch.eye(M.shape[2], dtype=F64)[0] for lag in M),
    lambda M: rank_of(lag @ torch.ones(M.shape[2], dtype=F64) for lag in M),
    lambda M: len(M[0]),
    lambda M: rank_of(column for lag in M for column in lag.T),
]


def test_pairwise(each_mistake):
    assert check("how-many-heads-really/pairwise", lambda M: head_count(M, coefficients="pairwise").value)
    each_mistake("how-many-heads-really/pairwise", anew=PAIRWISE)
    assert "your number is 7, wanted" in check("how-many-heads-really/pairwise", lambda M: 7).hint


def test_the_rotation_is_told_how_only_at_the_second_call():
    def one_head(theta, n):
        return torch.full((1, n), 0.5 / n), torch.eye(2)[None]

    first, second = (check("how-many-heads-really/rotation", one_head) for _ in range(2))
    assert "the heads miss a lag operator by" in first.hint and "outside the ends" not in first.hint
    assert "outside the ends" in second.hint
