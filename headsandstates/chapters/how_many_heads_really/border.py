"""Border rank: two heads of rank one come as close as you like to a Jordan block and never equal it."""

from typing import NamedTuple

import torch

_F64 = torch.float64


class LagHeads(NamedTuple):
    """Heads V (H, p, d) of norm one, their coefficients (H, n) by lag, and their relative error."""

    V: torch.Tensor
    coefficients: torch.Tensor
    relative_error: float


def jordan_lags(rho: float, n: int) -> torch.Tensor:
    """Return the lags (n, 2, 2) of a Jordan block with B = C = I: tensor rank 3, border rank 2.

    Source: prop-border-rank, `desilva2008tensor`.

    >>> jordan_lags(0.5, 3)[2].tolist()
    [[0.25, 1.0], [0.0, 0.25]]
    """
    tau = torch.arange(n, dtype=_F64)
    power, slope, zero = rho**tau, tau * rho ** (tau - 1).clamp(min=0), torch.zeros_like(tau)
    return torch.stack([torch.stack([power, slope], -1), torch.stack([zero, power], -1)], -2)


def jordan_approximation(rho: float, epsilon: float, n: int) -> LagHeads:
    """Return two rank-one heads, of poles rho and rho + epsilon, that miss the block by O(epsilon).

    Their coefficients are O(1/epsilon). Source: prop-border-rank, `desilva2008tensor`.

    >>> near = jordan_approximation(0.5, 1e-3, n=6)  # two heads, where three are exact
    >>> len(near.V), near.relative_error < 0.01, near.coefficients.abs().max().item() > 100
    (2, True, True)
    """
    V = torch.tensor([[[1, -1 / epsilon], [0, 0]], [[0, 1 / epsilon], [0, 1]]], dtype=_F64)
    return _judged(V, torch.tensor([rho, rho + epsilon], dtype=_F64), jordan_lags(rho, n))


def jordan_pair(rho: float, epsilon: float, n: int) -> LagHeads:
    """Return two rank-one heads, of poles rho ± epsilon, that miss the block by O(epsilon²) only.

    They make A = [[rho, 1], [epsilon², rho]] exactly. Source: prop-border-rank.

    >>> jordan_pair(0.5, 1e-3, n=6).relative_error < 1e-4
    True
    """
    signs = torch.tensor([1.0, -1.0], dtype=_F64)
    top, bottom = torch.stack([signs**2, signs / epsilon], 1), torch.stack([signs * epsilon, signs**2], 1)
    return _judged(torch.stack([top, bottom], 1) / 2, rho + epsilon * signs, jordan_lags(rho, n))


def _judged(V, poles, lags) -> LagHeads:
    """The heads V with coefficients poles^tau, rescaled to value maps of norm one, and their error."""
    sizes = V.flatten(1).norm(dim=1)[:, None]
    V, coefficients = V / sizes[..., None], sizes * poles[:, None] ** torch.arange(len(lags))
    missed = torch.einsum("hn,hpd->npd", coefficients, V) - lags
    return LagHeads(V, coefficients, float(missed.norm() / lags.norm()))
