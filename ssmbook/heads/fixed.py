"""How many heads a system takes if their coefficients do not depend on the input.

Heads W_ij = sum_h alpha^h_ij V_h equal the system if their value maps span its lags, and a
basis of span{M_0, ..., M_(n-1)} is enough. So the count is the dimension of that span,

    k = rank of the rows vec M_0, ..., vec M_(n-1).

A rank of floating-point numbers is a decision: singular values below a tolerance count as
zero. We read it from rows that keep the fast modes (`_spanning_rows`), and report how close
the calls were.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ssmbook._checks import check_integer
from ssmbook.heads._count import Count
from ssmbook.heads._lags import check_real_system, lags_of
from ssmbook.heads._spanning_rows import (
    ROUNDING,
    Rows,
    driven,
    minimal_rows,
    rows_without_skip,
    spanning_rows,
)
from ssmbook.numerics import HALF, RankReport, tolerance
from ssmbook.systems.system import System

# A number within this factor of the tolerance is a close call.
CLOSE = 1e2


class HeadCountTieWarning(UserWarning):
    """A number that decided a head count lay close to the tolerance."""


@dataclass(frozen=True, eq=False)
class SpectrumReport(RankReport):
    """The spectrum that a head count was read from, and how close the calls were.

    A `RankReport` of rows that span the lag operators, in units in which the largest
    singular value is about one.

    Parameters
    ----------
    rank : int
        The count k.
    spectrum : Tensor (m,)
        The singular values of the rows, float64, descending.
    rtol : float
        Numbers up to this were taken for zero.
    method : str
        Where the rows come from: "modal", "krylov", "lags" or "zero".
    degree : int
        The length of the shortest recurrence found. Without a skip it is the degree of the
        minimal polynomial of the minimal realization.
    smallest_kept, largest_dropped : float
        The closest calls on either side of rtol, over the singular values and every
        decision before them: poles taken for one, residues and directions taken for zero.
    near_tie : bool
        Whether one of these is within a factor of 100 of rtol.
    high : int, optional
        Of a `RankReport`; a count that stays open has its own ends.

    Examples
    --------
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


def fixed_head_count(
    system: System | Tensor, n: int | None = None, rtol: float | None = None
) -> Count[SpectrumReport]:
    """Return the count for "fixed": k = dim span{M_0 … M_(n-1)}, computed in float64.

    A System is read from its modes or from polynomials in A, never from n lags. Given only
    lags, it is the numerical rank of the rows vec M_tau. Where a call stays close, the
    count is open: from the count with all close calls taken for zero to the one with none.
    """
    if isinstance(system, Tensor):
        M = lags_of(system, n).detach()
        rows = M.double().flatten(1)
        if rows.any():
            rows = rows / rows.abs().amax()  # first, so that no square leaves the range
            rows = rows / torch.linalg.matrix_norm(rows, 2)
        report = _report(Rows(rows), tolerance(rtol, M.dtype), M.dtype)
        low = high = report.rank
        if rtol is None and M.dtype in HALF:
            high = max(low, _report(Rows(rows), tolerance(None, torch.float64), M.dtype).rank)
            what = f"lags rounded to {M.dtype}"
    else:
        report = spectrum_report(system, n, rtol)
        low, high = _either_way(system, n, report) if report.near_tie else (report.rank, report.rank)
        what = f"{report}; exact=True is certain"
    method = f"spectrum, {report.method}"
    if low == high:
        return Count(low, high, method, report)
    warnings.warn(f"{low} to {high} heads: {what}", HeadCountTieWarning, stacklevel=3)
    return Count(low, high, f"{method}, a near-tie", report)


def spectrum_report(system: System, n: int | None, rtol: float | None = None) -> SpectrumReport:
    """The evidence of `fixed_head_count`, without its warning; from the minimal states after a close call."""
    system = as_stored(system)
    n, rtol = check_integer("n", n, low=0), tolerance(rtol, system.dtype)
    report = _report(spanning_rows(system, n, rtol), rtol, system.dtype)
    return _report(minimal_rows(system, n, rtol), rtol, system.dtype) if report.near_tie else report


def as_stored(system: System) -> System:
    """One real `System`, in half precision as float64: it is the numbers that it stores."""
    check_real_system(system)
    return system.double() if system.dtype in HALF else system


def _either_way(system: System, n: int, report: SpectrumReport) -> tuple[int, int]:
    """The least and the largest count for tolerances around a close call, in given and minimal states.

    If they agree, the largest is the bound by sizes.
    """
    system, counts = as_stored(system), []
    for rtol in (report.rtol / CLOSE, report.rtol, report.rtol**0.5):
        for rows in (spanning_rows, minimal_rows):
            counts.append(_report(rows(system, n, rtol), rtol, system.dtype).rank)
    by_sizes = min(n, system.p * system.d, system.N + (system.D is not None))
    return min(counts), max(counts) if max(counts) > min(counts) else max(by_sizes, *counts)


def _report(found: Rows, rtol: float, dtype: torch.dtype) -> SpectrumReport:
    """Count the singular values of spanning rows above rtol, and see how close every call was."""
    spectrum = torch.linalg.svdvals(found.rows)
    rank = int((spectrum > rtol).sum())
    decided = np.concatenate([spectrum.cpu().numpy(), *found.decided])
    kept = decided[decided > rtol].min(initial=np.inf)
    dropped = decided[decided <= rtol].max(initial=0.0)
    # Directions found after one another amplify rounding errors, so they get more room.
    room = CLOSE**2 if found.method == "krylov" else CLOSE
    high = min(room * rtol, rtol**0.5)
    low = max(rtol / CLOSE, ROUNDING * torch.finfo(dtype).eps)  # what rounding explains is no close call
    near_tie = bool(kept < high or dropped > low)
    return SpectrumReport(
        rank, spectrum, rtol, found.method, found.degree, float(kept), float(dropped), near_tie
    )


def head_count_at_most(system: System, n: int) -> int:
    """Return the bound on k that needs no lag operator: min(n, p d, nu, rank B rank C).

    A real `System` and n >= 0 tokens. With a skip it is min(n, p d, 1 + min(nu, rank AB
    rank C)), nu that of (A, AB, C), which make the lags from 1 onward. Source:
    prop-what-k-is.

    >>> system = System(0.5 * torch.eye(3), torch.ones(3, 1), torch.ones(2, 3))
    >>> head_count_at_most(system, 100)  # one input reached by one mode
    1
    """
    system = as_stored(system)
    n, rtol = check_integer("n", n, low=0), tolerance(None, system.dtype)
    A, B, C, first = driven(system, rtol)
    written, read = (int(torch.linalg.matrix_rank(part, rtol=rtol)) for part in (B, C))
    nu = rows_without_skip(A, B, C, n, rtol, system.dtype).degree
    skip = 0 if first is None else 1
    return min(n, system.p * system.d, skip + min(nu, written * read))
