"""Several kinds of random system with 64 state variables and eight channels in and out."""

from __future__ import annotations

import math

import torch

from ssmbook import systems
from ssmbook.systems import System

N, CHANNELS = 64, 8


def _with_ends(A, like):
    return System(A, torch.randn(N, CHANNELS, **like), torch.randn(CHANNELS, N, **like))


def _ring(like):
    size = (0.9**2 + (0.999**2 - 0.9**2) * torch.rand(N // 2, **like)).sqrt()
    return systems.real_modes(torch.polar(size, math.pi * torch.rand(N // 2, **like)))


def _symmetric(like):
    A = torch.randn(N, N, **like)
    A = A + A.mT
    return 0.99 * A / torch.linalg.eigvalsh(A).abs().max()


def _slow(like):
    return torch.diag(torch.exp(-torch.exp(math.log(1e-3) * (1 - torch.rand(N, **like)))))


ENSEMBLES = {
    "rescaled Gaussian": lambda like: systems.random_stable(N, CHANNELS, CHANNELS, rho=0.99, **like),
    "0.99 × orthogonal": lambda like: _with_ends(systems.random_orthogonal(N, rho=0.99, **like), like),
    "LRU ring": lambda like: _with_ends(_ring(like), like),
    "symmetric": lambda like: _with_ends(_symmetric(like), like),
    "S4D-Lin": lambda like: _with_ends(
        systems.real_modes(systems.s4d_lin(N, dtype=torch.complex128)), like
    ).discretize(0.01),
    "LegS": lambda like: _with_ends(systems.hippo_legs(N, dtype=torch.float64)[0], like).discretize(0.01),
    "slow real poles": lambda like: _with_ends(_slow(like), like),
}
"""A function for each kind; it takes the generator and the dtype, float64."""
