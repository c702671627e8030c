"""The counting machine runs the real recurrence, and its counts are those of the closed forms."""

import math

import pytest
import torch
from helpers import F64, gen, randn

from headsandstates.chapters.scans.counted_scans import ALGORITHMS
from headsandstates.chapters.scans.counting import count, kept_for_backward, written_backward
from ssmbook.scans import diagonal_scan_naive


def problem(T, D, decay=None):
    generator = gen(T)
    a = torch.rand(T, generator=generator, dtype=F64) if decay is None else torch.full((T,), decay, dtype=F64)
    return a, torch.randn(T, D, generator=generator, dtype=F64)


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("T, D", [(1, 1), (3, 2), (17, 2), (63, 4)])
def test_every_algorithm_computes_the_recurrence(name, T, D):
    for decay in (0.9, 1.0, -0.5, 0.0) if name == "Fourier" else (None, 1.0, -0.5, 0.0):
        a, b = problem(T, D, decay)
        h, _ = count(ALGORITHMS[name], a, b)
        wanted, _ = diagonal_scan_naive(a[:, None].expand_as(b), b)
        torch.testing.assert_close(h, wanted, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("T, D", [(2, 1), (9, 3), (100, 5)])
def test_recurrence_counts(T, D):
    _, m = count(ALGORITHMS["recurrence"], *problem(T, D))
    assert (m.multiplications, m.additions) == ((T - 1) * D, (T - 1) * D)
    assert (m.loaded, m.stored) == (T - 1 + T * D, T * D)
    assert (m.depth, m.peak) == (2 * (T - 1), 4 * D)


@pytest.mark.parametrize("T, D", [(2, 1), (9, 3), (64, 5)])
def test_matrix_counts(T, D):
    _, m = count(ALGORITHMS["matrix"], *problem(T, D))
    pairs = T * (T + 1) // 2
    assert m.multiplications == T * (T - 1) // 2 + pairs * D
    assert (m.loaded, m.stored) == (T - 1 + pairs * (1 + D), pairs + T * D)
    assert m.depth == T + math.ceil(math.log2(T))


@pytest.mark.parametrize("T, D", [(2, 1), (9, 3), (64, 5)])
def test_doubling_counts(T, D):
    _, m = count(ALGORITHMS["doubling"], *problem(T, D))
    passes = math.ceil(math.log2(T))
    assert m.multiplications == sum((T - 2**s) * (D + 1) for s in range(passes))
    assert m.words == passes * (T * (1 + D) + T * D) + (passes - 1) * T
    assert m.depth == 2 * passes - (T == 9)  # at T = 9 the last pass touches one pair, whose product is old


def level(n, L, D):
    """Multiplications and words of one level: n blocks of L, summarized and run again."""
    multiplications = n * (L - 1) * (D + 1) + (n * (L - 1) - 1) * D
    summary = n * L * (1 + D) + n * (1 + D)
    restart = D + (n - 1) * (1 + 2 * D) + (L - 2) * n * (1 + D) + n * D + n * L * D
    return multiplications, summary + restart + D


@pytest.mark.guards("prop-chunked")
@pytest.mark.parametrize("L, q, D", [(2, 1, 1), (2, 6, 3), (3, 4, 1), (4, 3, 2), (16, 2, 5), (16, 3, 1)])
def test_blocked_counts(L, q, D):
    _, m = count(ALGORITHMS["blocked"], *problem(L**q, D), L=L)
    levels = [level(L ** (r - 1), L, D) for r in range(2, q + 1)]
    assert m.multiplications == (L - 1) * D + sum(work for work, _ in levels)
    assert m.words == L - 1 + 2 * L * D + sum(words for _, words in levels)
    assert m.multiplications <= (2 * D + 1) * L**q
    assert m.depth <= (4 * q - 2) * (L - 1)
    assert m.depth >= (4 * q - 2) * (L - 1) - 2 * (q - 1)


@pytest.mark.parametrize("n, L, D", [(1, 4, 1), (5, 4, 3), (8, 16, 2)])
def test_chunked_counts(n, L, D):
    _, m = count(ALGORITHMS["chunked"], *problem(n * L, D), L=L)
    tables = n * L * (L - 1) // 2 + n * L * L * D
    carries = (n - 1) * (L - 1 + L * D)
    assert m.multiplications == tables + carries
    assert (m.loaded, m.stored) == (n * L - 1 + n * L * D, n * L * D)


@pytest.mark.parametrize("T, D", [(4, 1), (9, 3), (64, 2)])
def test_fourier_counts(T, D):
    _, m = count(ALGORITHMS["Fourier"], *problem(T, D, 0.9))
    stages = (2 * T - 1).bit_length()
    size, doublings = 2**stages, math.ceil(math.log2(T))
    kernel = sum(2**s + 1 for s in range(doublings))
    transforms = (2 * D + 1) * size // 2 * stages * 4
    assert m.multiplications == kernel + transforms + 4 * size * D + T * D
    assert m.words == 1 + 2 * T * D


def test_the_backward_pass_writes_and_keeps_what_the_chain_rule_asks_for():
    a, b = (randn(7, seed=s) for s in (0, 1))
    # The gradient of the sum is one number; a product writes two gradients and keeps both factors.
    assert written_backward(torch.mul, a, b) == 1 + 2 * 7 and kept_for_backward(torch.mul, a, b) == 2 * 7
    assert written_backward(torch.exp, a) == 1 + 7 and kept_for_backward(torch.exp, a) == 7
    assert written_backward(torch.add, a, b) == 1 and kept_for_backward(torch.add, a, b) == 0
    assert kept_for_backward(lambda x: x.exp().exp(), a) == 2 * 7
