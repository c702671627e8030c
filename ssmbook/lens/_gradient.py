"""How far a layer's gradient reaches: exactly for each softmax head, by probes for any other layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

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


def gradient_against(reading: Reading, seed: int) -> dict[str, Any] | None:
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
        norms, floors = zip(*head_gradients(reading.softmax, x, at), strict=True)
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


def head_gradients(softmax: Softmax, x: Tensor, at: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield ‖dy_i/dx_j‖₂ and its floor alpha_ij sigma_2(V_h) of every head, (H, n) each, for the i in ``at``.

    dy_i/dx_j = alpha_ij [V + (v_j - y_i) g_ij^T] for j other than i, where g_ij =
    ds_ij/dx_j is read off the weights themselves, so that rotary positions, norms of
    queries and keys, caps and sinks are in it. Column i is not a number (nan): there the
    query moves too.
    """
    # ‖W_O M‖ = ‖R M‖ for W_O = Q R, and M = W_V + c g^T with W_V = T^T Z^T: a fixed core
    # R T^T = U diag(sigma) P^T, and two vectors for each token
    R = torch.linalg.qr(softmax.W_O, mode="r").R
    Z, T = torch.linalg.qr(softmax.W_V.mT)
    U, sigma, P = torch.linalg.svd(R @ T.mT)
    core = torch.nn.functional.pad(sigma, (0, U.shape[-1] - sigma.shape[-1]))
    values = x @ softmax.W_V.mT + softmax.b_V[:, None]
    with torch.enable_grad():
        moved = x.detach().clone().requires_grad_()
        weights = softmax.weights(moved)
        rows = [(i, [_logit_slopes(row, moved) for row in weights[:, i]]) for i in at]
    for i, slopes in rows:
        alpha, g = weights[:, i].detach(), torch.stack(slopes)
        gap = values - (alpha[:, None] @ values)
        inside = g @ Z @ P.mT
        seen = inside[..., : core.shape[-1]] * sigma[:, None, : inside.shape[-1]]
        seen = torch.nn.functional.pad(seen, (0, core.shape[-1] - seen.shape[-1]))
        sizes = alpha * norm_of_sum(core, gap @ R.mT @ U, seen, g.square().sum(-1))
        floors = alpha * (sigma[:, 1:2] if sigma.shape[-1] > 1 else 0.0)
        sizes[:, i] = floors[:, i] = torch.nan
        yield sizes, floors


def norm_of_sum(sigma: Tensor, u: Tensor, v: Tensor, size: Tensor) -> Tensor:
    """Return ‖S + u w^T‖₂ for a fixed S = diag(sigma) and many u (..., n, m), to ten digits: (..., n).

    ``v``: S w, (..., n, m); ``size``: ‖w‖², (..., n); w may have more entries than S has
    columns. The square D + u v^T + v u^T + ‖w‖² u u^T of the sum has an eigenvalue above l
    when the entries of D above l and the positive eigenvalues of the 2 x 2 matrix F are
    more than one (inertia of a bordered matrix): a bisection over l, with no matrix built.
    """
    D, products = sigma[..., None, :].square(), torch.stack([u * u, u * v, v * v], dim=-1)
    # Rank one moves no singular value past its neighbor: the norm is at least the second.
    low = torch.zeros_like(size) + (sigma[..., 1:2] if sigma.shape[-1] > 1 else 0.0)
    high = sigma.amax(-1)[..., None] + torch.linalg.vector_norm(u, dim=-1) * size.sqrt()
    for _ in range(40):
        middle = (low + high) / 2
        apart = middle.square()[..., None] - D
        a, b, c = ((1 / apart)[..., None, :] @ products)[..., 0, :].unbind(-1)
        b, c = b - 1, c + size
        crossed = a * c - b * b
        positive = torch.where(crossed < 0, 1, 2 * (a + c > 0).int())
        above = (apart < 0).sum(-1) + positive > 1
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    return high


def _logit_slopes(row: Tensor, x: Tensor) -> Tensor:
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
