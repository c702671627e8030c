"""Graders of *gates-and-depth*: right answers pass, each mistake gets its own sentence, formulas wait."""

import torch

from ssmbook.chapters.gates_and_depth import graders
from ssmbook.exercises import _grader, check


def by_rank(m):
    """The ratio table r lambda^tau has rank one in every Hankel matrix of two columns."""
    ratio = m / m[:, :1]
    tables = torch.stack([ratio[:-1], ratio[1:]], dim=1).permute(2, 0, 1)  # (d, n - 1, 2)
    sigma = torch.linalg.svdvals(tables)
    return bool((sigma[:, 1] < 1e-9 * sigma[:, 0]).all())


def test_one_head(each_mistake):
    assert check("gates-and-depth/one-head", by_rank)
    each_mistake("gates-and-depth/one-head", graders.ONE_HEAD_MISTAKES)
    assert "your number is 0, wanted 1" in check("gates-and-depth/one-head", lambda m: False).hint


def test_chunks(each_mistake):
    def by_table(decays, x, L):  # channel by channel, without a state or a gate
        lag = torch.arange(len(x))[:, None] - torch.arange(len(x))
        tables = decays[:, None, None] ** lag.clamp(min=0) * (lag >= 0)
        return torch.einsum("dij,jd->id", tables, x)

    assert check("gates-and-depth/chunks", by_table)
    each_mistake("gates-and-depth/chunks", graders.CHUNK_MISTAKES)

    def whole(decays, x, L):
        i = torch.arange(len(x), dtype=x.dtype)[:, None]
        return decays**i * (decays**-i * x).cumsum(0)

    assert "not finite on 700 tokens" in check("gates-and-depth/chunks", whole).hint
    halved = check("gates-and-depth/chunks", lambda decays, x, L: by_table(decays, x, L) / 2)
    assert "not the outputs: entry (0, 0) is" in halved.hint


def layers(stride, power=lambda A, q: torch.linalg.matrix_power(A, q)):
    def answer(A, n, H):
        L = 0
        while (1 + H) ** L < n:
            L += 1
        alpha, V = A.new_zeros(L, H, n, n), A.new_zeros(L, H, *A.shape)
        for layer in range(L):
            for h in range(H):
                q = stride(layer, h, H)
                alpha[layer, h] = A.new_ones(n, n).tril(-q).triu(-q)
                V[layer, h] = power(A, q)
        return alpha, V

    return answer


def test_layers():
    name, right = "gates-and-depth/layers", lambda layer, h, H: (h + 1) * (1 + H) ** layer
    assert check(name, layers(right))
    wrong = {
        "needs A^q": layers(right, lambda A, q: A),
        "in powers of two": layers(lambda layer, h, H: (h + 1) * 2**layer),
        "is the first one off": layers(lambda layer, h, H: (h + 1) * (1 + H) ** layer + 1),
    }
    for words, answer in wrong.items():
        _grader._MISSES.clear()
        first, second = check(name, answer), check(name, answer)
        assert words in first.hint and "base 1 + H" not in first.hint
        assert "base 1 + H" in second.hint
