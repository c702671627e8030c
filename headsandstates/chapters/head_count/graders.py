"""Graders of the chapter *head-count*."""

from functools import partial

import torch

from headsandstates.chapters._graded import block_rows, f64, misshaped, rank, seeded, seeded_cases
from headsandstates.exercises import grader
from ssmbook.operators import LagOperator
from ssmbook.systems import random_stable


def _svd_heads(M, H, weight=True, out=True):
    """Kernels and value maps from the rows √(n−τ) vec M_τ; without the weight, or with it left in."""
    root = torch.arange(len(M), 0, -1, dtype=M.dtype).sqrt()[:, None]
    rows = root * M.flatten(1) if weight else M.flatten(1)
    V = torch.linalg.svd(rows, full_matrices=False).Vh[:H]
    return V @ (M.flatten(1) if out else rows).T, V.reshape(H, *M.shape[1:])


@grader(
    "head-count/best-heads",
    right=_svd_heads,
    judge=lambda heads, M, H: misshaped(heads, c=(H, len(M)), V=(H, *M.shape[1:])),
    view=lambda heads, M, H: torch.einsum("ht,hpd->tpd", *(part.double() for part in heads)),
    hint="your heads are not the nearest; of the lags that they make",
    mistakes={
        "your value maps weigh all lags alike: lag τ occurs n − τ times": partial(_svd_heads, weight=False),
        "the weight √(n − τ) is still in your kernels": partial(_svd_heads, out=False),
    },
    formula="Take the value maps from the singular value decomposition of the rows √(n − τ) vec M_τ; the "
    "kernels are projections of the lags themselves, c_h(τ) = <M_τ, V_h>",
)
def best_heads_cases():
    """For a function (M (n, p, d), H) -> kernels c (H, n), value maps V (H, p, d)."""
    for like, (N, d, p, n) in seeded_cases((5, 3, 2, 12), (9, 2, 3, 6), (3, 1, 4, 8)):
        M = random_stable(N, d, p, rho=0.9, **like).lags(n)
        yield from ((M, H) for H in (1, 2, p * d, 0))


def _states(W, cuts=range, own=1, mixed=False):
    """The largest rank of outputs from m onward and inputs before m + own; mixed: rows are not (i, p)."""
    parts = [W[m:, : m + own] for m in cuts(len(W))]
    rows = [part if mixed else part.transpose(1, 2) for part in parts]
    return max(rank(row.reshape(len(row) * W.shape[2], -1)) for row in rows)


def _two_ranks(W, **how):
    return _states(W, **how), rank(block_rows(W))


@grader(
    "head-count/two-ranks",
    right=_two_ranks,
    hint="the pair (states, heads) is not right",
    mistakes={
        "the number of state variables comes first, that of the heads second": lambda W: _two_ranks(W)[::-1],
        "the state is the rank of a part of W: outputs from m onward, inputs up to m": (
            lambda W: _two_ranks(W, cuts=lambda n: [0], own=len(W))
        ),
        "token m enters the state before output m: put it on both sides of the cut": (
            partial(_two_ranks, cuts=lambda n: range(1, n), own=0)
        ),
        "W may change with time, so its first column need not contain all matrices": (
            lambda W: (_states(W), rank(W[:, 0].flatten(1)))
        ),
        "bring (i, j, p, d) into the order (i, p, j, d) first": partial(_two_ranks, mixed=True),
        "the state must be wide enough for every cut": partial(_two_ranks, cuts=lambda n: [n // 2]),
    },
    formula="States: the largest rank of W[m:, :m + 1] as a matrix with rows (i, p) and columns (j, d). "
    "Heads: the rank of W as a matrix with rows (i, j) and columns (p, d)",
)
def two_ranks_cases():
    """For a function W (n, n, p, d), causal -> (states, heads)."""
    R = torch.randn(2, 2, 3, **seeded(1))
    two = torch.einsum("st,spd->tpd", torch.tensor([0.9, -0.5], dtype=f64)[:, None] ** torch.arange(8), R)
    yield (LagOperator(two).to_dense(),)
    early = torch.zeros(9, 9, 2, 2, dtype=f64)  # one head whose early cuts are the widest
    early[2:5, :3] = torch.randn(3, 3, 1, 1, **seeded(2)) * torch.randn(2, 2, **seeded(3))
    yield (early,)
    silent = torch.einsum("ij,ipd->ijpd", torch.eye(4, dtype=f64), torch.randn(4, 2, 2, **seeded(4)))
    yield (silent,)  # no memory


def _from_modes(R):
    return sum(rank(r) for r in R), rank(R.flatten(1))


@grader(
    "head-count/modes",
    right=_from_modes,
    hint="the pair (N, k) is not right",
    mistakes={
        "a pole with a residue of rank r needs r states": lambda R: (len(R), _from_modes(R)[1]),
        "residues that are sums of others need no heads": lambda R: (_from_modes(R)[0], len(R)),
        "N comes first, k second": lambda R: _from_modes(R)[::-1],
    },
    formula="N is the sum of the ranks of the R_s, k the rank of the matrix with rows vec R_s",
)
def modes_cases():
    """For a function (residues R (ν, p, d) of simple poles) -> (N, k), the states and the heads."""
    planted = [torch.randn(3, 4, r, **seeded(r)) @ torch.randn(3, r, 3, **seeded(9)) for r in (1, 2, 3)]
    tied = torch.cat([planted[0][:2], planted[0][:2].sum(0, keepdim=True)])
    return [(R,) for R in (*planted, tied)]


def _measured(layer, n, d, at=0):
    """The lag operators of a linear layer, from unit vectors at one position."""
    units = torch.zeros(d, n, d, dtype=f64)
    units[:, at] = torch.eye(d)
    return torch.stack([layer(x) for x in units], 2)


@grader(
    "head-count/measure",
    right=_measured,
    hint="these are not the lag operators",
    mistakes={
        "your matrices are transposed: input channel c shows column c": lambda layer, n, d: (
            _measured(layer, n, d).mT
        ),
        "the layer is causal: put the unit vector at the first position": lambda layer, n, d: _measured(
            layer, n, d, at=n - 1
        ),
    },
    formula="If the first token is the unit vector e_c and all others are zero, output τ is column c of M_τ",
)
def measure_cases():
    """For a function (layer, n, d) -> lag operators (n, p, d); layer maps (n, d) to (n, p)."""
    for like, (N, d, p, n) in seeded_cases((3, 2, 2, 6), (4, 3, 2, 5), (2, 1, 3, 4)):
        lags = random_stable(N, d, p, rho=0.9, **like).lags(n)
        lags[0] += torch.randn(p, d, **like)  # a skip
        yield LagOperator(lags).apply, n, d
