"""Graders of Part IV: right answers pass, right-looking ones that are wrong are told why."""

import math

import torch

from ssmbook.exercises import check


def worth_training(floor, n, p, d, m, noise, misfit=True):
    def error(H):
        free = H * (n * (n + 1) // 2 + p * d - H)
        return floor[H] + free * (noise + misfit * floor[H]) / (m * n * p)

    return min(range(len(floor)), key=error)


def test_heads_worth_training():
    assert check("learning-heads/worth-training", worth_training)
    verdict = check("learning-heads/worth-training", lambda *given: worth_training(*given, misfit=False))
    assert not verdict and "noise to the others" in verdict.hint
    assert not check("learning-heads/worth-training", lambda floor, *rest: len(floor) - 1)


def heads_used(alpha, V, eps, power=2):
    flat = torch.einsum("hij,hpd->ijpd", alpha, V).flatten(2).flatten(0, 1)
    energy = torch.linalg.svdvals(flat)[: len(alpha)] ** power
    return int((energy.flip(0).cumsum(0).flip(0) / energy.sum() > eps).sum())


def test_heads_used():
    assert check("trained-layers/heads-used", heads_used)  # from the table itself, not from its factors
    verdict = check("trained-layers/heads-used", lambda *given: heads_used(*given, power=1))
    assert not verdict and "squares of singular values" in verdict.hint
    norms = lambda alpha, V, eps: len(alpha)  # noqa: E731
    assert not check("trained-layers/heads-used", norms)


def test_start_for():
    assert check("gradient-flow/start-for", lambda T, c: math.log(math.log(1 / c) / T))
    rounded = check("gradient-flow/start-for", lambda T, c: math.log(-math.log(round(c ** (1 / T), 4))))
    assert not rounded
    assert not check("gradient-flow/start-for", lambda T, c: c ** (1 / T))


def positions(turns, dtype=torch.float64, third=2 * math.pi / 3):
    angle = turns.to(dtype) * third
    state = torch.polar(torch.ones_like(angle), angle).cumprod(0)
    return (torch.angle(state) * 3 / (2 * math.pi)).round().long() % 3


def test_a_clock():
    assert check("tasks/clock", positions)
    verdict = check("tasks/clock", lambda turns: positions(turns, third=2.094))
    assert not verdict and "nearest third of the circle" in verdict.hint
    assert not check("tasks/clock", lambda turns: positions(turns)[:1])
