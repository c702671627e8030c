"""Graders of the chapter *trained-layers*: count the heads of a layer, read one, and merge some."""

from functools import partial

import torch

from ssmbook.chapters._graded import f64, no_pair, seeded
from ssmbook.exercises import agrees, grader, judged
from ssmbook.operators.ranks import tail_energies


def _heads_used(alpha, V, eps, *, power=1, left=lambda tail: tail):
    rows = torch.einsum("hij,hpd->ijpd", alpha, V).flatten(2).flatten(0, 1)
    sigma = torch.linalg.svdvals(rows)[: len(alpha)] ** power
    return int((left(tail_energies(sigma)) > eps).sum())


def _by_size(alpha, V, eps):
    """Whole heads, the largest first, as if they were orthogonal."""
    sizes = alpha.flatten(1).norm(dim=1) * V.flatten(1).norm(dim=1)
    return int((tail_energies(sizes.sort(descending=True)[0]) > eps).sum())


@grader(
    "trained-layers/heads-used",
    right=_heads_used,
    hint="not the count of sum_h alpha^h ⊗ V_h",
    mistakes={
        "you add singular values, and an energy is a sum of their squares": partial(_heads_used, power=0.5),
        "you add the energies of the heads one by one, and heads that resemble one another share a "
        "direction": _by_size,
        "eps is a share of the energy, and you compare it with a share of the norm": (
            partial(_heads_used, left=torch.sqrt)
        ),
        "one head too many: with H heads the values from the one after them on are left": (
            lambda alpha, V, eps: _heads_used(alpha, V, eps) + 1
        ),
    },
    formula="The eigenvalues of the product of the two Gram matrices are the energies; count the tails above "
    "eps of the whole",
)
def heads_used_cases():
    """For a function (alpha (H, n, n), V (H, p, d), eps) -> fewest heads that leave eps of the energy."""
    new = seeded(0)
    for H, n, p, d in ((4, 9, 3, 5), (6, 12, 4, 4), (2, 5, 7, 2)):
        alpha = torch.randn(H, n, n, **new).softmax(-1)
        V = torch.randn(H, p, d, **new) * 2.0 ** -torch.arange(H, dtype=f64)[:, None, None]
        yield from ((alpha, V, eps) for eps in (0.3, 0.1, 0.03, 0.01, 0.001))


def _layer(d, H, seed):
    """An attention layer of PyTorch with biases everywhere, as trained ones have them."""
    layer = torch.nn.MultiheadAttention(d, H, batch_first=True, dtype=f64)
    new = seeded(seed)
    with torch.no_grad():
        for part in layer.parameters():
            part.copy_(torch.randn(part.shape, **new) / part.shape[-1] ** 0.5)
    return layer.requires_grad_(False)


def _layer_cases():
    sizes, new = ((4, 1, 3), (6, 2, 5), (12, 3, 7)), seeded(9)
    return [(_layer(d, H, seed), torch.randn(n, d, **new)) for seed, (d, H, n) in enumerate(sizes)]


def _weights_reported(layer, x):
    return layer(x[None], x[None], x[None], average_attn_weights=False)[1][0]


def _maps_probed(layer, x):
    """The value maps (H, d, d), from what the layer makes of unit values at one token after the other."""
    (n, d), alpha = x.shape, _weights_reported(layer, x)
    units = torch.eye(n * d, dtype=f64).view(n * d, n, d)
    queries = x.expand(n * d, n, d)
    made, rest = (layer(queries, queries, values)[0] for values in (units, 0 * units))
    responses = (made - rest).view(n, d, n, d).permute(2, 0, 3, 1)  # i, j, p, d
    rows = responses.flatten(2).flatten(0, 1)
    return torch.linalg.lstsq(alpha.flatten(1).T, rows).solution.view(-1, d, d)


def _offset_probed(layer, x):
    """What every token receives when all values are zero, (d,)."""
    return layer(x[None], x[None], 0 * x[None])[0][0, 0]


def _alpha(layer, x, *, scale=None, biased=True, dim=-1, woven=False):
    H, d = layer.num_heads, x.shape[1]
    bias = layer.in_proj_bias if biased else 0
    q, k, _ = (x @ layer.in_proj_weight.T + bias).split(d, -1)
    q, k = (_by_head(part.T, H, woven).transpose(1, 2) for part in (q, k))
    return (q @ k.mT * ((d // H) ** -0.5 if scale is None else scale)).softmax(dim)


def _by_head(rows, H, woven=False):
    """(d, ...) -> (H, d / H, ...): a group of rows for each head, or every H-th row."""
    return rows.unflatten(0, (-1, H)).transpose(0, 1) if woven else rows.unflatten(0, (H, -1))


def _maps(layer, x, *, woven=False, flipped=False, stacked=False):
    H, d = layer.num_heads, x.shape[1]
    values, out = layer.in_proj_weight[2 * d :], layer.out_proj.weight
    out = out.T if not stacked else out
    V = _by_head(out, H, woven).mT @ _by_head(values, H, woven)
    return V.mT if flipped else V


ALPHA_MISTAKES = {
    "your scores are not divided by the root of a head's width": partial(_alpha, scale=1.0),
    "your queries and keys are without their biases": partial(_alpha, biased=False),
    "your columns sum to 1; a token's weights stand in its row": partial(_alpha, dim=-2),
    "your heads take every H-th row of the projections, and a head owns d / H rows in a run": (
        partial(_alpha, woven=True)
    ),
}
MAPS_MISTAKES = {
    "your heads cut the output matrix by rows, and a head's values enter through columns": (
        partial(_maps, stacked=True)
    ),
    "your value maps are transposed: V_h stands to the left of a token": partial(_maps, flipped=True),
    "your value maps take every H-th row, and a head owns d / H rows in a run": partial(_maps, woven=True),
}
OFFSET_MISTAKES = {
    "the bias of the values is missing: rows of alpha sum to 1, so it arrives whole": (
        lambda layer, x: layer.out_proj.bias
    ),
    "the bias of the values passes through the output matrix, and you add it as it is": (
        lambda layer, x: layer.in_proj_bias[2 * x.shape[1] :] + layer.out_proj.bias
    ),
    "you give none, and the biases of values and output are not zero": lambda layer, x: 0 * x[0],
}


def _form_of_reading(read, layer, x):
    """What is wrong with the form of (alpha, V, offset), if anything."""
    found, H, (n, d) = read(layer, x), layer.num_heads, x.shape
    if not isinstance(found, tuple) or len(found) != 3:
        return f"return (alpha, V, offset); got {type(found).__name__}"
    if not all(isinstance(part, torch.Tensor) for part in found):
        return f"all three must be tensors; got {', '.join(type(part).__name__ for part in found)}"
    for name, part, shape in zip(("alpha", "V", "offset"), found, ((H, n, n), (H, d, d), (d,)), strict=True):
        if tuple(part.shape) != shape:
            return f"for {H} heads, {n} tokens, width {d}, {name} must be {shape}; got {tuple(part.shape)}"
        if not part.isfinite().all():
            return f"{name} must be finite"
    return None


@grader(
    "trained-layers/read",
    formula="alpha is the softmax of q k^T over the root of d / H, biases included; V_h = O_h W_h, columns "
    "of the output matrix times rows of the values'; the offset is the output matrix times the values' "
    "bias, plus its own",
)
def grade_read(answer):
    """A function (layer, x (n, d)) -> alpha (H, n, n), V (H, d, d), offset (d,) of PyTorch's attention."""
    cases = _layer_cases()
    if problem := judged(answer, _form_of_reading, cases):
        return problem
    parts = (
        ("alpha: not the layer's weights", _weights_reported, ALPHA_MISTAKES),
        ("alpha is right, V is not", _maps_probed, MAPS_MISTAKES),
        ("alpha and V are right, the offset is not", _offset_probed, OFFSET_MISTAKES),
    )
    for place, (hint, wanted, mistakes) in enumerate(parts):
        found = lambda *case, place=place: answer(*case)[place]  # noqa: E731
        if problem := agrees(found, wanted, cases, hint, mistakes=mistakes):
            return problem
    return None


def _merged(alpha, V, x, k, read=lambda V, x: V @ x.mT):
    """The best k heads for inputs that ``read`` tells of, by an SVD of the whole table of blocks."""
    rows = torch.einsum("hij,hpm->ijpm", alpha, read(V, x)).flatten(2).flatten(0, 1)
    U = torch.linalg.svd(rows, full_matrices=False).U[:, :k]
    maps = torch.einsum("kh,hpd->kpd", U.T @ alpha.flatten(1).T, V)
    return U.T.unflatten(1, alpha.shape[1:]), maps


def _cut(alpha, V, x, k):
    """The k heads of the layer that put out most."""
    size = alpha.flatten(1).norm(dim=1) * (V @ x.mT).flatten(1).norm(dim=1)
    kept = size.argsort(descending=True)[:k]
    return alpha[kept], V[kept]


MERGE_MISTAKES = {
    "you keep the k largest heads as they are: the best ones are mixtures of all": _cut,
    "those are the best for tokens that point everywhere alike: you do not look at x": (
        partial(_merged, read=lambda V, x: V)
    ),
    "you weigh the tokens twice: x^T x holds squares, and the maps are read on x itself": (
        partial(_merged, read=lambda V, x: V @ (x.mT @ x))
    ),
    "you take the mean off the tokens, and the layer reads it with the rest": (
        partial(_merged, read=lambda V, x: V @ (x - x.mean(0)).mT)
    ),
}


def _merge_cases():
    new = seeded(5)
    for H, n, p, d, k in ((3, 5, 2, 4, 1), (5, 8, 4, 3, 2), (6, 9, 5, 5, 3), (4, 6, 2, 3, 4)):
        alpha, V = torch.randn(H, n, n, **new).softmax(-1), torch.randn(H, p, d, **new)
        yield alpha, V, torch.randn(n, d, **new) @ torch.randn(d, d, **new) + 2 * torch.randn(d, **new), k


def _form_of_heads(merge, alpha, V, x, k):
    """What is wrong with the form of (alpha, V), if anything."""
    (_, p, d), n, found = V.shape, len(x), merge(alpha, V, x, k)
    if problem := no_pair(found):
        return problem
    if not all(isinstance(part, torch.Tensor) for part in found):
        return f"both must be tensors; got {' and '.join(type(part).__name__ for part in found)}"
    shapes = [tuple(part.shape) for part in found]
    if shapes != [(k, n, n), (k, p, d)]:
        return f"alpha must have shape {(k, n, n)} and V {(k, p, d)}; got {shapes[0]} and {shapes[1]}"
    return None


@grader(
    "trained-layers/merge",
    formula="Take the SVD of the tables (n * n, H) times the maps read on the tokens, V x^T as (H, p * n); "
    "the new tables are the first k left singular vectors u, and the map of u is the sum of <u, alpha^h> V_h",
)
def grade_merge(answer):
    """A function (alpha, V, x, k) -> (alpha (k, n, n), V (k, p, d)), the nearest k heads on the tokens x."""
    cases = list(_merge_cases())
    if problem := judged(answer, _form_of_heads, cases):
        return problem

    def outputs(heads, alpha, V, x, k):
        """What the heads' blocks make of the tokens: (n, n, p, n)."""
        alpha, V = (part.detach().to(f64) for part in heads(alpha, V, x.clone(), k))
        return torch.einsum("hij,hpd,md->ijpm", alpha, V, x)

    hint = "not the nearest k heads; of what block (i, j) makes of the tokens"
    mistakes = {say: partial(outputs, wrong) for say, wrong in MERGE_MISTAKES.items()}
    wanted = partial(outputs, _merged)
    return agrees(partial(outputs, answer), wanted, cases, hint, mistakes=mistakes)
