"""Coefficients that read two tokens, alpha_ij = f_h(x_i, x_j, i, j): heads for almost every input."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ssmbook._checks import check_tensors
from ssmbook.heads._count import Count
from ssmbook.heads._evidence import TokenEvidence
from ssmbook.heads._lags import check_width, column_and_row_bases, lag_span, lags_of
from ssmbook.numerics import numerical_rank, tolerance
from ssmbook.systems.system import System

_DRAWS = 5


def pairwise_head_count(
    system: System | torch.Tensor,
    n: int | None = None,
    *,
    rtol: float | None = None,
    value_rank: int | None = None,
) -> Count[TokenEvidence]:
    """Return l = max_x dim span{M_tau x}. Almost every x attains the maximum, so random x show it.

    Narrow value maps must write all outputs that the lags use, and one of rank one for each
    of these is enough.
    """
    M = lags_of(system, n)
    r = check_width(value_rank, *M.shape[1:])
    count, basis = _rank_at_tokens(M, rtol, torch.Generator().manual_seed(0))
    low = high = count
    if count and r < min(M.shape[1:]):
        outputs, inputs = (side.shape[1] for side in column_and_row_bases(basis, tolerance(rtol, M.dtype)))
        low, high = max(count, -(-outputs // r)), outputs if r < min(outputs, inputs) else count
    return Count(low, high, "rank at random tokens", TokenEvidence(len(basis), count))


def _rank_at_tokens(
    M: torch.Tensor, rtol: float | None, generator: torch.Generator
) -> tuple[int, np.ndarray]:
    """Return the largest rank of the M_tau x at random x, and a basis (k, p, d) of the lags."""
    _, basis, rtol = lag_span(M, rtol)
    X = torch.randn(_DRAWS, M.shape[2], generator=generator, dtype=torch.float64).numpy()
    sigma = torch.from_numpy(np.linalg.svd(np.moveaxis(basis @ X.T, 2, 0), compute_uv=False))
    return int(numerical_rank(sigma, min(10 * rtol, 0.1)).max()), basis


@dataclass(frozen=True)
class PairwiseHeads:
    """H value maps V (H, p, d), and coefficients with which they make the M_tau x_j of each key token.

    alpha^h_ij = [G(x_j)^+ M_{i-j} x_j]_h depends on the key token and the lag alone, where
    G(x) (p, H) has the columns V_h x; it is 0 for x_j = 0. ``bound`` is a proved constant
    with sum_h (alpha^h_ij)^2 <= (bound ||M_{i-j}||_2)^2 for every input, or infinity where
    none exists.

    >>> heads = pairwise_heads(torch.randn(8, 2, 2))
    >>> heads.V.shape, heads.coefficients(torch.randn(5, 2)).shape, heads.bound
    (torch.Size([2, 2, 2]), torch.Size([2, 5, 5]), inf)
    """

    M: torch.Tensor
    V: torch.Tensor
    bound: float = float("inf")

    @property
    def H(self) -> int:
        """Number of heads."""
        return len(self.V)

    def coefficients(self, x: torch.Tensor) -> torch.Tensor:
        """Return alpha (..., H, n, n), zero above the diagonal, for x (..., n, d) with n <= len(M)."""
        n = check_tensors({"d": self.V.shape[-1]}, V=(self.V, "H p d"), x=(x, "... n d"), finite=True)["n"]
        size = x.abs().amax(-1, keepdim=True)
        direction = x / torch.where(size > 0, size, 1)
        images = torch.einsum("hpd,...nd->...nph", self.V, direction)
        targets = torch.einsum("tpd,...nd->...npt", self.M[:n], direction)
        by_lag = torch.linalg.pinv(images, rtol=torch.finfo(images.dtype).eps) @ targets  # (..., j, h, tau)
        steps = torch.arange(n, device=x.device)
        lag = steps[:, None] - steps
        return torch.where(lag >= 0, by_lag.movedim(-3, -1)[..., lag.clamp(min=0), steps], 0)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return y (..., n, p): y_i = sum_h sum_{j <= i} alpha^h_ij V_h x_j for x (..., n, d)."""
        return torch.einsum("...hij,hpd,...jd->...ip", self.coefficients(x), self.V, x)


def pairwise_heads(system: System | torch.Tensor, n: int | None = None) -> PairwiseHeads:
    """Return l heads with pairwise coefficients whose function is the system's at almost every input.

    A real `System` and n, or lag operators M (n, p, d) alone. The value maps are random
    matrices in the span of the lags, the best of five draws (seed 0). The coefficients
    exist for almost every input and are not bounded: they grow without limit near the
    inputs where no coefficients exist. Results in the dtype of the system. Source:
    thm-pairwise-count.

    >>> from ssmbook.operators import LagOperator
    >>> M, x = torch.randn(8, 2, 3, dtype=torch.float64), torch.randn(8, 3, dtype=torch.float64)
    >>> heads = pairwise_heads(M)
    >>> len(heads.V), torch.allclose(heads(x), LagOperator(M) @ x)  # W has rank six
    (2, True)
    """
    M, generator = lags_of(system, n), torch.Generator().manual_seed(0)
    count, basis = _rank_at_tokens(M, None, generator)
    k, p, d = basis.shape
    if count == 0:
        return PairwiseHeads(M.detach(), M.new_zeros(0, p, d))
    basis = basis.reshape(k, p * d)
    X = torch.randn(16, d, generator=generator, dtype=torch.float64).numpy()

    def draw():  # the projection depends on the span only, not on its basis
        anywhere = torch.randn(count, p * d, generator=generator, dtype=torch.float64).numpy()
        return anywhere @ basis.T @ basis

    def conditioning(V):
        sigma = np.linalg.svd(np.einsum("hpd,md->mph", V.reshape(count, p, d), X), compute_uv=False)
        return float(np.median(sigma[:, -1] / sigma[:, 0]))

    V = max((draw() for _ in range(_DRAWS)), key=conditioning)
    return PairwiseHeads(M.detach(), torch.from_numpy(V.reshape(count, p, d)).to(M))
