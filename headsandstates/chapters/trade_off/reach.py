"""How much of a gradient path survives distance, tokens that open one, and a head that recalls."""

import math
from collections.abc import Callable

import torch

from ssmbook.maps import LTISSM, Attention, SequenceMap
from ssmbook.operators import LagOperator, jacobian_operator

# Random inputs of which the typical reach is the median; for the best one the largest tokens tried at first,
# and how many tries are moved in a round, how often each.
DRAWS, LARGEST, PARENTS, STEPS = 32, 8.0, 4, 4


def retained_fraction(F: Callable, source: torch.Tensor, target: torch.Tensor, gap: torch.Tensor):
    """What is left of the gradient from ``source`` to ``target`` with ``gap`` between the two tokens.

    source, target (..., d); gap (..., T - 1, d). Returns (...) in [0, 1]: ||dy_target/dx_source||_2 over the
    largest such norm with the gap's first t - 1 tokens, t = 1, 2, 4, ... and T. Source: def-reach.
    """
    distance = gap.shape[-2] + 1
    nearer = [2**e for e in range((distance - 1).bit_length())]  # the powers of two below the distance
    widths = torch.stack([_width(F, source, gap[..., : t - 1, :], target) for t in (*nearer, distance)])
    largest = widths.amax(0)
    return torch.where(largest > 0, widths[-1] / torch.where(largest > 0, largest, 1.0), 0.0)


def _width(F, source, gap, target):
    x = torch.cat([source[..., None, :], gap, target[..., None, :]], dim=-2)
    return torch.linalg.matrix_norm(jacobian_operator(F, x)[-1, 0], ord=2)


def typical_reach(F: Callable, d: int, distance: int, *, generator: torch.Generator | None = None) -> float:
    """The median of :func:`retained_fraction` over 32 normal sources, targets and gaps. Source: def-reach."""
    like = {"generator": generator, "dtype": torch.float64}
    source, target = torch.randn(2, DRAWS, d, **like)
    gap = torch.randn(DRAWS, distance - 1, d, **like)
    return float(retained_fraction(F, source, target, gap).median())


def best_reach(
    F: Callable, d: int, distance: int, *, rounds: int = 12, generator: torch.Generator | None = None
) -> float:
    """The largest share of a gradient across ``distance`` tokens that a search finds: a lower bound.

    Each try is a source, a target and the token that their gap repeats. The first 16 are standard normal, the
    gap's token times a size uniform in [0, 8], once 0. Each further round moves the best four tries by
    standard normal steps, four times each. Source: def-reach.
    """
    like = {"generator": generator, "dtype": torch.float64}
    tried = torch.randn(PARENTS * STEPS, 3, d, **like)
    tried[:, 2] *= LARGEST * torch.rand(PARENTS * STEPS, 1, **like)
    tried[0, 2] = 0
    kept = _kept(F, tried, distance)
    for _ in range(rounds - 1):
        if kept.max() == 1:  # no share is larger
            break
        moved = tried[kept.topk(PARENTS).indices].repeat(STEPS, 1, 1)
        moved += torch.randn(moved.shape, **like)
        tried, kept = torch.cat([tried, moved]), torch.cat([kept, _kept(F, moved, distance)])
    return float(kept.max())


def reach_in_words(typical: float, best: float) -> str:
    """A best reach for a table: what a search finds is a lower bound, rounded down to two digits.

    If all tokens gave the same share, there was nothing to search for, and no share exceeds 1.

    >>> reach_in_words(0.02, 0.4379), reach_in_words(0.62, 0.62), reach_in_words(0.02, 1.0)
    ('≥ 0.43', '0.62', '1')
    """
    if best == 1 or math.isclose(typical, best, rel_tol=1e-6, abs_tol=1e-300):
        return f"{best:.1e}" if 0 < best < 1e-3 else f"{best:.2g}"
    unit = 10.0 ** (math.floor(math.log10(best)) - 1)
    return f"≥ {math.floor(best / unit) * unit:.2g}"


def _kept(F, tried, distance):
    source, target, token = tried.unbind(1)
    return retained_fraction(F, source, target, token[:, None].expand(-1, distance - 1, -1))


def highway_tokens(head: Attention, distance: int) -> torch.Tensor:
    """Tokens (distance + 1, d), s a, zeros, s b, under which one causal softmax head looks back.

    With Q = W_K^T W_Q / sqrt(head_width) and its leading singular triple (u, sigma, v): a = sqrt(2/sigma) u,
    b = v / sqrt(2 sigma), s^2 = 2 log(distance + 2), so a^T Q b = 1 and b^T Q b <= 1/2. The last token then
    gives the first a weight of at least 1 - 2/(distance + 2).
    """
    Q = (head.W_K[0].mT @ head.W_Q[0]).detach() / math.sqrt(head.head_width)
    U, sigma, Vh = torch.linalg.svd(Q)
    size = math.sqrt(2 * math.log(distance + 2))
    x = Q.new_zeros(distance + 1, head.d)
    x[0] = size * torch.sqrt(2 / sigma[0]) * U[:, 0]
    x[-1] = size * Vh[0] / torch.sqrt(2 * sigma[0])
    return x


def recall_tokens(keys: torch.Tensor, values: torch.Tensor, asked: int) -> torch.Tensor:
    """m pairs and a question, as tokens of three slots: (key, nothing, value), then (nothing, key, nothing).

    keys (m, c), values (..., m, r), asked: whose value is wanted. Returns (..., m + 1, 2c + r).
    """
    slot = keys.expand(*values.shape[:-1], keys.shape[1])
    pairs = torch.cat([slot, torch.zeros_like(slot), values], dim=-1)
    question = torch.cat([torch.zeros_like(keys[0]), keys[asked], values.new_zeros(values.shape[-1])])
    return torch.cat([pairs, question.expand(*values.shape[:-2], 1, -1)], dim=-2)


def recall_head(c: int, r: int, beta: float) -> Attention:
    """One softmax head that answers :func:`recall_tokens`, beta the logit of a match between unit keys."""
    width = max(c, r)
    head = Attention(2 * c + r, r, H=1, head_width=width, dtype=torch.float64)
    with torch.no_grad():
        for weight, first, size in ((head.W_K, 0, c), (head.W_Q, c, c), (head.W_V, 2 * c, r)):
            weight.zero_()[0, :size, first : first + size] = torch.eye(size, dtype=head.W_K.dtype)
        head.W_Q.mul_(beta * math.sqrt(width))  # the layer divides by sqrt(head_width)
        head.W_O.zero_()[0, :, :r] = torch.eye(r, dtype=head.W_K.dtype)
    return head


def recall_missed(layer: SequenceMap, keys: torch.Tensor, r: int) -> float:
    """The share of standard normal values that a layer's answers miss, over all m questions: no sampling.

    The layer's answer must be affine in the values once the keys (m, c) are fixed.
    """
    m = len(keys)
    wanted = torch.eye(m * r, dtype=keys.dtype).reshape(m * r, m, r)
    total = 0.0
    with torch.no_grad():
        for t in range(m):
            silent = layer(recall_tokens(keys, torch.zeros_like(wanted[0]), t))[-1]
            answers = layer(recall_tokens(keys, wanted, t))[:, -1] - silent
            total += float((answers - wanted[:, t]).pow(2).sum() + silent.pow(2).sum())
    return total / (m * r)


def undo_residual(layer: LTISSM, u: torch.Tensor) -> torch.Tensor:
    """The tokens x (n, d) that a state space layer with residual sends to u: x + layer(x) = u.

    They may be very large: the inverse system need not be stable.
    """
    blocks = layer.system.lags(len(u)).detach()
    blocks[0] += torch.eye(layer.d, dtype=blocks.dtype)
    return torch.linalg.solve(LagOperator(blocks).to_block_matrix(), u.flatten()).reshape(u.shape)
