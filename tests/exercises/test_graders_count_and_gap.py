"""Graders of *head-count* and *interaction-rank-gap*: a natural mistake gets its own sentence, no formula."""

import pytest
import torch

from ssmbook.chapters.head_count import graders as count
from ssmbook.exercises import _grader, check

f64 = torch.float64


@pytest.fixture(autouse=True)
def first_call(monkeypatch):
    monkeypatch.setattr(_grader, "_MISSES", {})


def each_mistake(name, catalogue):
    """Every mistake is told its own sentence, without the formula at first and with it at the second call."""
    said = set()
    for answer, sentence in catalogue:
        _grader._MISSES.clear()
        verdicts = [check(name, answer) for _ in range(2)]
        assert not any(verdicts)
        assert verdicts[0].hint.endswith(sentence), verdicts[0].hint
        assert verdicts[1].hint == f"{verdicts[0].hint}. {_grader._FORMULAS[name]}"
        said.add(sentence)
    assert len(said) == len(catalogue)


def best_heads(M, H):
    """By the Gram matrix of all blocks, one row for every pair: another route to the same heads."""
    n = len(M)
    rows = torch.cat([M[: n - i].flatten(1) for i in range(n)])
    V = torch.linalg.eigh(rows.T @ rows).eigenvectors.flip(1)[:, :H].T
    return V @ M.flatten(1).T, V.reshape(H, *M.shape[1:])


def test_best_heads():
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


def test_two_ranks():
    assert check("head-count/two-ranks", two_ranks)
    each_mistake("head-count/two-ranks", count.RANKS_MISTAKES)
    assert "entry (1) is 7, wanted" in check("head-count/two-ranks", lambda W: (two_ranks(W)[0], 7)).hint


def modes(R):
    left = torch.linalg.svdvals(R) > 1e-9
    return int(left.sum()), int((torch.linalg.svdvals(R.flatten(1)) > 1e-9).sum())


def test_modes():
    assert check("head-count/modes", modes)
    each_mistake("head-count/modes", count.MODES_MISTAKES)
    assert "shape" in check("head-count/modes", lambda R: 3).hint
