"""Training on samples: noisy and finite data, pairwise coefficients, plain stochastic gradient descent."""

from __future__ import annotations

import torch

from ssmbook._checks import check_finite, check_shape
from ssmbook.operators import LagOperator

F64 = torch.float64


def adam(loss, parameters, *, steps, lr, marks=()):
    """Adam with cosine decay on a sum of losses (S,), entry by entry: no student sees another.

    In place; returns the losses (R, S) at the marked steps.
    """
    optimizer = torch.optim.Adam([each.requires_grad_() for each in parameters], lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(steps, 1))
    history = []
    for step in range(steps + (steps in marks)):
        missed = loss()
        if step in marks:
            history.append(missed.detach())
        if step < steps:
            optimizer.zero_grad()
            missed.sum().backward()
            optimizer.step()
            schedule.step()
    return torch.stack(history) if history else None


def descend(model, loss, *, steps, rate):
    """AdamW with warm-up and cosine decay, gradients cut to norm 1, in place; returns every loss."""
    descent = torch.optim.AdamW(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(descent, rate, total_steps=steps + 1, pct_start=0.1)
    losses = []
    for _ in range(steps):
        missed = loss()
        descent.zero_grad()
        missed.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        descent.step()
        schedule.step()
        losses.append(missed.detach())
    return losses


def target_sizes(M):
    """The sizes n, p, d of a system's lags, checked: it must have energy to be compared with."""
    sizes = check_shape("M", M, "n p d")
    check_finite("M", M)
    if not M.any():
        raise ValueError("M must not be the zero system: the error is relative to its energy")
    return sizes


def visible_rows(M):
    """The causal mask (n, n), the blocks it lets through as rows of total norm one, and that norm."""
    position = torch.arange(target_sizes(M)["n"], device=M.device)
    visible = position[:, None] >= position
    rows = M.detach().double()[position[:, None] - position][visible].flatten(1)
    return visible, rows / rows.norm(), rows.norm()


def _matrix(alpha, V):
    """The operator of each student, (S, n p, n d)."""
    W = torch.einsum("shij,shpd->sipjd", alpha, V)
    return W.flatten(3).flatten(1, 2)


def train_on_data(M, H, m, *, noise, seeds, steps, seed):
    """Causal students with fixed coefficients on m noisy sequences; population error at the end.

    M (n, p, d); H: head counts; ``noise``: variance of the noise over that of an output. Each seed has data
    of its own. Returns the errors (len(H), seeds), those of the training data, and the free parameters.
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


def train_pairwise(M, H, *, seeds, steps, seed, hidden=64, batch=64):
    """Students whose coefficients are a network's, f_h(x_i, x_j, i - j), on fresh normal sequences.

    M (n, p, d). Returns the relative error on 4,096 new sequences (len(H), seeds), and its median over
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

    adam(lambda: errors(batch).mean(1), [*layers, *shifts, V], steps=steps, lr=3e-3)
    with torch.no_grad():
        last = torch.cat([errors(256) for _ in range(16)], 1)
    mean, median = (each.unflatten(0, (len(H), seeds)) for each in (last.mean(1), last.median(1)[0]))
    return {"H": H, "trained": mean, "median": median}


def train_plain(M, H, *, seeds, steps, seed, scale=1e-3, batch=32, records=60):
    """Plain gradient descent from small weights, on the population and on fresh sequences (SGD).

    M (n, p, d); one learning rate, 0.05 in units where the largest singular value of the target is 1. Returns
    the target's singular values, the marked steps, and at each the student's singular values, median over the
    seeds, (records, H), for both ways.
    """
    generator = torch.Generator().manual_seed(seed)
    new = {"generator": generator, "dtype": F64}
    n, p, d = M.shape
    rows = LagOperator(M).to_dense().reshape(n * n, p * d)
    sigma = torch.linalg.svdvals(rows)
    rows = rows / sigma[0]
    marks = sorted(
        set(torch.logspace(0, torch.tensor(steps).log10().item(), records).round().long().tolist())
    )
    found = {"sigma": sigma / sigma[0], "steps": marks, "rate": 0.05, "scale": scale}
    for way in ("population", "samples"):
        alpha = scale * torch.randn(seeds, n * n, H, **new) * H**-0.5
        V = scale * torch.randn(seeds, H, p * d, **new) * H**-0.5 * (n * n / (p * d)) ** 0.5
        spectra = []
        for step in range(1, steps + 1):
            missed = alpha @ V - rows
            if way == "samples":
                missed = _sampled(missed, n, p, d, batch, new)
            alpha, V = alpha - 0.05 * missed @ V.mT, V - 0.05 * alpha.mT @ missed
            if step in marks:
                spectra.append(torch.linalg.svdvals(alpha @ V).median(0)[0][:H])
        error = (alpha @ V - rows).square().sum((1, 2)) / rows.square().sum()
        found[way] = {"spectrum": torch.stack(spectra), "error": error}
    return found


def _sampled(missed, n, p, d, batch, new):
    """The gradient's view of the miss through a batch of normal sequences: missed times x x^T."""
    S = len(missed)
    x = torch.randn(S, batch, n * d, **new)
    matrix = missed.unflatten(1, (n, n)).unflatten(3, (p, d)).permute(0, 1, 3, 2, 4).flatten(3).flatten(1, 2)
    seen = (matrix @ x.mT) @ x / batch
    return seen.unflatten(1, (n, p)).unflatten(3, (n, d)).permute(0, 1, 3, 2, 4).flatten(1, 2).flatten(2)
