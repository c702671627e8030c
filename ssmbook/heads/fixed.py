"""Heads whose coefficients do not depend on the input: how many a system takes, how close fewer come, which.

The count k is the dimension of span{M_0, ..., M_(n-1)}. The lags themselves are poor rows for a rank, because
fast modes are soon lost in their rounding errors. So we look for other rows with the same span: the residues
of the modes, or, where A has no good eigenvectors, orthonormal polynomials in A.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from ssmbook._checks import check_integer
from ssmbook.heads._count import Count
from ssmbook.heads._lags import check_real_system, lags_of
from ssmbook.numerics import RankReport, tolerance
from ssmbook.systems.reachability import balance, minimal_states
from ssmbook.systems.system import System

# Beyond this condition number of the eigenvectors the modal route loses more digits than the Krylov route.
EIGENVECTOR_LIMIT = 1e6
# A number within this factor of the tolerance is a close call.
CLOSE = 1e2
# Rounding errors up to this many units are taken for zero without a word.
ROUNDING = 4


class HeadCountTieWarning(UserWarning):
    """A number that decided a head count lay close to the tolerance."""


@dataclass(frozen=True, eq=False)
class SpectrumReport(RankReport):
    """The spectrum that a head count was read from, and how close the calls were.

    A `RankReport` of rows that span the lag operators, in units in which the largest singular value is about
    one. smallest_kept, largest_dropped: the closest calls on either side of rtol, over the singular values
    and every decision before them (poles taken for one, residues and directions taken for zero). method:
    "modal", "krylov", "lags" or "zero". degree: length of the shortest recurrence found; without a skip it
    is the degree of the minimal polynomial of the minimal realization.

    >>> turn = System(torch.tensor([[0.0, -0.9], [0.9, 0.0]]), torch.eye(2), torch.eye(2))
    >>> report = head_count(turn, 100).evidence
    >>> report.rank, report.method, report.near_tie
    (2, 'modal', False)
    """

    method: str
    degree: int
    smallest_kept: float
    largest_dropped: float
    near_tie: bool

    @property
    def gap(self) -> float:
        """Smallest number kept over the largest dropped (inf where none, or an exact zero, was dropped)."""
        return self.smallest_kept / self.largest_dropped if self.largest_dropped > 0 else float("inf")

    def __str__(self) -> str:
        return (
            f"k = {self.rank} ({self.method}): smallest kept {self.smallest_kept:.2g}, largest dropped "
            f"{self.largest_dropped:.2g}, tolerance {self.rtol:.2g}{'; NEAR-TIE' if self.near_tie else ''}"
        )


def fixed_head_count(system: System | Tensor, n: int | None = None, rtol: float | None = None) -> Count:
    """Return the count for "fixed": k = dim span{M_0 … M_(n-1)}, computed in float64.

    A System is read from its modes or from polynomials in A, never from n lags. Given only lags, it is
    the numerical rank of the rows vec M_tau.
    """
    if isinstance(system, Tensor):
        M = lags_of(system, n).detach()
        rtol, rows = tolerance(rtol, M.dtype), M.double().flatten(1)
        rows = rows / (rows.abs().amax() if rows.any() else 1.0)
        rows = rows / (torch.linalg.matrix_norm(rows, 2) if rows.any() else 1.0)
        report = _report(Rows(rows, "lags", 0, []), rtol, M.dtype)
    else:
        report = spectrum_report(system, n, rtol)
        if report.near_tie:
            warnings.warn(f"{report}; exact=True is certain", HeadCountTieWarning, stacklevel=3)
    return Count(report.rank, report.rank, f"spectrum, {report.method}", report)


def spectrum_report(system: System, n: int, rtol: float | None = None) -> SpectrumReport:
    """The evidence of `fixed_head_count`, without its warning."""
    found, _, rtol = _spanning_rows(system, n, rtol)
    return _report(found, rtol, system.dtype)


class Rows(NamedTuple):
    """Rows (m, p d) that span the lag operators, how they were found, and what was decided on the way.

    decided: arrays of numbers of which those above rtol were taken for nonzero.
    """

    rows: Tensor
    method: str
    degree: int
    decided: list


def _report(found: Rows, rtol: float, dtype: torch.dtype) -> SpectrumReport:
    """Count the singular values of spanning rows above rtol, and see how close every call was.

    A number is a close call within a factor of 100 of rtol, except for those of rounding size.
    """
    spectrum = torch.linalg.svdvals(found.rows)
    rank = int((spectrum > rtol).sum())
    decided = np.concatenate([spectrum.cpu().numpy(), *found.decided])
    kept, dropped = decided[decided > rtol].min(initial=np.inf), decided[decided <= rtol].max(initial=0.0)
    # Directions found after one another amplify rounding errors, so they get more room.
    high = min((CLOSE**2 if found.method == "krylov" else CLOSE) * rtol, rtol**0.5)
    low = max(rtol / CLOSE, ROUNDING * torch.finfo(dtype).eps)
    near_tie = bool(kept < high or dropped > low)
    calls = float(kept), float(dropped), near_tie
    return SpectrumReport(rank, spectrum, rtol, found.method, found.degree, *calls)


def _spanning_rows(system: System, n: int, rtol: float | None) -> tuple[Rows, Tensor, float]:
    """Rows that span the lags M_tau / scale, that scale (p, d), of rank one, and the tolerance in use."""
    A, B, C, D = check_real_system(system).detach().double()
    n, rtol = check_integer("n", n, low=0), tolerance(rtol, system.dtype)
    A, B, C, _, columns, rows = balance(A, B, C)
    if D is None or not D.any():
        return _rows_without_skip(A, B, C, n, rtol, system.dtype), rows * columns, rtol
    # With a skip M_0 = C B + D is special, and the lags from 1 onward are those of (A, A B, C).
    D = D / rows / columns
    first = _sum_of_norm_one(C @ B + D, C.abs() @ B.abs() + D.abs(), rtol).reshape(1, -1)
    found = _rows_without_skip(A, _driving_later_lags(A, B, rtol), C, max(n - 1, 0), rtol, system.dtype)
    return found._replace(rows=torch.cat([first[:n], found.rows])), rows * columns, rtol


def _driving_later_lags(A, B, rtol) -> Tensor:
    """A B, of norm one: what a system with a skip is driven by from lag 1 on."""
    return _sum_of_norm_one(A @ B, A.abs() @ B.abs(), rtol)


def _sum_of_norm_one(total, terms, rtol) -> Tensor:
    """A sum divided by its norm, zero where at most rtol of its terms is left: that much is rounding."""
    total = torch.where(total.abs() > rtol * terms, total, 0.0)
    if not total.any():
        return total
    total = total / total.abs().amax()
    return total / torch.linalg.vector_norm(total)


def _rows_without_skip(A, B, C, n: int, rtol: float, dtype) -> Rows:
    """Rows that span C A^tau B for tau < n, of a balanced system."""
    if n == 0 or not A.numel() or not B.any():
        return Rows(C.new_zeros(0, len(C) * B.shape[1]), "zero", 0, [])
    poles, vectors = torch.linalg.eig(A)
    inverse, info = torch.linalg.inv_ex(vectors)
    condition = torch.linalg.vector_norm(vectors) * torch.linalg.vector_norm(inverse)
    if info == 0 and condition <= EIGENVECTOR_LIMIT:  # False for a defective A, whose inverse is inf or NaN
        return _modal_rows(poles, vectors, inverse, B, C, n, rtol, dtype)
    return _krylov_rows(A, B, C, n, rtol, dtype)


def _modal_rows(poles, vectors, inverse, B, C, n, rtol, dtype) -> Rows:
    """The residue C P B of every distinct pole; of more poles than lags, n orthonormal combinations."""
    weight = torch.linalg.vector_norm(inverse, dim=1)  # the condition number of a pole, and of its residue
    pole_of, decided = _distinct(poles.cpu().numpy(), weight.cpu().numpy(), n, rtol, dtype)
    pole_of = torch.from_numpy(pole_of).to(poles.device)
    count = int(pole_of.max()) + 1
    terms = torch.einsum("as,sb->sab", C.to(poles.dtype) @ vectors, inverse @ B.to(poles.dtype)).flatten(1)
    weight = weight.new_zeros(count).scatter_reduce(0, pole_of, weight, "amax")
    residues = terms.new_zeros(count, terms.shape[1]).index_add(0, pole_of, terms) / weight[:, None]
    nodes = poles.new_zeros(count).index_add(0, pole_of, poles) / torch.bincount(pole_of)
    size = torch.linalg.vector_norm(residues, dim=1)
    alive = size > rtol
    nodes, residues, weight = nodes[alive], residues[alive], weight[alive]
    rows = torch.cat([residues.real, residues.imag])
    if n < len(nodes):
        basis, _ = _orthonormal_powers(lambda q: nodes * q, weight.to(nodes.dtype), n, 0.0)
        rows = (basis @ residues).real
    return Rows(rows, "modal", len(nodes), [*decided, size.cpu().numpy()])


def _distinct(poles, weight, n, rtol, dtype) -> tuple[np.ndarray, list]:
    """A label for each pole, one for all that n tokens cannot tell apart, and the numbers that decided.

    The lags of two poles a distance apart differ by at most that distance times the number of tokens for
    which both last. Poles are one where that is below rtol, or where rounding alone moves them as far.
    """
    radius = np.abs(poles).max()
    lasting = 1 / np.maximum(1 - np.abs(poles) / (radius or 1.0), 1 / n)
    rounding = ROUNDING * np.maximum(torch.finfo(dtype).eps, np.finfo(float).eps * weight)
    rounding = np.maximum(rounding[:, None], rounding)
    limit = np.maximum(rtol * radius / np.minimum(lasting[:, None], lasting), rounding)
    distance = np.abs(poles[:, None] - poles)
    _, pole_of = connected_components(distance <= limit)
    apart = pole_of[:, None] != pole_of
    relative = rtol * distance / limit
    return pole_of, [relative[apart], np.minimum(relative, rtol)[~apart & (distance > rounding)]]


def _krylov_rows(A, B, C, n, rtol, dtype) -> Rows:
    """C times an orthonormal basis of span{A^tau B}, after the unobservable states are cut away."""
    A, B, C, decided = minimal_states(A, B, C, rtol)
    if A.shape[0] == 0:
        return Rows(C.new_zeros(0, C.shape[0] * B.shape[1]), "krylov", 0, [decided.cpu().numpy()])
    shape = B.shape
    basis, growth = _orthonormal_powers(
        lambda q: (A @ q.reshape(shape)).reshape(-1), B.reshape(-1), A.shape[0], rtol
    )
    rows = (C @ basis[:n].reshape(-1, *shape)).flatten(1)
    growth = np.array(growth)
    kept, dropped = growth[growth > rtol], growth[growth <= rtol]
    # What is dropped may add up over n lags, unless it is a rounding error, amplified by small growth before.
    rounding = ROUNDING * np.finfo(float).eps * len(A) / kept.min(initial=1.0)
    dropped = np.minimum(n * dropped[dropped > rounding], rtol)
    return Rows(rows, "krylov", len(basis), [decided.cpu().numpy(), kept, dropped])


def _orthonormal_powers(step, start, count, rtol) -> tuple[Tensor, list[float]]:
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
    return basis, growth


def head_count_at_most(system: System, n: int) -> int:
    """Return the bound on k that needs no lag operator: min(n, p d, nu, rank B rank C).

    A real `System` and n >= 0 tokens. With a skip it is min(n, p d, 1 + min(nu, rank AB rank C)), nu that of
    (A, AB, C), which make the lags from 1 onward. Source: prop-what-k-is.

    >>> system = System(0.5 * torch.eye(3), torch.ones(3, 1), torch.ones(2, 3))
    >>> head_count_at_most(system, 100)  # one input reached by one mode
    1
    """
    A, B, C, D = check_real_system(system).detach().double()
    n, rtol = check_integer("n", n, low=0), tolerance(None, system.dtype)
    A, B, C, *_ = balance(A, B, C)
    skip = D is not None and bool(D.any())
    B = _driving_later_lags(A, B, rtol) if skip else B
    ranks = [int(torch.linalg.matrix_rank(part, rtol=rtol)) for part in (B, C)]
    degree = _rows_without_skip(A, B, C, n, rtol, system.dtype).degree
    return min(n, system.p * system.d, min(degree, ranks[0] * ranks[1]) + int(skip))
