"""Real softmax heads that are a given system: k or k + 1 of them, finite logits, with a sink."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ssmbook._checks import check_integer
from ssmbook.heads._coordinates import span_coordinates
from ssmbook.heads._target import check_real
from ssmbook.heads.softmax.certify import SoftmaxCertificate, certify, shaped, trust
from ssmbook.heads.softmax.rows import lag_rows
from ssmbook.operators import FactorizedOperator
from ssmbook.systems.system import System

_FAITHFUL = 1e-10


@dataclass(frozen=True)
class SoftmaxHeads:
    """Causal softmax heads, given by their logits and value maps (introduced in *how-many-heads-really*).

    ``logits`` (H, n, n): finite for j <= i, -inf above the diagonal (the causal mask). ``V`` (H, p, d).
    ``sink`` says whether every row also has a sink key of logit 0 and value 0. ``relative_error`` is the
    Frobenius error of the whole operator over the target's norm, in float64. ``certificate`` is that of
    ``softmax_head_count``.

    >>> one = torch.ones(1, 1, dtype=torch.float64)
    >>> heads = softmax_heads_from_ssm(System(0.5 * one, one, one), 8)
    >>> heads.logits.shape, heads.sink, heads.relative_error < 1e-12
    (torch.Size([1, 8, 8]), True, True)
    """

    logits: torch.Tensor
    V: torch.Tensor
    sink: bool
    relative_error: float
    certificate: SoftmaxCertificate

    @property
    def H(self) -> int:
        """Number of heads."""
        return self.V.shape[0]

    def coefficients(self) -> torch.Tensor:
        """Return alpha (H, n, n) by a softmax over the visible keys and the sink, if there is one."""
        if not self.sink:
            return torch.softmax(self.logits, dim=-1)
        column = self.logits.new_zeros(*self.logits.shape[:-1], 1)
        return torch.softmax(torch.cat([column, self.logits], dim=-1), dim=-1)[..., 1:]

    def operator(self) -> FactorizedOperator:
        """Return the heads as a ``FactorizedOperator``."""
        return FactorizedOperator(self.coefficients(), self.V)


def softmax_heads_from_ssm(
    system: System, n: int, *, H: int | None = None, rtol: float | None = None
) -> SoftmaxHeads:
    """Return softmax heads with a sink whose operator is the system's, with finite logits.

    One real `System`; n >= 1 the number of tokens. ``H``: None takes
    k heads where ``softmax_head_count`` certifies k and the construction keeps ten digits, else k + 1; an int
    asks for exactly that many (k or k + 1). ``rtol`` is the rank tolerance
    (None: 1e-10, or rounding if ten digits need it). Result ``SoftmaxHeads`` with
    logits (H, n, n) and V (H, p, d) in the dtype and on the device of the system; built in float64.

    Raises ``ValueError`` when ``H`` is neither k nor k + 1, when k heads are asked for and not certified,
    and when rounding forbids a relative error below 1e-10 (reason and spectrum in the message);
    ``TypeError``/``ValueError`` for bad input. Source: thm-sink-count. Introduced in
    *how-many-heads-really*.

    >>> one = torch.ones(1, 1, dtype=torch.float64)
    >>> heads = softmax_heads_from_ssm(System(-0.5 * one, one, one), 8)
    >>> len(heads.V), heads.relative_error < 1e-10
    (2, True)
    """
    n = check_integer("n", n, low=1)
    exact = check_real(system).double()
    M = exact.lags(n)
    rows, exponents = lag_rows(M, exact)
    certificate = certify(rows, *trust(M, rtol, None))
    check_heads(H, certificate)
    made = _made(rows, exponents, certificate, H, trust(M, rtol, None)[0])
    fine = max(rows.shape) * np.finfo(float).eps
    if made[3] > _FAITHFUL and rtol is None:
        # Directions below the standard tolerance still count against ten digits: keep all but rounding.
        return softmax_heads_from_ssm(system, n, H=H, rtol=fine)
    if made[3] > _FAITHFUL:
        shown = np.array2string(certificate.spectrum.cpu().numpy()[: certificate.k + 2], precision=2)
        raise ValueError(
            f"A, B, C must allow a relative error of {_FAITHFUL:.0e}; {len(made[2])} "
            f"heads leave {made[3]:.1e} (margin {certificate.margin:.1e}, singular values {shown})"
        )
    return _sink_heads(*made, M.to(system.dtype), shaped(certificate, M))


def _made(rows, exponents, certificate, H, rtol):
    """The k heads where they are certified, asked for and faithful, else k + 1 (see `_checked`)."""
    basis, _ = span_coordinates(rows, rtol)
    made = None
    if certificate.kind == "separating" and H in (None, certificate.k):
        u = basis @ certificate.U.numpy()
        made = _checked(rows, exponents, basis, *slice_simplex(rows @ basis.T, u))
    if made is None or (H is None and made[3] > _FAITHFUL):
        made = _checked(rows, exponents, basis, *full_simplex(rows @ basis.T))
    return made


def check_heads(H, certificate):
    """Refuse a number of heads that is neither k nor k + 1, and k where no separating U was found."""
    if H is None:
        return
    H = check_integer("H", H, low=0)
    k = certificate.k
    if H not in ((k, k + 1) if k else (0,)):
        raise ValueError(f"H must be {f'{k} or {k + 1}' if k else 0}; got {H}")
    if H == k > 0 and certificate.kind != "separating":
        raise ValueError(f"H = {k} is not certified here: {certificate.reason}; ask for {k + 1}")


def _checked(rows, exponents, basis, coefficients, vertices):
    """Coefficients (times 2^exponents), value maps, and the relative error of the (n, n) operator.

    The operator holds lag tau n - tau times.
    """
    V = vertices @ basis
    weights = np.ldexp(np.sqrt(len(rows) - np.arange(len(rows))), exponents)[:, None]
    size = np.linalg.norm(weights * rows)
    error = np.linalg.norm(weights * (rows - coefficients @ V))
    return coefficients, exponents, V, float(error / size) if size else 0.0


def _sink_heads(coefficients, exponents, V, error, M, certificate):
    """Rescale so that no row sums to more than 1/2 and read off the logits log alpha - log(1 - row sum)."""
    n, H = coefficients.shape
    powers = np.ldexp(1.0, exponents)[:, None]
    totals = 2 * (powers * coefficients).sum(0)
    alpha = coefficients / totals
    logarithm = np.log(alpha) + exponents[:, None] * np.log(2)
    alpha = powers * alpha
    slack = np.log1p(-np.cumsum(alpha, axis=0))
    lag = np.arange(n)[:, None] - np.arange(n)
    logits = logarithm.T[:, np.maximum(lag, 0)] - slack.T[:, :, None]
    logits = np.where(lag >= 0, logits, -np.inf)
    logits = torch.from_numpy(logits).to(M)
    V = torch.from_numpy((V * totals[:, None]).reshape(H, *M.shape[1:])).to(M)
    return SoftmaxHeads(logits, V, sink=True, relative_error=error, certificate=certificate)


def regular_simplex(k: int) -> np.ndarray:
    """Return the k + 1 unit vertices (k + 1, k) of a regular simplex centered at 0."""
    centered = np.eye(k + 1) - 1 / (k + 1)
    left, sigma, _ = np.linalg.svd(centered)
    return left[:, :k] * sigma[:k] / np.sqrt(k / (k + 1))


def full_simplex(Z: np.ndarray):
    """Return positive coefficients (m, k + 1) and generators (k + 1, k) whose product is Z (m, k).

    The generators sum to 0, so adding a constant to all coefficients of a row changes nothing.
    """
    k = Z.shape[1]
    if k == 0:
        return np.zeros((len(Z), 0)), np.zeros((0, 0))
    generators = regular_simplex(k)
    signed = Z @ generators.T * (k / (k + 1))
    sizes = np.linalg.norm(Z, axis=1)
    return signed + np.maximum(1.1 * sizes, 1e-30 * sizes.max())[:, None], generators


def slice_simplex(Z: np.ndarray, u: np.ndarray):
    """Return positive coefficients (m, k) and k generators around the slice <u, .> = 1 of rows Z (m, k).

    Needs <u, z> > 0 for every row: the points z/<u, z> lie in a hyperplane off 0; a simplex there, stretched
    to their shape, holds them with barycentric coordinates at least 1/(10 k).
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
