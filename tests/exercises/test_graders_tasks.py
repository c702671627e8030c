"""Graders of *tasks*: right answers by any route pass, each mistake, written anew, gets its own sentence."""

import cmath
import math

import numpy as np
import pytest
import torch
from helpers import F64, gen

from ssmbook.chapters.tasks import graders
from ssmbook.exercises import check
from ssmbook.experiments import tasks


def clock(turns, third=2 * math.pi / 3):
    """One turn of the hand after another."""
    hand, said = 1 + 0j, []
    for turn in turns.tolist():
        hand *= cmath.exp(1j * third * turn)
        said.append(round(cmath.phase(hand) * 3 / (2 * math.pi)) % 3)
    return torch.tensor(said)


def in_single_precision(turns):
    angle = turns.float() * (2 * math.pi / 3)
    state = torch.polar(torch.ones_like(angle), angle).cumprod(0)
    return (state.angle() * 3 / (2 * math.pi)).round().long() % 3


def hand(turns):
    return np.cumprod(np.exp(2j * np.pi / 3 * turns.numpy()))


def in_thirds(turn):
    """A wrong clock of the catalogue again, by counting thirds instead of turning a number."""

    def said(turns):
        return turn(turns.cumsum(0) % 3)

    return said


CLOCKS = [
    in_thirds(lambda at: torch.where(at == 2, -1, at)),
    lambda turns: torch.from_numpy(np.floor(np.angle(hand(turns)) * 3 / (2 * np.pi)) % 3).long(),
    lambda turns: (turns.cumsum(0) - turns) % 3,
    in_thirds(lambda at: (3 - at) % 3),
]


def test_clock(each_mistake):
    assert check("tasks/clock", clock)
    assert check("tasks/clock", in_single_precision)
    signed = lambda turns: torch.where(clock(turns) == 2, -1, clock(turns))  # noqa: E731
    assert "from -1 to 1" in check("tasks/clock", signed).hint
    each_mistake("tasks/clock", graders.CLOCK_MISTAKES, CLOCKS)


def test_a_clock_that_drifts_is_told_so():
    verdict = check("tasks/clock", lambda turns: clock(turns, third=2.094))
    assert "right for 400 tokens, and over 20,000 your angle drifts: entry (" in verdict.hint
    assert "not the positions of the clock: entry (" in check("tasks/clock", lambda turns: 0 * turns).hint
    assert "got shape (0,)" in check("tasks/clock", lambda turns: clock(turns)[1:]).hint


def ring(L, radius=1.0, ends=0, turn=1.0):
    """Poles on a circle and how they are read, so that what is L tokens old has weight 1."""
    poles = torch.exp(2j * math.pi * turn * torch.arange(L).to(F64) / max(1, L - ends))
    return radius * poles, radius**-L * torch.ones(L, dtype=F64) / L


def half_ring(L):
    """One pole of each pair of conjugates, read twice."""
    poles, read = ring(L)
    kept = poles.imag > -1e-9
    return poles[kept], torch.where(poles[kept].imag.abs() < 1e-9, 1, 2) * read[kept]


COPIERS = [
    lambda L: ring(L, ends=1),
    lambda L: ring(L, turn=0.5),
    lambda L: (ring(L)[0], L * ring(L)[1]),
    lambda L: (ring(L)[0], ring(L)[0].conj() / L),
    lambda L: (ring(L)[0], ring(L)[0] / L),
]


def copied(copier, symbols):
    """What the recurrence says to L symbols and then L times nothing, as a sum over all earlier tokens."""
    L = len(symbols)
    poles, read = (part.to(torch.complex128) for part in copier(L))
    past = range(L)
    return torch.stack(
        [sum((read * poles ** (t - s)).sum().real * symbols[s] for s in past) for t in range(L, 2 * L)]
    )


@pytest.mark.parametrize("copier", [ring, lambda L: ring(L, 0.9), lambda L: ring(L, 1.1), half_ring])
def test_copiers_copy(copier):
    assert check("tasks/copier", copier)
    tokens, answers = tasks.draw("copying", 7, 3, generator=gen(0))
    for row, said in zip(tokens, answers, strict=True):
        torch.testing.assert_close(copied(copier, row[:7].to(F64)), said[7:].to(F64))


def test_copiers_that_do_not(each_mistake):
    each_mistake("tasks/copier", dict(zip(graders.COPIER_MISTAKES, COPIERS, strict=True)))
    each_mistake("tasks/copier", graders.COPIER_MISTAKES)
    real = check("tasks/copier", lambda L: (torch.linspace(0.5, 0.9, L), torch.ones(L)))
    assert "all your poles are real" in real.hint and "entry (1) is 0.5, wanted 1" in real.hint
    wide = check("tasks/copier", lambda L: ring(L + 1))
    assert "at L = 1, poles and read must be (N,) with N from 1 to 1" in wide.hint
    endless = check("tasks/copier", lambda L: (ring(L)[0], math.inf * ring(L)[1]))
    assert "must be finite" in endless.hint
    one = check(
        "tasks/copier", lambda L: (ring(L)[0], torch.where(torch.arange(L) < L // 2, math.nan, 1 / L))
    )
    assert "at L = 2, poles and read must be finite" in one.hint
    assert (
        "with N from 1 to 1; got (0,) and (0,)" in check("tasks/copier", lambda L: (torch.ones(0),) * 2).hint
    )
    assert "return the pair" in check("tasks/copier", lambda L: ring(L)[0]).hint
    assert "must be tensors; got list and list" in check("tasks/copier", lambda L: ([1], [1])).hint
    assert "expected a function" in check("tasks/copier", 3).hint


def places(tokens, matches):
    """A table with a one wherever a token i that asks has ``matches(tokens, i, j)``, place by place."""
    said, places = tokens.tolist(), range(len(tokens))
    asks = [i for i in places if said[i] == 9]
    table = torch.zeros(len(said), len(said))
    table[asks] = torch.tensor([[float(matches(said, i, j)) for j in places] for i in asks])
    return table


def pair_of(said, i, j):
    """Whether the question at i is about the pair whose value stands at j, read off the rule of the task."""
    pairs = len(said) // 6
    return j < 3 * pairs and j % 3 == 2 and said[j - 2 : j] == said[i - 2 : i]


def softened(tokens):
    alike = sum((tokens.roll(s)[:, None] == tokens.roll(s)).to(F64) for s in (1, 2))
    lag = torch.arange(len(tokens))[:, None] - torch.arange(len(tokens))
    score = 30 * (alike + (lag % 3 == 0)).masked_fill(lag < 1, -torch.inf)
    return score.softmax(1)  # NaN in the first row, which is not read


LOOKS = [
    lambda said, i, j: 0 < j < i and said[j - 1] == said[i - 1],
    lambda said, i, j: 1 < j < i and said[j - 2 : j] == said[i - 2 : i],
    lambda said, i, j: 0 < j < i and said[j - 1 : j + 1] == said[i - 2 : i] and (i - j) % 3 == 1,
    lambda said, i, j: 1 < j <= i and said[j - 2 : j] == said[i - 2 : i] and (i - j) % 3 == 0,
]


def test_look(each_mistake):
    assert check("tasks/look", lambda tokens: places(tokens, pair_of))
    assert check("tasks/look", softened)
    assert check("tasks/look", lambda tokens: places(tokens, pair_of).bool())
    mine = [lambda tokens, wrong=wrong: places(tokens, wrong) for wrong in LOOKS]
    each_mistake("tasks/look", dict(zip(graders.LOOK_MISTAKES, mine, strict=True)))
    each_mistake("tasks/look", graders.LOOK_MISTAKES)


def test_tables_that_are_no_attention_are_told_so():
    def hint(table):
        return check("tasks/look", table).hint

    assert "reads a later token" in hint(lambda tokens: torch.ones(len(tokens), len(tokens)))
    assert "token 5 of 6 asks, and reads nothing" in hint(
        lambda tokens: torch.zeros(len(tokens), len(tokens))
    )
    assert "of the weight that question q gives to symbol s: entry (" in hint(lambda t: torch.eye(len(t)))
    assert "none of them negative" in hint(lambda tokens: -places(tokens, pair_of))
    assert "none of them negative" in hint(lambda tokens: math.nan * places(tokens, pair_of))
    assert "none of them negative" in hint(lambda tokens: torch.diag(0 * tokens - math.inf).exp().log())
    assert "none of them negative" in hint(lambda tokens: 1j * places(tokens, pair_of))
    assert "return a tensor (6, 6); got (6,)" in hint(lambda tokens: tokens)
    assert "return a tensor (6, 6); got NoneType" in hint(lambda tokens: None)
    assert "expected a function" in hint(torch.eye(6))
