"""One head that reads the whole input: where it can be a system, and a token on which it cannot."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ssmbook._checks import check_rtol, check_shape, check_tensors
from ssmbook.heads._target import lags_of
from ssmbook.numerics import in_single
from ssmbook.operators import LagOperator
from ssmbook.systems.system import System, system_first


class OneHeadWitness(NamedTuple):
    """A token on which one head fails (introduced in *interaction-rank-gap*).

    lag: tau. token: x (d,), of norm one. gap: the distance from M_tau x to the line {c V x}, so that on the
    input whose only non-zero token is x_0 = x, *every* choice of coefficients misses output tau by at least
    this much.

    >>> turn = System(torch.tensor([[0.0, -0.9], [0.9, 0.0]]), torch.eye(2), torch.eye(2))
    >>> found = one_head_witness(turn, 8, V=torch.eye(2))
    >>> found.lag, round(found.gap, 3)
    (1, 0.9)
    """

    lag: int
    token: torch.Tensor
    gap: float


@in_single
def one_head_coefficients(
    system: System | torch.Tensor, V: torch.Tensor, x: torch.Tensor, rtol: float | None = None
) -> torch.Tensor:
    """Return alpha(X) with sum_{j <= i} alpha_ij V x_j = sum_{j <= i} M_{i-j} x_j for this input, or refuse.

    A real `System` or lag operators M (L, p, d), V (p, d) one value map, x (..., n, d) with n <= L, one
    floating dtype and device; rtol: the largest error of an output, relative to that output, that counts as
    reached (default: the square root of the dtype's epsilon). Result alpha (..., n, n), lower triangular, row
    i the least-norm solution and a function of x_0 … x_i alone; in the dtype of x.

    Raises ``TypeError`` for dtypes, ``ValueError`` for shapes, NaN and infinity, n > L, and when some output
    is not, to rounding, a combination of V x_0 … V x_i: the first such output is named. Source:
    prop-almost-every. Introduced in *interaction-rank-gap*.

    >>> from ssmbook.operators import LagOperator
    >>> M, x = torch.randn(8, 2, 2, dtype=torch.float64), torch.randn(8, 2, dtype=torch.float64)
    >>> M[0] = V = torch.eye(2, dtype=torch.float64)  # M has rank four; at this x one head is enough
    >>> torch.allclose(one_head_coefficients(M, V, x) @ x, LagOperator(M) @ x)
    True
    """
    n = check_shape("x", x, "... n d")["n"]
    M = lags_of(system, None if isinstance(system, torch.Tensor) else n)
    sizes = check_tensors(M=(M, "L p d"), V=(V, "p d"), x=(x, "... n d"), finite=True)
    if n > sizes["L"]:
        raise ValueError(f"x must have at most as many tokens as M has lags, {sizes['L']}; got n = {n}")
    if x.numel() == 0 or V.numel() == 0:
        return x.new_zeros(*x.shape[:-1], n)
    rtol = torch.finfo(x.dtype).eps ** 0.5 if rtol is None else check_rtol(rtol)
    (M, size_M), (V, size_V), (x, _) = _unit(M), _unit(V), _unit(x)
    y = LagOperator(M[:n]).apply(x)
    future = torch.ones(n, n, dtype=torch.bool, device=x.device).triu(1)
    seen = (x @ V.mT).unsqueeze(-3).masked_fill(future.unsqueeze(-1), 0.0).mT  # (..., i, p, j)
    alpha = torch.linalg.pinv(seen) @ y.unsqueeze(-1)
    missed = torch.linalg.vector_norm((seen @ alpha).squeeze(-1) - y, dim=-1)
    sizes = torch.linalg.vector_norm(seen, dim=-2)
    faint = ((sizes > 0) & (sizes < torch.finfo(x.dtype).eps * sizes.amax(-1, keepdim=True))).any()
    _refuse_unreached(missed, torch.linalg.vector_norm(y, dim=-1), rtol, bool(faint))
    return alpha.squeeze(-1).tril() * (size_M / size_V)


@system_first
@in_single
def one_head_witness(
    system: System | torch.Tensor, n: int | None = None, *, V: torch.Tensor, rtol: float = 1e-10
) -> OneHeadWitness | None:
    """Return a token on which one head with value map V cannot be the system, or None if there is none.

    A real `System` and n, or lag operators M (n, p, d) alone; V (p, d), of their dtype and device. None means
    that every M_tau is a multiple of V. Otherwise d + 1 tokens decide: the right singular vectors of V and
    the sum of those with non-zero singular value; of these, the one with the largest gap is returned. rtol:
    relative to V, the singular values that count as zero; relative to the norm of M_tau, the gaps that do.

    Raises ``TypeError`` for dtypes, ``ValueError`` for shapes, NaN and infinity. Source: thm-single-head.
    Introduced in *interaction-rank-gap*.

    >>> turn = System(torch.tensor([[0.0, -0.9], [0.9, 0.0]]), torch.eye(2), torch.eye(2))
    >>> one_head_witness(turn, 8, V=torch.eye(2)).lag  # the quarter turn is no multiple of I
    1
    """
    M = lags_of(system, n)
    check_tensors(M=(M, "n p d"), V=(V, "p d"), finite=True)
    rtol = check_rtol(rtol)
    if M.numel() == 0:
        return None
    (lags, size), (V, _) = _unit(M.detach()), _unit(V.detach())
    tokens, values = _deciding_tokens(V, rtol)
    images = torch.einsum("tpd,ad->tap", lags, tokens)
    squares = values.square().sum(-1).clamp_min(torch.finfo(V.dtype).tiny)
    along = torch.einsum("tap,ap->ta", images, values) / squares
    gaps = torch.linalg.vector_norm(images - along.unsqueeze(-1) * values, dim=-1)
    norms = torch.linalg.matrix_norm(lags).unsqueeze(-1)
    gaps = torch.where(gaps > rtol * norms, gaps, 0.0)
    if not gaps.any():
        return None
    lag, token = divmod(int(gaps.argmax()), len(tokens))
    return OneHeadWitness(lag, tokens[token].clone(), float(gaps[lag, token] * size))


def _deciding_tokens(V, rtol):
    """d + 1 unit tokens (d + 1, d) that decide whether M is a multiple of V, and their images under V."""
    _, sigma, Vh = torch.linalg.svd(V)
    alive = int((sigma > rtol * sigma.max()).sum())
    total = Vh[:alive].sum(0, keepdim=True) / max(1, alive) ** 0.5
    tokens = torch.cat([Vh, total])
    values = tokens @ V.mT
    values[alive : len(Vh)] = 0
    return tokens, values


def _unit(tensor):
    """The tensor divided by its largest entry, and that entry (1 for a zero tensor)."""
    size = tensor.abs().amax()
    size = torch.where(size > 0, size, torch.ones_like(size))
    return tensor / size, size


def _refuse_unreached(missed, wanted, rtol, faint):
    missed, wanted = missed.reshape(-1, missed.shape[-1]), wanted.reshape(-1, wanted.shape[-1])
    reached = missed <= rtol * wanted
    if reached.all():
        return
    i = int((~reached).any(0).nonzero()[0])
    worst = float((missed[:, i] / wanted[:, i]).nan_to_num(0.0).amax())
    raise ValueError(
        f"V must reach the system at x: output {i} is not a combination of V x_0 … V x_{i}, the nearest one "
        f"is off by {worst:.3g} of its size, wanted at most {rtol:.0e}"
        + ("; tokens below rounding are left out, which larger coefficients could use" if faint else "")
    )
