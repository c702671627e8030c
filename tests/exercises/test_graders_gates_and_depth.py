"""Graders of *gates-and-depth*: right answers pass, each mistake gets its own sentence, formulas wait."""

import torch

from ssmbook.chapters.gates_and_depth import graders
from ssmbook.exercises import _grader, check


def powers(m):
    """Whether each column is r lambda^tau: its Hankel matrix of two columns has rank one."""
    tables = torch.stack([m[:-1], m[1:]], dim=1).permute(2, 0, 1)  # (d, n - 1, 2)
    sigma = torch.linalg.svdvals(tables)
    return bool((sigma[:, 1] < 1e-9 * sigma[:, 0]).all())


def by_rank(m):
    return powers(m / m[:, :1])


ONE_HEAD = [
    powers,
    lambda m: by_rank(m) and bool((m / m[:, :1] > 0).all()),
    lambda m: int(torch.linalg.matrix_rank(m)) == 1,
    lambda m: by_rank(m[:, :2]),
]


def test_one_head(each_mistake):
    assert check("gates-and-depth/one-head", by_rank)
    each_mistake("gates-and-depth/one-head", anew=ONE_HEAD)
    assert "your number is 0, wanted 1" in check("gates-and-depth/one-head", lambda m: False).hint


def test_chunks(each_mistake):
    def by_table(decays, x, L, seen=lambda crossed: crossed >= 0, saved=0):
        """Channel by channel, without a state or a gate; ``crossed`` counts chunks' ends in between."""
        i = torch.arange(len(x))
        lag, crossed = i[:, None] - i, i[:, None] // L - i // L
        steps = lag - saved * crossed
        tables = decays[:, None, None] ** steps.clamp(min=0) * ((lag >= 0) & seen(crossed))
        return torch.einsum("dij,jd->id", tables, x)

    apart = lambda *given: by_table(*given, seen=lambda crossed: crossed == 0)  # noqa: E731
    young = lambda *given: by_table(*given, saved=1)  # noqa: E731

    assert check("gates-and-depth/chunks", by_table)
    each_mistake("gates-and-depth/chunks", graders.CHUNK_MISTAKES, [apart, young])

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


def right(layer, h, H):
    return (h + 1) * (1 + H) ** layer


def without_layers(heads):
    """Right but for as many heads, where it gives no layer at all."""
    return lambda A, n, H: tuple(part[: None if H != heads else 0] for part in layers(right)(A, n, H))


def test_layers():
    name = "gates-and-depth/layers"
    assert check(name, layers(right))
    wrong = {
        "needs A^q": layers(right, lambda A, q: A),
        "in powers of two": layers(lambda layer, h, H: (h + 1) * 2**layer),
        "is the first one off": layers(lambda layer, h, H: (h + 1) * (1 + H) ** layer + 1),
        "n = 2, H = 1, output 1 is the first one off": without_layers(heads=1),
        "n = 9, H = 2, output 1 is the first one off": without_layers(heads=2),
        "a head reads a later token": lambda *given: (layers(right)(*given)[0].mT, layers(right)(*given)[1]),
        "expected alpha (L, H, n, n) and V (L, H, N, N); got (1, 1, 2, 2), (1, 4, 4)": (
            lambda *given: (layers(right)(*given)[0], layers(right)(*given)[1][0])
        ),
    }
    for words, answer in wrong.items():
        _grader._MISSES.clear()
        first, second = check(name, answer), check(name, answer)
        assert words in first.hint and "base 1 + H" not in first.hint
        assert "base 1 + H" in second.hint
