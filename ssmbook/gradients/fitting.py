"""The slope of a decay: a straight line through log norms."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from ssmbook._checks import as_count, check_integer, check_tensors


class LogSlope(NamedTuple):
    """A fitted decay, log norm = intercept + slope * distance: ``exp(slope)`` stands beside rho.

    ``points``: how many were used. Introduced in *gradient-highway*.

    >>> tau = torch.arange(20)
    >>> found = fit_log_slope(tau, 3 * 0.9**tau)
    >>> found.points, round(found.intercept, 4)  # log 3
    (20, 1.0986)
    """

    slope: float
    intercept: float
    points: int


def fit_log_slope(
    distances: torch.Tensor, norms: torch.Tensor, *, window: tuple[int, int] | None = None
) -> LogSlope:
    """The exponential rate of a gradient profile: least squares of log norm on distance.

    distances (m,) integers; norms (m,), at least 0, worked in float64. window (low, high): only distances
    inside, ends included. Returns :class:`LogSlope`. Where a Jordan block brings a factor tau^q, divide it
    out of ``norms`` first. Raises TypeError/ValueError for malformed arguments, fewer than 3 distances
    left, or a zero norm among them. Introduced in *gradient-highway*.

    >>> tau = torch.arange(20)
    >>> round(torch.tensor(fit_log_slope(tau, 3 * 0.9**tau).slope).exp().item(), 4)
    0.9
    """
    sizes = check_tensors(norms=(norms, "m"), finite=True)
    tau = as_count("distances", distances, low=0)
    if tau.shape != (sizes["m"],):
        raise ValueError(f"distances must have shape ({sizes['m']},) like norms; got {tuple(tau.shape)}")
    if bool((norms < 0).any()):
        raise ValueError(f"norms must be at least 0; got {float(norms.min())}")
    if window is not None and not (isinstance(window, (tuple, list)) and len(window) == 2):
        raise TypeError(f"window must be two distances (low, high) or None; got {window!r}")
    low, high = (0, math.inf) if window is None else (check_integer("window", end, low=0) for end in window)
    keep = (tau >= low) & (tau <= high)
    tau, kept = tau[keep].double().cpu(), norms.detach()[keep].double().cpu()
    if bool((kept == 0).any()):
        raise ValueError("norms must be positive inside the window: a zero has no logarithm; got 0")
    if (different := len(torch.unique(tau))) < 3:
        raise ValueError(f"distances must leave at least 3 different ones to fit; got {different}")
    logs, centered = kept.log(), tau - tau.mean()
    slope = float(centered @ logs / centered.square().sum())
    return LogSlope(slope, float(logs.mean()) - slope * float(tau.mean()), len(tau))
