"""The distance at which half of the runs still learn, with an interval, for *gradient-flow*."""

from collections.abc import Sequence

import torch

from headsandstates.experiments.training import F64


def half_way(T: Sequence[float], learned: Sequence[int], runs: int) -> tuple[float, float, float]:
    """Return the distance where half of the runs learn, and the ends of its 95 % interval.

    learned: how many of ``runs`` runs succeeded at each distance T. The share is a logistic function of
    log T; the interval holds the centers whose best likelihood is within a factor of e^1.92 of the largest.

    >>> [round(end, 1) for end in half_way([10, 20, 40], [12, 6, 0], 12)]
    [20.0, 17.0, 23.6]
    """
    T, learned = torch.tensor(T, dtype=F64), torch.tensor(learned, dtype=F64)
    center = torch.linspace(T[0].log() - 0.3, T[-1].log() + 0.3, 2000, dtype=F64)[:, None, None]
    slope = torch.logspace(0, 2.5, 120, dtype=F64)[:, None]
    score = slope * (center - T.log())
    fit = learned * torch.nn.functional.logsigmoid(score)
    fit = fit + (runs - learned) * torch.nn.functional.logsigmoid(-score)
    best = fit.sum(-1).max(1)[0]  # of each center over the slopes
    inside = center[:, 0, 0][best > best.max() - 1.92].exp()
    return float(center[best.argmax(), 0, 0].exp()), float(inside[0]), float(inside[-1])
