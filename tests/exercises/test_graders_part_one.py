"""Graders of Part I: right answers pass, each natural mistake gets its own sentence, and formulas wait."""

import cmath

import torch
from helpers import F64

from ssmbook.chapters.interaction_operator import graders as counting
from ssmbook.chapters.two_ways_to_mix import graders as mixing
from ssmbook.exercises import check
from ssmbook.operators import DenseOperator


def window(n, w):
    lag = torch.arange(n)[:, None] - torch.arange(n)[None, :]
    return ((lag >= 0) & (lag < w)).to(F64) / w


def rows_of_ones(n, first, last):
    """A one from token ``first(i)`` to token ``last(i)`` in row i."""
    return torch.tensor([[float(first(i) <= j <= last(i)) for j in range(n)] for i in range(n)], dtype=F64)


def moving_sum(n, w):
    return rows_of_ones(n, lambda i: i - w + 1, lambda i: i)


WINDOW = [
    lambda n, w: torch.stack([row / row.sum() for row in moving_sum(n, w)]),
    lambda n, w: rows_of_ones(n, lambda i: i - w, lambda i: i) / w,
    lambda n, w: rows_of_ones(n, lambda i: i, lambda i: i + w - 1) / w,
    lambda n, w: rows_of_ones(n, lambda i: i - w + 1, lambda i: i + w - 1) / w,
    moving_sum,
]


def test_window(each_mistake):
    for answer in (window, lambda n, w: window(n, w).numpy(), lambda n, w: window(n, w).tolist()):
        assert check("two-ways-to-mix/window", answer)
    each_mistake("two-ways-to-mix/window", anew=WINDOW)
    average = check("two-ways-to-mix/window", lambda n, w: 0.5 * torch.eye(n, dtype=F64))
    assert "entry (0, 0) is 0.5, wanted 1" in average.hint


def missed(M, H, times=lambda often: often, size=lambda energy: energy):
    """Every lag as often as it occurs, without a root."""
    rows = [lag.flatten() for tau, lag in enumerate(M) for _ in range(times(len(M) - tau))]
    sizes = size(torch.linalg.svdvals(torch.stack(rows)) ** 2)
    return sizes[H:].sum() / sizes.sum()


MISSED = [
    lambda M, H: missed(M, H, times=lambda often: 1),
    lambda M, H: missed(M, H, times=lambda often: often**2),
    lambda M, H: missed(M, H, size=lambda e: e.where(e > 1e-12 * e.max(), 0).sqrt()),  # no root of rounding
    lambda M, H: 1 - missed(M, H),
]


def test_missed(each_mistake):
    assert check("two-ways-to-mix/missed", missed)
    each_mistake("two-ways-to-mix/missed", anew=MISSED)
    assert "your number is 0.5, wanted" in check("two-ways-to-mix/missed", lambda M, H: 0.5).hint


def turning(theta, rho, n, causal=True, shrink=1.0):
    """Blocks (n, n, 2, 2) of a state that turns by theta and fades by rho, as powers of a complex number."""
    tau = torch.arange(n)[:, None] - torch.arange(n)
    z = shrink * (rho * cmath.exp(1j * theta)) ** tau
    z = z.tril() if causal else z
    return torch.stack([z.real, -z.imag, z.imag, z.real], -1).reshape(n, n, 2, 2)


FADING = [
    lambda theta, rho, n: turning(theta, 1.0, n),
    lambda theta, rho, n: turning(theta, rho, n, causal=False),
    lambda theta, rho, n: turning(-theta, rho, n),
    lambda theta, rho, n: turning(theta, 1.0, n, shrink=rho),
]


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
    assert check("two-ways-to-mix/fading", with_heads(turning))  # in another basis
    each_mistake("two-ways-to-mix/fading", mixing.FADING_MISTAKES, map(with_heads, FADING))
    assert "return the pair (alpha, V)" in check("two-ways-to-mix/fading", lambda *_: torch.eye(2)).hint
    flat = check("two-ways-to-mix/fading", lambda t, r, n: (torch.ones(n, n), torch.eye(2)))
    assert "alpha must have shape (2, 6, 6) and V (2, 2, 2); got (6, 6) and (2, 2)" in flat.hint


def by_singular_values(W, rtol):  # the signature of the exercise, without a default
    sigma = torch.linalg.svdvals(W.reshape(len(W) ** 2, -1))
    return int((sigma > rtol * sigma.max()).sum())


def singular_values(W, order="ijpd"):
    return torch.linalg.svdvals(torch.einsum(f"ijpd->{order}", W).flatten(0, 1).flatten(1))


SPAN = [
    lambda W, rtol: above(singular_values(W, "ipjd"), rtol),
    lambda W, rtol: above(singular_values(W) ** 2, rtol),
    lambda W, rtol: counting._span(W.float(), rtol),  # rounding noise is that of one routine
    lambda W, rtol: above(singular_values(W), 1e-10),
    lambda W, rtol: len([s for s in singular_values(W).tolist() if s > rtol]),
]


def above(sigma, rtol):
    return int((sigma > rtol * sigma.max()).sum())


def test_span(each_mistake):
    assert check("interaction-operator/span", by_singular_values)
    assert check("interaction-operator/span", lambda W, rtol=1e-10: by_singular_values(W, rtol))
    each_mistake("interaction-operator/span", anew=SPAN)
    squared_cut = check("interaction-operator/span", lambda W, rtol: counting._by_gram(W, rtol**2))
    assert "not the count: your number is" in squared_cut.hint
    for (W, rtol), k in zip(counting.span_cases(), (1, 3, 12, 5, 1, 0), strict=True):
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

    def orthonormal(W, H):  # the polar factor of the H heads
        alpha, V = (part.flatten(1) for part in by_eigenvalues(W, H))
        values, vectors = torch.linalg.eigh(alpha @ alpha.T)
        return (alpha.T @ (vectors / values.sqrt()) @ vectors.T @ V).reshape(W.shape)

    def second_to_next(W, H):
        alpha, V = by_eigenvalues(W, H + 1)
        return torch.einsum("hij,hpd->ijpd", alpha[:-1], V[:-1])  # the last one is the strongest

    def by_blocks(W, H):
        first = torch.stack([W[h // len(W), h % len(W)].flatten() for h in range(H)])
        rows = W.reshape(len(W) ** 2, -1)
        return (torch.linalg.lstsq(first.T, rows.T).solution.T @ first).reshape(W.shape)

    wrong = map(split, (orthonormal, second_to_next, by_blocks))
    each_mistake("interaction-operator/heads", counting.HEADS_MISTAKES, wrong)
    low = check("interaction-operator/heads", split(lambda W, H: counting._nearest(W, H) / 2))
    assert "not the nearest" in low.hint and "wanted" in low.hint
    assert "return the pair" in check("interaction-operator/heads", lambda W, H: W).hint


def test_path(each_mistake):
    def jacobian(F, x):
        return torch.func.jacrev(F)(x).movedim(2, 1)

    def simpson(F, x, order=(0, 1, 2, 3)):
        weights = [1, *[4, 2] * 7, 4, 1]  # Simpson's rule
        points = enumerate(weights)
        return sum(w * jacobian(F, t / 16 * x) for t, w in points).permute(order) / sum(weights)

    assert check("interaction-operator/path", simpson)
    wrong = [
        jacobian,
        lambda F, x: jacobian(F, x * 0.5),
        lambda F, x: torch.einsum("ip,jd->ijpd", F(x), x) / (x * x).sum(),
        lambda F, x: simpson(F, x, (1, 0, 2, 3)),
    ]
    each_mistake("interaction-operator/path", anew=wrong)


def selective(delta, A, B, C, early=1, enters=lambda delta: delta, rate=1.0):
    """Entry by entry, by the time between; ``early`` counts the steps that are left out."""
    n = len(delta)
    table = torch.zeros(n, n, dtype=F64)
    for i in range(n):
        for j in range(i + 1):
            passed = delta[j + early : i + 1].sum()
            table[i, j] = sum(C[i] * (rate * A * passed).exp() * enters(delta[j]) * B[j])
    return table


SELECTIVE = [
    lambda *case: selective(*case, early=0),
    lambda *case: selective(*case, enters=lambda delta: 1),
    lambda *case: selective(*case).T,
    lambda delta, A, B, C: selective(delta, A, C, B),
    lambda *case: selective(*case, rate=0.0),
]


def test_selective_table(each_mistake):
    each_mistake("zoo/selective-table", anew=SELECTIVE)


def test_delta_table(each_mistake):
    def by_recurrence(q, k, beta, write=None, erases=True, own=False):
        """Feed unit values: what comes out is the table."""
        n, r = k.shape
        S, rows = torch.zeros(n, r, dtype=F64), []
        for i in range(n):
            new = torch.eye(n, dtype=F64)[:, i, None] * (beta if write is None else write)[i] * k[i]
            S = S + own * new
            S = S - erases * beta[i] * torch.outer(S @ k[i], k[i])
            S = S + (not own) * new
            rows.append(S @ q[i])
        return torch.stack(rows)

    def from_the_reader(q, k, beta):
        """The erasures applied to the question, the earliest first."""
        n = len(k)
        table = torch.zeros(n, n, dtype=F64)
        for i in range(n):
            for j in range(i + 1):
                asked = q[i]
                for later in range(j + 1, i + 1):
                    asked = asked - beta[later] * (k[later] @ asked) * k[later]
                table[i, j] = beta[j] * k[j] @ asked
        return table

    wrong = [
        lambda *case: by_recurrence(*case, write=torch.ones(len(case[2]))),
        lambda *case: by_recurrence(*case, erases=False),
        lambda *case: by_recurrence(*case, own=True),
        from_the_reader,
    ]

    assert check("zoo/delta-table", by_recurrence)
    each_mistake("zoo/delta-table", anew=wrong)


def test_row_rank(each_mistake):
    def by_operator(W):
        return max(DenseOperator(W).row_rank(i) for i in range(len(W)))

    assert check("zoo/row-rank", by_operator)

    def spanned(blocks):
        return int(torch.linalg.matrix_rank(torch.stack([b.flatten() for b in blocks]), rtol=1e-9))

    n = range(6)
    wrong = [
        lambda W: spanned(W[i, j] for i in n for j in n),
        lambda W: max(spanned(W[i, j] for i in n) for j in n),
        lambda W: max(spanned(torch.cat(list(W[i]), 1)) for i in n),
        lambda W: spanned(W[5]),
    ]
    each_mistake("zoo/row-rank", anew=wrong)
