"""Graders of the chapter *tasks*: a clock, a copier and a look-up, each built by hand."""

import math
from functools import partial

import torch

from headsandstates.chapters._graded import f64, misshaped
from headsandstates.exercises import grader
from headsandstates.experiments import tasks


@grader(
    "tasks/clock",
    right=lambda turns: turns.cumsum(0) % 3,
    hint="not the positions of the clock",
    mistakes={
        "a negative angle is position 2, not -1": lambda turns: (turns.cumsum(0) + 1) % 3 - 1,
        "that is the position before each turn": lambda turns: (turns.cumsum(0) - turns) % 3,
    },
    formula="The angle of a turn is 2π/3, in double precision; multiply up with cumprod and take the nearest "
    "third of the circle, modulo three",
)
def clock_cases():
    """For a function turns (n,) in {0, 1, 2} -> positions (n,) mod 3, also where an inexact angle drifts."""
    draw = torch.Generator().manual_seed(0)
    return [(torch.randint(3, (n,), generator=draw),) for n in (1, 7, 400, 20_000)]


def _copier(L, *, ends=False, summed=False):
    """Poles (L,) around the circle and how they are read, with the mistake of a switch."""
    poles = torch.exp(2j * math.pi * torch.arange(L, dtype=f64) / max(1, L - ends))
    return poles, torch.ones_like(poles) / (1 if summed else L)


def _no_copier(found, L):
    """What is wrong with poles and read whatever their weights."""
    N = len(found[0]) if isinstance(found, tuple) and isinstance(found[0], torch.Tensor) else 0
    if problem := misshaped(found, poles=(N,), read=(N,)):
        return problem
    if not 1 <= N <= L:
        return f"at L = {L}, poles and read must be (N,) with N from 1 to {L}; got {N}"
    if L > 2 and not torch.any(found[0].to(torch.complex128).imag):
        return f"at L = {L} all your poles are real: they fade or flip in place and do not copy"
    return None


def _weights(found, L):
    """The weights of the distances 0 to 2L - 1, step by step; that of distance 0 is free and set to 0."""
    poles, read = (part.detach().to(torch.complex128) for part in found)
    h, weights = poles**0, [torch.zeros((), dtype=f64)]
    for _ in range(2 * L - 1):
        h = poles * h
        weights.append((read * h).sum().real)
    return torch.stack(weights)


@grader(
    "tasks/copier",
    right=_copier,
    judge=_no_copier,
    view=_weights,
    hint="that does not copy; of its weights, counted from distance 0",
    atol=1e-4,
    mistakes={
        "your first and last pole are equal: cut the circle into L parts": partial(_copier, ends=True),
        "L times too large: each pole brings the whole symbol": partial(_copier, summed=True),
    },
    formula="Take the L-th roots of one, exp(2πi k / L) with k from 0 to L - 1, and read each with 1 / L",
)
def copier_cases():
    """For a function L -> (poles (N,), read (N,)), N <= L, with weight 1 at distance L, 0 up to 2L - 1."""
    return [(L,) for L in (3, 1, 2, 5, 8, 16)]


def _look(tokens, *, one=False, anywhere=False):
    """The table (n, n) of the head that finds a key, with the mistake of a switch."""
    i = torch.arange(len(tokens))
    lag = i[:, None] - i
    padded, same = torch.nn.functional.pad(tokens, (2, 0), value=-1), lag > 0
    for back in (1,) if one else (1, 2):
        same &= padded[i + 2 - back][:, None] == padded[i + 2 - back]
    return same & ((lag % 3 == 0) | anywhere)


def _no_attention(alpha, tokens):
    """What is wrong with the rows that are read, those of the questions, whatever they find."""
    n = len(tokens)
    if problem := misshaped((alpha,), alpha=(n, n)):
        return problem
    for i in (tokens == tasks.ANSWER).nonzero()[:, 0].tolist():
        if not (alpha[i] >= 0).all():
            return "the coefficients of attention are numbers, none of them negative"
        if alpha[i, i + 1 :].any():
            return f"token {i} reads a later token: keep the table lower triangular"
        if not alpha[i].any():
            return f"question {i} of {n} tokens reads nothing"
    return None


def _answered(alpha, tokens):
    """Whether a question gives more than half of its weight to a symbol: (questions, VOCABULARY)."""
    alpha = alpha[tokens == tasks.ANSWER].detach().to(f64)
    weights = alpha @ torch.nn.functional.one_hot(tokens, tasks.VOCABULARY).to(f64)
    return weights > 0.5 * weights.sum(1, keepdim=True)


@grader(
    "tasks/look",
    right=_look,
    judge=_no_attention,
    view=_answered,
    hint="not the answers; of which symbol s has most of the weight of question q",
    mistakes={
        "other keys share one symbol with this one: compare both": partial(_look, one=True),
        "your head also finds the key where none was told, across the border of two pairs, and of that only "
        "the distance tells": partial(_look, anywhere=True),
    },
    formula="alpha_ij = 1 where tokens i - 1 and i - 2 are those at j - 1 and j - 2, j < i, and i - j is a "
    "multiple of three; 0 elsewhere",
)
def look_cases():
    """For a function tokens (n,) -> table (n, n) of a causal head that answers recall."""
    draw = torch.Generator().manual_seed(0)
    return [(tasks.draw("recall", L, 1, generator=draw)[0][0],) for L in (1, 4, 8, 64)]
