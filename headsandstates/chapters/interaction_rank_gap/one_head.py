"""One head that reads the whole input: where it can equal a system, and a token on which it cannot."""

from typing import NamedTuple

import torch

from ssmbook.numerics import numerical_rank
from ssmbook.operators import LagOperator

_RTOL = 1e-10  # singular values below it, relative to V, and gaps below it, relative to M_tau, are rounding


class OneHeadWitness(NamedTuple):
    """On x_0 = token (d,), of norm one, and zeros, one head misses output ``lag`` by ``gap`` or more."""

    lag: int
    token: torch.Tensor
    gap: float


def one_head_coefficients(M: torch.Tensor, V: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return least-norm alpha(x) (..., n, n) with sum_j alpha_ij V x_j = sum_j M_(i-j) x_j, j <= i.

    Lag operators M (L, p, d), one value map V (p, d), x (..., n, d) with n <= L. Raises ``ValueError`` if
    some output is not a combination of V x_0 … V x_i, and names the first. Source: prop-almost-every.

    >>> M, x = torch.randn(8, 2, 2, dtype=torch.float64), torch.randn(8, 2, dtype=torch.float64)
    >>> M[0] = V = torch.eye(2, dtype=torch.float64)  # M has rank four; at this x one head is enough
    >>> torch.allclose(one_head_coefficients(M, V, x) @ x, LagOperator(M) @ x)
    True
    """
    n = x.shape[-2]
    y = LagOperator(M[:n]).apply(x)
    future = torch.ones(n, n, dtype=torch.bool).triu(1)
    seen = (x @ V.mT).unsqueeze(-3).masked_fill(future.unsqueeze(-1), 0.0).mT  # (..., i, p, j)
    alpha = torch.linalg.pinv(seen) @ y.unsqueeze(-1)
    missed = torch.linalg.vector_norm((seen @ alpha).squeeze(-1) - y, dim=-1)
    late = (missed > 1e-8 * torch.linalg.vector_norm(y, dim=-1)).nonzero()[:, -1]
    if len(late):
        i = int(late.min())
        raise ValueError(f"V must reach the system at x: output {i} is not a combination of V x_0 … V x_{i}")
    return alpha.squeeze(-1).tril()


def one_head_witness(M: torch.Tensor, V: torch.Tensor) -> OneHeadWitness | None:
    """Return the token on which one head with value map V (p, d) is furthest from M (n, p, d), or None.

    None if every M_tau is a multiple of V. Otherwise d + 1 tokens decide: the right singular vectors of V
    and the sum of those with a non-zero singular value. Source: thm-single-head.

    >>> turn = torch.tensor([[0.0, -0.9], [0.9, 0.0]])
    >>> one_head_witness(torch.stack([torch.eye(2), turn]), V=torch.eye(2)).lag  # no multiple of I
    1
    """
    _, sigma, Vh = torch.linalg.svd(V)
    rank = numerical_rank(sigma, _RTOL)
    tokens = torch.cat([Vh, Vh[:rank].sum(0, keepdim=True) / max(1, rank) ** 0.5])
    values = tokens @ V.mT
    values[rank : len(Vh)] = 0
    images = torch.einsum("tpd,ad->tap", M, tokens)
    squares = values.square().sum(-1).clamp_min(torch.finfo(V.dtype).tiny)
    along = torch.einsum("tap,ap->ta", images, values) / squares
    gaps = torch.linalg.vector_norm(images - along.unsqueeze(-1) * values, dim=-1)
    gaps = torch.where(gaps > _RTOL * torch.linalg.matrix_norm(M).unsqueeze(-1), gaps, 0.0)
    if not gaps.any():
        return None
    lag, token = divmod(int(gaps.argmax()), len(tokens))
    return OneHeadWitness(lag, tokens[token], float(gaps[lag, token]))
