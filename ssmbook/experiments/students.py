"""Students of every class of coefficients, all seeds in one batch, each with an optimizer to itself."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from ssmbook._checks import check_choice, check_finite, check_integer, check_like, check_shape
from ssmbook.experiments._data import visible_rows
from ssmbook.systems import System, rotation

CLASSES = ("softmax", "sink", "rank one")
MEMORY = 12  # steps that L-BFGS remembers


def class_systems() -> dict[str, System]:
    """Three systems on which the classes of coefficients count differently: name -> `System`, float64.

    A rotation by 0.7, three positive poles, the rotation beside one positive pole; two outputs each.
    Introduced in *learning-heads*.
    """
    new = {"dtype": torch.float64}
    turn, eye = rotation(torch.tensor(0.7, **new)), torch.eye(2, **new)
    B = torch.tensor([[1.0, 0.2], [0.3, 1.0], [0.5, -0.4]], **new)
    C = torch.tensor([[1.0, -0.3, 0.4], [0.2, 1.0, 0.6]], **new)
    return {
        "rotation": System(turn, eye, eye),
        "positive poles": System(torch.diag(torch.tensor([0.95, 0.8, 0.5], **new)), B, C),
        "turn and pole": System(torch.block_diag(turn, torch.full((1, 1), 0.9, **new)), B, C),
    }


def minimize(
    objective: Callable, start: torch.Tensor, *, steps: int = 400
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """L-BFGS for many problems at once: each has its own history, direction and step length.

    objective: (S, P) -> (S,), row by row and differentiable; start (S, P), left untouched; ``steps`` >= 0
    iterations at most. Backtracks to Armijo's condition; a problem whose line search fails restarts from its
    gradient, then stays. Returns the points (S, P), values (S,), and history (R, S) of the values, R at most
    steps + 1. Raises ``TypeError``/``ValueError`` for malformed arguments or a start that is not finite.
    Introduced in *learning-heads*.
    """
    check_shape("start", start, "S P")
    check_finite("start", start)
    steps = check_integer("steps", steps, low=0)
    x = start.detach().clone()
    value, slope = _with_gradient(objective, x)
    history, pairs, still = [value], [], torch.zeros_like(value, dtype=torch.bool)
    for _ in range(steps):
        direction = _two_loops(slope, pairs)
        uphill = (direction * slope).sum(1) >= 0
        direction = torch.where(uphill[:, None], -slope, direction)
        if not pairs:
            direction = direction / slope.norm(dim=1, keepdim=True).clamp_min(1e-300)
        moved = _backtrack(objective, x, value, direction, (direction * slope).sum(1))
        new_value, new_slope = _with_gradient(objective, moved)
        pairs = [*pairs[1 - MEMORY :], (moved - x, new_slope - slope)]
        stuck, still = still, (moved == x).all(1)
        for s, _ in pairs:  # a failed search forgets, and goes on from the gradient
            s[still] = 0.0
        x, value, slope = moved, new_value, new_slope
        history.append(value)
        if (stuck & still).all():  # not even the gradient leads on
            break
    return x, value, torch.stack(history)


def _with_gradient(objective, x):
    x = x.detach().requires_grad_()
    value = objective(x)
    (slope,) = torch.autograd.grad(value.sum(), x)
    return value.detach(), torch.nan_to_num(slope, nan=0.0, posinf=0.0, neginf=0.0)


def _two_loops(slope, pairs):
    """The direction -H g of each problem; pairs without curvature are passed over."""
    q, stack, scale = slope.clone(), [], torch.ones_like(slope[:, :1])
    for s, y in reversed(pairs):
        curvature = (s * y).sum(1, keepdim=True)
        weight = torch.where(curvature > 1e-300, 1 / curvature.clamp_min(1e-300), 0.0)
        a = weight * (s * q).sum(1, keepdim=True)
        q = q - a * y
        stack.append((s, y, weight, a))
    for _, y, weight, _ in stack[:1]:
        scale = torch.where(weight > 0, 1 / (weight * (y * y).sum(1, keepdim=True)).clamp_min(1e-300), scale)
    q = scale * q
    for s, y, weight, a in reversed(stack):
        q = q + (a - weight * (y * q).sum(1, keepdim=True)) * s
    return -q


@torch.no_grad()
def _backtrack(objective, x, value, direction, descent):
    """The first of 1, 1/2, 1/4, … with enough descent, problem by problem; x itself where none has."""
    step, done, best = torch.ones_like(value), torch.zeros_like(value, dtype=torch.bool), x.clone()
    for _ in range(25):
        trial = torch.where(done[:, None], best, x + step[:, None] * direction)
        enough = (objective(trial) <= value + 1e-4 * step * descent) & ~done
        best = torch.where(enough[:, None], trial, best)
        done = done | enough
        if done.all():
            break
        step = torch.where(done, step, step / 2)
    return best


def fit_class(
    M: torch.Tensor,
    H: int,
    kind: str,
    *,
    seeds: int = 4,
    steps: int = 400,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """Fit H heads of one class of coefficients to a system, ``seeds`` starts in one batch.

    M (n, p, d), not zero: the lags. ``kind``: "softmax" (causal rows that sum to 1), "sink" (with a sink of
    logit 0 and value 0), "rank one" (real coefficients, value maps a b^T). Whatever enters linearly, value
    maps or coefficients, is eliminated by least squares; the rest by ``minimize`` in float64. Returns the
    errors relative to the energy, (seeds,). Raises ``TypeError``/``ValueError`` for malformed arguments, a
    zero system or an unknown kind. Source: thm-no-sink, thm-sink-count, prop-rank-limited. Introduced in
    *learning-heads*.
    """
    visible, rows, _ = visible_rows(M)
    p, d = M.shape[1:]
    H, seeds = check_integer("H", H, low=1), check_integer("seeds", seeds, low=1)
    check_choice("kind", kind, CLASSES)
    check_like(generator=generator)
    if kind == "rank one":
        target = torch.linalg.qr(rows).R.mT if len(rows) > p * d else rows.mT  # same span, fewer columns
        start = torch.randn(seeds, H * (p + d), generator=generator, dtype=torch.float64)
        return minimize(lambda z: _outside(_rank_one(z, H, p, d), target), start, steps=steps)[1]
    start = 0.1 * torch.randn(seeds, H * len(rows), generator=generator, dtype=torch.float64)
    return minimize(lambda z: _outside(_softmax(z, H, visible, kind == "sink"), rows), start, steps=steps)[1]


def _rank_one(z, H, p, d):
    """Value maps a b^T of norm one as columns, (S, p d, H)."""
    a, b = z.unflatten(1, (H, p + d)).split([p, d], dim=-1)
    a, b = (v / v.norm(dim=-1, keepdim=True) for v in (a, b))
    return (a[..., :, None] * b[..., None, :]).flatten(2).mT


def _softmax(z, H, visible, sink):
    """Tables of softmax weights as columns, (S, visible entries, H), from logits for the visible entries."""
    logits = z.new_full((len(z), H, *visible.shape), -math.inf)
    logits[..., visible] = z.unflatten(1, (H, -1))
    if sink:
        logits = torch.cat([logits.new_zeros(*logits.shape[:-1], 1), logits], dim=-1)
    return logits.softmax(-1)[..., int(sink) :][..., visible].mT


def _outside(columns, target):
    """The squared part of the target (unit norm) outside the span of the columns, (S,)."""
    Q = torch.linalg.qr(columns).Q
    return (target - Q @ (Q.mT @ target)).square().sum((1, 2))
