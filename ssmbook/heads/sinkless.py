"""Softmax heads without a sink, whose rows sum to 1: what they equal, and how close they come otherwise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch

from ssmbook._checks import check_tensors
from ssmbook.heads._cone import accuracy_of, certify, count_of
from ssmbook.heads._count import Count
from ssmbook.heads._evidence import ConeEvidence
from ssmbook.heads._lags import lags_of, row_space
from ssmbook.heads.softmax import SoftmaxHeads, full_simplex, regular_simplex, slice_simplex
from ssmbook.numerics import toeplitz, tolerance
from ssmbook.systems.system import System


def sinkless_head_count(
    system: System | torch.Tensor, n: int | None = None, *, rtol: float | None = None
) -> Count[ConeEvidence]:
    """Return the count for "sinkless": k or k + 1 heads if all row sums sum_j W_ij agree, else none.

    Row sums that agree to 1e-10 (float32: to rounding), relative to the largest block, are
    taken for equal.
    """
    W = blocks_of(system, n)
    largest = float(W.flatten(-2).norm(dim=-1).max())
    sums = W.sum(1)
    spread = float((sums - sums[0]).flatten(1).norm(dim=1).max()) / largest if largest else 0.0
    if spread > max(1e-10, 8 * len(W) * torch.finfo(W.dtype).eps):
        evidence = ConeEvidence("row sums", f"row sums differ by {spread:.1e}", spread=spread)
        return Count(math.inf, math.inf, "row sums differ", evidence)
    rows = visible_blocks(W).double().cpu().flatten(1).numpy()
    evidence = certify(rows, tolerance(rtol, W.dtype), accuracy_of(W.dtype))
    return count_of(replace(evidence, spread=spread))


def sinkless_heads(system: System | torch.Tensor, n: int | None = None) -> SoftmaxHeads:
    """Return finite-logit softmax heads without a sink whose operator is W, if there are any.

    A real `System` and n, lag operators M (n, p, d), or blocks W (n, n, p, d). k heads if
    they are certified, else k + 1, in the dtype of W. Raises ``ValueError`` if row sums
    differ. Source: thm-exact-reach.

    >>> mean = torch.ones(4, 4).tril() / torch.arange(1.0, 5.0)[:, None]
    >>> heads = sinkless_heads(mean[..., None, None] * torch.eye(2))
    >>> len(heads.V), heads.sink, heads.relative_error < 1e-6
    (1, False, True)
    """
    W = blocks_of(system, n)
    count = sinkless_head_count(W)
    evidence = count.evidence
    if not count.possible:
        raise ValueError(f"W must have equal row sums without a sink; they differ by {evidence.spread:.1e}")
    visible = _visible(len(W), W.device).cpu().numpy()
    rows = W.double().cpu().flatten(2).numpy()[visible]
    basis = row_space(rows, tolerance(None, W.dtype))
    if evidence.kind == "separating":
        entries, vertices = slice_simplex(rows @ basis.T, basis @ evidence.U.numpy())
    else:
        entries, vertices = _level_simplex(rows @ basis.T, visible)
    V = vertices @ basis
    alpha = np.zeros((len(V), len(W), len(W)))
    alpha[:, visible] = entries.T
    totals = alpha.sum(2).mean(1)
    with np.errstate(divide="ignore"):
        logits = torch.from_numpy(np.log(alpha / totals[:, None, None])).to(W)
    size = np.linalg.norm(rows)
    error = float(np.linalg.norm(rows - entries @ V) / size) if size else 0.0
    V = torch.from_numpy((V * totals[:, None]).reshape(len(V), *W.shape[2:])).to(W)
    return SoftmaxHeads(logits, V, sink=False, relative_error=error, evidence=evidence)


def _level_simplex(Z: np.ndarray, visible: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The k + 1 generators, linear parts of the coefficients shifted by T/(i + 1): row sums stay equal."""
    k = Z.shape[1]
    if k == 0:
        return full_simplex(Z)
    generators = regular_simplex(k)
    linear = Z @ generators.T * (k / (k + 1))
    length = np.nonzero(visible)[0] + 1.0
    return linear + 1.1 * (-(linear.min(1)) * length).max() / length[:, None], generators


@dataclass(frozen=True)
class SinklessPlateau:
    """The least squared error of sinkless softmax heads against a system.

    Parameters
    ----------
    M : Tensor (n, p, d)
        The lags of the system.
    error : float
        min sum_ij ||W_ij - M_{i-j}||_F^2.
    relative : float
        The same over the energy of the system.
    value_sum : Tensor (p, d)
        The best common row sum.
    corrections : Tensor (n, p, d)
        What the optimum adds to every visible block of row i.
    """

    M: torch.Tensor
    error: float
    relative: float
    value_sum: torch.Tensor
    corrections: torch.Tensor

    def blocks(self) -> torch.Tensor:
        """Return the optimal operator (n, n, p, d)."""
        visible = _visible(len(self.M), self.M.device)[..., None, None]
        return toeplitz(self.M, dim=-3) + visible * self.corrections[:, None]


def sinkless_plateau(system: System | torch.Tensor, n: int | None = None) -> SinklessPlateau:
    """Return the least error that any number of fixed sinkless softmax heads can have; k + 1 attain it.

    error = sum_i ||S_i - V||_F^2/(i + 1), where S_i = sum_{tau <= i} M_tau and V is their
    mean with weights 1/(i + 1), i from 0. A real `System` and n, or lag operators M (n, p,
    d) alone, n >= 1. Source: prop-plateau.

    >>> decay = System(torch.tensor([[0.5]]), torch.ones(1, 1), torch.ones(1, 1))
    >>> round(sinkless_plateau(decay, 16).relative, 4)  # what any number of heads misses
    0.0279
    """
    M = lags_of(system, n).detach()
    if len(M) == 0:
        raise ValueError("M must hold at least one lag, n >= 1; got n = 0")
    lags = M.double()
    length = torch.arange(1, len(M) + 1, dtype=torch.float64, device=M.device)
    sums = lags.cumsum(0)
    mean = torch.einsum("n,npd->pd", 1 / length, sums) / (1 / length).sum()
    corrections = (mean - sums) / length[:, None, None]
    error = float((corrections.square().sum((1, 2)) * length).sum())
    energy = float((lags.square().sum((1, 2)) * length.flip(0)).sum())
    return SinklessPlateau(M, error, error / energy if energy else 0.0, mean.to(M), corrections.to(M))


def blocks_of(system: System | torch.Tensor, n: int | None) -> torch.Tensor:
    """A system, its lags or blocks as causal blocks (n, n, p, d)."""
    if not isinstance(system, torch.Tensor) or system.ndim != 4:
        W = toeplitz(lags_of(system, n).detach(), dim=-3)
    else:
        W = system.detach()
        check_tensors(W=(W, "n n p d"), finite=True)
        if W[~_visible(len(W), W.device)].any():
            raise ValueError("W must be causal, zero above the diagonal; got a non-zero block with j > i")
    if len(W) == 0:
        raise ValueError("W must have n >= 1; got n = 0")
    return W


def visible_blocks(W: torch.Tensor) -> torch.Tensor:
    """The blocks (m, p, d) that causal rows see."""
    return W[_visible(len(W), W.device)]


def _visible(n: int, device: torch.device) -> torch.Tensor:
    """Which (i, j) a causal row sees: j <= i."""
    return torch.ones(n, n, dtype=torch.bool, device=device).tril()
