"""Graders of the chapter *factorized*."""

from functools import partial

import torch

from headsandstates.chapters._graded import block_rows, f64, fewest, misshaped, seeded, seeded_cases, summed
from headsandstates.exercises import grader
from ssmbook.operators import FactorizedOperator


def _heads(H: int, distinct: int, seed: int):
    """H heads whose value maps span ``distinct`` dimensions."""
    like = seeded(seed)
    V = torch.einsum("hg,gpd->hpd", torch.randn(H, distinct, **like), torch.randn(distinct, 3, 4, **like))
    return torch.randn(H, 6, 6, **like).tril(), V


def _not_fewest(heads, alpha, V):
    """What is wrong with the heads returned for (alpha, V)."""
    given, k = f"{len(V)} heads", FactorizedOperator(alpha, V).interaction_rank()
    H = len(heads[0]) if isinstance(heads, tuple) and len(heads) else 0
    if problem := misshaped(heads, alpha=(H, *alpha.shape[1:]), V=(H, *V.shape[1:])):
        return problem
    dense = summed((alpha, V))
    if not torch.allclose(summed(heads), dense, rtol=1e-7, atol=1e-9 * float(dense.abs().max())):
        return f"on {given} your pair gives another operator: compare the sums of alpha^h_ij V_h"
    if H == k:
        return None
    reason = "value maps may be dependent, and so may attention matrices"
    if all(torch.equal(torch.as_tensor(new), old) for new, old in zip(heads, (alpha, V), strict=True)):
        reason = "these are the heads that you were given"
    elif H == torch.linalg.matrix_rank(V.flatten(1)):
        reason = "you reduced the value maps alone, and attention matrices may be dependent too"
    elif H == torch.linalg.matrix_rank(alpha.flatten(1)):
        reason = "you reduced the attention matrices alone, and value maps may be dependent too"
    return f"on {given} you return {H} and {k} are enough: {reason}"


@grader(
    "factorized/fewest-heads",
    judge=_not_fewest,
    look="count the independent rows of alpha^T V, one row per pair (i, j), not of one factor",
    formula="The rows vec W_ij are the product of the n² x H matrix of coefficients and the H x pd matrix of "
    "value maps: take the singular value decomposition of their product, keep values above a small tolerance",
)
def fewest_heads_cases():
    """For a function (alpha (H, n, n), V (H, p, d)) -> the same operator's pair with the fewest heads."""
    yield from (_heads(1, 1, 0), _heads(5, 3, 1), _heads(4, 4, 2), _heads(6, 1, 3))
    alpha, V = _heads(4, 4, 8)
    yield alpha[[0, 1, 1, 0]], V  # dependent attention matrices
    alpha, V = _heads(2, 2, 7)
    yield torch.cat([alpha, -alpha[:1]]), torch.cat([V, V[:1]])  # two heads cancel


def _common_count(blocks, eps, power=2):
    return fewest(torch.linalg.svdvals(block_rows(blocks.flatten(0, 1))) ** power, eps)


@grader(
    "factorized/common-count",
    right=_common_count,
    hint="not the count",
    look="which rows are stacked, and which powers of their singular values add up",
    mistakes={
        "the energy is the sum of the squares of the singular values": partial(_common_count, power=1),
        "you count each input alone: one set of maps has to serve all": (
            lambda blocks, eps: max(_common_count(one[None], eps) for one in blocks)
        ),
    },
    formula="Stack the rows vec W_ij(X) of all inputs, square their singular values, and take the smallest H "
    "whose tail, from H + 1 on, is at most eps of the sum",
)
def common_count_cases():
    """For a function (blocks (s, n, n, p, d), eps) -> the fewest common heads that miss at most eps."""
    for like, (eps,) in seeded_cases((0.3,), (0.03,), (0.003,), (0.7,)):
        # five inputs that share three strong directions and lean on them differently
        V = torch.linalg.qr(torch.randn(9, 9, **like)).Q * torch.logspace(0, -2, 9, dtype=f64)[:, None]
        weights = torch.randn(5, 16, 9, **like) * (1 + 3 * torch.rand(5, 1, 9, **like))
        yield (weights @ V).reshape(5, 4, 4, 3, 3), eps


def _gauge(V, V_new):
    return torch.linalg.lstsq(V.flatten(1).T, V_new.flatten(1).T).solution.T


def _not_narrow(layer, alpha, V, r):
    """What is wrong with the concatenated layer (alpha, W_O, W_V) returned for (alpha, V, r)."""
    K = len(layer[0]) if isinstance(layer, tuple) and len(layer) else 0
    shapes = {"alpha": (K, *alpha.shape[1:]), "W_O": (V.shape[1], K * r), "W_V": (K, r, V.shape[2])}
    if problem := misshaped(layer, **shapes):
        return problem
    W_O = torch.stack(layer[1].split(r, dim=1))
    if not torch.allclose(summed((layer[0], W_O @ layer[2])), summed((alpha, V)), rtol=1e-7, atol=1e-8):
        ranks = torch.linalg.matrix_rank(V)
        lost = len(V) == K and int(ranks.max()) > r
        reason = f": a head of width {r} cannot hold a value map of rank {int(ranks.max())}" if lost else ""
        return f"your layer computes another operator{reason}"
    enough = sum(-(-int(R) // r) for R in torch.linalg.matrix_rank(V))
    return None if K <= enough else f"you return {K} heads of width {r}, and {enough} are enough"


@grader(
    "factorized/narrow",
    judge=_not_narrow,
    look="the columns of W_O that belong to one head, and the rank of their product with W_V",
    formula="Take the singular value decomposition of every V_h; each r of its directions are one head, "
    "which repeats the attention matrix A_h, and the last head of a V_h is filled up with zeros",
)
def narrow_cases():
    """For a function (alpha, V (H, p, d), r) -> alpha (K, n, n), W_O (p, K r), W_V (K, r, d)."""
    for like, (H, rank, r) in seeded_cases((1, 1, 1), (2, 3, 2), (3, 4, 4), (2, 4, 1)):
        V = torch.randn(H, 5, rank, **like) @ torch.randn(H, rank, 6, **like)
        yield torch.randn(H, 6, 6, **like).tril(), V, r


@grader(
    "factorized/gauge",
    right=_gauge,
    hint="G does not make V_new from V",
    look="row h of G has the coordinates of the new V_h in the old V",
    mistakes={
        "yours is the transpose: row h of G makes the new V_h": lambda V, V_new: _gauge(V, V_new).T,
        "yours is the inverse: it makes the old maps from the new": lambda V, V_new: _gauge(V_new, V),
    },
    formula="Write every value map as a row of p d numbers: V' = G V is a linear system for the rows of G; "
    "torch.linalg.lstsq(V.T, V'.T).solution.T solves it",
)
def gauge_cases():
    """For a function (V (H, p, d), V_new (H, p, d)) -> G (H, H) with V_new_h = sum_g G_hg V_g."""
    for like, (H, p, d) in seeded_cases((3, 3, 4), (4, 2, 3), (2, 1, 5), (1, 2, 2), (6, 2, 3)):
        V, G = torch.randn(H, p, d, **like), torch.randn(H, H, **like) + 2 * torch.eye(H, dtype=f64)
        yield V, torch.einsum("hg,gpd->hpd", G, V)
