"""What the blocks W_ij span, what a cut in time carries, and the heads that come nearest."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from ssmbook._checks import check_finite
from ssmbook.numerics import HALF, RankReport, item_if_scalar, numerical_rank, rank_report, tolerance
from ssmbook.operators.base import InteractionOperator
from ssmbook.operators.factorized import FactorizedOperator
from ssmbook.operators.spectra import covariance_root, positive_lead, row_directions, singular_values

# Directions of a span that are this small beside the largest are rounding.
_ROUNDING = torch.finfo(torch.float64).eps


class HalfPrecisionWarning(UserWarning):
    """A rank of blocks that were rounded to half precision is a lower bound."""


def _tolerance(W: InteractionOperator, rtol: float | None) -> float:
    """The caller's tolerance, or that of W: float64's where W is the numbers that it stores."""
    return tolerance(rtol, torch.float64 if W._stored and W.dtype in HALF else W.dtype)


def decided_tolerance(W: InteractionOperator, rtol: float | None) -> float:
    """``_tolerance``, with a warning where rounding may hide a part of the span of W."""
    found = _tolerance(W, rtol)
    if rtol is None and W.dtype in HALF and not W._stored:
        warnings.warn(
            f"the blocks of W were rounded to {W.dtype}: singular values up to {found:.2g} of the "
            f"largest count as zero, so that ranks are lower bounds; compute W in float32 or float64",
            HalfPrecisionWarning,
            stacklevel=4,
        )
    return found


def report(W: InteractionOperator, rtol: float | None, joint: bool) -> RankReport:
    """Rank, spectrum, tolerance and gap; an interval for blocks that were rounded to half precision."""
    found = rank_report(W.spectrum(joint), decided_tolerance(W, rtol))
    if rtol is None and W.dtype in HALF and not W._stored:
        found = replace(found, high=numerical_rank(found.spectrum, tolerance(None, torch.float64)))
    return found


def rank_of_vectors(W: InteractionOperator, vectors: Tensor, rtol: float | None) -> int | Tensor:
    """The dimension of the span of blocks of W as rows (..., m, width)."""
    vectors = vectors.to(torch.float64)
    check_finite("W", vectors)
    return numerical_rank(torch.linalg.svdvals(vectors), decided_tolerance(W, rtol))


def widest_cut(W: InteractionOperator, rtol: float | None) -> int | Tensor:
    """The largest rank over the cuts in time, relative to the largest singular value of all of them."""
    rtol = decided_tolerance(W, rtol)
    spectra = [torch.linalg.svdvals(block) for block in W._exact()._past_future_blocks()]
    largest = [torch.nn.functional.pad(sigma, (0, 1)).amax((-2, -1)) for sigma in spectra]
    if not largest:
        return item_if_scalar(torch.zeros(W.batch_shape, dtype=torch.int64, device=W.device))
    scale = torch.stack(largest).amax(0)[..., None]
    found = [torch.as_tensor(numerical_rank(sigma, rtol, scale)).sum(-1) for sigma in spectra]
    return item_if_scalar(torch.stack(found).amax(0))


def heads_of_span(W: InteractionOperator, most: int) -> FactorizedOperator | None:
    """``_as_heads`` of a kind whose span is cheap: a basis, and the coefficients of all blocks in it."""
    W = W.to(torch.float64)
    rows = W._span_rows()
    rank = torch.as_tensor(numerical_rank(singular_values(rows), _ROUNDING))
    if rank.numel() == 0 or int(rank.max()) > most:
        return None
    V = W._as_blocks(row_directions(rows, int(rank.max())))
    return FactorizedOperator(W._coefficients(V), V)


@torch.no_grad()
def operator_span(W: InteractionOperator, rtol: float | None = None) -> Tensor:
    """Return an orthonormal basis (k, p, d) of the operator span, one span over the whole batch.

    The first H maps are the best H that the whole batch can share. In the dtype and on the
    device of ``W``, detached, found in float64; ``rtol`` and errors as in
    ``interaction_rank``.

    >>> turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    >>> M = torch.stack([torch.linalg.matrix_power(turn, lag) for lag in range(8)])
    >>> operator_span(LagOperator(M)).shape  # two orthonormal matrices span all lags
    torch.Size([2, 2, 2])
    """
    matrix = W.span_rows(joint=True)
    return W._as_blocks(positive_lead(row_directions(matrix, None, decided_tolerance(W, rtol)))).to(W.dtype)


def driven_rows(
    W: InteractionOperator, time: Tensor | None, channel: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Return rows with the singular values and row space of W (T ⊗ R), and R: roots of two covariances.

    x = (T ⊗ R) e with white e has these second moments, so E ‖W x‖² = ‖W (T ⊗ R)‖². For
    white inputs the rows are ``W.span_rows()``, and R is None.
    """
    if time is None and channel is None:
        return W.span_rows(), None
    R = covariance_root("channel_covariance", channel, W.d, W.device)
    if time is None:
        # T = 1: the rows that stand for all W_ij stand for all W_ij R as well.
        return (W._as_blocks(W.span_rows()) @ R).flatten(-2), R
    T = covariance_root("time_covariance", time, W.n, W.device)
    return (W.to(torch.float64) @ FactorizedOperator(T[None], R[None])).span_rows(), R


def nearest_heads(
    W: InteractionOperator, H: int | None, time: Tensor | None, channel: Tensor | None
) -> FactorizedOperator:
    """Return the H heads whose operator misses least of W's output, as ``W.best_heads``.

    Eckart–Young: the rows of W (T ⊗ R) are projected on their first H singular directions
    V'_h. As V'_h = V_h R, that is sum_h ⟨W_ij R, V'_h⟩ V_h, whatever T.
    """
    wanted, rtol, reduced = W.dtype, decided_tolerance(W, None) if H is None else 0.0, W._reduced()
    W = reduced if H is None or H <= reduced._width else W.to(reduced.dtype)
    rows, R = driven_rows(W, time, channel)
    if R is None:
        V = positive_lead(W._as_blocks(row_directions(rows, H, rtol)).flatten(-2))
        V = V.unflatten(-1, (W.p, W.d)).to(W.dtype)
        return FactorizedOperator(W.coefficients(V), V).to(wanted)
    H = int(torch.as_tensor(numerical_rank(W.spectrum(), rtol)).max()) if H is None else H
    directions = positive_lead(row_directions(rows, H)).unflatten(-1, (W.p, W.d))
    V = directions @ torch.linalg.pinv(R, hermitian=True)
    # ⟨W_ij R, V'_h⟩ = ⟨W_ij, V'_h R⟩, since R is symmetric.
    alpha = W.coefficients((directions @ R).to(W.dtype))
    return FactorizedOperator(alpha, V.to(W.dtype)).to(wanted)


def cuts_in_time(W: InteractionOperator) -> Iterator[Tensor]:
    """Yield, for t = 1 … n−1, the dense block (..., 1, r, c) from tokens before t to tokens from t on."""
    blocks = W.to_dense().to(torch.float64)
    check_finite("W", blocks)
    future = torch.ones(W.n, W.n, dtype=torch.bool, device=W.device).triu(1)
    if bool((blocks[..., future, :, :] != 0).any()):
        raise ValueError("W must be causal, W_ij = 0 for j > i, for a cut in time; got a block that is not 0")
    matrix = blocks.transpose(-3, -2)
    for t in range(1, W.n):
        block = matrix[..., t:, :, :t, :]
        yield block.reshape(*W.batch_shape, 1, (W.n - t) * W.p, t * W.d)
