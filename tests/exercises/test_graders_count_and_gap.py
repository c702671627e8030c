"""Graders of *head-count* and *interaction-rank-gap*: a natural mistake gets its own sentence, no formula."""

import numpy as np
import torch
from helpers import F64

from ssmbook.chapters.head_count import graders as count
from ssmbook.chapters.interaction_rank_gap import graders as gap
from ssmbook.exercises import check


def best_heads(M, H):
    """By the Gram matrix of all blocks, one row for every pair: another route to the same heads."""
    n = len(M)
    rows = torch.cat([M[: n - i].flatten(1) for i in range(n)])
    V = torch.linalg.eigh(rows.T @ rows).eigenvectors.flip(1)[:, :H].T
    return V @ M.flatten(1).T, V.reshape(H, *M.shape[1:])


def test_best_heads(each_mistake):
    assert check("head-count/best-heads", best_heads)
    each_mistake("head-count/best-heads", count.BEST_MISTAKES)
    other = check(
        "head-count/best-heads", lambda M, H: (torch.zeros(H, len(M)), torch.zeros(H, *M.shape[1:]))
    )
    assert "at H = 1 your heads miss 1.0000 of the energy" in other.hint
    turned = check("head-count/best-heads", lambda M, H: tuple(t.transpose(0, 1) for t in best_heads(M, H)))
    assert "c must have shape (1, 12) for H = 1; got (12, 1)" in turned.hint


def two_ranks(W):
    n, _, p, d = W.shape
    states = 0
    for m in range(n):
        rows = [[W[i, j] for j in range(m + 1)] for i in range(m, n)]
        block = torch.cat([torch.cat(row, 1) for row in rows])
        states = max(states, int(torch.linalg.matrix_rank(block, rtol=1e-9)))
    rows = torch.stack([W[i, j].flatten() for i in range(n) for j in range(i + 1)])
    return states, int(torch.linalg.matrix_rank(rows, rtol=1e-9))


def test_two_ranks(each_mistake):
    assert check("head-count/two-ranks", two_ranks)
    each_mistake("head-count/two-ranks", count.RANKS_MISTAKES)
    assert "entry (1) is 7, wanted" in check("head-count/two-ranks", lambda W: (two_ranks(W)[0], 7)).hint

    def mixed(W):
        n, _, p, d = W.shape
        cuts = [W[m:, : m + 1].numpy().reshape((n - m) * p, (m + 1) * d) for m in range(n)]
        return max(int(np.linalg.matrix_rank(cut, rtol=1e-9)) for cut in cuts), two_ranks(W)[1]

    assert "your cut mixes rows and columns" in check("head-count/two-ranks", mixed).hint


def modes(R):
    left = torch.linalg.svdvals(R) > 1e-9
    return int(left.sum()), int((torch.linalg.svdvals(R.flatten(1)) > 1e-9).sum())


def test_modes(each_mistake):
    assert check("head-count/modes", modes)
    each_mistake("head-count/modes", count.MODES_MISTAKES)
    assert "shape" in check("head-count/modes", lambda R: 3).hint


def diagonal_gap(a, b, n):
    """The smaller eigenvalue in closed form, from three sums."""
    S = [sum((n - t) * z**t for t in range(n)) for z in (a * a, b * b, a * b)]
    half = (((S[0] - S[1]) / 2) ** 2 + S[2] ** 2) ** 0.5
    return 0.5 - half / (S[0] + S[1])


def test_diagonal_gap(each_mistake):
    assert check("interaction-rank-gap/diagonal-gap", diagonal_gap)
    each_mistake("interaction-rank-gap/diagonal-gap", gap.GAP_MISTAKES)
    assert "your number is 0.25, wanted" in check("interaction-rank-gap/diagonal-gap", lambda *_: 0.25).hint


def lonely_token(V, M):
    _, S, Vh = torch.linalg.svd(V)
    r = int((S > 1e-10).sum())
    tried = [*Vh, Vh[:r].sum(0), Vh.sum(0), Vh[:1].sum(0) + 2 * Vh[-1]]
    return next((x for x in tried if gap._off(V, M, x) > 1e-4), None) if M.any() else None


def test_lonely_token(each_mistake):
    assert check("interaction-rank-gap/lonely-token", lonely_token)

    def with_basis(V, M):
        eye = torch.eye(V.shape[1], dtype=F64)
        return next((x for x in eye if M.any() and gap._off(V, M, x) > 1e-9), None)

    def always(V, M):
        return lonely_token(V, M) if lonely_token(V, M) is not None else torch.ones(V.shape[1])

    def random(V, M):
        token = torch.randn(V.shape[1], generator=torch.Generator().manual_seed(2), dtype=F64)
        return None if lonely_token(V, M) is None else token

    first = torch.eye(3, dtype=F64)[0]
    mistakes = [
        (with_basis, "their sum does not"),
        (always, "there every token agrees, return None"),
        (random, "only where Vx = 0 does the head fall silent"),
        (lambda V, M: first, "try sums of tokens"),
        (lambda V, M: V[:, 0][:1], "expected a token of shape (3,); got (1,)"),
    ]
    each_mistake("interaction-rank-gap/lonely-token", mistakes)


def reached(V, M):
    """By trying: least squares on random inputs, every output within the span of what is visible."""
    x = torch.randn(len(M), V.shape[1], generator=torch.Generator().manual_seed(5), dtype=F64)
    for i in range(len(M)):
        seen, wanted = (x[: i + 1] @ V.T).T, sum(M[i - j] @ x[j] for j in range(i + 1))
        left = seen @ torch.linalg.lstsq(seen, wanted[:, None], driver="gelsd", rcond=1e-9).solution
        if (left[:, 0] - wanted).norm() > 1e-7 * wanted.norm():
            return False
    return True


def test_hole(each_mistake):
    assert check("interaction-rank-gap/hole", reached)
    each_mistake("interaction-rank-gap/hole", gap.HOLE_MISTAKES)
