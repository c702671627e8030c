"""A filter reduced in two ways and in any mix of them: fewer states, and fewer heads for what these miss."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from headsandstates.chapters.head_count.ensembles import ENSEMBLES
from ssmbook.systems import System

KINDS = {
    "random stable": ENSEMBLES["rescaled Gaussian"],
    "slow real poles": ENSEMBLES["slow real poles"],
    "rotation": ENSEMBLES["0.99 × orthogonal"],
}


def decibels(share):
    """A share of the energy in decibels."""
    return 10 * np.log10(np.maximum(share, 1e-30))


def missed(system: System) -> np.ndarray:
    """Return the share of the energy that r states miss together with h heads for the rest, (N + 1, p d + 1).

    The states are those of balanced truncation, the heads have fixed weights, and the text is long.
    """
    A, B, C = (part.numpy() for part in (system.A, system.B, system.C))
    A_, B_, C_, values = _balanced(A, B, C)
    whole, table = _modes(A, B, C), []
    for r in range(system.N + 1):
        if r < system.N and values[r] > 1e-12 * values[0]:
            kept = _modes(A_[:r, :r], B_[:r], C_[:, :r])
            parts = np.concatenate([whole[0], kept[0]]), np.concatenate([whole[1], -kept[1]])
            energies = np.linalg.eigvalsh(_gram(*parts)).clip(min=0)
            table.append(np.append(energies.cumsum()[::-1], 0.0))
        else:
            table.append(np.zeros_like(table[0]))
    return np.array(table) / table[0][0]


def fewest(shares: np.ndarray, level: float) -> int:
    """The least count at which shares, falling from 1, are at most ``level`` decibels."""
    return int(np.argmax(decibels(shares) <= level))


def best_mix(table: np.ndarray, level: float) -> float:
    """Return what the cheapest true mix costs where states alone and heads alone cost 1 each."""
    states, heads = fewest(table[:, 0], level), fewest(table[0], level)
    return min(r / states + fewest(table[r], level) / heads for r in range(1, states))


def _modes(A, B, C):
    """The poles of a diagonalizable system, and vec of the residue of each."""
    poles, P = np.linalg.eig(A)
    residues = np.einsum("ps,sd->spd", C @ P, np.linalg.solve(P, B.astype(P.dtype)))
    return poles, residues.reshape(len(poles), B.shape[1] * len(C))


def _gram(poles, residues):
    """The sum of vec M vec M^T over all lags, also the mean of vec H vec H* over frequencies (p d, p d)."""
    together = 1 / (1 - np.outer(poles, poles.conj()))
    return (residues.T @ together @ residues.conj()).real


def _balanced(A, B, C):
    """A balanced realization (A, B, C) and its Hankel singular values."""
    roots = []
    for forward, source in ((A, B), (A.T, C.T)):
        size, U = np.linalg.eigh(scipy.linalg.solve_discrete_lyapunov(forward, source @ source.T))
        roots.append(U * np.sqrt(size.clip(min=0)))
    U, values, Vh = np.linalg.svd(roots[1].T @ roots[0])
    scale = np.sqrt(values.clip(min=1e-300))
    to, back = (U / scale).T @ roots[1].T, roots[0] @ Vh.T / scale
    return to @ A @ back, to @ B, C @ back, values
