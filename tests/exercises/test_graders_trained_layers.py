"""Graders of *trained-layers*: right answers by any route pass, each mistake gets its own sentence."""

import math

import torch
from helpers import F64, like

from ssmbook.chapters.trained_layers import graders
from ssmbook.exercises import check
from ssmbook.maps import Attention
from ssmbook.operators import FactorizedOperator

USED, READ, MERGE = (f"trained-layers/{name}" for name in ("heads-used", "read", "merge"))


def heads_used(alpha, V, eps):
    return FactorizedOperator(alpha, V).epsilon_heads(eps)


def enough(sizes, eps):
    """How many of the sizes, the largest first, until what is left is at most eps of all."""
    sizes = sorted(sizes, reverse=True)
    return next(H for H in range(len(sizes) + 1) if sum(sizes[H:]) <= eps * sum(sizes))


MISUSED = [
    lambda alpha, V, eps: enough(FactorizedOperator(alpha, V).spectrum().tolist(), eps),
    lambda alpha, V, eps: enough(
        [float((a.norm() * v.norm()) ** 2) for a, v in zip(alpha, V, strict=True)], eps
    ),
    lambda alpha, V, eps: heads_used(alpha, V, eps**2),
    lambda *given: heads_used(*given) + 1,
]


def test_heads_used(each_mistake):
    assert check(USED, heads_used)
    each_mistake(USED, anew=MISUSED)
    assert "not the count of sum_h alpha^h ⊗ V_h: your number is" in check(USED, lambda *given: 1.5).hint


def in_numbers(layer, x):
    """The reading, number by number, in the order in which PyTorch lays its parameters."""
    (n, d), H = x.shape, layer.num_heads
    r, W, b, out = d // H, layer.in_proj_weight, layer.in_proj_bias, layer.out_proj.weight
    alpha, V = torch.zeros(H, n, n, dtype=F64), torch.zeros(H, d, d, dtype=F64)
    for h in range(H):
        q, k = (x @ W[s : s + r].T + b[s : s + r] for s in (h * r, d + h * r))
        for i in range(n):
            e = torch.tensor([math.exp(q[i] @ k[j] / math.sqrt(r)) for j in range(n)], dtype=F64)
            alpha[h, i] = e / e.sum()
        for column in range(h * r, (h + 1) * r):
            V[h] += torch.outer(out[:, column], W[2 * d + column])
    return alpha, V, out @ b[2 * d :] + layer.out_proj.bias


def by_probing(layer, x):
    """What the layer says of its weights, and what it makes of zeros and of unit values."""
    probes = graders._weights_reported, graders._maps_probed, graders._offset_probed
    return tuple(probe(layer, x) for probe in probes)


def spoiled(place, wrong):
    def answer(layer, x):
        parts = list(in_numbers(layer, x))
        parts[place] = wrong(layer, x, parts[place])
        return tuple(parts)

    return answer


def test_read(each_mistake):
    assert check(READ, in_numbers)
    assert check(READ, by_probing)
    for place, name in enumerate(("ALPHA", "MAPS", "OFFSET")):
        for say, wrong in getattr(graders, f"{name}_MISTAKES").items():
            each_mistake(READ, {say: spoiled(place, lambda layer, x, right, wrong=wrong: wrong(layer, x))})


def test_read_knows_mistakes_made_by_another_route(each_mistake):
    def scores(alpha):
        return alpha.log()  # up to a number in each row, which a softmax forgets

    def by_rows(layer, x, V):
        d, H = x.shape[1], layer.num_heads
        values, out = layer.in_proj_weight[2 * d :], layer.out_proj.weight
        pairs = zip(out.chunk(H), values.chunk(H), strict=True)
        return torch.stack([rows.T @ value for rows, value in pairs])

    def by_columns(layer, x, alpha):
        q, k, _ = (x @ layer.in_proj_weight.T + layer.in_proj_bias).chunk(3, 1)
        pairs = zip(q.chunk(len(alpha), 1), k.chunk(len(alpha), 1), strict=True)
        return torch.stack([(q @ k.T / math.sqrt(q.shape[1])).softmax(0) for q, k in pairs])

    sentences = {say.partition(":")[0].partition(",")[0]: say for part in ("ALPHA", "MAPS", "OFFSET")
                 for say in getattr(graders, f"{part}_MISTAKES")}  # fmt: skip
    mine = {
        "your scores are not divided by the root of a head's width": (
            0, lambda layer, x, a: (scores(a) * (x.shape[1] / len(a)) ** 0.5).softmax(-1)
        ),
        "your columns sum to 1; a token's weights stand in its row": (0, by_columns),
        "your value maps are transposed": (1, lambda layer, x, V: V.mT),
        "your heads cut the output matrix by rows": (1, by_rows),
        "the bias of the values is missing": (2, lambda layer, x, offset: layer.out_proj.bias),
        "you give none": (2, lambda layer, x, offset: 0 * offset),
    }  # fmt: skip
    each_mistake(READ, {sentences[key]: spoiled(place, wrong) for key, (place, wrong) in mine.items()})


def test_read_names_the_part_and_its_first_wrong_entry():
    hints = "alpha: not the layer's weights", "alpha is right, V is not", "the offset is not"
    for place, words in enumerate(hints):
        verdict = check(READ, spoiled(place, lambda layer, x, right: 1.5 * right))
        assert words in verdict.hint and ": entry (" in verdict.hint
    narrow = check(READ, spoiled(1, lambda layer, x, V: V[:, :2]))
    assert "for 1 heads, 3 tokens, width 4, V must be (1, 4, 4); got (1, 2, 4)" in narrow.hint
    holed = spoiled(2, lambda layer, x, o: o.where(torch.arange(len(o)) > 0, math.nan))
    assert "offset must be finite" in check(READ, holed).hint
    assert "return (alpha, V, offset); got Tensor" in check(READ, lambda layer, x: x).hint
    assert "must be tensors; got int, int, int" in check(READ, lambda layer, x: (1, 2, 3)).hint
    assert "expected a function" in check(READ, 3).hint


def test_the_reading_is_the_layer():
    layer, x = graders._layer_cases()[-1]
    alpha, V, offset = in_numbers(layer, x)
    whole, _ = layer(x[None], x[None], x[None])
    torch.testing.assert_close(FactorizedOperator(alpha, V).apply(x) + offset, whole[0])


def merged(alpha, V, x, k):
    """Through a root of the second moments and back: the best heads of the weighted operator, unweighted."""
    L = torch.linalg.cholesky(x.mT @ x)
    best = FactorizedOperator(alpha, V @ L).best_heads(k)
    return best.alpha, torch.linalg.solve_triangular(L, best.V, upper=False, left=False)


def test_merge(each_mistake):
    assert check(MERGE, merged)
    each_mistake(MERGE, graders.MERGE_MISTAKES)
    largest = lambda alpha, V, x, k: (alpha[:k], V[:k])  # noqa: E731
    assert "not the nearest k heads; of what block (i, j)" in check(MERGE, largest).hint
    all_of_them = check(MERGE, lambda alpha, V, x, k: (alpha, V))
    assert "alpha must have shape (1, 5, 5) and V (1, 2, 4); got (3, 5, 5)" in all_of_them.hint
    assert "return the pair (alpha, V)" in check(MERGE, lambda alpha, V, x, k: alpha).hint
    assert "both must be tensors; got int and int" in check(MERGE, lambda alpha, V, x, k: (1, 2)).hint
    assert "expected a function" in check(MERGE, 3).hint


def test_merge_knows_mistakes_made_by_another_route(each_mistake):
    def cut(alpha, V, x, k):
        one_by_one = (FactorizedOperator(alpha[[h]], V[[h]] @ x.mT) for h in range(len(V)))
        kept = torch.stack([head.spectrum()[0] for head in one_by_one]).topk(k).indices
        return alpha[kept], V[kept]

    def blind(alpha, V, x, k):
        best = FactorizedOperator(alpha, V).best_heads(k)
        return best.alpha, best.V

    def centered(alpha, V, x, k):
        return merged(alpha, V, x - x.mean(0), k)

    sentences = list(graders.MERGE_MISTAKES)
    each_mistake(MERGE, dict(zip((*sentences[:2], sentences[3]), (cut, blind, centered), strict=True)))


def test_what_merging_leaves_is_what_the_count_says():
    """The heads left out of the count, on the tokens, are the energy that the merged layer misses."""
    new = like(3)
    layer, x = Attention(4, 4, H=6, head_width=4, **new), torch.randn(11, 4, **new)
    alpha, V = layer.coefficients(x).detach(), layer.value_maps().detach()
    sigma2 = FactorizedOperator(alpha, V @ x.mT).spectrum().square()
    whole = FactorizedOperator(alpha, V @ x.mT).to_dense()
    for k in (1, 3):
        new_alpha, new_V = graders._merged(alpha, V, x, k)
        missed = (whole - FactorizedOperator(new_alpha, new_V @ x.mT).to_dense()).square().sum()
        torch.testing.assert_close(missed, sigma2[k:].sum())
