"""Classes of coefficients: their counts, and how close an optimizer comes to the floor of each."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from scipy.optimize import nnls

from headsandstates.experiments.training import visible_rows
from ssmbook.heads import head_count
from ssmbook.numerics import numerical_rank


class HeadFit(NamedTuple):
    """After each evaluation (steps,) the least error so far, over the energy, and a largest number there.

    ``largest`` is taken over what least squares gave: V of softmax heads, coefficients of rank-one heads.
    """

    curve: torch.Tensor
    largest: torch.Tensor


def fit_softmax_heads(M, H, *, sink, steps=800, starts=1, generator=None) -> HeadFit:
    """Fit H causal softmax heads with fixed logits to lags M (n, p, d), the best of ``starts`` starts.

    ``sink`` gives every row a sink of logit 0 and value 0. L-BFGS over the logits, from small random ones,
    the value maps eliminated by least squares, in float64. Source: prop-plateau, thm-sink-count.
    """
    visible, rows, size = visible_rows(M)
    n = len(M)
    generator = torch.Generator().manual_seed(0) if generator is None else generator

    def features(logits):
        scores = logits.masked_fill(~visible, -math.inf)
        if sink:
            scores = torch.cat([scores.new_zeros(H, n, 1), scores], dim=-1)
        return scores.softmax(-1)[..., -n:][:, visible].mT

    def objective(logits):
        return _projected(features(logits), rows)

    descents = [_descend(0.1 * _normal((H, n, n), generator), objective, steps) for _ in range(starts)]
    curve, largest = min(descents, key=lambda found: float(found[0][-1]))
    return HeadFit(curve, size * largest)


def fit_rank_one_heads(M, H, *, steps=800) -> HeadFit:
    """Fit H heads with value maps a b^T to lags M (n, p, d), the coefficients by least squares.

    L-BFGS over the directions from one random start. The coefficients must diverge where no best
    approximation exists. Source: prop-rank-limited, prop-border-rank.
    """
    _, rows, size = visible_rows(M)
    p, d = M.shape[1:]
    start = _normal((H, p + d), torch.Generator().manual_seed(0))

    def maps(directions):
        a, b = directions[:, :p], directions[:, p:]
        V = (a[:, :, None] * b[:, None, :]).flatten(1)
        return (V / V.norm(dim=1, keepdim=True)).mT

    curve, largest = _descend(start, lambda directions: _projected(maps(directions), rows.mT), steps)
    return HeadFit(curve, size * largest)


def half_plane_floor(M, directions=100_000) -> float:
    """Return the relative error that two softmax heads with a sink approach and never reach.

    M (n, p, d) has interaction rank 2, else ``ValueError``. The error is min over unit U of the span of
    sum_tau (n - tau) min(<U, M_tau>, 0)^2 over the energy, over so many angles. Source: thm-sink-count.
    """
    flat = M.flatten(1)
    _, sigma, axes = torch.linalg.svd(flat, full_matrices=False)
    if (k := numerical_rank(sigma, 1e-10)) != 2:
        raise ValueError(f"M must have interaction rank 2; got {k}")
    angle = torch.arange(directions, dtype=torch.float64) * (2 * math.pi / directions)
    weight = torch.arange(len(M), 0, -1, dtype=torch.float64)
    heights = torch.stack([angle.cos(), angle.sin()], dim=1) @ (flat @ axes[:2].mT).mT
    missed = (heights.clamp(max=0).square() * weight).sum(1).min()
    return float(missed / (weight * flat.square().sum(1)).sum())


def cone_error(M, V) -> float:
    """Return the relative error of lags M (n, p, d) outside the cone of value maps V (H, p, d).

    What sink softmax heads with these value maps approach, each lag by itself. Source: thm-sink-count.
    """
    columns, rows = V.flatten(1).T.numpy(), M.flatten(1)
    weight = torch.arange(len(M), 0, -1, dtype=torch.float64)
    missed = torch.tensor([nnls(columns, row.numpy())[1] ** 2 for row in rows], dtype=torch.float64)
    return float((weight * missed).sum() / (weight * rows.square().sum(1)).sum())


def counts_by_class(system, n) -> list[str]:
    """Return the fewest heads of a system in six classes, as short texts: "6 to 8" where it is open."""
    counts = [head_count(system, n, kind) for kind in ("fixed", "sinkless", "softmax")]
    counts.append(head_count(system, n, value_rank=1))
    counts += [head_count(system, n, kind) for kind in ("pairwise", "any")]
    return [count.short for count in counts]


def equal_row_operator(k, n, *, signed, generator) -> torch.Tensor:
    """Return a causal W (n, n, 2, 3) with equal row sums and a span of dimension k.

    Its coefficients have both signs if ``signed``, else k heads without a sink make it. Source:
    thm-exact-reach.
    """
    c = _normal((k, n, n), generator)
    if signed:
        c = c.tril()
        c = c + torch.diag_embed(1 - c.sum(-1))
    else:
        c = c.exp().tril() / c.exp().tril().sum(-1, keepdim=True)
    return torch.einsum("hij,hpd->ijpd", c, _normal((k, 2, 3), generator))


def _normal(shape, generator):
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _projected(features, target):
    """The squared part of the target outside the columns of features, and its largest coefficient on them."""
    Q, R = torch.linalg.qr(features)
    seen = Q.mT @ target
    error = (target - Q @ seen).square().sum()
    with torch.no_grad():
        coefficients = torch.linalg.lstsq(R, seen, driver="gelsd").solution
    return error, float(coefficients.abs().max())


def _descend(start, objective: Callable, steps: int):
    """L-BFGS from ``start``; the least error after each evaluation, and the largest coefficient there."""
    point = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [point], max_iter=steps, max_eval=steps, history_size=20, tolerance_grad=1e-14, tolerance_change=0,
        line_search_fn="strong_wolfe",
    )  # fmt: skip
    path = [(math.inf, 0.0)]

    def closure():
        optimizer.zero_grad()
        error, coefficient = objective(point)
        error.backward()
        path.append((error.item(), coefficient) if error.item() < path[-1][0] else path[-1])
        return error

    optimizer.step(closure)
    return torch.tensor(path[1:], dtype=torch.float64).T
