"""Depth as heads: what residual stacks of linear attention layers span."""

from __future__ import annotations

import torch

from ssmbook._checks import check_flags, check_integer, check_tensors
from ssmbook.operators import FactorizedOperator


def residual_depth_span(L: int, H: int, p: int, *, n: int | None = None, shared: bool = False) -> int:
    """Return the largest interaction rank a stack of L residual layers of H heads can reach.

    L, H >= 0, p >= 1 (the width of the residual stream), n >= 1 (causal sequence length, ``None``: long
    enough) ints; ``shared``: every layer uses the same H value maps. A product of L layers has one value map
    for every way to take the skip or a head in each layer: min((1 + H)^L, p^2, n (n + 1) / 2). With shared
    maps only the words in H letters of length <= L remain, 1 + H + … + H^L of them; one letter gives min(L +
    1, p), its powers ending at the minimal polynomial. Attained: proved for (1 + H)^L <= min(n, p),
    observed on random layers beyond; *reached rank* is not every operator of it.

    Result an ``int``. Raises ``TypeError``/``ValueError`` for arguments that are not such ints. Source:
    prop-depth-heads. Introduced in *gates-and-depth*.

    >>> residual_depth_span(3, 1, 16), residual_depth_span(3, 1, 2)  # 2 ** 3 paths; no more than p²
    (8, 4)
    """
    check_flags(shared=shared)
    L, H, p = (
        check_integer(name, value, low=low) for name, value, low in (("L", L, 0), ("H", H, 0), ("p", p, 1))
    )
    bounds = [p * p]
    if n is not None:
        n = check_integer("n", n, low=1)
        bounds.append(n * (n + 1) // 2)
    if not shared:
        return min((1 + H) ** L, *bounds)
    if H == 1:
        bounds.append(p)
    return min(sum(H**length for length in range(L + 1)), *bounds)


def residual_stack_operator(alpha: torch.Tensor, V: torch.Tensor) -> FactorizedOperator:
    """Return the operator of L layers x -> x + sum_h (A_h ⊗ V_h) x, expanded into its (1 + H)^L heads.

    alpha (L, H, n, n), zero above the diagonal, V (L, H, p, p), one dtype; layer 0 acts first. Result a
    `FactorizedOperator` in that dtype; head 0 is the path through every skip. L = 0 gives the identity.
    Memory (1 + H)^L n^2: for small stacks.

    Raises ``TypeError`` for dtypes, ``ValueError`` for shapes, devices, NaN, infinity and coefficients that
    see the future. Source: prop-depth-heads. Introduced in *gates-and-depth*.

    >>> alpha, V = torch.randn(3, 1, 8, 8).tril(), torch.randn(3, 1, 4, 4)
    >>> residual_stack_operator(alpha, V).interaction_rank()  # 2 ** 3 paths through three layers
    8
    """
    sizes = check_tensors(alpha=(alpha, "L H n n"), V=(V, "L H p p"), finite=True)
    if alpha.triu(1).any():
        raise ValueError("alpha must be causal, zero above the diagonal; got a non-zero entry with j > i")
    eyes = (torch.eye(sizes[letter], dtype=V.dtype, device=V.device)[None] for letter in "np")
    stack = skip = FactorizedOperator(*eyes)
    for layer in zip(alpha, V, strict=True):
        stack = (skip + FactorizedOperator(*layer)) @ stack
    return stack
