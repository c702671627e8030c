"""From a state space model to the heads that equal it."""

from __future__ import annotations

import torch

from ssmbook._checks import check_integer
from ssmbook.heads.fixed.counts import decide, scaled_span
from ssmbook.numerics import toeplitz
from ssmbook.operators import FactorizedOperator, LagOperator
from ssmbook.operators.ranks import leading_row_directions
from ssmbook.scans import lti_kernel_naive
from ssmbook.systems.system import System, system_first

# A construction further than this from its system (relative, lag-weighted norm) is refused.
EXACTNESS = 1e-10


@system_first
def heads_from_ssm(
    system: System, n: int, H: int | None = None, rtol: float | None = None
) -> FactorizedOperator:
    """Return heads whose operator is the state space model's: exactly k of them, alpha^h_ij = c_h(i - j).

    A real `System`; n >= 0 an ``int``; H an ``int`` in 0 … k for the best H-head approximation in Frobenius
    norm instead (``None``: all k, exact to 1e-10, or to ten times what two runs of the plain recurrence leave
    between them, if that is more). Result a `FactorizedOperator` with lower-triangular Toeplitz alpha (H, n,
    n) and V (H, p, d), in the system's dtype, computed in float64. A zero system gets no heads. Unstable
    systems are allowed while their lags are finite.

    Raises as `head_count`; ``ValueError`` also when lags overflow, when H > k, and when k heads leave
    more of the system (ill-conditioned A, B, C: the residual is named). It is measured against the recurrence
    of the transposed system. Warns ``TransientPeakWarning`` where the powers of A grow so far that even the
    recurrence is off. Source: thm-head-count.
    Introduced in *head-count*.

    >>> from ssmbook.maps import LTISSM
    >>> turn = torch.tensor([[0.0, -0.9], [0.9, 0.0]])
    >>> system, x = System(turn, torch.eye(2), torch.eye(2)), torch.randn(32, 2)
    >>> W = heads_from_ssm(system, n=32)
    >>> W.interaction_rank(), torch.allclose(W @ x, LTISSM(system)(x), atol=1e-5)
    (2, True)
    """
    span, rtol, scale = scaled_span(system, n, rtol)
    exact = system.double()
    M = exact.lags(n)
    k = decide(span, rtol).rank
    if H is not None and check_integer("H", H, low=0, high=k) < k:
        return LagOperator(M).best_heads(H).to(system.dtype)
    basis = leading_row_directions(span.rows, k)
    c = (M / scale).flatten(1) @ basis.mT
    V = basis.reshape(k, *scale.shape) * scale
    _refuse_inexact(exact, c, V)
    return FactorizedOperator(toeplitz(c.mT), V).to(system.dtype)


def _refuse_inexact(system, c, V):
    """Judge heads by the recurrence of the transposed system, which shares no rounding with their lags."""
    A, B, C, D = system
    n = c.shape[0]
    weight = torch.arange(n, 0, -1, dtype=c.dtype, device=c.device).sqrt().reshape(-1, 1, 1)
    plain = weight * lti_kernel_naive(A.mT, C.mT, B.mT, n).mT
    if D is not None and n:
        plain[0] += weight[0] * D
    if not plain.any():
        return
    size = plain.abs().amax()
    target = plain / size
    norm = torch.linalg.vector_norm(target)
    missed = target - weight * torch.einsum("th,hpd->tpd", c, V / size)
    residual = torch.linalg.vector_norm(missed) / norm
    if residual <= EXACTNESS:
        return
    # No heads agree better with a recurrence than it does with itself.
    again = weight[1:] * lti_kernel_naive(A, B, C, n)[1:] / size
    doubt = torch.linalg.vector_norm(target[1:] - again) / norm
    if not residual <= 10 * doubt:
        raise ValueError(
            f"A, B, C are too ill-conditioned for exact heads: {len(V)} heads leave a relative error of "
            f"{residual:.1e}, wanted at most {EXACTNESS:.0e}; "
            "read head_count(...).evidence, or pass a smaller rtol"
        )
