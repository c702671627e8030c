"""What gates on one head can do instead of many heads: a diagonal state space model."""

from __future__ import annotations

import torch

from ssmbook._checks import check_integer, check_tensors


def diagonal_ssm_by_gates(lam: torch.Tensor, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return gates G_i = lam^i, U_j = lam^(-j) with which one head V = I is a diagonal SSM.

    lam (d,), no zero entry; n >= 0 an ``int``. Result G (n, d), U (n, d) in the dtype of lam, with diag(G_i)
    diag(U_j) = diag(lam^(i - j)) for j <= i: interaction rank d from a single all-ones causal head.

    Raises ``TypeError`` for a non-floating lam, ``ValueError`` for its shape, zero or non-finite entries, n <
    0, and where lam^(n-1) or its inverse leaves the normal range of the dtype. Source: thm-gates. Introduced
    in *gates-and-depth*.

    >>> G, U = diagonal_ssm_by_gates(torch.tensor([0.5, 0.25]), 4)
    >>> (G[3] * U[1]).tolist()  # lam² in each channel
    [0.25, 0.0625]
    """
    n = check_integer("n", n, low=0)
    check_tensors(lam=(lam, "d"), finite=True)
    if not lam.all():
        raise ValueError("lam must have no zero entry (an input gate undoes the output gate); got a zero")
    power = torch.arange(n, device=lam.device).unsqueeze(1)
    G, U = lam**power, lam.reciprocal() ** power
    tiny = torch.finfo(lam.dtype).tiny
    for gate in (G, U):
        if not (torch.isfinite(gate) & (gate.abs() >= tiny)).all():
            raise ValueError(f"n must keep lam^n and lam^-n inside {lam.dtype}; got n = {n}")
    return G, U
