"""The whole error curve: how close H heads with input-independent coefficients can come to a system."""

from __future__ import annotations

import torch

from ssmbook._checks import check_eps
from ssmbook._count import Count
from ssmbook.heads._target import lags_of
from ssmbook.operators import LagOperator
from ssmbook.systems.system import System, system_first


@system_first
def head_floor(
    system: System | torch.Tensor,
    n: int | None = None,
    *,
    time_covariance: torch.Tensor | None = None,
    channel_covariance: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the relative squared error of the best H-head map for H = 0 … min(n, p d), causal or not.

    A real `System` and n, or lag operators M (n, p, d) alone. Inputs have second moments E x_i x_j^T =
    time_covariance[i, j] * channel_covariance, (n, n) and (d, d), symmetric positive semidefinite (``None``:
    white). Result float64 (min(n, p d) + 1,), from 1 down to 0: expected squared error over expected output
    energy, the ``floor`` of the `LagOperator`. White inputs: the Eckart-Young tail of the rows
    sqrt(n - tau) vec M_tau. A zero system has error 0 throughout.

    Raises ``TypeError`` for complex and integer dtypes, ``ValueError`` for shapes, non-finite entries and a
    covariance that is not symmetric positive semidefinite. Source: thm-head-floor, after
    `eckart1936approximation`. Introduced in *head-count*.

    >>> turn = torch.tensor([[0.0, -0.9], [0.9, 0.0]])
    >>> head_floor(System(turn, torch.eye(2), torch.eye(2)), n=32).round(decimals=4)[:3].abs()
    tensor([1.0000, 0.4386, 0.0000], dtype=torch.float64)
    """
    inputs = {"time_covariance": time_covariance, "channel_covariance": channel_covariance}
    return LagOperator(lags_of(system, n)).floor(**inputs)


@system_first
def epsilon_head_count(
    system: System | torch.Tensor,
    n: int | None = None,
    *,
    eps: float,
    time_covariance: torch.Tensor | None = None,
    channel_covariance: torch.Tensor | None = None,
) -> Count:
    """Return k_eps: the fewest heads whose best relative squared error, `head_floor`, is at most eps.

    Target and covariances as in `head_floor`; eps >= 0 a number. A settled `Count` between 0 and min(n, p d),
    the curve of `head_floor` its evidence.

    Raises ``ValueError`` for a negative or non-finite eps, ``TypeError`` for a non-number, and as
    `head_floor`. Source: prop-epsilon-heads. Introduced in *head-count*.

    >>> system = System(torch.diag(torch.tensor([0.9, 0.5, 0.1])), torch.eye(3), torch.eye(3))
    >>> print(head_count(system, 16), epsilon_head_count(system, 16, eps=0.01), sep="; ")
    3 heads (spectrum, modal); 2 heads (floor at most 0.01)
    """
    eps = check_eps(eps)
    inputs = {"time_covariance": time_covariance, "channel_covariance": channel_covariance}
    floor = head_floor(system, n, **inputs)
    k = int((floor > eps).sum())
    return Count(k, k, f"floor at most {eps:.3g}", floor)
