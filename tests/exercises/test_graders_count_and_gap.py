"""Graders of *head-count* and *interaction-rank-gap*: a natural mistake gets its own sentence, no formula."""

import numpy as np
import torch
from helpers import F64, future, randn, rank

from ssmbook.chapters.head_count import graders as count
from ssmbook.chapters.interaction_rank_gap import graders as gap
from ssmbook.exercises import check


def best_heads(M, H, times=lambda n, tau: n - tau, scale=lambda n, tau: 1):
    """By the Gram matrix of all blocks, one row for every pair: another route to the same heads."""
    n = len(M)
    gram = sum(times(n, tau) * torch.outer(lag.flatten(), lag.flatten()) for tau, lag in enumerate(M))
    V = torch.linalg.eigh(gram).eigenvectors.flip(1)[:, :H].T
    c = [scale(n, tau) * (V @ lag.flatten()) for tau, lag in enumerate(M)]
    return torch.stack(c, 1), V.reshape(H, *M.shape[1:])


BEST = [
    lambda M, H: best_heads(M, H, times=lambda n, tau: 1),
    lambda M, H: best_heads(M, H, scale=lambda n, tau: (n - tau) ** 0.5),
]


def test_best_heads(each_mistake):
    assert check("head-count/best-heads", best_heads)
    each_mistake("head-count/best-heads", count.BEST_MISTAKES, BEST)
    other = check(
        "head-count/best-heads", lambda M, H: (torch.zeros(H, len(M)), torch.zeros(H, *M.shape[1:]))
    )
    assert "at H = 1 your heads miss 1.0000 of the energy" in other.hint
    turned = check("head-count/best-heads", lambda M, H: tuple(t.transpose(0, 1) for t in best_heads(M, H)))
    assert "c must have shape (1, 12) for H = 1; got (12, 1)" in turned.hint


WRONG_HALVES = {
    "; V is right, c is not": lambda c, V: (c.flip(1), V),
    "; c is right, V is not": lambda c, V: (c, V.flip(1)),
    "; neither c nor V is right": lambda c, V: (c.flip(1), V.flip(1)),
    "; c and V are each right alone and not together": lambda c, V: (-2 * c, V),
    "miss nan of the energy": lambda c, V: (c * torch.nan, V),
}


def test_best_heads_names_the_half_that_fails():
    for said, spoil in WRONG_HALVES.items():
        hint = check("head-count/best-heads", lambda M, H, spoil=spoil: spoil(*best_heads(M, H))).hint
        assert said in hint, hint


def two_ranks(W, cuts=lambda n: [(range(m, n), range(m + 1)) for m in range(n)]):
    """The widest block of the cuts, each (outputs, inputs), and the rank of all visible blocks."""
    n = len(W)
    blocks = [torch.cat([torch.cat([W[i, j] for j in past], 1) for i in future]) for future, past in cuts(n)]
    heads = torch.stack([W[i, j].flatten() for i in range(n) for j in range(i + 1)])
    return max(rank(block) for block in blocks), rank(heads)


def mixed(W):
    n, _, p, d = W.shape
    cuts = [W[m:, : m + 1].numpy().reshape((n - m) * p, (m + 1) * d) for m in range(n)]
    return max(int(np.linalg.matrix_rank(cut, rtol=1e-9)) for cut in cuts), two_ranks(W)[1]


RANKS = [
    mixed,
    lambda W: two_ranks(W, lambda n: [(range(m, n), range(m)) for m in range(1, n)]),
    lambda W: two_ranks(W, lambda n: [(range(n // 2, n), range(n // 2 + 1))]),
    lambda W: list(reversed(two_ranks(W))),
    lambda W: two_ranks(W, lambda n: [(range(n), range(n))]),
]


def test_two_ranks(each_mistake):
    assert check("head-count/two-ranks", two_ranks)
    each_mistake("head-count/two-ranks", anew=RANKS)
    for (W,) in count.two_ranks_cases():
        assert not W[future(len(W))].any()  # as the exercise says: nothing looks ahead
    # Two full poles; a table of rank 3; two tokens across a cut; a cut of 4 x 6 numbers; the token alone.
    assert [two_ranks(W) for (W,) in count.two_ranks_cases()] == [(4, 2), (6, 1), (4, 1), (4, 2), (1, 1)]
    assert "entry (1) is 7, wanted" in check("head-count/two-ranks", lambda W: (two_ranks(W)[0], 7)).hint


def above(rows):
    return int((torch.linalg.svdvals(rows) > 1e-9).sum())


def modes(R):
    return above(R), above(R.flatten(1))


MODES = [
    lambda R: (R.shape[0], modes(R)[1]),
    lambda R: (modes(R)[0], R.shape[0]),
    lambda R: (modes(R)[0], modes(R)[0]),
    lambda R: (modes(R)[0], above(sum(R))),
    lambda R: (above(torch.cat(list(R), 1)), modes(R)[1]),
]


def test_modes(each_mistake):
    assert check("head-count/modes", modes)
    each_mistake("head-count/modes", anew=MODES)
    assert "shape" in check("head-count/modes", lambda R: 3).hint


def diagonal_gap(a, b, n, times=lambda n, tau: n - tau):
    """The smaller eigenvalue in closed form, from three sums."""
    S = [sum(times(n, t) * z**t for t in range(n)) for z in (a * a, b * b, a * b)]
    half = (((S[0] - S[1]) / 2) ** 2 + S[2] ** 2) ** 0.5
    return max(0.0, 0.5 - half / (S[0] + S[1]))


GAP = [
    lambda *given: diagonal_gap(*given) ** 0.5,
    lambda *given: diagonal_gap(*given, times=lambda n, tau: 1),
    lambda *given: diagonal_gap(*given) / (1 - diagonal_gap(*given)),
    lambda *given: 1 - diagonal_gap(*given),
]


def test_diagonal_gap(each_mistake):
    assert check("interaction-rank-gap/diagonal-gap", diagonal_gap)
    each_mistake("interaction-rank-gap/diagonal-gap", anew=GAP)
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
        token = randn(V.shape[1], seed=2)
        return None if lonely_token(V, M) is None else token

    first = torch.eye(3, dtype=F64)[0]
    mistakes = {
        "their sum does not": with_basis,
        "there every token agrees, return None": always,
        "only where Vx = 0 does the head fall silent": random,
        "try sums of tokens": lambda V, M: first,
        "expected a token of shape (3,); got (1,)": lambda V, M: V[:, 0][:1],
        "a token must be finite and not zero": lambda V, M: 0 * V[0],
        "Mx is a multiple of Vx at your token [0.0, 1.0, 1.0]": lambda V, M: 1 - first,
    }
    each_mistake("interaction-rank-gap/lonely-token", mistakes)

    def beside(delta):
        """For the first case a token that far from one that agrees, in single precision."""
        near = torch.tensor([1.0, delta, 0.0], requires_grad=True)
        return lambda V, M: near if torch.equal(V, torch.eye(len(V))) else lonely_token(V, M)

    assert check("interaction-rank-gap/lonely-token", beside(1e-4))
    assert not check("interaction-rank-gap/lonely-token", beside(1e-8))


def by_rules(V, M, stays=True, multiples=lambda r, n: r - 1):
    """The two rules by projections: lags stay in the image of V, the first ones are multiples of V."""
    U, S, _ = torch.linalg.svd(V)
    r = int((S > 1e-9).sum())
    inside = all(float((U[:, r:].T @ lag).abs().sum()) < 1e-9 for lag in M) or not stays
    along = [lag - (lag * V).sum() / (V * V).sum() * V for lag in M[: max(0, multiples(r, len(M)))]]
    return inside and all(float(off.abs().max()) < 1e-9 for off in along)


HOLE = [
    lambda V, M: by_rules(V, M, multiples=lambda r, n: 0),
    lambda V, M: by_rules(V, M, stays=False),
    lambda V, M: by_rules(V, M, multiples=lambda r, n: n),
    lambda V, M: by_rules(V, M, multiples=lambda r, n: r),
]


def reached(V, M):
    """By trying: least squares on random inputs, every output within the span of what is visible."""
    x = randn(len(M), V.shape[1], seed=5)
    for i in range(len(M)):
        seen, wanted = (x[: i + 1] @ V.T).T, sum(M[i - j] @ x[j] for j in range(i + 1))
        left = seen @ torch.linalg.lstsq(seen, wanted[:, None], driver="gelsd", rcond=1e-9).solution
        if (left[:, 0] - wanted).norm() > 1e-7 * wanted.norm():
            return False
    return True


def test_hole(each_mistake):
    assert check("interaction-rank-gap/hole", reached)
    each_mistake("interaction-rank-gap/hole", anew=HOLE)
