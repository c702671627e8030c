"""What is lost when a layer's operator is replaced: three errors that are easily taken for one another."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ssmbook.operators import DiagonalOperator, FactorizedOperator, InteractionOperator
from ssmbook.operators.spectra import psd_root


class ReplacementErrors(NamedTuple):
    """Three shares of what is lost when W' takes the place of W; none bounds another.

    ``operator``: sum ‖W_ij - W'_ij‖² over sum ‖W_ij‖², which looks at no token.
    ``uncorrelated``: of the output, for tokens with the second moments of x but no
    correlation between positions. ``output``: of the output on x itself, ‖(W - W') x‖² over
    ‖W x‖²: a layer's terms add up or cancel there.
    """

    operator: float
    uncorrelated: float
    output: float


def errors(W: InteractionOperator, other: InteractionOperator, x: Tensor) -> ReplacementErrors:
    """Return the three errors of ``other`` in place of ``W`` on tokens x (..., n, d), over the whole batch.

    Computed in float64. Raises ``ValueError`` where the shapes of operators and tokens
    differ.

    >>> from ssmbook.operators import FactorizedOperator
    >>> W = FactorizedOperator(torch.ones(2, 4, 4), torch.eye(2)[:, None] * torch.eye(2))  # heads a and b
    >>> one = FactorizedOperator(W.alpha[:1], W.V[:1])
    >>> x = torch.tensor([[1.0, 1.0], [1.0, -1.0], [1.0, 1.0], [1.0, -1.0]])  # b's inputs cancel
    >>> errors(W, one, x)
    ReplacementErrors(operator=0.5, uncorrelated=0.5, output=0.0)
    """
    W, other, x = (each.to(torch.float64) for each in (W, other, x))
    lost, whole = energies(W - other, x), energies(W, x)
    return ReplacementErrors(*(float(a / b) if b > 0 else 0.0 for a, b in zip(lost, whole, strict=True)))


def energies(W: InteractionOperator, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return sum ‖W_ij‖², sum ‖W_ij L‖² with L Lᵀ the second moments of x, and ‖W x‖²; of the whole batch."""
    output = W.apply(x).square().sum()
    tokens = x.flatten(0, -2)
    moments = tokens.mT @ tokens / len(tokens)
    if isinstance(W, FactorizedOperator):
        alphas, V = gram(W.alpha), W.V
        seen = torch.einsum("...gpd,de,...hpe->...gh", V, moments, V)
        plain = torch.einsum("...gpd,...hpd->...gh", V, V)
        return (alphas * plain).sum().clamp_min(0), (alphas * seen).sum().clamp_min(0), output
    if isinstance(W, DiagonalOperator):
        channels = W.channels.block_norms().square().sum((-2, -1))
        return channels.sum(), (channels * moments.diagonal()).sum(), output
    # such as the difference of two operators of channels
    rows = [(row.square().sum(), ((row @ moments) * row).sum()) for row in W.rows()]
    plain, seen = (torch.stack(part).sum() for part in zip(*rows, strict=True))
    return plain, seen, output


def gram(alpha: Tensor) -> Tensor:
    """Inner products of attention matrices (..., H, n, n), (..., H, H)."""
    flat = alpha.flatten(-2)
    return flat @ flat.mT


def mixture(alphas: Tensor, maps: Tensor, H: int) -> tuple[Tensor, Tensor]:
    """Return A and B (H, k) of P = A Bᵀ with the least ‖sum_g (alpha_g - alpha'_g) ⊗ V_g‖, alpha' = P alpha.

    ``alphas``: of the attention matrices, added up over texts; ``maps``: of the value maps
    V_g, which all texts share, as they are or weighted by second moments. With their square
    roots R_α and R_V that norm is ‖R_V (I - P) R_α‖, so that P = R_α U Uᵀ R_α⁻¹ with the
    first H left singular vectors U of R_α R_V (Eckart–Young).
    """
    root = psd_root(alphas)
    U = torch.linalg.svd(root @ psd_root(maps)).U[:, :H]
    return root @ U, torch.linalg.pinv(root, rtol=1e-8, hermitian=True) @ U
