"""Graders of the chapter *heads-as-filters*."""

from functools import partial

import torch

from headsandstates.chapters._graded import rank, seeded_cases
from headsandstates.exercises import grader


def _gain(m, omega, sink, *, scale=20, dc=False, bare=False):
    """Decibels of the limit of an ALiBi head; the keywords make three natural mistakes."""
    a = torch.exp(torch.tensor(-m, dtype=torch.float64))
    around = torch.exp(-1j * torch.tensor(0.0 if dc else omega, dtype=torch.float64))
    mass = 1 / (1 - a) + (0 if bare else torch.exp(torch.tensor(sink, dtype=torch.float64)))
    return float(scale * torch.log10(abs(1 / (mass * (1 - a * around)))))


@grader(
    "heads-as-filters/gain",
    right=_gain,
    hint="not the gain in decibels",
    mistakes={
        "a gain in decibels is 20 times the logarithm, because it is an amplitude": partial(_gain, scale=10),
        "this is the gain at frequency zero": partial(_gain, dc=True),
        "the sink takes its share of the weight": partial(_gain, bare=True),
    },
    formula="20 log10 of |1 / ((e^sink + 1/(1 - a)) (1 - a e^(-i omega)))| with a = e^-m",
)
def gain_cases():
    """For a function (slope m, frequency, logit of the sink) -> decibels."""
    return [(0.5, 0.1, 0.0), (0.125, 2.0, -1.0), (1.0, 0.7, 2.0)]


def _different(H):
    """The number of linearly independent entries of a frequency response (f, p, d)."""
    return rank(H.flatten(1))


@grader(
    "heads-as-filters/different",
    right=_different,
    hint="not the number of different filters",
    mistakes={
        "the rank at one frequency counts directions, not filters": lambda H: max(rank(M) for M in H),
        "entries that are sums of others are no new filters": lambda H: H[0].numel(),
    },
    formula="The rank of the matrix with one row per frequency and one column per pair of channels",
)
def different_cases():
    """For a function of a frequency response H (frequencies, p, d), complex."""
    for like, (k, p, d) in seeded_cases((2, 3, 3), (5, 4, 2), (1, 2, 2)):
        omega = torch.linspace(0.1, 3, 30, dtype=torch.float64)
        poles = torch.rand(k, **like) * 1.8 - 0.9
        filters = 1 / (1 - poles * torch.exp(-1j * omega)[:, None])
        yield (torch.einsum("fk,kpd->fpd", filters, torch.randn(k, p, d, **like) + 0j),)
