"""Pairwise coefficients alpha_ij = f_h(x_i, x_j, i, j): how few heads are a system almost everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch

from ssmbook._checks import check_alike, check_flags, check_integer, check_like, check_tensors
from ssmbook._count import Count
from ssmbook.heads._target import lag_span, lags_of
from ssmbook.heads.fixed.exact import rational_matrix
from ssmbook.numerics import numerical_rank, toeplitz
from ssmbook.systems.system import System, system_first


@dataclass(frozen=True)
class PairwiseCertificate:
    """What the pairwise head count l was read from, and its bounds (introduced in *how-many-heads-really*).

    ``low`` = ceil(k/d) <= l <= ``high`` = min(k, p), bounds from the interaction rank ``k``; ``exact`` tells
    rational arithmetic from float64; ``spectrum`` (min(k, p),) the singular values at the best draw, relative
    to the largest.

    >>> turn = System(torch.tensor([[0.0, -0.9], [0.9, 0.0]]), torch.eye(2), torch.eye(2))
    >>> proof = pairwise_head_count(turn, 8).evidence
    >>> proof.low, proof.high, proof.k
    (1, 2, 2)
    """

    low: int
    high: int
    k: int
    exact: bool
    spectrum: torch.Tensor


@system_first
def pairwise_head_count(
    system: System | torch.Tensor,
    n: int | None = None,
    *,
    rtol: float | None = None,
    draws: int = 5,
    generator: torch.Generator | None = None,
    exact: bool = False,
) -> Count:
    """Return the fewest heads with coefficients f_h(x_i, x_j, i, j) that are a system for almost every input.

    The count is l = max_x dim span_tau{M_tau x}, attained by almost every x: the largest rank over ``draws``
    normal x in float64, on an orthonormal basis of the lags' span. ``exact=True`` takes the floats as the
    rationals they are and integer x: rational ranks k and l (l a proved lower bound that fails to be l with
    negligible probability).

    A real `System` and n, or lag operators M (n, p, d) alone; ``rtol`` relative rank tolerance, default 1e-10
    in float64, 16 epsilons in shorter types; ``generator`` a torch.Generator on the CPU (default: seed 0).
    Returns a settled `Count`, evidence a `PairwiseCertificate`. Raises ``TypeError``/``ValueError`` for a
    wrong dtype or shape, NaN, infinity, draws < 1. Source: thm-pairwise-count. Introduced in
    *how-many-heads-really*.

    >>> turn = System(torch.tensor([[0.0, -0.9], [0.9, 0.0]]), torch.eye(2), torch.eye(2))
    >>> print(pairwise_head_count(turn, 8))
    2 heads (rank at random tokens)
    """
    M = lags_of(system, n)
    _, p, d = M.shape
    draws = check_integer("draws", draws, low=1)
    check_flags(exact=exact)
    check_like(generator=generator)
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    lags, basis, rtol = lag_span(M, rtol)
    if exact:
        k, count = _exact_ranks(lags, draws, generator)
        spectrum = torch.empty(0, dtype=torch.float64)
    else:
        k = len(basis)
        X = torch.randn(draws, d, generator=generator, dtype=torch.float64).numpy()
        sigma = torch.from_numpy(np.linalg.svd(np.moveaxis(basis @ X.T, 2, 0), compute_uv=False))
        ranks = numerical_rank(sigma, max(rtol, min(10 * rtol, 0.1)))
        count, best = (int(found) for found in ranks.max(0))
        spectrum = sigma[best] / sigma[best, :1]
    evidence = PairwiseCertificate(-(-k // d) if d else 0, min(k, p), k, exact, spectrum)
    return Count(count, count, "rational rank" if exact else "rank at random tokens", evidence)


def _exact_ranks(lags, draws, generator):
    """Ranks over Q of the lags, and of the lags applied to random integer vectors."""
    n, p, d = lags.shape
    exact = np.frompyfunc(Fraction, 1, 1)(lags)
    k = rational_matrix(exact.reshape(n, p * d).tolist(), (n, p * d)).rank()
    count = 0
    for x in torch.randint(-999, 1000, (draws, d), generator=generator).tolist():
        count = max(count, rational_matrix((exact @ x).tolist(), (n, p)).rank())
    return k, count


class PairwiseHeads:
    """H value maps V (H, p, d), with the least-norm coefficients that make M_tau x_j of V_1 x_j … V_H x_j.

    alpha^h_ij = f_h(x_j, i - j) = [G(x_j)^+ M_{i-j} x_j]_h, G(x) the (p, H) matrix with columns V_h x; 0
    where x_j = 0. It depends on the key token and the lag alone, and is homogeneous of degree 0 in x_j.
    ``bound`` is a proved constant with sum_h (alpha^h_ij)^2 <= (bound ||M_{i-j}||_2)^2 for *every* input, or
    infinity where none exists. Introduced in *how-many-heads-really*.

    >>> turn = System(torch.tensor([[0.0, -0.9], [0.9, 0.0]]), torch.eye(2), torch.eye(2))
    >>> heads = bounded_heads(turn, 8)
    >>> heads.V.shape, heads.bound
    (torch.Size([2, 2, 2]), 1.0)
    """

    def __init__(self, M: torch.Tensor, V: torch.Tensor, bound: float = float("inf")):
        self.M, self.V, self.H, self.bound = M, V, V.shape[0], bound

    def coefficients(self, x: torch.Tensor) -> torch.Tensor:
        """Return alpha (..., H, n, n), zero above the diagonal, of x (..., n, d), n at most that of M."""
        n = self._length(x)
        size = x.abs().amax(-1, keepdim=True)
        direction = x / torch.where(size > 0, size, 1)
        images = torch.einsum("hpd,...nd->...nph", self.V, direction)
        targets = torch.einsum("tpd,...nd->...npt", self.M[:n], direction)
        by_lag = torch.linalg.pinv(images, rtol=torch.finfo(images.dtype).eps) @ targets
        steps = torch.arange(n, device=x.device)
        lag = steps[:, None] - steps
        picked = by_lag.movedim(-2, -3).movedim(-2, -1)
        index = lag.clamp(min=0).expand(*picked.shape[:-2], n, n)
        return torch.where(lag >= 0, picked.gather(-2, index), 0)

    def __call__(self, x) -> torch.Tensor:
        """Return y (..., n, p): y_i = sum_h sum_{j <= i} alpha^h_ij V_h x_j for x (..., n, d)."""
        return torch.einsum("...hij,hpd,...jd->...ip", self.coefficients(x), self.V, x)

    def target(self, x: torch.Tensor) -> torch.Tensor:
        """Return the system's own output (..., n, p) for x (..., n, d), by the convolution sum."""
        W = toeplitz(self.M[: self._length(x)], dim=-3)
        return torch.einsum("ijpd,...jd->...ip", W, x)

    def _length(self, x):
        n = check_tensors({"d": self.V.shape[-1]}, finite=True, x=(x, "... n d"))["n"]
        check_alike(**{"the heads": self.V, "x": x})
        if n > self.M.shape[0]:
            raise ValueError(
                f"x must have at most as many tokens as there are lags, {self.M.shape[0]}; got {n}"
            )
        return n


@system_first
def pairwise_heads_from_ssm(
    system: System | torch.Tensor,
    n: int | None = None,
    *,
    generator: torch.Generator | None = None,
    rtol: float | None = None,
) -> PairwiseHeads:
    """Return l heads with pairwise coefficients whose function is the system's at almost every input.

    The value maps are l random matrices projected onto the lags' span (the best of five draws); the
    coefficients exist off a proper algebraic set and are unbounded near it: E|alpha| is infinite as soon as
    that set is a wall. Existence is not learnability.

    A real `System` and n, or lag operators M (n, p, d) alone; ``generator`` a torch.Generator on the CPU
    (default: seed 0). Returns ``PairwiseHeads`` in their dtype and on their device. Raises as
    ``pairwise_head_count``. Source: thm-pairwise-count. Introduced in *how-many-heads-really*.

    >>> M, x = torch.randn(8, 2, 3, dtype=torch.float64), torch.randn(8, 3, dtype=torch.float64)
    >>> heads = pairwise_heads_from_ssm(M)
    >>> len(heads.V), torch.allclose(heads(x), heads.target(x))  # W has rank six
    (2, True)
    """
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    M = lags_of(system, n)
    count = pairwise_head_count(M, rtol=rtol, generator=generator).value
    _, basis, _ = lag_span(M, rtol)
    k, p, d = basis.shape
    basis = basis.reshape(k, p * d)
    X = torch.randn(16, d, generator=generator, dtype=torch.float64).numpy()
    best, chosen = -1.0, np.zeros((0, basis.shape[1]))
    for _ in range(5 if count else 0):
        anywhere = torch.randn(count, basis.shape[1], generator=generator, dtype=torch.float64).numpy()
        V = anywhere @ basis.T @ basis  # the projection depends on the span only, not on its basis
        images = np.einsum("hpd,md->mph", V.reshape(count, p, d), X)
        sigma = np.linalg.svd(images, compute_uv=False)
        score = float(np.median(sigma[:, -1] / sigma[:, 0]))
        best, chosen = max((best, chosen), (score, V), key=lambda pair: pair[0])
    V = torch.from_numpy(chosen.reshape(count, p, d)).to(M)
    return PairwiseHeads(M.detach(), V)
