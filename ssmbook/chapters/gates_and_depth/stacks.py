"""What gates and depth buy: a diagonal system from one gated head, and residual stacks written as heads."""

import torch

from ssmbook.operators import FactorizedOperator


def diagonal_ssm_by_gates(lam: torch.Tensor, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return gates G_i = lam^i and U_j = lam^(-j), between which one head with V = I is a diagonal SSM.

    lam (d,) without zeros. G and U (n, d) in its dtype: diag(G_i) diag(U_j) = diag(lam^(i - j)), so a single
    all-ones causal head has interaction rank d. Raises ``ValueError`` for a zero, and if lam^(n-1) or its
    inverse leaves the normal range of the dtype. Source: thm-gates.

    >>> G, U = diagonal_ssm_by_gates(torch.tensor([0.5, 0.25]), 4)
    >>> (G[3] * U[1]).tolist()  # lam² in each channel
    [0.25, 0.0625]
    """
    if not lam.all():
        raise ValueError("lam must have no zero entry (an input gate undoes the output gate); got a zero")
    power = torch.arange(n, device=lam.device).unsqueeze(1)
    G, U = lam**power, lam.reciprocal() ** power
    tiny = torch.finfo(lam.dtype).tiny
    for gate in (G, U):
        if not (torch.isfinite(gate) & (gate.abs() >= tiny)).all():
            raise ValueError(f"n must keep lam^n and lam^-n inside {lam.dtype}; got n = {n}")
    return G, U


def residual_depth_span(L: int, H: int, p: int, *, n: int | None = None, shared: bool = False) -> int:
    """Return the largest interaction rank that a stack of L residual layers of H heads of width p can have.

    A product of L layers has one value map for every way to take the skip or a head in each layer: min((1 +
    H)^L, p^2, n (n + 1)/2). If all layers share their value maps (``shared``), only the words of at most L
    letters differ, 1 + H + … + H^L of them, and one letter gives min(L + 1, p). n is the sequence length;
    None leaves it out. The rank is proved to occur for (1 + H)^L <= min(n, p) and was observed on random
    layers beyond. Not every operator of that rank is such a stack. Source: prop-depth-heads.

    >>> residual_depth_span(3, 1, 16), residual_depth_span(3, 1, 2)  # 2 ** 3 paths; no more than p²
    (8, 4)
    """
    bounds = [p * p]
    if n is not None:
        bounds.append(n * (n + 1) // 2)
    if not shared:
        return min((1 + H) ** L, *bounds)
    if H == 1:
        bounds.append(p)
    return min(sum(H**length for length in range(L + 1)), *bounds)


def residual_stack_operator(alpha: torch.Tensor, V: torch.Tensor) -> FactorizedOperator:
    """Return the operator of L layers x -> x + sum_h (A_h ⊗ V_h) x, expanded into its (1 + H)^L heads.

    alpha (L, H, n, n), zero above the diagonal; V (L, H, p, p). Layer 0 acts first, and head 0 of the result
    is the path through every skip. It takes memory (1 + H)^L n², so stacks should be small. Raises
    ``ValueError`` for coefficients that see the future. Source: prop-depth-heads.

    >>> alpha, V = torch.randn(3, 1, 8, 8).tril(), torch.randn(3, 1, 4, 4)
    >>> residual_stack_operator(alpha, V).interaction_rank()  # 2 ** 3 paths through three layers
    8
    """
    if alpha.triu(1).any():
        raise ValueError("alpha must be causal, zero above the diagonal; got a non-zero entry with j > i")
    eyes = (torch.eye(part.shape[-1], dtype=V.dtype, device=V.device)[None] for part in (alpha, V))
    stack = skip = FactorizedOperator(*eyes)
    for layer in zip(alpha, V, strict=True):
        stack = (skip + FactorizedOperator(*layer)) @ stack
    return stack
