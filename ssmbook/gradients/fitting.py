"""The slope of a decay: a straight line through log norms, with its confidence interval."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from scipy.special import stdtrit

from ssmbook._checks import as_count, as_real, check_finite, check_flags, check_shape


class LogSlope(NamedTuple):
    """A fitted decay, log norm = intercept + slope * distance: ``exp(slope)`` stands beside rho.

    slope, intercept; stderr of the slope; interval (low, high) of the slope at the confidence asked for;
    points used. Introduced in *gradient-highway*.

    >>> tau = torch.arange(20)
    >>> found = fit_log_slope(tau, 3 * 0.9**tau)
    >>> found.points, round(found.intercept, 4)  # log 3
    (20, 1.0986)
    """

    slope: float
    stderr: float
    interval: tuple[float, float]
    intercept: float
    points: int


def _line(tau: torch.Tensor, logs: torch.Tensor) -> tuple[float, float, float]:
    """Least squares: slope, intercept, standard error of the slope (n - 2 degrees of freedom)."""
    centered = tau - tau.mean()
    spread = float((centered**2).sum())
    slope = float((centered * logs).sum()) / spread
    intercept = float(logs.mean()) - slope * float(tau.mean())
    residual = logs - (intercept + slope * tau)
    stderr = math.sqrt(float((residual**2).sum()) / max(len(tau) - 2, 1) / spread)
    return slope, intercept, stderr


def _peaks(tau: torch.Tensor, logs: torch.Tensor) -> torch.Tensor:
    """Which points no neighbor tops once the trend is off; zeros are valleys, ends do not count."""
    finite = torch.isfinite(logs)
    slope, _, _ = _line(tau[finite], logs[finite])
    level = logs - slope * tau
    tops = torch.zeros_like(finite)
    tops[1:-1] = (level[1:-1] >= level[:-2]) & (level[1:-1] >= level[2:]) & finite[1:-1]
    return tops


def fit_log_slope(
    distances: torch.Tensor,
    norms: torch.Tensor,
    *,
    skip_polynomial: int | float = 0,
    window: tuple[int, int] | None = None,
    envelope: bool = False,
    confidence: float = 0.95,
) -> LogSlope:
    """The exponential rate of a gradient profile: least squares of log norm on distance, with a t interval.

    distances (m,) integers; norms (m,), at least 0, worked in float64. skip_polynomial = q: fit log norm - q
    log tau instead, the Jordan factor tau^{m-1} (then distance 0 is left out). window (low, high): only
    distances inside, ends included. envelope: only the peaks of an oscillating profile. Returns
    :class:`LogSlope`; its interval takes the residuals as independent, which a smooth curvature is not: then
    the window is too wide, not the rate uncertain. Raises TypeError/ValueError for malformed arguments,
    fewer than 3 points left, or a zero norm outside ``envelope``. Introduced in *gradient-highway*.

    >>> tau = torch.arange(20)
    >>> round(torch.tensor(fit_log_slope(tau, 3 * 0.9**tau).slope).exp().item(), 4)
    0.9
    """
    sizes = check_shape("norms", norms, "m")
    check_finite("norms", norms)
    check_flags(envelope=envelope)
    tau = as_count("distances", distances, low=0)
    if tau.shape != (sizes["m"],):
        raise ValueError(f"distances must have shape ({sizes['m']},) like norms; got {tuple(tau.shape)}")
    if bool((norms < 0).any()):
        raise ValueError(f"norms must be at least 0; got {float(norms.min())}")
    confidence = float(as_real("confidence", confidence, low=0.0, high=1.0))
    degree = float(as_real("skip_polynomial", skip_polynomial, low=0.0, open_ends=False))
    low, high = (0, math.inf) if window is None else window
    keep = (tau >= max(low, 1 if degree else 0)) & (tau <= high)
    tau = tau[keep].double().cpu()
    logs = torch.log(norms.detach()[keep].double().cpu()) - (degree * torch.log(tau) if degree else 0.0)
    if not envelope and not bool(torch.isfinite(logs).all()):
        raise ValueError(
            "norms must be positive inside the window: a zero has no logarithm; got 0 (envelope=True skips)"
        )
    tau, logs = _select(tau, logs, envelope)
    slope, intercept, stderr = _line(tau, logs)
    half = float(stdtrit(len(tau) - 2, (1 + confidence) / 2)) * stderr
    return LogSlope(slope, stderr, (slope - half, slope + half), intercept, len(tau))


def _select(tau: torch.Tensor, logs: torch.Tensor, envelope: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The points to fit, in order of distance; at least 3 of them at distinct distances."""
    tau, order = torch.sort(tau)
    logs = logs[order]
    usable = torch.isfinite(logs)
    if len(torch.unique(tau[usable])) >= 3 and envelope:
        usable = _peaks(tau, logs)
    if len(torch.unique(tau[usable])) < 3:
        raise ValueError(f"distances must leave at least 3 points to fit; got {int(usable.sum())}")
    return tau[usable], logs[usable]
