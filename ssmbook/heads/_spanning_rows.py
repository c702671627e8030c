"""Rows that span the lag operators of a system, other than the lags themselves.

The rank of the rows vec M_tau is the count, but fast modes are soon lost in their rounding
errors. Every matrix with the same row space has the same rank, so we choose better rows, in
two ways:

    modal    M_tau = sum_s z_s^tau R_s with the poles z_s and their residues R_s = C P_s B. Powers of
             different poles are independent (Vandermonde), so of enough lags the residues
             span the same.
    Krylov   where A has no good eigenvectors: C q_1, C q_2, ... for an orthonormal basis q of
             span{B, A B, A^2 B, ...}, in which every A^tau B is a combination of the first
             ones.

On the way some numbers are taken for zero. They come along, so that a close call can be
seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from ssmbook.systems.reachability import balance, minimal_states
from ssmbook.systems.system import System

# Beyond this condition number of the eigenvectors the modal way loses more digits than the
# Krylov way.
_EIGENVECTOR_LIMIT = 1e6
# Rounding errors up to this many units are taken for zero without a word.
ROUNDING = 4


class Rows(NamedTuple):
    """Rows (m, p d) that span the lag operators, how they were found, and what was decided on the way."""

    rows: Tensor
    method: str = "lags"
    degree: int = 0  # the length of the shortest recurrence
    decided: tuple[np.ndarray, ...] = ()  # numbers of which those above rtol were taken for nonzero


class Driven(NamedTuple):
    """A system without a skip in balanced units, and the lag M_0 that a skip sets apart, (1, p d) or None."""

    A: Tensor
    B: Tensor
    C: Tensor
    first: Tensor | None


def driven(system: System, rtol: float) -> Driven:
    """Choose units in which numbers compare; with a skip, the lags from 1 onward are those of (A, A B, C)."""
    A, B, C, D = system.detach().double()
    A, B, C, _, columns, rows = balance(A, B, C)
    if D is None or not D.any():
        return Driven(A, B, C, None)
    D = D / rows / columns
    first = _sum_of_norm_one(C @ B + D, C.abs() @ B.abs() + D.abs(), rtol).reshape(1, -1)
    later = _sum_of_norm_one(A @ B, A.abs() @ B.abs(), rtol)
    return Driven(A, later, C, first)


def _sum_of_norm_one(total: Tensor, terms: Tensor, rtol: float) -> Tensor:
    """A sum divided by its norm, zero where at most rtol of its terms is left: that much is rounding."""
    total = torch.where(total.abs() > rtol * terms, total, 0.0)
    if not total.any():
        return total
    total = total / total.abs().amax()
    return total / torch.linalg.vector_norm(total)


def spanning_rows(system: System, n: int, rtol: float) -> Rows:
    """Rows that span the lags M_0 ... M_(n-1), in units of the inputs and outputs."""
    A, B, C, first = driven(system, rtol)
    if first is None:
        return rows_without_skip(A, B, C, n, rtol, system.dtype)
    found = rows_without_skip(A, B, C, max(n - 1, 0), rtol, system.dtype)
    return found._replace(rows=torch.cat([first[:n], found.rows]))


def minimal_rows(system: System, n: int, rtol: float) -> Rows:
    """The same from the minimal states, which have better units than the given ones where these are bad.

    Which states are minimal was decided, too.
    """
    A, B, C, D = system.detach().double()
    A, B, C, _, columns, rows = balance(A, B, C)
    A, B, C, decided = minimal_states(A, B, C, rtol)
    D = None if D is None else D / rows / columns
    found = spanning_rows(System(A, B, C, D), n, rtol)
    return found._replace(decided=(*found.decided, decided.cpu().numpy()))


def rows_without_skip(A: Tensor, B: Tensor, C: Tensor, n: int, rtol: float, dtype: torch.dtype) -> Rows:
    """Rows that span C A^tau B for tau < n, of a balanced system whose data had the precision ``dtype``."""
    if n == 0 or not A.numel() or not B.any():
        return Rows(C.new_zeros(0, len(C) * B.shape[1]), "zero")
    poles, vectors = torch.linalg.eig(A)
    inverse, info = torch.linalg.inv_ex(vectors)
    condition = torch.linalg.vector_norm(vectors) * torch.linalg.vector_norm(inverse)
    if info == 0 and condition <= _EIGENVECTOR_LIMIT:  # False for a defective A, whose inverse is inf or NaN
        written, read = C.to(poles.dtype) @ vectors, inverse @ B.to(poles.dtype)
        terms = torch.einsum("as,sb->sab", written, read).flatten(1)  # of one eigenvalue each
        weight = torch.linalg.vector_norm(inverse, dim=1)  # the condition number of a pole and its residue
        return _modal_rows(poles, terms, weight, n, rtol, dtype)
    return _krylov_rows(A, B, C, n, rtol)


# Modal ------------------------------------------------------------------------------------


def _modal_rows(
    poles: Tensor, terms: Tensor, weight: Tensor, n: int, rtol: float, dtype: torch.dtype
) -> Rows:
    """The residue of every distinct pole; of more poles than lags, n orthonormal combinations."""
    at, condition = poles.cpu().numpy(), weight.cpu().numpy()
    distance = np.abs(at[:, None] - at)
    limit, rounding = _resolution(at, condition, n, rtol, dtype)
    pole_of = connected_components(distance <= limit)[1]

    # Eigenvalues that n tokens cannot tell apart are one pole: their mean, with the sum of
    # their terms.
    # scipy labels in int32, and older versions of torch index by int64 alone.
    label = torch.from_numpy(pole_of).to(poles.device, torch.int64)
    count = int(label.max()) + 1
    weight = weight.new_zeros(count).scatter_reduce(0, label, weight, "amax")
    residues = terms.new_zeros(count, terms.shape[1]).index_add(0, label, terms) / weight[:, None]
    nodes = poles.new_zeros(count).index_add(0, label, poles) / torch.bincount(label)

    size = torch.linalg.vector_norm(residues, dim=1)
    alive = size > rtol  # the others are not reached or not seen
    nodes, residues, weight = nodes[alive], residues[alive], weight[alive]
    if n < len(nodes):
        # The lags are n combinations of the residues, with weights 1, z, z^2, ...: their
        # span, orthonormal.
        basis, _ = _orthonormal_powers(lambda q: nodes * q, weight.to(nodes.dtype), n, 0.0)
        rows = (basis @ residues).real
    else:
        rows = torch.cat([residues.real, residues.imag])

    decided = *_pole_distances(distance, limit, rounding, pole_of, rtol), size.cpu().numpy()
    return Rows(rows, "modal", len(nodes), decided)


def _resolution(
    poles: np.ndarray, weight: np.ndarray, n: int, rtol: float, dtype: torch.dtype
) -> tuple[np.ndarray, np.ndarray]:
    """For each pair the distance up to which poles are one, and how far rounding alone may move them.

    The lags of two poles a distance apart differ by at most that distance times the number
    of tokens for which both last. They are one where that is below rtol, or where rounding
    alone moves them as far.
    """
    radius = np.abs(poles).max()
    lasting = 1 / np.maximum(1 - np.abs(poles) / (radius or 1.0), 1 / n)
    rounding = ROUNDING * np.maximum(torch.finfo(dtype).eps, np.finfo(float).eps * weight)
    rounding = np.maximum(rounding[:, None], rounding)
    seen = rtol * radius / np.minimum(lasting[:, None], lasting)
    return np.maximum(seen, rounding), rounding


def _pole_distances(
    distance: np.ndarray, limit: np.ndarray, rounding: np.ndarray, pole_of: np.ndarray, rtol: float
) -> tuple[np.ndarray, np.ndarray]:
    """The distances in units in which rtol is the limit: of poles held apart, then of poles taken for one.

    Of the latter, what rounding explains was no decision.
    """
    relative = rtol * distance / limit
    apart = pole_of[:, None] != pole_of
    merged = ~apart & (distance > rounding)
    return relative[apart], np.minimum(relative, rtol)[merged]


# Krylov -----------------------------------------------------------------------------------


def _krylov_rows(A: Tensor, B: Tensor, C: Tensor, n: int, rtol: float) -> Rows:
    """C times an orthonormal basis of span{A^tau B}, after the unobservable states are cut away."""
    A, B, C, decided = minimal_states(A, B, C, rtol)
    decided = decided.cpu().numpy()
    if len(A) == 0:
        return Rows(C.new_zeros(0, len(C) * B.shape[1]), "krylov", 0, (decided,))

    def step(q: Tensor) -> Tensor:
        return (A @ q.reshape(B.shape)).reshape(-1)

    basis, growth = _orthonormal_powers(step, B.reshape(-1), len(A), rtol)
    rows = (C @ basis[:n].reshape(-1, *B.shape)).flatten(1)
    kept, dropped = growth[growth > rtol], growth[growth <= rtol]
    # What is dropped may add up over n lags, unless it is a rounding error, amplified by
    # small growth before.
    rounding = ROUNDING * np.finfo(float).eps * len(A) / kept.min(initial=1.0)
    dropped = np.minimum(n * dropped[dropped > rounding], rtol)
    return Rows(rows, "krylov", len(basis), (decided, kept, dropped))


def _orthonormal_powers(
    step: Callable[[Tensor], Tensor], start: Tensor, count: int, rtol: float
) -> tuple[Tensor, np.ndarray]:
    """Arnoldi: an orthonormal basis of span{step^tau(start), tau < count}, and how new each vector was."""
    basis, growth = (start / torch.linalg.vector_norm(start))[None], []
    while len(basis) < count:
        new = step(basis[-1])
        for _ in range(2):  # twice is enough
            new = new - (basis.conj() @ new) @ basis
        growth.append(float(torch.linalg.vector_norm(new)))
        if growth[-1] <= rtol:
            break
        basis = torch.cat([basis, new[None] / growth[-1]])
    return basis, np.array(growth)
