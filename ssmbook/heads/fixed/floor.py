"""The whole error curve: how close H heads with input-independent coefficients can come to a system."""

from __future__ import annotations

import math

import torch

from ssmbook._checks import check_alike, check_finite, check_shape
from ssmbook.heads._target import lags_of
from ssmbook.operators.ranks import default_rtol
from ssmbook.systems.system import System, system_first

MEASURES = ("energy", "amplitude")


@system_first
def head_floor(
    system: System | torch.Tensor,
    n: int | None = None,
    *,
    time_covariance=None,
    channel_covariance=None,
    measure="energy",
) -> torch.Tensor:
    """Return the relative error of the best H-head map for H = 0 … min(n, p d), a causal LTI target.

    A real `System` and n, or lag operators M (n, p, d) alone; time_covariance (n, n) and channel_covariance
    (d, d) of the inputs, E x_i x_j^T = time_covariance[i, j] * channel_covariance, symmetric positive
    semidefinite, in the target's dtype (``None``: white). Result float64 (min(n, p d) + 1,), from 1 down to
    0: with measure "energy" the expected squared error over the expected output energy, with "amplitude" its
    square root. White inputs: the Eckart-Young tail of the rows sqrt(n - tau) vec M_tau. A zero system has
    error 0 throughout. Computed in float64.

    Raises ``TypeError`` for complex, integer or mixed dtypes, ``ValueError`` for shapes, non-finite entries,
    a covariance that is not symmetric positive semidefinite, an unknown measure. Source: thm-head-floor,
    after eckart1936approximation. Introduced in *head-count*.
    """
    if measure not in MEASURES:
        raise ValueError(f"measure must be one of {MEASURES}; got {measure!r}")
    energy = tail_energy(weighted_rows(lags_of(system, n), time_covariance, channel_covariance))
    return energy if measure == "energy" else energy.sqrt()


@system_first
def epsilon_head_count(
    system: System | torch.Tensor,
    n: int | None = None,
    *,
    eps: float,
    measure="energy",
    time_covariance=None,
    channel_covariance=None,
) -> int:
    """Return k_eps: the fewest heads whose best relative error is at most eps.

    The target, the covariances and ``measure`` as in `head_floor`; eps >= 0 a number in the unit of
    ``measure`` (an energy eps is an amplitude sqrt(eps)). Result an ``int`` between 0 and min(n, p d).

    Raises ``ValueError`` for a negative or non-finite eps, ``TypeError`` for a non-number, and as
    `head_floor`. Source: prop-epsilon-heads. Introduced in *head-count*.
    """
    if isinstance(eps, bool) or not isinstance(eps, (int, float)):
        raise TypeError(f"eps must be a number; got {type(eps).__name__}")
    if not (math.isfinite(eps) and eps >= 0):
        raise ValueError(f"eps must be finite and at least 0; got {eps}")
    covariances = {"time_covariance": time_covariance, "channel_covariance": channel_covariance}
    floors = head_floor(system, n, measure=measure, **covariances)
    return int((floors > eps).sum())


def weighted_rows(M, time_covariance=None, channel_covariance=None) -> torch.Tensor:
    """Return a matrix (n, p d) with the singular values of the rearranged W (L_t ⊗ L_x), Sigma = L L^T.

    The rearranged W is T vec-rows(M L_x), and T^T T = G with G[s, t] = sum_i Sigma_t[i - s, i - t]: so any
    factor F of G = F F^T (n, n) stands in for T (n^2, n). White inputs: G = diag(n - tau).
    """
    rows = M.double()
    n = len(rows)
    if channel_covariance is not None:
        covariance = _checked("channel_covariance", channel_covariance, M, rows.shape[2])
        rows = rows @ _factor("channel_covariance", covariance, default_rtol(M.dtype))
    rows = rows.flatten(1)
    if time_covariance is None:
        weight = torch.arange(n, 0, -1, dtype=rows.dtype, device=rows.device).sqrt()
        return weight.unsqueeze(1) * rows
    covariance = _checked("time_covariance", time_covariance, M, n)
    rtol = default_rtol(M.dtype)
    _factor("time_covariance", covariance, rtol)
    return _factor("time_covariance", _lag_gram(covariance), rtol).mT @ rows


def tail_energy(rows) -> torch.Tensor:
    """Return sum_{r > H} sigma_r^2 / sum sigma_r^2 for H = 0 … min(shape), each tail summed from its small
    end.
    """
    sigma = torch.linalg.svdvals(rows / rows.abs().amax().clamp_min(1e-300) if rows.numel() else rows)
    energy = torch.cat([sigma.square(), sigma.new_zeros(1)])
    tails = energy.flip(0).cumsum(0).flip(0)
    return tails / tails[0] if tails[0] > 0 else tails


def _lag_gram(covariance):
    """G[s, t] = sum over i from max(s, t) to n-1 of covariance[i - s, i - t]: running sums along the
    diagonals.
    """
    n = len(covariance)
    gram = torch.zeros_like(covariance)
    for offset in range(n):
        sums = torch.diagonal(covariance, offset).cumsum(0).flip(0)
        index = torch.arange(n - offset, device=covariance.device)
        gram[index + offset, index] = gram[index, index + offset] = sums
    return gram


def _checked(name, covariance, M, size):
    """A symmetric covariance in float64."""
    check_shape(name, covariance, f"{size} {size}")
    check_alike(M=M, **{name: covariance})
    check_finite(name, covariance)
    covariance = covariance.double()
    if not torch.allclose(covariance, covariance.mT, rtol=1e-6, atol=0.0):
        raise ValueError(f"{name} must be symmetric; got entries that differ from their mirror image")
    return covariance


def _factor(name, matrix, rtol):
    """L with L L^T = matrix: Cholesky's, or from eigenvalues where inputs are confined to a subspace."""
    factor, info = torch.linalg.cholesky_ex(matrix)
    if not int(info):
        return factor
    values, vectors = torch.linalg.eigh(matrix)
    least = float(values[0])
    if least < -rtol * float(values.abs().max()):
        raise ValueError(f"{name} must be positive semidefinite; got the eigenvalue {least:.3g}")
    return vectors * values.clamp_min(0).sqrt()
