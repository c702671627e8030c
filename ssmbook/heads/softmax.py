"""Softmax heads with fixed finite logits and a sink: how many a system takes, why, and which.

Up to scale, the weights of such a head can be any positive numbers: the sink takes the rest
of each row. So the lags must lie in the open cone of the value maps. k maps have such a
cone if some U has <U, M_tau> > 0 for every lag; otherwise it takes k + 1, whose cone can be
the whole span.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch

from ssmbook._checks import check_integer
from ssmbook.heads._cone import accuracy_of, certify, count_of
from ssmbook.heads._count import Count
from ssmbook.heads._evidence import ConeEvidence
from ssmbook.heads._lags import check_real_system, lags_of, row_space, system_arrays
from ssmbook.heads.poles import poles_decide, verdict_of_poles
from ssmbook.numerics import sink_softmax, tolerance
from ssmbook.operators import FactorizedOperator
from ssmbook.scans import lti_kernel
from ssmbook.systems.system import System

_EPS = np.finfo(np.float64).eps
# A lag this small beside the terms it sums is zero: what is left of it is rounding.
_CANCELLED = 1e-12
# Constructions with a larger relative error are refused.
_FAITHFUL = 1e-10


# The count --------------------------------------------------------------------------------


def softmax_head_count(
    system: System | torch.Tensor, n: int | None = None, *, rtol: float | None = None
) -> Count[ConeEvidence]:
    """Return the count for "softmax": k if some U has <U, M_tau> > 0 for all lags, else k + 1.

    A zero lag always costs the extra head. The poles of a System without a skip decide most
    cases (`eigenvalue_test`), a linear program the others. Kinds of evidence: "eigenvalue",
    "separating", "dependency", "zero" or "undecided".
    """
    test = None
    if isinstance(system, System) and system.D is None:
        n = check_integer("n", n, low=0)
        test = verdict_of_poles(system)
        if rtol is None and poles_decide(test, system, n):
            kind = "eigenvalue" if test.k else "zero"
            count = test.k + (test.verdict == "k+1")
            return Count(count, count, kind, ConeEvidence(kind, test.reason, test.k))
    rows, _, like = _lag_rows(system, n)
    evidence = certify(rows, tolerance(rtol, like.dtype), accuracy_of(like.dtype))
    if test is not None and evidence.kind == "undecided":
        evidence = replace(evidence, reason=f"{evidence.reason}; of the poles: {test.reason}")
    return count_of(_in_shape_of(evidence, like))


def _in_shape_of(evidence: ConeEvidence, like: torch.Tensor) -> ConeEvidence:
    """The evidence with U a matrix, in the dtype and on the device of the lags."""
    U, weights = evidence.U, evidence.weights
    U = None if U is None else U.reshape(like.shape[1:]).to(like)
    weights = None if weights is None else weights.to(like)
    return replace(evidence, U=U, weights=weights)


def _lag_rows(system: System | torch.Tensor, n: int | None) -> tuple[np.ndarray, np.ndarray, torch.Tensor]:
    """Rows (n, p d) and logarithms (n,) with e^log rows = vec M_tau in float64, and lags of their dtype.

    A lag that cancels is zero. If lags of a System would underflow, its A is divided by the
    spectral radius.
    """
    if isinstance(system, torch.Tensor):
        M = lags_of(system, n)
        return M.detach().double().cpu().flatten(1).numpy(), np.zeros(len(M)), M
    A, B, C, D = system_arrays(check_real_system(system))
    radius = np.abs(np.linalg.eigvals(A)).max(initial=0.0)
    logs = np.zeros(n)
    if radius > 0 and n * math.log(radius) < -600:
        A, logs = A / radius, math.log(radius) * np.arange(n)
    states = lti_kernel(*map(torch.from_numpy, (A, B, np.eye(len(A)))), n).numpy()
    rows = (C @ states).reshape(n, -1)
    terms = (np.abs(C) @ np.abs(states)).reshape(n, -1)
    cancelled = np.abs(rows).max(1, initial=0.0) <= _CANCELLED * terms.max(1, initial=0.0)
    rows[cancelled | (system.minimal().N == 0)] = 0.0  # without a minimal state all lags are rounding
    if D is not None and n:
        rows[0] += D.ravel()
    return rows, logs, system.C.detach().new_empty(0, C.shape[0], B.shape[1])


# The heads --------------------------------------------------------------------------------


@dataclass(frozen=True)
class SoftmaxHeads:
    """Causal softmax heads, given by their logits and value maps.

    Parameters
    ----------
    logits : Tensor (H, n, n)
        -inf above the diagonal.
    V : Tensor (H, p, d)
        The value maps.
    sink : bool
        Whether every row also has a sink, a key with logit 0 and value 0.
    relative_error : float
        The Frobenius error over the norm of the target.
    evidence : ConeEvidence
        That of the count.

    Examples
    --------
    >>> one = torch.ones(1, 1, dtype=torch.float64)
    >>> heads = softmax_heads(System(0.5 * one, one, one), 8)
    >>> heads.logits.shape, heads.sink, heads.relative_error < 1e-12
    (torch.Size([1, 8, 8]), True, True)
    """

    logits: torch.Tensor
    V: torch.Tensor
    sink: bool
    relative_error: float
    evidence: ConeEvidence

    @property
    def H(self) -> int:
        """Number of heads."""
        return len(self.V)

    def coefficients(self) -> torch.Tensor:
        """Return alpha (H, n, n) by a softmax over the visible keys and the sink, if there is one."""
        return sink_softmax(self.logits, 0.0 if self.sink else None)

    def operator(self) -> FactorizedOperator:
        """Return the heads as a ``FactorizedOperator``."""
        return FactorizedOperator(self.coefficients(), self.V)


def softmax_heads(system: System, n: int) -> SoftmaxHeads:
    """Return softmax heads with a sink and finite logits whose operator is the system's.

    One real `System`, n >= 1 tokens. k heads if they are certified and keep ten digits,
    else k + 1. Built in float64, returned in the dtype of the system. Raises ``ValueError``
    if rounding forbids a relative error of 1e-10. Source: thm-sink-count.

    >>> one = torch.ones(1, 1, dtype=torch.float64)
    >>> heads = softmax_heads(System(-0.5 * one, one, one), 8)
    >>> len(heads.V), heads.relative_error < 1e-10
    (2, True)
    """
    if n < 1:
        raise ValueError(f"n must be at least 1; got {n}")
    rows, logs, like = _lag_rows(system, n)
    # Directions below the standard tolerance still count against ten digits: try again with
    # all but rounding.
    for rtol in (tolerance(None, torch.float64), max(rows.shape) * _EPS):
        evidence = certify(rows, rtol, accuracy_of(torch.float64))
        coefficients, V, error = _construct(rows, logs, row_space(rows, rtol), evidence)
        if error <= _FAITHFUL:
            break
    else:
        raise ValueError(f"rounding in A, B, C leaves {len(V)} heads a relative error of {error:.1e}")
    # No row may sum to more than 1/2, and the logits are log alpha - log(1 - row sum).
    totals = 2 * (np.exp(logs)[:, None] * coefficients).sum(0)
    logarithms = np.log(coefficients / totals) + logs[:, None]
    slack = np.log1p(-np.cumsum(np.exp(logarithms), axis=0))
    lag = np.arange(n)[:, None] - np.arange(n)
    logits = np.where(lag >= 0, logarithms.T[:, np.maximum(lag, 0)] - slack.T[:, :, None], -np.inf)
    V = (V * totals[:, None]).reshape(len(V), *like.shape[1:])
    logits, V = (torch.from_numpy(part).to(like) for part in (logits, V))
    return SoftmaxHeads(logits, V, True, error, _in_shape_of(evidence, like))


def _construct(
    rows: np.ndarray, logs: np.ndarray, basis: np.ndarray, evidence: ConeEvidence
) -> tuple[np.ndarray, np.ndarray, float]:
    """Coefficients and value maps of k heads if they are certified and faithful, else of k + 1; the error."""
    Z = rows @ basis.T
    if evidence.kind == "separating":
        coefficients, vertices = slice_simplex(Z, basis @ evidence.U.numpy())
        error = _error(rows, logs, basis, coefficients, vertices)
        if error <= _FAITHFUL:
            return coefficients, vertices @ basis, error
    coefficients, vertices = full_simplex(Z)
    return coefficients, vertices @ basis, _error(rows, logs, basis, coefficients, vertices)


def _error(rows, logs, basis, coefficients, vertices) -> float:
    """The relative error of the operator, in which lag tau occurs n - tau times."""
    weights = (np.exp(logs) * np.sqrt(len(rows) - np.arange(len(rows))))[:, None]
    size = np.linalg.norm(weights * rows)
    return float(np.linalg.norm(weights * (rows - coefficients @ vertices @ basis)) / size) if size else 0.0


def regular_simplex(k: int) -> np.ndarray:
    """Return the k + 1 unit vertices (k + 1, k) of a regular simplex centered at 0."""
    centered = np.eye(k + 1) - 1 / (k + 1)
    left, sigma, _ = np.linalg.svd(centered)
    return left[:, :k] * sigma[:k] / np.sqrt(k / (k + 1))


def full_simplex(Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return positive coefficients (m, k + 1) and generators (k + 1, k) whose product is Z (m, k).

    The generators sum to 0, so adding a constant to all coefficients of a row changes
    nothing.
    """
    k = Z.shape[1]
    if k == 0:
        return np.zeros((len(Z), 0)), np.zeros((0, 0))
    generators = regular_simplex(k)
    signed = Z @ generators.T * (k / (k + 1))
    sizes = np.linalg.norm(Z, axis=1)
    return signed + np.maximum(1.1 * sizes, 1e-30 * sizes.max())[:, None], generators


def slice_simplex(Z: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return positive coefficients (m, k) and k generators around the slice <u, .> = 1 of rows Z (m, k).

    Needs <u, z> > 0 for every row: the points z/<u, z> lie in a hyperplane off 0; a simplex
    there, stretched to their shape, contains them with barycentric coordinates of at least
    1/(10 k).
    """
    k = Z.shape[1]
    frame = np.linalg.qr(np.column_stack([u, np.eye(k)]))[0]
    frame[:, 0] = u / np.linalg.norm(u)
    heights = Z @ frame[:, 0]
    points = Z @ frame[:, 1:] / heights[:, None]
    if k == 1:
        return heights[:, None], frame.T
    center = (points.max(0) + points.min(0)) / 2
    _, sigma, axes = np.linalg.svd(points - center, full_matrices=False)
    axes = axes / np.maximum(sigma, 1e-8 * sigma[0])[:, None]
    inside = (points - center) @ axes.T @ regular_simplex(k - 1).T
    radius = (k - 1) * -inside.min() / 0.9
    barycentric = (1 + (k - 1) * inside / radius) / k
    corners = center + radius * regular_simplex(k - 1) @ np.linalg.pinv(axes.T, rcond=1e-12)
    return heights[:, None] * barycentric, np.hstack([np.ones((k, 1)), corners]) @ frame.T
