"""Border rank: two rank-one heads come as close as one likes to a Jordan block, and never arrive."""

from __future__ import annotations

import torch

from ssmbook._checks import check_integer, check_number
from ssmbook.heads.rank_limited.count import LagHeads


def jordan_lags(rho: float, n: int) -> torch.Tensor:
    """Return the lags (n, 2, 2) of a Jordan block with B = C = I.

    M_tau = [[rho^tau, tau rho^(tau-1)], [0, rho^tau]].

    rho a real number, n >= 0 an ``int``. Result float64. Tensor rank 3 and border rank 2 for n >= 2. Raises
    ``TypeError``/``ValueError`` for a bad n. Source: prop-border-rank, `desilva2008tensor`.
    Introduced in *how-many-heads-really*.

    >>> jordan_lags(0.5, 3)[2].tolist()
    [[0.25, 1.0], [0.0, 0.25]]
    """
    n, rho = check_integer("n", n, low=0), check_number("rho", rho)
    tau = torch.arange(n, dtype=torch.float64)
    power, slope, zero = rho**tau, tau * rho ** (tau - 1).clamp(min=0), torch.zeros_like(tau)
    return torch.stack([torch.stack([power, slope], -1), torch.stack([zero, power], -1)], -2)


def jordan_approximation(rho: float, epsilon: float, n: int) -> LagHeads:
    """Return two rank-one heads for the Jordan block with error O(epsilon), coefficients O(1/epsilon).

    Poles rho and rho + epsilon in place of the double pole: A^tau = rho^tau R_1 + (rho + epsilon)^tau R_2
    with R_1 = [[1, -1/epsilon], [0, 0]] and R_2 = [[0, 1/epsilon], [0, 1]]. V (2, 2, 2) has unit norm,
    coefficients (2, n) carry the size, float64. rho real, epsilon real and not 0, n >= 1. Raises
    ``TypeError``/``ValueError`` for a bad n or epsilon. Source: prop-border-rank,
    `desilva2008tensor`. Introduced in *how-many-heads-really*.

    >>> near = jordan_approximation(0.5, 1e-3, n=6)  # two heads, where three are exact
    >>> len(near.V), near.relative_error < 0.01, near.coefficients.abs().max().item() > 100
    (2, True, True)
    """
    n, rho = check_integer("n", n, low=1), check_number("rho", rho)
    epsilon = check_number("epsilon", epsilon, "finite and not 0", lambda e: 0 < abs(e) < float("inf"))
    V = torch.tensor([[[1, -1 / epsilon], [0, 0]], [[0, 1 / epsilon], [0, 1]]], dtype=torch.float64)
    poles = torch.tensor([rho, rho + epsilon], dtype=torch.float64)
    return unit_heads(V, poles[:, None] ** torch.arange(n), jordan_lags(rho, n))


def unit_heads(V: torch.Tensor, coefficients: torch.Tensor, lags: torch.Tensor) -> LagHeads:
    """The heads with value maps of norm one, their sizes in the coefficients, judged by the lags."""
    sizes = V.flatten(1).norm(dim=1)
    V, coefficients = V / sizes[:, None, None], coefficients * sizes[:, None]
    missed = torch.einsum("hn,hpd->npd", coefficients, V) - lags
    return LagHeads(V, coefficients, float(missed.norm() / lags.norm()))
