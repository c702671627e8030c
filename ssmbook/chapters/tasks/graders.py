"""Graders of the chapter *tasks*: a clock, a copier and a look-up, each built by hand."""

import math
from functools import partial

import torch

from ssmbook.chapters._graded import f64
from ssmbook.exercises import agrees, grader, judged
from ssmbook.experiments import tasks


def _turned(turns, nearest=torch.round):
    state = torch.polar(torch.ones(turns.shape, dtype=f64), turns.double() * (2 * math.pi / 3)).cumprod(0)
    return nearest(torch.angle(state) * 3 / (2 * math.pi)).long()


CLOCK_MISTAKES = {
    "your positions run from -1 to 1: an angle below zero belongs to position 2": _turned,
    "you round down, and an angle a hair below a third counts as the third before it": (
        lambda turns: _turned(turns, torch.floor) % 3
    ),
    "you say where the clock stood before each token turned it": (
        lambda turns: _turned(torch.cat([0 * turns[:1], turns[:-1]])) % 3
    ),
    "your clock turns the other way round": lambda turns: -_turned(turns) % 3,
}


@grader(
    "tasks/clock",
    formula="The angle of a turn is 2π/3, in double precision; multiply up with cumprod and take the nearest "
    "third of the circle, modulo three",
)
def grade_clock(answer):
    """A function turns (n,) in {0, 1, 2} -> positions (n,) mod 3, judged also where a drift would show."""
    draw = torch.Generator().manual_seed(0)
    cases = [(torch.randint(3, (n,), generator=draw),) for n in (1, 7, 400, 20_000)]
    hint = "not the positions of the clock"
    grade = partial(agrees, answer, lambda turns: turns.cumsum(0) % 3, mistakes=CLOCK_MISTAKES)
    problem = grade(cases, hint)
    if problem and grade(cases[:-1], hint) is None:
        return grade(cases, "right for 400 tokens, and over 20,000 your angle drifts")
    return problem


def _copier(L, *, whole=2 * math.pi, ends=False, summed=False, late=0):
    """Poles (L,) around the circle and how they are read, with the mistake that is asked for."""
    k = torch.arange(L, dtype=f64) / max(1, L - ends)
    poles = torch.polar(torch.ones(L, dtype=f64), whole * k)
    return poles, poles**-late / (1 if summed else L)


COPIER_MISTAKES = {
    "your first and last pole are one: a circle cut into L parts ends where it began": (
        partial(_copier, ends=True)
    ),
    "your poles fill half of the circle, and after L steps half of them point the other way": (
        partial(_copier, whole=math.pi)
    ),
    "right in time and L times too large: each of the poles brings the whole symbol": (
        partial(_copier, summed=True)
    ),
    "your symbols come one token late": partial(_copier, late=1),
    "your symbols come one token early": partial(_copier, late=-1),
}


def _weights(copier, L):
    """The weights of the distances 0 to 2L - 1, step by step; distance 0 is not asked for and set to 0."""
    poles, read = (part.detach().to(torch.complex128) for part in copier(L))
    h, found = poles**0, [torch.zeros((), dtype=f64)]
    for _ in range(2 * L - 1):
        h = poles * h
        found.append((read * h).sum().real)
    return torch.stack(found)


def _form_of_copier(copier, L):
    """What is wrong with the form of poles and read, if anything."""
    found = copier(L)
    if not isinstance(found, tuple) or len(found) != 2:
        return f"return the pair (poles, read); got {type(found).__name__}"
    if not all(isinstance(part, torch.Tensor) for part in found):
        return f"poles and read must be tensors; got {' and '.join(type(part).__name__ for part in found)}"
    poles, read = found
    if poles.ndim != 1 or poles.shape != read.shape or not 1 <= len(poles) <= L:
        shapes = f"{tuple(poles.shape)} and {tuple(read.shape)}"
        return f"at L = {L}, poles and read must be (N,) with N from 1 to {L}; got {shapes}"
    if not (poles.isfinite().all() and read.isfinite().all()):
        return f"at L = {L}, poles and read must be finite"
    return None


@grader(
    "tasks/copier",
    formula="Take the L-th roots of one, exp(2πi k / L) with k from 0 to L - 1, and read each with 1 / L",
)
def grade_copier(answer):
    """A function L -> (poles (N,), read (N,)), N <= L, with weight 1 at distance L and none up to 2L - 1."""
    cases = [(L,) for L in (1, 2, 3, 5, 8, 16)]
    if problem := judged(answer, _form_of_copier, cases):
        return problem

    def wanted(L):
        return torch.eye(2 * L, dtype=f64)[L]

    hint = "that does not copy; of its weights, counted from distance 0"
    if bool((answer(16)[0].to(torch.complex128).imag == 0).all()):
        hint = f"all your poles are real, they fade or flip in place, and {hint}"
    mistakes = {say: partial(_weights, wrong) for say, wrong in COPIER_MISTAKES.items()}
    return agrees(partial(_weights, answer), wanted, cases, hint, mistakes=mistakes, atol=1e-4)


def _found(tokens, *, own=False, one=False, accidental=False, early=False):
    """The table (n, n) of the head that finds a key, with the mistake that is asked for."""
    i = torch.arange(len(tokens))
    lag = i[:, None] - i
    padded, same = torch.nn.functional.pad(tokens, (2, 0), value=-1), torch.ones_like(lag, dtype=torch.bool)
    for back in (1,) if one else (1, 2):
        same &= padded[i + 2 - back][:, None] == padded[i + 2 - back + early]
    return same & (lag >= (0 if own else 1)) & ((lag % 3 == early) | accidental)


LOOK_MISTAKES = {
    "your head compares one symbol, and other keys have the same one": partial(_found, one=True),
    "your head also finds the key where none was told, across the border of two pairs, and of that only "
    "the distance tells": partial(_found, accidental=True),
    "your head finds the end of the key, and the value stands one token further on": (
        partial(_found, early=True)
    ),
    "your head also finds the question itself, which holds the same key": partial(_found, own=True),
}


def _form_of_table(look, tokens):
    """What is wrong with the form of the rows that are read, those of the questions, if anything."""
    alpha, n, asked = look(tokens), len(tokens), (tokens == tasks.ANSWER).nonzero()[:, 0]
    if not isinstance(alpha, torch.Tensor) or tuple(alpha.shape) != (n, n):
        found = tuple(alpha.shape) if isinstance(alpha, torch.Tensor) else type(alpha).__name__
        return f"for {n} tokens return a tensor {(n, n)}; got {found}"
    rows = alpha[asked]
    if rows.is_complex() or not rows.isfinite().all() or (rows < 0).any():
        return "the coefficients of attention are finite numbers, none of them negative"
    for i, row in zip(asked.tolist(), rows, strict=True):
        if row[i + 1 :].any():
            return f"token {i} reads a later token: keep the table lower triangular"
        if not row.any():
            return f"token {i} of {n} asks, and reads nothing"
    return None


def _shares(look, tokens):
    """How the weight of each question is shared among the symbols: (questions, VOCABULARY), rows of sum 1."""
    alpha = look(tokens)[tokens == tasks.ANSWER].detach().to(f64)
    weights = alpha @ torch.nn.functional.one_hot(tokens, tasks.VOCABULARY).to(f64)
    return weights / weights.sum(1, keepdim=True)


@grader(
    "tasks/look",
    formula="alpha_ij = 1 where tokens i - 1 and i - 2 are those at j - 1 and j - 2, j < i, and i - j is a "
    "multiple of three; 0 elsewhere",
)
def grade_look(answer):
    """A function tokens (n,) -> table (n, n) of a causal head that answers recall, at any number of pairs."""
    draw = torch.Generator().manual_seed(0)
    drawn = [tasks.draw("recall", L, 1, generator=draw) for L in (1, 4, 8, 64)]
    runs = [(tokens[0],) for tokens, _ in drawn]
    if problem := judged(answer, _form_of_table, runs):
        return problem
    answers = {tokens.shape[1]: each[each >= 0] for tokens, each in drawn}

    def wanted(tokens):
        return torch.nn.functional.one_hot(answers[len(tokens)], tasks.VOCABULARY).to(f64)

    shares = partial(_shares, answer)
    if agrees(lambda tokens: shares(tokens) > 0.5, wanted, runs, "wrong") is None:
        return None
    hint = "not the answers; of the weight that question q gives to symbol s"
    alone, both = {}, {}  # each mistake without and with that of the borders
    for say, wrong in LOOK_MISTAKES.items():
        alone[say], both[say] = partial(_shares, wrong), partial(_shares, partial(wrong, accidental=True))
    problem = agrees(shares, wanted, runs, hint, mistakes=alone)
    return agrees(shares, wanted, runs, hint, mistakes=both) if problem.startswith(hint) else problem
