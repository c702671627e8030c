"""Classes of coefficients: their counts, and how close an optimizer comes to the floor of each."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from scipy.optimize import nnls

from ssmbook import heads
from ssmbook.experiments.training import visible_rows


class HeadFit(NamedTuple):
    """Heads found by an optimizer.

    ``curve`` (steps,) the least relative error so far after each evaluation and ``largest`` (steps,) the
    largest number the last least squares returned there (an entry of a value map for softmax heads; a
    coefficient, with value maps of unit norm, for rank-one heads), both float64; ``alpha`` (H, n, n) and
    ``V`` (H, p, d) the best heads found.
    """

    curve: torch.Tensor
    largest: torch.Tensor
    alpha: torch.Tensor
    V: torch.Tensor


def fit_softmax_heads(M, H, *, sink, steps=800, starts=1, generator=None) -> HeadFit:
    """Fit H causal softmax heads with fixed logits to a system, the value maps eliminated by least squares.

    M (n, p, d) real floating, the lags; H, steps, starts >= 1 ints; ``sink`` gives every row a sink of logit
    0 and value 0; ``generator`` a torch.Generator on the CPU (default: seed 0). Minimizes sum_ij ||W_ij -
    M_{i-j}||^2 over the logits by L-BFGS in float64, from small random logits, and keeps the best of
    ``starts`` starts; the error is relative to the energy of the system. Result ``HeadFit`` in float64.

    Raises ``ValueError`` for a zero system. Source: prop-plateau, thm-sink-count.
    """
    visible, rows, size = visible_rows(M)
    n = len(M)
    generator = torch.Generator().manual_seed(0) if generator is None else generator

    def features(logits):
        scores = logits.masked_fill(~visible, -math.inf)
        if sink:
            scores = torch.cat([scores.new_zeros(H, n, 1), scores], dim=-1)
        return scores.softmax(-1)[..., -n:][:, visible].mT

    def descent():
        start = 0.1 * _normal((H, n, n), generator)
        return _descend(start, lambda logits: _projected(features(logits), rows), steps)

    curve, largest, best = min((descent() for _ in range(starts)), key=lambda found: float(found[0][-1]))
    alpha = features(best)
    V = torch.linalg.lstsq(alpha, rows, driver="gelsd").solution
    return _fitted(curve, size * largest, alpha, size * V, visible, M.shape)


def fit_rank_one_heads(M, H, *, steps=800) -> HeadFit:
    """Fit H heads with value maps a b^T of rank one to a system, the coefficients by least squares.

    M (n, p, d) real floating, the lags; H >= 1 and steps >= 1 ints. L-BFGS in float64 over the directions
    a_h, b_h, from one random start; ``largest`` is the largest coefficient with value maps of unit norm,
    which must diverge where no best approximation exists. Result ``HeadFit`` in float64. Source:
    prop-rank-limited, prop-border-rank.
    """
    visible, rows, size = visible_rows(M)
    p, d = M.shape[1:]
    start = _normal((H, p + d), torch.Generator().manual_seed(0))

    def maps(directions):
        a, b = directions[:, :p], directions[:, p:]
        V = (a[:, :, None] * b[:, None, :]).flatten(1)
        return (V / V.norm(dim=1, keepdim=True)).mT

    curve, largest, best = _descend(start, lambda directions: _projected(maps(directions), rows.mT), steps)
    V = maps(best)
    alpha = torch.linalg.lstsq(V, rows.mT, driver="gelsd").solution.mT
    return _fitted(curve, size * largest, size * alpha, V.mT, visible, M.shape)


def half_plane_floor(M, directions=100_000) -> float:
    """Return the relative error below which two softmax heads with a sink cannot go, for a system with k = 2.

    M (n, p, d) real floating with interaction rank 2; ``directions`` an int >= 1, the grid of angles
    searched. The floor is min over U of sum_tau (n - tau) min(<U, M_tau>, 0)^2 over the energy of M, U a unit
    matrix of the span: an infimum, approached by value maps that become opposite. Result a float, computed in
    float64.

    Raises ``ValueError`` for another rank. Source: thm-sink-count.
    """
    flat = M.detach().double().flatten(1)
    _, sigma, axes = torch.linalg.svd(flat, full_matrices=False)
    k = int((sigma > 1e-10 * sigma.amax()).sum()) if sigma.numel() else 0
    if k != 2:
        raise ValueError(f"M must have interaction rank 2; got {k}")
    angle = torch.arange(directions, dtype=torch.float64, device=M.device) * (2 * math.pi / directions)
    weight = torch.arange(len(M), 0, -1, dtype=torch.float64, device=M.device)
    heights = torch.stack([angle.cos(), angle.sin()], dim=1) @ (flat @ axes[:2].mT).mT
    missed = (heights.clamp(max=0).square() * weight).sum(1).min()
    return float(missed / (weight * flat.square().sum(1)).sum())


def cone_error(M, V) -> float:
    """Return the relative error of the best non-negative coefficients on given value maps, lag by lag.

    M (n, p, d) and V (H, p, d), real floating; the error is sum_tau (n - tau) dist(M_tau, cone(V))^2 over the
    energy of M: what sink softmax heads with these value maps can approach, in float64. Source:
    thm-sink-count.
    """
    columns = V.detach().double().cpu().flatten(1).T.numpy()
    rows = M.detach().double().cpu().flatten(1)
    weight = torch.arange(len(M), 0, -1, dtype=torch.float64)
    missed = torch.tensor([nnls(columns, row.numpy())[1] ** 2 for row in rows], dtype=torch.float64)
    return float((weight * missed).sum() / (weight * rows.square().sum(1)).sum())


def counts_by_class(system, n) -> list[str]:
    """Return the fewest heads of a system in six classes of coefficients, as short texts for a table.

    One real `System`; n >= 1 an int. In order: real and fixed; softmax without a sink; softmax with a sink;
    real with value maps of rank 1; pairwise, almost every input; reading or locally bounded, every input.
    Bounds, "6 to 8", where a count is open.
    """
    counts = [
        heads.head_count(system, n),
        heads.head_count(system, n, "sinkless"),
        heads.head_count(system, n, "softmax"),
        heads.head_count(system, n, value_rank=1),
        heads.head_count(system, n, "pairwise"),
        heads.head_count(system, n, "any"),
    ]
    return [count.short for count in counts]


def equal_row_operator(k, n, *, signed, generator=None) -> torch.Tensor:
    """Return a causal W (n, n, 2, 3) with equal row sums and a span of dimension k: reachable without a sink.

    ``signed`` False takes positive coefficients on k random matrices (k heads make it), True takes
    coefficients of both signs. float64. Source: thm-exact-reach.
    """
    generator = torch.Generator().manual_seed(0) if generator is None else generator
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
    """L-BFGS from ``start``; the least error so far, the largest coefficient there, and the best point."""
    point = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [point], max_iter=steps, max_eval=steps, history_size=20, tolerance_grad=1e-14, tolerance_change=0,
        line_search_fn="strong_wolfe",
    )  # fmt: skip
    curve, largest, best = [], [], [math.inf, 0.0, start]

    def closure():
        optimizer.zero_grad()
        error, coefficient = objective(point)
        error.backward()
        if float(error.detach()) < best[0]:
            best[:] = float(error.detach()), coefficient, point.detach().clone()
        curve.append(best[0])
        largest.append(best[1])
        return error

    optimizer.step(closure)
    return torch.tensor(curve, dtype=torch.float64), torch.tensor(largest, dtype=torch.float64), best[2]


def _fitted(curve, largest, columns, V, visible, shape):
    alpha = columns.new_zeros(columns.shape[1], *visible.shape)
    alpha[:, visible] = columns.mT
    return HeadFit(curve, largest, alpha, V.reshape(-1, *shape[1:]))
