"""Graders of the chapter *trained-layers*: count the heads of a layer, read one, and merge some."""

from functools import partial

import torch

from headsandstates.chapters._graded import f64, fewest, misshaped, seeded, seeded_cases
from headsandstates.exercises import grader
from ssmbook.operators import FactorizedOperator


@grader(
    "trained-layers/heads-used",
    right=lambda alpha, V, eps: FactorizedOperator(alpha, V).epsilon_heads(eps),
    hint="not the count of sum_h alpha^h ⊗ V_h",
    look="two heads with one attention matrix, or with one value map, count as one head",
    mistakes={
        "an energy is a sum of squares of singular values": (
            lambda alpha, V, eps: fewest(FactorizedOperator(alpha, V).spectrum(), eps)
        ),
        "you add the energies of the heads one by one, and heads that resemble one another share a "
        "direction": (lambda alpha, V, eps: fewest(alpha.square().sum((1, 2)) * V.square().sum((1, 2)), eps)),
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


def _read(layer, x):
    """(alpha, V, offset): the weights that the layer reports, and products of its matrices."""
    alpha = layer(x[None], x[None], x[None], average_attn_weights=False)[1][0]
    H, d = len(alpha), x.shape[1]
    values, out = layer.in_proj_weight[2 * d :].view(H, -1, d), layer.out_proj.weight.view(d, H, -1)
    return alpha, torch.einsum("pha,had->hpd", out, values), layer.out_proj(layer.in_proj_bias[2 * d :])


def _unscaled(layer, x):
    """The reading, but for the scores, which are not divided by the root of a head's width."""
    alpha, V, offset = _read(layer, x)
    return (alpha.log() * (x.shape[1] / len(V)) ** 0.5).softmax(-1), V, offset


def _without_value_bias(layer, x):
    return *_read(layer, x)[:2], layer.out_proj.bias


@grader(
    "trained-layers/read",
    right=_read,
    hint="not the reading of the layer",
    look="take one head and one token, and follow its value and its bias through both matrices",
    parts=("alpha", "V", "offset"),
    mistakes={
        "your scores are not divided by the root of a head's width": _unscaled,
        "the bias of the values is missing: rows of alpha sum to 1, so it arrives whole": _without_value_bias,
    },
    formula="alpha is the softmax of q k^T over the root of d / H, biases included; V_h = O_h W_h, columns "
    "of the output matrix times rows of the values'; the offset is the output matrix times the values' "
    "bias, plus its own",
)
def read_cases():
    """For a function (layer, x (n, d)) -> alpha (H, n, n), V (H, d, d), offset (d,) of its attention."""
    new = seeded(9)
    for like, (d, H, n) in seeded_cases((4, 1, 3), (6, 2, 5), (12, 3, 7)):
        layer = torch.nn.MultiheadAttention(d, H, batch_first=True, dtype=f64)
        for part in layer.requires_grad_(False).parameters():  # biases too
            part.copy_(torch.randn(part.shape, **like) / part.shape[-1] ** 0.5)
        yield layer, torch.randn(n, d, **new)


def _merged(alpha, V, x, k, *, blind=False):
    """The best k heads on the tokens x, or for tokens that point everywhere alike."""
    best = FactorizedOperator(alpha, V if blind else V @ x.mT).best_heads(k)
    mixtures = torch.linalg.qr(best.alpha.flatten(1).mT).Q.mT
    maps = torch.einsum("kh,hpd->kpd", mixtures @ alpha.flatten(1).mT, V)
    return mixtures.unflatten(1, alpha.shape[1:]), maps


def _largest(alpha, V, x, k):
    """The k heads of the layer that put out most."""
    size = alpha.flatten(1).norm(dim=1) * (V @ x.mT).flatten(1).norm(dim=1)
    kept = size.topk(k).indices
    return alpha[kept], V[kept]


def _outputs(heads, alpha, V, x, k):
    """What the heads' blocks make of the tokens: (n, n, p, n)."""
    return torch.einsum("hij,hpd,md->ijpm", *(part.detach().to(f64) for part in heads), x)


@grader(
    "trained-layers/merge",
    right=_merged,
    judge=lambda heads, alpha, V, x, k: misshaped(heads, alpha=(k, len(x), len(x)), V=(k, *V.shape[1:])),
    view=_outputs,
    hint="not the nearest k heads; of what block (i, j) makes of the tokens",
    look="the distance compares V_h x^T and not V_h; find its best rank-k part first",
    mistakes={
        "the best heads are mixtures of all, not the largest ones": _largest,
        "the best heads depend on the tokens x": partial(_merged, blind=True),
    },
    formula="Take the SVD of the attention matrices (n * n, H) times the maps read on the tokens, V x^T as "
    "(H, p * n); the new matrices are the first k left singular vectors u, and the map of u is the sum of "
    "<u, alpha^h> V_h",
)
def merge_cases():
    """For a function (alpha, V, x, k) -> (alpha (k, n, n), V (k, p, d)), the best k heads on the tokens x."""
    new = seeded(5)
    for H, n, p, d, k in ((3, 5, 2, 4, 1), (5, 8, 4, 3, 2), (6, 9, 5, 5, 3), (4, 6, 2, 3, 4)):
        alpha, V = torch.randn(H, n, n, **new).softmax(-1), torch.randn(H, p, d, **new)
        yield alpha, V, torch.randn(n, d, **new) @ torch.randn(d, d, **new) + 2 * torch.randn(d, **new), k
