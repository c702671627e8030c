"""Students of every class of coefficients, all seeds in one batch, each with an optimizer to itself."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from headsandstates.experiments.training import F64, adam, visible_rows
from ssmbook._checks import check_choice
from ssmbook.operators import LagOperator
from ssmbook.systems import System, rotation

CLASSES = ("softmax", "sink", "rank one")
MEMORY = 12  # steps that L-BFGS remembers


def class_systems() -> dict[str, System]:
    """Three systems on which the classes of coefficients count differently: name -> `System`, float64.

    A rotation by 0.7, three positive poles, the rotation beside one positive pole; two
    outputs each.
    """
    new = {"dtype": F64}
    turn, eye = rotation(torch.tensor(0.7, **new)), torch.eye(2, **new)
    B = torch.tensor([[1.0, 0.2], [0.3, 1.0], [0.5, -0.4]], **new)
    C = torch.tensor([[1.0, -0.3, 0.4], [0.2, 1.0, 0.6]], **new)
    return {
        "rotation": System(turn, eye, eye),
        "positive poles": System(torch.diag(torch.tensor([0.95, 0.8, 0.5], **new)), B, C),
        "turn and pole": System(torch.block_diag(turn, torch.full((1, 1), 0.9, **new)), B, C),
    }


def minimize(objective: Callable, start: Tensor, *, steps: int = 400) -> tuple[Tensor, Tensor]:
    """L-BFGS for many problems at once: each has its own history, direction and step length.

    objective: (S, P) -> (S,), row by row and differentiable; start (S, P), left untouched;
    at most ``steps`` iterations. Backtracks to Armijo's condition; a problem whose line
    search fails restarts from its gradient, then stays. Returns the points (S, P) and the
    values (S,).
    """
    x = start.detach().clone()
    value, slope = _with_gradient(objective, x)
    pairs, still = [], torch.zeros_like(value, dtype=torch.bool)
    ended = still
    for _ in range(steps):
        direction = _two_loops(slope, pairs)
        uphill = (direction * slope).sum(1) >= 0
        direction = torch.where(uphill[:, None], -slope, direction)
        if not pairs:
            direction = direction / slope.norm(dim=1, keepdim=True).clamp_min(1e-300)
        moved = _backtrack(objective, x, value, direction, (direction * slope).sum(1), ended)
        new_value, new_slope = _with_gradient(objective, moved)
        pairs = [*pairs[1 - MEMORY :], (moved - x, new_slope - slope)]
        stuck, still = still, (moved == x).all(1)
        for s, _ in pairs:  # a failed search forgets, and goes on from the gradient
            s[still] = 0.0
        x, value, slope = moved, new_value, new_slope
        ended = ended | (stuck & still)  # not even the gradient leads on
        if ended.all():
            break
    return x, value


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
def _backtrack(objective, x, value, direction, descent, done):
    """The first of 1, 1/2, 1/4, … with enough descent, problem by problem; x itself where none has."""
    step, best = torch.ones_like(value), x.clone()
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
    M: Tensor, H: int, kind: str, *, seeds: int = 4, steps: int = 400,
    generator: torch.Generator | None = None,
) -> Tensor:  # fmt: skip
    """Fit H heads of one class of coefficients to a system, ``seeds`` starts in one batch.

    Whatever enters linearly, value maps or coefficients, is eliminated by least squares;
    the rest is found by ``minimize`` in float64. Source: thm-no-sink, thm-sink-count,
    prop-rank-limited.

    Parameters
    ----------
    M : Tensor (n, p, d)
        The lags of the system, not zero.
    H : int
        How many heads.
    kind : {"softmax", "sink", "rank one"}
        Causal rows that sum to 1; with a sink of logit 0 and value 0; or real coefficients
        with value maps a b^T.
    seeds : int, default 4
        How many starts.
    steps : int, default 400
        Of the minimization.
    generator : torch.Generator, optional
        Draws the starts.

    Returns
    -------
    Tensor (seeds,)
        The errors relative to the energy.

    Raises
    ------
    ValueError
        If the system is zero or the kind unknown.
    """
    visible, rows, _ = visible_rows(M)
    p, d = M.shape[1:]
    check_choice("kind", kind, CLASSES)
    if kind == "rank one":
        target = torch.linalg.qr(rows).R.mT if len(rows) > p * d else rows.mT  # same span, fewer columns
        start = torch.randn(seeds, H * (p + d), generator=generator, dtype=F64)
        return minimize(lambda z: _outside(_rank_one(z, H, p, d), target), start, steps=steps)[1]
    start = 0.1 * torch.randn(seeds, H * len(rows), generator=generator, dtype=F64)
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


def _matrix(alpha, V):
    """The operator of each student, (S, n p, n d)."""
    W = torch.einsum("shij,shpd->sipjd", alpha, V)
    return W.flatten(3).flatten(1, 2)


def train_on_data(
    M: Tensor, H: list[int], m: int, *, noise: float, seeds: int, steps: int, seed: int
) -> dict:
    """Causal students with fixed coefficients on m noisy sequences; population error at the end.

    Each seed has data of its own.

    Parameters
    ----------
    M : Tensor (n, p, d)
        The lags of the system.
    H : list of int
        The head counts.
    m : int
        The sequences of each seed.
    noise : float
        The variance of the noise over that of an output.
    seeds, steps : int
        Students of each head count, and their steps of training.
    seed : int
        Of all draws.

    Returns
    -------
    dict
        The errors (len(H), seeds), those of the training data, and the free parameters.
    """
    generator = torch.Generator().manual_seed(seed)
    new = {"generator": generator, "dtype": F64}
    n, p, d = M.shape
    W = LagOperator(M).to_block_matrix()
    W = W * (n * p) ** 0.5 / W.norm()  # outputs of variance one on the average
    x = torch.randn(seeds, m, n * d, **new)
    y = x @ W.mT + noise**0.5 * torch.randn(seeds, m, n * p, **new)
    gram, cross = x.mT @ x / m, y.mT @ x / m
    which = torch.arange(seeds).repeat(len(H))
    has_head = (
        torch.arange(max(H))[:, None, None] < torch.tensor(H).repeat_interleave(seeds)[:, None, None, None]
    )
    mask = has_head.to(F64) * torch.ones(n, n, dtype=F64).tril()
    alpha = 0.3 * torch.randn(len(which), max(H), n, n, **new)
    V = 0.3 * torch.randn(len(which), max(H), p, d, **new)
    level = y.square().mean(1).sum(1)

    def loss():
        student = _matrix(alpha * mask, V)
        return ((student @ gram[which]) * student - 2 * student * cross[which]).sum((1, 2)) + level[which]

    adam(loss, [alpha, V], steps=steps, lr=0.05)
    with torch.no_grad():
        missed = (_matrix(alpha * mask, V) - W).square().sum((1, 2)) / (n * p)
        seen = loss() / (n * p)
    free = [h * (n * (n + 1) // 2 + p * d - h) for h in H]
    return {
        "H": H, "m": m, "noise": noise, "outputs": n * p, "free": free,
        "trained": missed.unflatten(0, (len(H), seeds)), "on data": seen.unflatten(0, (len(H), seeds)),
    }  # fmt: skip


def train_pairwise(M: Tensor, H: list[int], *, seeds: int, steps: int, seed: int, hidden: int = 64) -> dict:
    """Students whose coefficients are a network's, f_h(x_i, x_j, i - j), on fresh normal sequences.

    Parameters
    ----------
    M : Tensor (n, p, d)
        The lags of the system.
    H : list of int
        The head counts.
    seeds, steps : int
        Students of each head count, and their steps of training.
    seed : int
        Of all draws.
    hidden : int, default 64
        The width of the networks.

    Returns
    -------
    dict
        The relative error on 4,096 new sequences (len(H), seeds), and its median over
        sequences.
    """
    generator = torch.Generator().manual_seed(seed)
    new = {"generator": generator}
    n, p, d = M.shape
    W = LagOperator(M).to_dense().float()
    W = W / W.norm() * (n * p) ** 0.5
    i, j = torch.tril_indices(n, n)
    lag = torch.nn.functional.one_hot(i - j, n).float()
    S, top = len(H) * seeds, max(H)
    width = 2 * d + n
    layers = [
        torch.randn(S, a, b, **new) / a**0.5 for a, b in ((width, hidden), (hidden, hidden), (hidden, top))
    ]
    shifts = [torch.zeros(S, 1, hidden), torch.zeros(S, 1, hidden)]
    V = torch.randn(S, top, p, d, **new) / d**0.5
    has_head = (torch.arange(top) < torch.tensor(H).repeat_interleave(seeds)[:, None]).float()

    def answers(x):
        pair = torch.cat([x[:, i], x[:, j], lag.expand(len(x), -1, -1)], -1).flatten(0, 1)
        z = torch.nn.functional.gelu(pair @ layers[0] + shifts[0])
        z = torch.nn.functional.gelu(z @ layers[1] + shifts[1]) @ layers[2]
        c = z.unflatten(1, (len(x), -1)) * has_head[:, None, None]
        moved = torch.einsum("shpd,bed->sbehp", V, x[:, j])
        parts = torch.einsum("sbeh,sbehp->sbep", c, moved)
        return parts.new_zeros(S, len(x), n, p).index_add(2, i, parts)

    def errors(count):
        x = torch.randn(count, n, d, **new)
        return (answers(x) - torch.einsum("ijpd,bjd->bip", W, x)).square().mean((2, 3))

    adam(lambda: errors(64).mean(1), [*layers, *shifts, V], steps=steps, lr=3e-3)
    with torch.no_grad():
        last = torch.cat([errors(256) for _ in range(16)], 1)
    mean, median = (each.unflatten(0, (len(H), seeds)) for each in (last.mean(1), last.median(1)[0]))
    return {"H": H, "trained": mean, "median": median}


def train_plain(M: Tensor, H: int, *, seeds: int, steps: int, seed: int, records: int = 60) -> dict:
    """Plain gradient descent from small weights, on the population and on fresh sequences (SGD).

    Parameters
    ----------
    M : Tensor (n, p, d)
        The lags of the system.
    H : int
        How many heads.
    seeds, steps : int
        How many students, and their steps; the learning rate is 0.05 in units where the
        largest singular value of the target is 1.
    seed : int
        Of all draws.
    records : int, default 60
        How many steps are marked, at most.

    Returns
    -------
    dict
        The target's singular values, the marked steps, and at each the student's singular
        values, median over the seeds, (records, H), for both ways.
    """
    scale, new = 1e-3, {"generator": torch.Generator().manual_seed(seed), "dtype": F64}
    n, p, d = M.shape
    rows = LagOperator(M).to_dense().reshape(n * n, p * d)
    sigma = torch.linalg.svdvals(rows)
    rows = rows / sigma[0]
    marks = torch.logspace(0, math.log10(steps), records).round().long().unique().tolist()
    found = {"sigma": sigma / sigma[0], "steps": marks, "rate": 0.05, "scale": scale}
    for way in ("population", "samples"):
        alpha = scale * torch.randn(seeds, n * n, H, **new) * H**-0.5
        V = scale * torch.randn(seeds, H, p * d, **new) * H**-0.5 * (n * n / (p * d)) ** 0.5
        spectra = []
        for step in range(1, steps + 1):
            missed = alpha @ V - rows
            if way == "samples":
                missed = _sampled(missed, n, p, d, new)
            alpha, V = alpha - 0.05 * missed @ V.mT, V - 0.05 * alpha.mT @ missed
            if step in marks:
                spectra.append(torch.linalg.svdvals(alpha @ V).median(0)[0][:H])
        error = (alpha @ V - rows).square().sum((1, 2)) / rows.square().sum()
        found[way] = {"spectrum": torch.stack(spectra), "error": error}
    return found


def _sampled(missed, n, p, d, new):
    """The gradient's view of the miss through 32 normal sequences: missed times x x^T."""
    S = len(missed)
    x = torch.randn(S, 32, n * d, **new)
    matrix = missed.unflatten(1, (n, n)).unflatten(3, (p, d)).permute(0, 1, 3, 2, 4).flatten(3).flatten(1, 2)
    seen = (matrix @ x.mT) @ x / 32
    return seen.unflatten(1, (n, p)).unflatten(3, (n, d)).permute(0, 1, 3, 2, 4).flatten(1, 2).flatten(2)
