"""Graders of *learning-heads* and *gradient-flow*: right answers pass, wrong ones are told why."""

import cmath
import math

import torch
from helpers import F64

from ssmbook.exercises import _grader, check
from ssmbook.operators import LagOperator


def told(name, answer):
    """What the first wrong answer is told, without the formula."""
    _grader._MISSES.clear()
    verdict = check(name, answer)
    assert not verdict
    return verdict.hint


def worth_training(floor, n, p, d, m, noise, misfit=True):
    def error(H):
        free = H * (n * (n + 1) // 2 + p * d - H)
        return floor[H] + free * (noise + misfit * floor[H]) / (m * n * p)

    return min(range(len(floor)), key=error)


def test_heads_worth_training():
    name = "learning-heads/worth-training"
    assert check(name, worth_training)
    assert "noise to the others" in told(name, lambda *given: worth_training(*given, misfit=False))
    assert "the most heads" in told(name, lambda floor, *rest: len(floor) - 1)
    other = told(name, lambda *given: 2)
    case = "for [1.0, 0.3, 0.05, 0.004, 0.0], 16, 3, 3, 5, 0.0 your number is 2, wanted 4"
    assert other == f"not the best H: {case}"


def step(alpha, V, M, rate, wanted=lambda W: W, moved=None):
    """Matrices instead of blocks: rows (i, j), columns (p, d), a student is a product of two factors."""
    W = wanted(LagOperator(M).to_dense()).flatten(2).flatten(0, 1)
    left, right = alpha.flatten(1), V.flatten(1)

    def down(left, right):
        missed = left.T @ right - W
        scale = 2 * rate / W.square().sum()
        return left - scale * right @ missed.T, right - scale * left @ missed

    new_left, new_right = down(left, right)
    if moved == "in turn":
        new_right = down(new_left, right)[1]
    return new_left.reshape(alpha.shape), new_right.reshape(V.shape)


def test_a_step_of_training():
    name = "learning-heads/step"
    assert check(name, step)
    assert check(name, lambda *given: list(step(*given)))
    assert "already sees the new alpha" in told(name, lambda *given: step(*given, moved="in turn"))
    assert "reads the future" in told(name, lambda *given: step(*given, wanted=lambda W: W.transpose(0, 1)))
    assert "factor of two" in told(name, lambda alpha, V, M, rate: step(alpha, V, M, rate / 2))
    numbers = lambda part: torch.from_numpy(part.numpy())  # noqa: E731  arguments carry no gradient
    assert "uphill" in told(name, lambda *given: step(*map(numbers, given[:3]), -given[3]))

    def each_alone(alpha, V, M, rate):
        alone = [step(a[None], v[None], M, rate) for a, v in zip(alpha, V, strict=True)]
        return tuple(torch.cat(parts) for parts in zip(*alone, strict=True))

    assert "missed by their sum" in told(name, each_alone)

    def by_parameters(alpha, V, M, rate):
        energy = LagOperator(M).to_dense().square().sum()
        return step(alpha, V, M, rate * energy)

    assert "divide by the energy" in told(name, by_parameters)

    def told_causality(alpha, V, M, rate):
        above = (alpha - alpha.tril()).clone()
        new_alpha, new_V = step(alpha.tril(), V, M, rate)
        return new_alpha.tril() + above, new_V

    assert "you tell the student causality" in told(name, told_causality)


def test_a_step_is_told_which_part_is_wrong():
    name = "learning-heads/step"
    stays = told(name, lambda alpha, V, M, rate: (step(alpha, V, M, rate)[0], V))
    assert stays.startswith("not the step: alpha is right; in V entry (0, 0, 0) is ")
    both = told(name, lambda alpha, V, M, rate: (alpha, V))
    assert both.startswith("not the step: in alpha entry (0, 0, 0) is ")
    assert "V: expected a tensor of shape (2, 3, 2); got shape (3, 2)" in told(
        name, lambda *given: (step(*given)[0], step(*given)[1][0])
    )
    assert "expected 2 results, alpha, V; got Tensor" in told(name, lambda *given: given[0])
    assert "V entry (0, 0, 0) is nan" in told(name, lambda *given: (step(*given)[0], given[1] * math.nan))


def free_numbers(alpha, V, seen=torch.tril):
    """By autograd: the rank of the operator's derivative by every number of the student."""

    def operator(alpha, V):
        return torch.einsum("hij,hpd->ijpd", seen(alpha), V)

    slopes = torch.autograd.functional.jacobian(operator, (alpha, V))
    rows = torch.cat([slope.flatten(0, 3).flatten(1) for slope in slopes], 1)
    return int(torch.linalg.matrix_rank(rows))


def test_free_numbers():
    name = "learning-heads/free-numbers"
    assert check(name, free_numbers)
    assert "the numbers above the diagonal" in told(name, lambda *given: free_numbers(*given, lambda a: a))

    def numbers(alpha, V, less):
        n = alpha.shape[1]
        return len(V) * (n * (n + 1) // 2 + V[0].numel() - less)

    assert "are the same operator" in told(name, lambda alpha, V: numbers(alpha, V, 0))
    assert "mixed with each other" in told(name, lambda alpha, V: numbers(alpha, V, 1))
    assert "independent heads alone" in told(name, lambda alpha, V: numbers(alpha, V, len(V)))
    assert "your number is 7, wanted 28" in told(name, lambda alpha, V: 7)

    def blind(alpha, V, maps=False):  # to tables that depend on each other, or to value maps that do
        rank = torch.linalg.matrix_rank
        a, b = rank(V.flatten(1)), rank(alpha.flatten(1))
        size, width = alpha.shape[1] * (alpha.shape[1] + 1) // 2, V[0].numel()
        a, b = (min(len(V), width), b) if maps else (a, min(len(V), size))
        return a * size + b * width - a * b

    assert "your number is 39, wanted 32" in told(name, lambda *given: blind(*given, maps=True))
    assert "your number is 26, wanted 19" in told(name, blind)
    assert "expected a number; got shape (2,)" in told(name, lambda alpha, V: torch.ones(2))


def test_start_for():
    name = "gradient-flow/start-for"

    def by_bisection(T, c):
        low, high = -40.0, 10.0
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (low, middle) if -T * math.exp(middle) < math.log(c) else (middle, high)
        return low

    assert check(name, by_bisection)
    rounded = told(name, lambda T, c: math.log(-math.log(round(c ** (1 / T), 10))))
    assert rounded.startswith("not the start: for 20000, 0.5 your number is -10.26999927")
    assert "that is the pole" in told(name, lambda T, c: math.exp(math.log(c) / T))
    assert "nu is its logarithm" in told(name, lambda T, c: -math.log(c) / T)
    assert "log(log(1 / c) / T)" in check(name, lambda T, c: 0.0).hint


def slope(F, x, near, far, log=torch.log):
    """One backward pass for each coordinate of the output, and the normal equations of the line."""
    x = x.requires_grad_()
    y = F(x)[-1]
    rows = torch.stack([torch.autograd.grad(entry, x, retain_graph=True)[0] for entry in y], 1)
    norms = torch.stack([torch.linalg.svdvals(block)[0] for block in rows]).flip(0)
    tau = torch.arange(near, far + 1, dtype=F64)
    line = torch.stack([tau, torch.ones_like(tau)])
    return torch.linalg.solve(line @ line.T, line @ log(norms[near : far + 1]))[0]


def test_slope():
    name = "gradient-flow/slope"
    assert check(name, slope)
    assert check(name, lambda *given: float(slope(*given)))
    assert "the other way" in told(name, lambda F, x, near, far: -slope(F, x, near, far))
    assert "to base 10" in told(name, lambda *given: slope(*given, log=torch.log10))
    assert "through the norms" in told(name, lambda *given: slope(*given, log=lambda norms: norms))
    assert "right for linear layers" in told(name, lambda F, x, *window: slope(F, 0 * x, *window))
    assert "leaves the distance far out" in told(name, lambda F, x, a, b: slope(F, x, a, b - 1))

    assert "your number is nan" in told(name, lambda *given: math.nan)
    assert "failed on a function, a tensor (41, 3), 1, 10 with" in told(name, lambda F, *given: F.slope)


def signals(B, C, nu, T, heard=(1, 1, 1), asked=1, late=0, by_pole=False):
    """A derivative by a step into the complex plane; the state's three parts are followed token by token."""

    def error(b, pole):
        number, flag, power = b[0] * pole**late, b[2] * pole**late, 0
        for _ in range(T):
            number, flag, power = pole * number, pole * flag, pole**2 * power + b[1] ** 2
        parts = ((C * number - asked) ** 2, C**2 * power, (C * flag) ** 2)
        return sum(part for part, there in zip(parts, heard, strict=True) if there)

    def pole(nu):
        return nu if by_pole else cmath.exp(-cmath.exp(nu))

    tiny, b, at = 1e-30, B.tolist(), math.exp(-math.exp(nu)) if by_pole else nu
    by_B = [error([e + tiny * 1j * (i == j) for j, e in enumerate(b)], pole(at)).imag for i in range(3)]
    return torch.tensor(by_B, dtype=F64) / tiny, error(b, pole(at + tiny * 1j)).imag / tiny


def test_signals():
    name = "gradient-flow/signals"
    assert check(name, signals)
    assert "half the squared error" in told(name, lambda *given: tuple(part / 2 for part in signals(*given)))
    assert "one more factor" in told(name, lambda *given: signals(*given, by_pole=True))
    assert "distractions err too" in told(name, lambda *given: signals(*given, heard=(1, 0, 1)))
    assert "the flag is a number as well" in told(name, lambda *given: signals(*given, heard=(1, 1, 0)))
    assert "the number asked for" in told(name, lambda *given: signals(*given, asked=0))
    assert "not T + 1" in told(name, lambda *given: signals(*given, late=1))
    by_nu = told(name, lambda *given: (signals(*given)[0], 0.0))
    assert by_nu.startswith("not the signals: by_B is right; in by_nu your number is 0, wanted ")
    by_B = told(name, lambda *given: (-signals(*given)[0], signals(*given)[1]))
    assert by_B.startswith("not the signals: by_nu is right; in by_B entry (0) is ")
    assert "by_B: expected a tensor of shape (3,)" in told(name, lambda *given: (0.0, 0.0))
