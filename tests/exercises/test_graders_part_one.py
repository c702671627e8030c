"""Graders of Part I: right answers pass, each natural mistake gets its own sentence, and formulas wait."""

import torch
from helpers import F64

from ssmbook.chapters.interaction_operator import graders as counting
from ssmbook.chapters.two_ways_to_mix import graders as mixing
from ssmbook.chapters.zoo import graders as zoo
from ssmbook.exercises import check
from ssmbook.operators import DenseOperator


def window(n, w):
    lag = torch.arange(n)[:, None] - torch.arange(n)[None, :]
    return ((lag >= 0) & (lag < w)).to(F64) / w


def test_window(each_mistake):
    for answer in (window, lambda n, w: window(n, w).numpy(), lambda n, w: window(n, w).tolist()):
        assert check("two-ways-to-mix/window", answer)
    each_mistake("two-ways-to-mix/window", mixing.WINDOW_MISTAKES)
    average = check("two-ways-to-mix/window", lambda n, w: 0.5 * torch.eye(n, dtype=F64))
    assert "entry (0, 0) is 0.5, wanted 1" in average.hint


def missed(M, H):
    sigma2 = torch.linalg.svdvals(torch.cat([M[: len(M) - i].flatten(1) for i in range(len(M))])) ** 2
    return sigma2[H:].sum() / sigma2.sum()  # every lag as often as it occurs, without a root


def test_missed(each_mistake):
    assert check("two-ways-to-mix/missed", missed)
    each_mistake("two-ways-to-mix/missed", mixing.MISSED_MISTAKES)
    assert "your number is 0.5, wanted" in check("two-ways-to-mix/missed", lambda M, H: 0.5).hint


def with_heads(operator):
    """An answer (alpha, V) whose sum is ``operator``, which has rank two or less."""

    def answer(theta, rho, n):
        rows = operator(theta, rho, n).reshape(n * n, 4)
        rows = torch.cat([rows, rows.new_zeros(4, 4)])  # two singular vectors also where n = 1
        U, S, Vh = torch.linalg.svd(rows, full_matrices=False)
        return (U[: n * n, :2] * S[:2]).T.reshape(2, n, n), Vh[:2].reshape(2, 2, 2)

    return answer


def test_fading(each_mistake):
    assert check("two-ways-to-mix/fading", mixing._fading_heads)
    assert check("two-ways-to-mix/fading", with_heads(mixing._of_fading))  # in another basis
    catalogue = [(with_heads(wrong), sentence) for wrong, sentence in mixing.FADING_MISTAKES]
    each_mistake("two-ways-to-mix/fading", catalogue)
    assert "return the pair (alpha, V)" in check("two-ways-to-mix/fading", lambda *_: torch.eye(2)).hint
    flat = check("two-ways-to-mix/fading", lambda t, r, n: (torch.ones(n, n), torch.eye(2)))
    assert "alpha must have shape (2, 6, 6) and V (2, 2, 2); got (6, 6) and (2, 2)" in flat.hint


def by_singular_values(W, rtol):  # the signature of the exercise, without a default
    sigma = torch.linalg.svdvals(W.reshape(len(W) ** 2, -1))
    return int((sigma > rtol * sigma.max()).sum())


def test_span(each_mistake):
    assert check("interaction-operator/span", by_singular_values)
    assert check("interaction-operator/span", lambda W, rtol=1e-10: by_singular_values(W, rtol))
    each_mistake("interaction-operator/span", counting.SPAN_MISTAKES)
    squared_cut = check("interaction-operator/span", lambda W, rtol: counting._by_gram(W, rtol**2))
    assert "not the count: your number is" in squared_cut.hint
    for (W, rtol), k in counting._cases():
        assert DenseOperator(W).interaction_rank(rtol=rtol) == k == counting._span(W, rtol)


def split(operator):
    """An answer (alpha, V) with the sum ``operator(W, H)``, of rank H or less."""

    def answer(W, H):
        n, _, p, d = W.shape
        U, S, Vh = torch.linalg.svd(operator(W, H).reshape(n * n, p * d), full_matrices=False)
        return (U[:, :H] * S[:H]).T.reshape(H, n, n), Vh[:H].reshape(H, p, d)

    return answer


def test_nearest_heads(each_mistake):
    def by_eigenvalues(W, H):  # another route: the projection on the leading eigenvectors of the Gram matrix
        rows = W.flatten(0, 1).flatten(1)
        V = torch.linalg.eigh(rows.T @ rows).eigenvectors[:, -H:]
        return (rows @ V).T.reshape(H, len(W), len(W)), V.T.reshape(H, *W.shape[2:])

    assert check("interaction-operator/heads", by_eigenvalues)
    catalogue = [(split(wrong), sentence) for wrong, sentence in counting.HEADS_MISTAKES]
    each_mistake("interaction-operator/heads", catalogue)
    low = check("interaction-operator/heads", split(lambda W, H: counting._nearest(W, H) / 2))
    assert "not the nearest" in low.hint and "wanted" in low.hint
    assert "return the pair" in check("interaction-operator/heads", lambda W, H: W).hint


def test_path(each_mistake):
    def many_steps(F, x):
        ts = (torch.arange(400, dtype=F64) + 0.5) / 400  # the midpoint rule
        return sum(counting._jacobian(F, t * x) for t in ts) / 400

    assert check("interaction-operator/path", many_steps)
    each_mistake("interaction-operator/path", counting.PATH_MISTAKES)


def test_selective_table(each_mistake):
    each_mistake("zoo/selective-table", zoo.SELECTIVE_MISTAKES)


def test_delta_table(each_mistake):
    def by_recurrence(q, k, beta):  # feed unit values: what comes out is the table
        n, r = k.shape
        S, rows = torch.zeros(n, r, dtype=F64), []
        for i in range(n):
            S = S - beta[i] * torch.outer(S @ k[i], k[i])
            S[i] += beta[i] * k[i]
            rows.append(S @ q[i])
        return torch.stack(rows)

    assert check("zoo/delta-table", by_recurrence)
    each_mistake("zoo/delta-table", zoo.DELTA_MISTAKES)


def test_row_rank(each_mistake):
    def by_operator(W):
        return max(DenseOperator(W).row_rank(i) for i in range(len(W)))

    assert check("zoo/row-rank", by_operator)
    each_mistake("zoo/row-rank", zoo.ROW_MISTAKES)
