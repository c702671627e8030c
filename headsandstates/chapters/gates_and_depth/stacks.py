"""What gates and depth buy: a diagonal system from one gated head, and residual stacks written as heads."""

import torch

from ssmbook.operators import FactorizedOperator


def diagonal_ssm_by_gates(lam: torch.Tensor, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return gates G_i = lam^i and U_j = lam^(-j) (n, d) around one head with V = I: a diagonal SSM.

    lam (d,). Raises ``ValueError`` if lam^(n-1) or its inverse leaves the normal range of the dtype. Source:
    thm-gates.

    >>> G, U = diagonal_ssm_by_gates(torch.tensor([0.5, 0.25]), 4)
    >>> (G[3] * U[1]).tolist()  # lam² in each channel
    [0.25, 0.0625]
    """
    power = torch.arange(n)[:, None]
    G, U = lam**power, lam.reciprocal() ** power
    sizes = torch.cat([G, U]).abs()
    if not (sizes.isfinite() & (sizes >= torch.finfo(lam.dtype).tiny)).all():
        raise ValueError(f"lam^n and lam^-n must be normal numbers of {lam.dtype}; got n = {n}")
    return G, U


def residual_depth_span(L: int, H: int, p: int, *, n: int | None = None, shared: bool = False) -> int:
    """Return the largest interaction rank of L residual layers of H heads of width p on n tokens.

    A product of L layers has one value map for every way to take the skip or a head in each layer: min((1 +
    H)^L, p^2, n (n + 1)/2). If all layers share their value maps (``shared``), only words of at most L
    letters differ, and one letter gives min(L + 1, p). Source: prop-depth-heads.

    >>> residual_depth_span(3, 1, 16), residual_depth_span(3, 1, 2)  # 2 ** 3 paths; no more than p²
    (8, 4)
    """
    bounds = [p * p] if n is None else [p * p, n * (n + 1) // 2]
    if not shared:
        return min((1 + H) ** L, *bounds)
    return min(sum(H**length for length in range(L + 1)), *bounds, p if H == 1 else p * p)


def residual_stack_operator(alpha: torch.Tensor, V: torch.Tensor) -> FactorizedOperator:
    """Return the operator of L layers x -> x + sum_h (A_h ⊗ V_h) x, expanded into (1 + H)^L heads.

    alpha (L, H, n, n), zero above the diagonal (else ``ValueError``); V (L, H, p, p). Layer 0 acts first, and
    head 0 of the result is the path through every skip. Source: prop-depth-heads.

    >>> alpha, V = torch.randn(3, 1, 8, 8).tril(), torch.randn(3, 1, 4, 4)
    >>> residual_stack_operator(alpha, V).interaction_rank()  # 2 ** 3 paths through three layers
    8
    """
    if alpha.triu(1).any():
        raise ValueError("alpha must be causal, zero above the diagonal; got a non-zero entry with j > i")
    eyes = (torch.eye(part.shape[-1], dtype=V.dtype)[None] for part in (alpha, V))
    stack = skip = FactorizedOperator(*eyes)
    for layer in zip(alpha, V, strict=True):
        stack = (skip + FactorizedOperator(*layer)) @ stack
    return stack
