"""Softmax rows that sum to 1, no sink: what they reach exactly, and the plateau where training stops."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch

from ssmbook._checks import check_alike, check_shape, check_tensors
from ssmbook._count import Count
from ssmbook.heads._coordinates import span_coordinates
from ssmbook.heads._target import lags_of
from ssmbook.heads.softmax.certify import SoftmaxCertificate, certify, counted, trust
from ssmbook.heads.softmax.construct import (
    SoftmaxHeads,
    check_heads,
    full_simplex,
    regular_simplex,
    slice_simplex,
)
from ssmbook.numerics import toeplitz
from ssmbook.systems.system import System


@dataclass(frozen=True)
class SinklessReach:
    """Why an operator is softmax without a sink, or is not (introduced in *how-many-heads-really*).

    ``spread`` is max_i ||row sum_i - row sum_0|| over the largest block norm. ``certificate`` (weights over
    the visible blocks, row by row) is that of ``softmax_head_count``, None where the row sums differ.

    >>> decay = System(torch.tensor([[0.5]]), torch.ones(1, 1), torch.ones(1, 1))
    >>> round(sinkless_head_count(decay, 8).evidence.spread, 3)
    0.992
    """

    spread: float
    certificate: SoftmaxCertificate | None


@dataclass(frozen=True)
class SinklessPlateau:
    """The least squared error of sinkless softmax against a system (introduced in *how-many-heads-really*).

    ``error`` = min sum_ij ||W'_ij - M_{i-j}||_F^2, ``relative`` that over the energy of the system,
    ``value_sum`` (p, d) the best common row sum, ``corrections`` (n, p, d) what the optimum adds to every
    visible block of row i.

    >>> turn = System(torch.tensor([[0.0, -0.9], [0.9, 0.0]]), torch.eye(2), torch.eye(2))
    >>> round(sinkless_plateau(turn, 16).relative, 3)  # missed by any number of heads
    0.013
    """

    error: float
    relative: float
    value_sum: torch.Tensor
    corrections: torch.Tensor

    def blocks(self, M: torch.Tensor) -> torch.Tensor:
        """Return the optimal operator (n, n, p, d) for the lags M (n, p, d) it was computed from."""
        check_shape("M", M, "n p d", dict(zip("npd", self.corrections.shape, strict=True)))
        check_alike(**{"the plateau": self.corrections, "M": M})
        visible = _visible(M.shape[0], M.device)[..., None, None]
        return toeplitz(M, dim=-3) + visible * self.corrections[:, None]


def sinkless_head_count(
    system: System | torch.Tensor,
    n: int | None = None,
    rtol: float | None = None,
) -> Count:
    """Decide whether fixed finite-logit causal softmax heads without a sink can be W, and how many it takes.

    They can iff all row sums sum_j W_ij agree; then k heads if some U has <U, W_ij> > 0 on every visible
    block, else k + 1, k = dim span{W_ij}; 0 for W = 0. A time-invariant system passes only if M_tau = 0 for
    every tau >= 1.

    W comes as a real `System` and n, as lag operators M (n, p, d) or as blocks (n, n, p, d), zero above the
    diagonal. Row sums are compared to 1e-10 (float32:
    rounding) of the largest block; ``rtol`` and ``lag_rtol`` as in ``softmax_head_count``. Returns a `Count`,
    evidence a `SinklessReach`: ``count.possible`` tells whether W is within reach, and an undecided sign
    leaves k to k + 1. Raises ``TypeError``/``ValueError`` for a wrong dtype or shape, a block above the
    diagonal, NaN and infinity, and tolerances that are not numbers in [0, 1). Source:
    thm-exact-reach. Introduced in *how-many-heads-really*.

    >>> decay = System(torch.tensor([[0.5]]), torch.ones(1, 1), torch.ones(1, 1))
    >>> print(sinkless_head_count(decay, 8))
    no number of heads (row sums differ)
    """
    W = _blocks(system, n)
    tolerances = trust(W, rtol, None)
    largest = float(W.flatten(-2).norm(dim=-1).max())
    sums = W.sum(1)
    spread = float((sums - sums[0]).flatten(1).norm(dim=1).max()) / largest if largest else 0.0
    if spread > max(1e-10, 8 * W.shape[0] * torch.finfo(W.dtype).eps):
        return Count(math.inf, math.inf, "row sums differ", SinklessReach(spread, None))
    rows = W[_visible(W.shape[0], W.device)].double().cpu().flatten(1).numpy()
    count = counted(certify(rows, *tolerances))
    return replace(count, evidence=SinklessReach(spread, count.evidence))


def sinkless_plateau(system: System | torch.Tensor, n: int | None = None) -> SinklessPlateau:
    """Return the best error any number of fixed sinkless softmax heads can reach on it: k + 1 attain it.

    error = sum_i ||S_i - V||_F^2/(i + 1) with S_i = sum_{tau <= i} M_tau and V their mean with weights 1/(i +
    1), i from 0. It bounds every H from below and is a minimum, attained, for H >= k + 1.

    A real `System` and n, or lag operators M (n, p, d) alone; n >= 1. Returns ``SinklessPlateau`` in their
    dtype and on their device; the sums are made in float64. Raises ``TypeError``/``ValueError`` for a wrong
    dtype or shape, NaN and infinity. Source: prop-plateau. Introduced in
    *how-many-heads-really*.

    >>> decay = System(torch.tensor([[0.5]]), torch.ones(1, 1), torch.ones(1, 1))
    >>> round(sinkless_plateau(decay, 16).relative, 4)  # what any number of heads misses
    0.0279
    """
    M = lags_of(system, n)
    if M.shape[0] == 0:
        raise ValueError("M must hold at least one lag, n >= 1; got n = 0")
    lags = M.detach().double()
    n = lags.shape[0]
    length = torch.arange(1, n + 1, dtype=torch.float64, device=M.device)
    sums = lags.cumsum(0)
    mean = torch.einsum("n,npd->pd", 1 / length, sums) / (1 / length).sum()
    corrections = (mean - sums) / length[:, None, None]
    error = float((corrections.square().sum((1, 2)) * length).sum())
    energy = float((lags.square().sum((1, 2)) * length.flip(0)).sum())
    relative = error / energy if energy else 0.0
    return SinklessPlateau(error, relative, mean.to(M.dtype), corrections.to(M.dtype))


def sinkless_heads(
    system: System | torch.Tensor, n: int | None = None, *, H: int | None = None, rtol: float | None = None
) -> SoftmaxHeads:
    """Return finite-logit softmax heads without a sink whose operator is W, if there are any.

    W comes as there; ``H`` None takes the certified count, k + 1 where undecided;
    an int asks for k or k + 1. Result ``SoftmaxHeads`` in the dtype and on the device of W. Raises
    ``ValueError`` for an operator out of reach, for k heads that are not certified, and for bad input.
    Source: thm-exact-reach. Introduced in *how-many-heads-really*.

    >>> mean = torch.ones(4, 4).tril() / torch.arange(1.0, 5.0)[:, None]
    >>> heads = sinkless_heads(mean[..., None, None] * torch.eye(2))
    >>> len(heads.V), heads.sink, heads.relative_error < 1e-6
    (1, False, True)
    """
    W = _blocks(system, n)
    count = sinkless_head_count(W, rtol=rtol)
    if not count.possible:
        raise ValueError(
            f"W must have equal row sums to be softmax without a sink; they differ by "
            f"{count.evidence.spread:.1e}"
        )
    certificate = count.evidence.certificate
    check_heads(H, certificate)
    k, H = certificate.k, count.high if H is None else int(H)
    visible = _visible(W.shape[0], W.device).cpu().numpy()
    rows = W.double().cpu().flatten(2).numpy()[visible]
    basis, _ = span_coordinates(rows, trust(W, rtol, None)[0])
    if H == k and k:
        entries, vertices = slice_simplex(rows @ basis.T, basis @ certificate.U.numpy())
    else:
        entries, vertices = _leveled_simplex(rows @ basis.T, visible)
    return _assembled(entries, vertices @ basis, rows, visible, W, certificate)


def _leveled_simplex(Z, visible):
    """The k + 1 generators, linear parts of the coefficients shifted by T/(i + 1): row sums stay equal."""
    k = Z.shape[1]
    if k == 0:
        return full_simplex(Z)
    generators = regular_simplex(k)
    linear = Z @ generators.T * (k / (k + 1))
    length = np.nonzero(visible)[0] + 1.0
    return linear + 1.1 * (-(linear.min(1)) * length).max() / length[:, None], generators


def _assembled(entries, V, rows, visible, W, certificate):
    n, H = W.shape[0], entries.shape[1]
    alpha = np.zeros((H, n, n))
    alpha[:, visible] = entries.T
    totals = alpha.sum(2).mean(1)
    with np.errstate(divide="ignore"):
        logits = np.log(alpha / totals[:, None, None])
    size = np.linalg.norm(rows)
    error = float(np.linalg.norm(rows - entries @ V) / size) if size else 0.0
    V = torch.from_numpy((V * totals[:, None]).reshape(H, *W.shape[2:])).to(W)
    return SoftmaxHeads(
        torch.from_numpy(logits).to(W), V, sink=False, relative_error=error, certificate=certificate
    )


def _blocks(system, n):
    """A system, its lags or blocks, checked, as causal blocks (n, n, p, d)."""
    if not isinstance(system, torch.Tensor) or system.ndim != 4:
        M = lags_of(system, n)
        if len(M) == 0:
            raise ValueError("M must hold at least one lag, n >= 1; got n = 0")
        return toeplitz(M.detach(), dim=-3)
    if n is not None:
        raise TypeError(f"n must be left out beside blocks W (n, n, p, d); got {n}")
    size = check_tensors(W=(system, "n n p d"), finite=True)["n"]
    if size == 0:
        raise ValueError("W must have n >= 1; got n = 0")
    if system[~_visible(size, system.device)].any():
        raise ValueError("W must be causal, zero above the diagonal; got a non-zero block with j > i")
    return system.detach()


def _visible(n, device):
    return torch.ones(n, n, dtype=torch.bool, device=device).tril()
