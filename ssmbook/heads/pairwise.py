"""Coefficients that read two tokens, alpha_ij = f_h(x_i, x_j, i, j): heads for almost every input."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch

from ssmbook._checks import check_tensors
from ssmbook._count import Count
from ssmbook.heads._evidence import Evidence
from ssmbook.heads._lags import lag_span, lags_of
from ssmbook.heads.exact import rational_matrix
from ssmbook.numerics import numerical_rank, toeplitz
from ssmbook.systems.system import System

_DRAWS = 5


def pairwise_head_count(
    system: System | torch.Tensor, n: int | None = None, *, rtol: float | None = None, exact: bool = False
) -> Count:
    """Return l = max_x dim span{M_tau x}: the fewest such heads that equal the system at almost every input.

    Almost every x attains the maximum, so random x show it. ``exact``: ranks in rational arithmetic, of the
    floats as the fractions they are. Evidence: ``k``, the interaction rank, for which ceil(k/d) <= l <=
    min(k, p), and the relative singular values ``spectrum`` behind l. Source: thm-pairwise-count.

    >>> turn = System(torch.tensor([[0.0, -0.9], [0.9, 0.0]]), torch.eye(2), torch.eye(2))
    >>> print(pairwise_head_count(turn, 8))
    2 heads (rank at random tokens)
    """
    M, generator = lags_of(system, n), torch.Generator().manual_seed(0)
    if exact:
        k, count = _rational_ranks(M.detach().double().cpu().numpy(), generator)
        return Count(count, count, "rational rank", Evidence(kind="rational", k=k))
    count, basis, spectrum = _rank_at_tokens(M, rtol, generator)
    evidence = Evidence(kind="tokens", k=len(basis), spectrum=spectrum)
    return Count(count, count, "rank at random tokens", evidence)


def _rank_at_tokens(M, rtol, generator):
    """Return the largest rank of the M_tau x at random x, a basis (k, p, d) of the lags, and the spectrum."""
    _, basis, rtol = lag_span(M, rtol)
    X = torch.randn(_DRAWS, M.shape[2], generator=generator, dtype=torch.float64).numpy()
    sigma = torch.from_numpy(np.linalg.svd(np.moveaxis(basis @ X.T, 2, 0), compute_uv=False))
    count, best = (int(found) for found in numerical_rank(sigma, min(10 * rtol, 0.1)).max(0))
    return count, basis, sigma[best] / sigma[best, :1]


def _rational_ranks(lags, generator):
    """Return the ranks over the rationals of the lags, and of the lags applied to random integer vectors."""
    n, p, d = lags.shape
    exact = np.frompyfunc(Fraction, 1, 1)(lags)
    k = rational_matrix(exact.reshape(n, p * d).tolist(), (n, p * d)).rank()
    X = torch.randint(-999, 1000, (_DRAWS, d), generator=generator).tolist()
    return k, max(rational_matrix((exact @ x).tolist(), (n, p)).rank() for x in X)


@dataclass(frozen=True)
class PairwiseHeads:
    """H value maps V (H, p, d), and coefficients with which they make the M_tau x_j of each key token.

    alpha^h_ij = [G(x_j)^+ M_{i-j} x_j]_h depends on the key token and the lag alone, where G(x) (p, H) has
    the columns V_h x; it is 0 for x_j = 0. ``bound`` is a proved constant with sum_h (alpha^h_ij)^2 <=
    (bound ||M_{i-j}||_2)^2 for every input, or infinity where none exists.

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
        by_token = by_lag.movedim(-2, -3).movedim(-2, -1)  # (..., h, tau, j)
        index = lag.clamp(min=0).expand(*by_token.shape[:-2], n, n)
        return torch.where(lag >= 0, by_token.gather(-2, index), 0)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return y (..., n, p): y_i = sum_h sum_{j <= i} alpha^h_ij V_h x_j for x (..., n, d)."""
        return torch.einsum("...hij,hpd,...jd->...ip", self.coefficients(x), self.V, x)

    def target(self, x: torch.Tensor) -> torch.Tensor:
        """Return the system's own output (..., n, p) for x (..., n, d), by the convolution sum."""
        W = toeplitz(self.M[: x.shape[-2]], dim=-3)
        return torch.einsum("ijpd,...jd->...ip", W, x)


def pairwise_heads(
    system: System | torch.Tensor, n: int | None = None, *, rtol: float | None = None
) -> PairwiseHeads:
    """Return l heads with pairwise coefficients whose function is the system's at almost every input.

    A real `System` and n, or lag operators M (n, p, d) alone. The value maps are random matrices in the span
    of the lags, the best of five draws (seed 0). The coefficients exist for almost every input and are not
    bounded: they grow without limit near the inputs where no coefficients exist. Results in the dtype of the
    system. Source: thm-pairwise-count.

    >>> M, x = torch.randn(8, 2, 3, dtype=torch.float64), torch.randn(8, 3, dtype=torch.float64)
    >>> heads = pairwise_heads(M)
    >>> len(heads.V), torch.allclose(heads(x), heads.target(x))  # W has rank six
    (2, True)
    """
    M, generator = lags_of(system, n), torch.Generator().manual_seed(0)
    count, basis, _ = _rank_at_tokens(M, rtol, generator)
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
