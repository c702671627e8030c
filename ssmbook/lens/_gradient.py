"""How far a layer's gradient reaches: exactly for each softmax head, by probes for any other layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypedDict

import torch
from torch import Tensor

from ssmbook.lens._reading import Reading, Softmax

# Floors below this share of the largest are left out of the smallest ratio: rounding
# decides there.
_NO_FLOOR = 1e-9
# Weights below this are zeros of float32: no gradient passes them.
_NO_WEIGHT = 1e-30
# Output directions in which the gradient of a layer without closed form is measured.
PROBES = 6


class Gradient(TypedDict):
    """Gradient norms against distance, means over three target tokens; see ``gradient_against``."""

    distance: list[int]
    floor: list[list[float]] | None
    ratio: float | None
    norm: list[list[float]]
    exact: bool


def gradient_against(reading: Reading, seed: int) -> Gradient | None:
    """Return gradient norms against distance, means over three targets, and the floor where one holds.

    Keys: "distance" (lower edges of the bins), "norm" (one row a head, or one for the
    layer), "floor" (alpha_ij sigma_2(V_h), or ``None``), "ratio" (the smallest norm over
    floor, 1 or more), "exact" (False: a lower bound of the norm, from random output
    directions).
    """
    x = reading.core.x if reading.x is None else reading.x
    at = targets(x.shape[-2])
    floor = ratio = None
    if reading.softmax is not None:
        norms, floors = zip(*(head_gradients(reading.softmax, x, i) for i in at), strict=True)
        pairs = zip(norms, floors, strict=True)
        ratios = torch.cat([(a / b)[b > _NO_FLOOR * b.nan_to_num().max()] for a, b in pairs])
        if len(ratios):  # else no value map has a second singular value
            floor = _mean_by_distance(floors, at)
            (ratio,) = six_digits(ratios.min()[None])
    elif reading.F is not None:
        generator = torch.Generator().manual_seed(seed)
        norms = [probe_gradients(reading.F, x, i, generator)[None] for i in at]
    else:
        return None
    return {
        "distance": distance_bins(x.shape[-2]),
        "floor": floor,
        "ratio": ratio,
        "norm": _mean_by_distance(norms, at),
        "exact": reading.softmax is not None,
    }


def six_digits(values: Tensor) -> list[float]:
    """Return numbers to the six digits that a report shows and keeps."""
    return [float(f"{v:.6g}") for v in values.tolist()]


def targets(n: int) -> list[int]:
    """Output tokens whose gradients are taken: three of the second half, the last but one among them."""
    return sorted({n // 2, 3 * n // 4, n - 2})


def head_gradients(softmax: Softmax, x: Tensor, target: int) -> tuple[Tensor, Tensor]:
    """Return ‖dy_i/dx_j‖₂ and its floor alpha_ij sigma_2(V_h) of every head, (H, n) each, for i = ``target``.

    dy_i/dx_j = alpha_ij [V + (v_j - y_i) g_ij^T] for j other than i, where g_ij =
    ds_ij/dx_j is read off the weights themselves, so that rotary positions, norms of
    queries and keys, caps and sinks are in it. Column i is not a number (nan): there the
    query moves too.
    """
    with torch.enable_grad():
        moved = x.detach().clone().requires_grad_()
        rows = softmax.weights(moved)[:, target]
        slopes = torch.stack([_logit_slopes(row, moved, target) for row in rows])
    alpha = rows.detach()
    values = torch.einsum("hrd,nd->hnr", softmax.W_V, x) + softmax.b_V[:, None]
    gap = values - torch.einsum("hn,hnr->hr", alpha, values)[:, None]
    sizes, floors = [], []
    for h in range(len(alpha)):
        # ‖W_O M‖ = ‖R M‖ for W_O = Q R. Of g, two things count: what lies in the row space
        # of W_V (Z), and the length of the rest, which is orthogonal to it
        R = torch.linalg.qr(softmax.W_O[h], mode="r").R
        Z, T = torch.linalg.qr(softmax.W_V[h].mT)
        inside = slopes[h] @ Z
        across = torch.linalg.vector_norm(slopes[h] - inside @ Z.mT, dim=-1)
        changed = T.mT + gap[h][:, :, None] * inside[:, None, :]
        bracket = R @ torch.cat([changed, gap[h][:, :, None] * across[:, None, None]], dim=-1)
        # the largest singular value alone: its square loses nothing
        norm = torch.linalg.eigvalsh(bracket @ bracket.mT)[:, -1].clamp_min(0).sqrt()
        spectrum = torch.linalg.svdvals(R @ T.mT)
        sizes.append(alpha[h] * norm)
        floors.append(alpha[h] * (spectrum[1] if len(spectrum) > 1 else 0.0))
    sizes, floors = torch.stack(sizes), torch.stack(floors)
    sizes[:, target] = floors[:, target] = torch.nan
    return sizes, floors


def _logit_slopes(row: Tensor, x: Tensor, i: int) -> Tensor:
    """g_ij = ds_ij/dx_j for one row of softmax weights (n,), at every j other than i; (n, d).

    sum_j f_j log alpha_ij has the derivative f_l - alpha_il sum_j f_j by the logit s_il:
    with f summing to zero, f_l itself. So f is 1, but for the heaviest token, which
    balances the others.
    """
    seen = row.detach() > _NO_WEIGHT
    f = seen.to(row.dtype)
    heaviest = int(row.detach().argmax())
    f[heaviest] = 1.0 - f.sum()
    if not bool(f[heaviest]):
        return torch.zeros_like(x)
    total = (f * torch.where(seen, row, 1.0).log()).sum()
    slopes = torch.autograd.grad(total, x, retain_graph=True)[0]
    return torch.where(seen[:, None], slopes / torch.where(seen, f, 1.0)[:, None], 0.0)


def probe_gradients(
    F: Callable[[Tensor], Tensor], x: Tensor, target: int, generator: torch.Generator
) -> Tensor:
    """Return a lower bound (n,) of ‖dF_i/dx_j‖₂, i = ``target``: the norm within random output directions.

    F: (n, d) to (n, p), differentiable. With p directions or more than p the norm itself.
    """
    with torch.enable_grad():
        moved = x.detach().clone().requires_grad_()
        y = F(moved)[target]
        p = y.shape[-1]
        draw = torch.randn(p, min(p, PROBES), generator=generator, dtype=x.dtype).to(x.device)
        probes = torch.linalg.qr(draw).Q.mT if p > PROBES else torch.eye(p, dtype=x.dtype, device=x.device)
        rows = [torch.autograd.grad(y @ probe, moved, retain_graph=True)[0] for probe in probes]
    return torch.linalg.matrix_norm(torch.stack(rows, dim=-2), ord=2)


def distance_bins(n: int) -> list[int]:
    """Lower edges of the distances that are reported together: 1, 2, 3, 4, 6, 8, 12, 16, 24 and so on."""
    steps = [2**k for k in range(n.bit_length())]
    return sorted({edge for step in steps for edge in (step, 3 * step // 2) if edge < n})


def _mean_by_distance(values: Sequence[Tensor], at: list[int]) -> list[list[float]]:
    """Average the rows (H, n) of each target over the tokens at each distance, and over the targets.

    Distances without any token are nan.
    """
    means = []
    for each, target in zip(values, at, strict=True):
        n = each.shape[-1]
        lag = (torch.arange(n, device=each.device) - target).abs()
        edges = [*distance_bins(n), n]
        parts = [(lag >= low) & (lag < high) for low, high in zip(edges, edges[1:], strict=False)]
        means.append(torch.stack([each[..., part].mean(-1) for part in parts], dim=-1))
    return [six_digits(row) for row in torch.stack(means).nanmean(0)]
