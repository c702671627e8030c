"""Heads whose logits depend on the distance alone, under the position schemes of real transformers."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.optimize import least_squares
from scipy.signal import lfilter
from torch import Tensor

from headsandstates.experiments.students import minimize

F64 = torch.float64
SCHEMES = ("distance", "RoPE", "T5", "ALiBi")


def t5_bucket(distance: int) -> int:
    """Return the bucket of a distance in T5's causal scheme (`raffel2020exploring`), one of 32.

    The first 16 buckets are single distances, the others grow geometrically up to 128, and the last one
    takes everything beyond.

    >>> [t5_bucket(tau) for tau in (0, 15, 16, 18, 19, 1000)]
    [0, 15, 16, 16, 17, 31]
    """
    if distance < 16:
        return distance
    share = math.log(distance / 16) / math.log(128 / 16)
    return min(31, 16 + int(16 * share))


def rope_frequencies(head_width: int) -> Tensor:
    """Return the angles per token of a head's channel pairs, shape (head_width / 2,) (`su2021roformer`)."""
    return 10000.0 ** (-torch.arange(0, head_width, 2, dtype=F64) / head_width)


def basis(scheme: str, n: int, head_width: int = 64) -> Tensor:
    """Return functions of the distance, shape (m, n), whose linear combinations are a scheme's logits.

    "distance": one for each distance; "T5": one for each bucket; "ALiBi": a constant and the distance;
    "RoPE": cosines and sines of the frequencies, which constant queries and keys combine.
    """
    tau = torch.arange(n, dtype=F64)
    if scheme == "distance":
        return torch.eye(n, dtype=F64)
    if scheme == "T5":
        bucket = torch.tensor([t5_bucket(distance) for distance in range(n)])
        return torch.nn.functional.one_hot(bucket).to(F64).mT
    if scheme == "ALiBi":
        return torch.stack([torch.ones_like(tau), -tau])
    angles = rope_frequencies(head_width)[:, None] * tau
    return torch.cat([angles.cos(), angles.sin()])


def sink_weights(b: Tensor) -> Tensor:
    """Return the attention weights (..., n, n) of the distance logits b (..., n) beside a sink of logit 0."""
    n = b.shape[-1]
    lag = torch.arange(n)[:, None] - torch.arange(n)
    logits = b[..., lag.clamp(min=0)].masked_fill(lag < 0, -torch.inf)
    return torch.cat([torch.zeros_like(logits[..., :1]), logits], -1).softmax(-1)[..., 1:]


def missed(alpha: Tensor, M: Tensor) -> Tensor:
    """Return the relative squared errors (...) of heads with the weights alpha and their best value maps.

    alpha (..., H, n, n); M (n, p, d), the lag operators of the target.
    """
    n = len(M)
    i, j = torch.tril_indices(n, n)
    columns, target = alpha[..., i, j].mT, M[i - j].flatten(1)
    Q = torch.linalg.qr(columns)[0]
    return ((target - Q @ (Q.mT @ target)) ** 2).sum((-2, -1)) / (target**2).sum()


def train(
    scheme: str, M: Tensor, H: int, seeds: range, *, learned_sink: bool = True, steps: int = 300
) -> tuple[Tensor, Tensor, Tensor]:
    """Fit H heads of a scheme beside a sink to a system by L-BFGS, one layer for each seed.

    The logit of the sink is learned and starts at 4, or it stays 0. Returns the relative squared errors after
    two thirds of the steps and at the end, (S,) each, and the logits above that of the sink, (S, H, n).
    """
    functions = basis(scheme, len(M))
    scale = len(functions) ** -0.5 if scheme == "RoPE" else 0.5
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    draws = [torch.randn(H, len(functions), generator=each, dtype=F64) for each in generators]
    start = scale * torch.stack(draws)
    if learned_sink:  # it lowers all logits of a head alike
        functions = torch.cat([functions, -torch.ones_like(functions[:1])])
        start = torch.cat([start, torch.full_like(start[..., :1], 4.0)], -1)

    def logits(z):
        return z.unflatten(1, (H, -1)) @ functions

    def errors(z):
        return missed(sink_weights(logits(z)), M)

    z, before = minimize(errors, start.flatten(1), steps=2 * steps // 3)
    z, after = minimize(errors, z, steps=steps // 3)
    return before, after, logits(z)


def t5_floor(M: Tensor) -> float:
    """Return the relative squared error that T5's buckets leave, whatever the number of heads.

    Within a bucket a row has one operator, so at best the mean of the lags that are visible there.
    """
    n, left = len(M), 0.0
    bucket = torch.tensor([t5_bucket(distance) for distance in range(n)])
    for i in range(n):
        for members in (M[: i + 1][bucket[: i + 1] == b] for b in bucket[: i + 1].unique()):
            left += float(((members - members.mean(0)) ** 2).sum())
    return left / _energy(M)


def _two_rows_of_weights(m: Tensor):
    """Return u, w, v, a, b of the proof of `prop-values-read-positions` for scalar lags m (n,)."""
    n, m0, count = len(m), m[0], torch.arange(1, len(m) + 1)
    w = m0 - torch.cat([m.new_zeros(1), m[1:].cumsum(0)])
    lag = torch.arange(n)[:, None] - torch.arange(n)
    u = m[lag.clamp(min=0)].tril(-1) + w.diag()
    v = 2 * (count * u.tril().amax(1)).max().clamp(min=0.5)  # b > 0 needs half of it
    a = torch.ones_like(u).tril() / count[:, None]
    return u, w, v, a, (v * a - u) / (v - m0)


def two_sinkless_heads(m: Tensor, bound: float):
    """Return the layer of part 1 of `prop-values-read-positions` for scalar lags m (n,).

    layer(x (n,)) returns the outputs (n,) and all weights (2, n (n + 1) / 2), positive for tokens in bound.
    With it come the first value map and the largest position value.
    """
    n, m0 = len(m), m[0]
    i, j = torch.tril_indices(n, n)
    u, w, v, a, b = _two_rows_of_weights(m)
    scale = v / (v - m0)
    room = torch.stack([a[1:, 0], a.diagonal()[1:], b[1:, 0] / scale, b.diagonal()[1:] / scale]).min()
    Q = 2 * (m0 - w).abs().max() * bound / room
    q = torch.full((n,), float(Q), dtype=F64)
    q[0] = 0
    c2 = torch.zeros(n, dtype=F64)
    for row in range(1, n):
        c2[row] = ((v - m0) * Q * row / (row + 1) - u[row, :row] @ c2[:row]) / w[row]
    c1 = q - scale * c2

    def layer(x):
        shift = torch.zeros(n, n, dtype=F64)
        shift[range(1, n), range(1, n)] = ((m0 - w) * x / Q)[1:]
        shift[:, 0] -= shift.diagonal() * (torch.arange(n) > 0)
        first, second = a + shift, b + scale * shift
        y = first @ (v * x + c1) + second @ ((m0 - v) * x + c2)
        return y, torch.stack([first[i, j], second[i, j]])

    return layer, float(v), float(torch.stack([c1, c2]).abs().max())


def two_query_key_heads(m: Tensor, Q: float):
    """Return the layer x (n,) -> (n,) of part 3 of `prop-values-read-positions` for scalar lags m (n,).

    Its logits are products of queries and keys, and its error on bounded tokens falls like 1 / Q.
    """
    n, m0 = len(m), m[0]
    _, w, v, a, b = _two_rows_of_weights(m)
    later = (torch.arange(n) > 0).to(F64)
    slope = a * (later - a @ later[:, None])  # of the first head's weights in x_i / Q
    c = torch.zeros(2, n, dtype=F64)
    for row in range(1, n):
        left = torch.stack([torch.stack([a[row], b[row]]), torch.stack([slope[row], 0 * b[row]])])
        right = torch.stack([torch.zeros_like(m0), (m0 - w[row]) * Q]) - (left * c).sum((1, 2))
        c[:, row] = torch.linalg.solve(left[..., row], right)

    def layer(x):
        first = (a.log() + later * x[:, None] / Q).softmax(-1)
        return first @ (v * x + c[0]) + b @ ((m0 - v) * x + c[1])

    return layer


def _energy(M: Tensor) -> float:
    occurrences = torch.arange(len(M), 0, -1)
    return float((occurrences * M.flatten(1).square().sum(1)).sum())


def alibi_fit(M: Tensor, H: int) -> tuple[Tensor, Tensor, float, int]:
    """Return the scalar lags, the best sum of H real exponentials found, its error and its sign changes.

    With nodes z = e^-slope in [0, 1], the functions z_1^tau, z_1^tau * z_2^(tau-1), ... span the same sums
    and stay independent where slopes meet or grow without end, which the best sum often needs.
    """
    n, m = len(M), M.flatten().numpy()
    weight = np.sqrt(np.arange(n, 0, -1))

    def fitted(nodes):
        columns = []
        for z in nodes:
            before = np.eye(n)[0] if not columns else np.append(0.0, columns[-1][:-1])
            columns.append(lfilter([1.0], [1.0, -z], before))
        E = np.stack(columns, 1)
        return E @ np.linalg.lstsq(weight[:, None] * E, weight * m)[0]

    def residual(nodes):
        return weight * (fitted(nodes) - m)

    generator = torch.Generator().manual_seed(0)
    draws = [torch.rand(H, generator=generator, dtype=F64).numpy() for _ in range(20)]
    found = min((least_squares(residual, draw, bounds=(0, 1)) for draw in draws), key=lambda end: end.cost)
    best = torch.from_numpy(fitted(found.x))
    signs = best[best.abs() > 1e-6].sign()
    return M.flatten(), best, 2 * found.cost / _energy(M), int((signs[1:] != signs[:-1]).sum())
