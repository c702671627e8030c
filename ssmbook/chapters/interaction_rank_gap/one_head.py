"""One head that reads the whole input: where it can equal a system, and a token on which it cannot."""

from typing import NamedTuple

import torch

from ssmbook.operators import LagOperator


class OneHeadWitness(NamedTuple):
    """A token on which one head fails: M_lag token is at least ``gap`` away from the line of all c V token.

    ``token`` (d,) has norm one. On the input whose only non-zero token is x_0 = token, every choice of
    coefficients misses output ``lag`` by ``gap`` or more.
    """

    lag: int
    token: torch.Tensor
    gap: float


def one_head_coefficients(
    M: torch.Tensor, V: torch.Tensor, x: torch.Tensor, rtol: float = 1e-8
) -> torch.Tensor:
    """Return alpha(x) with sum_{j <= i} alpha_ij V x_j = sum_{j <= i} M_{i-j} x_j for these inputs.

    Lag operators M (L, p, d), one value map V (p, d), x (..., n, d) with n <= L. The result (..., n, n) is
    lower triangular; row i is the least-norm solution and depends on x_0 … x_i alone. ``rtol`` is the largest
    error of an output, relative to it, that counts as reached. Raises ``ValueError`` if some output is not a
    combination of V x_0 … V x_i, and names the first. Source: prop-almost-every.

    >>> M, x = torch.randn(8, 2, 2, dtype=torch.float64), torch.randn(8, 2, dtype=torch.float64)
    >>> M[0] = V = torch.eye(2, dtype=torch.float64)  # M has rank four; at this x one head is enough
    >>> torch.allclose(one_head_coefficients(M, V, x) @ x, LagOperator(M) @ x)
    True
    """
    n = x.shape[-2]
    y = LagOperator(M[:n]).apply(x)
    future = torch.ones(n, n, dtype=torch.bool, device=x.device).triu(1)
    seen = (x @ V.mT).unsqueeze(-3).masked_fill(future.unsqueeze(-1), 0.0).mT  # (..., i, p, j)
    alpha = torch.linalg.pinv(seen) @ y.unsqueeze(-1)
    missed = torch.linalg.vector_norm((seen @ alpha).squeeze(-1) - y, dim=-1)
    late = (missed > rtol * torch.linalg.vector_norm(y, dim=-1)).nonzero()[:, -1]
    if len(late):
        i = int(late.min())
        raise ValueError(f"V must reach the system at x: output {i} is not a combination of V x_0 … V x_{i}")
    return alpha.squeeze(-1).tril()


def one_head_witness(M: torch.Tensor, V: torch.Tensor, rtol: float = 1e-10) -> OneHeadWitness | None:
    """Return a token on which one head with value map V cannot be the system, or None if there is none.

    Lag operators M (n, p, d) and V (p, d). None means that every M_tau is a multiple of V. Otherwise d + 1
    tokens decide: the right singular vectors of V and the sum of those with a non-zero singular value. The
    one with the largest gap is returned. ``rtol``: singular values below it, relative to V, count as zero,
    and so do gaps below it, relative to M_tau. Source: thm-single-head.

    >>> turn = torch.tensor([[0.0, -0.9], [0.9, 0.0]])
    >>> one_head_witness(torch.stack([torch.eye(2), turn]), V=torch.eye(2)).lag  # no multiple of I
    1
    """
    tokens, values = _deciding_tokens(V, rtol)
    images = torch.einsum("tpd,ad->tap", M, tokens)
    squares = values.square().sum(-1).clamp_min(torch.finfo(V.dtype).tiny)
    along = torch.einsum("tap,ap->ta", images, values) / squares
    gaps = torch.linalg.vector_norm(images - along.unsqueeze(-1) * values, dim=-1)
    gaps = torch.where(gaps > rtol * torch.linalg.matrix_norm(M).unsqueeze(-1), gaps, 0.0)
    if not gaps.any():
        return None
    lag, token = divmod(int(gaps.argmax()), len(tokens))
    return OneHeadWitness(lag, tokens[token], float(gaps[lag, token]))


def _deciding_tokens(V, rtol):
    """The d + 1 unit tokens (d + 1, d) that decide whether M is a multiple of V, and their images under V."""
    _, sigma, Vh = torch.linalg.svd(V)
    alive = int((sigma > rtol * sigma.max()).sum())
    total = Vh[:alive].sum(0, keepdim=True) / max(1, alive) ** 0.5
    tokens = torch.cat([Vh, total])
    values = tokens @ V.mT
    values[alive : len(Vh)] = 0
    return tokens, values
