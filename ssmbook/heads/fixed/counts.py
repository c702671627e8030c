"""Head counts in float64: the rank of the lag operators, with the spectrum and the gap it was read from."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import torch

from ssmbook._checks import check_finite, check_integer
from ssmbook._count import Count
from ssmbook.heads._target import check_real, lags_of
from ssmbook.heads.fixed._span import SpanRows, span_rows
from ssmbook.numerics import RankReport, tolerance
from ssmbook.systems._units import (
    StandardForm,
    ldexp,
    rounding_cleared,
    rounding_elsewhere,
    sizes,
    standard_form,
)
from ssmbook.systems.system import System, system_first

# A number this close to the tolerance is a near-tie; Krylov growth carries amplified noise: more room there.
TIE_FACTOR, KRYLOV_TIE_FACTOR = 1e2, 1e4


class HeadCountTieWarning(UserWarning):
    """A number that decided a head count lay close to the tolerance. Introduced in *head-count*."""


@dataclass(frozen=True, eq=False)
class SpectrumReport(RankReport):
    """The spectrum a head count was read from, and how close the calls were.

    A `RankReport` of rows that span the lag operators, rank being k, in units in which the largest singular
    value is about one. smallest_kept, largest_dropped: the closest calls on either side, over every
    decision made (singular values, merged eigenvalues, Krylov growth). method: "modal", "krylov", "lags" or
    "zero". degree: length of the shortest recurrence seen (0 where not computed), of a system without a skip
    the degree nu of its minimal polynomial. other: the count where
    entries of rounding size are read the other way, as zeros or as numbers, if that changes it. foreign:
    whether there are such entries in units of the states other than those given. Introduced in *head-count*.

    >>> turn = System(torch.tensor([[0.0, -0.9], [0.9, 0.0]]), torch.eye(2), torch.eye(2))
    >>> report = head_count(turn, 100).evidence
    >>> report.rank, report.method
    (2, 'modal')
    """

    smallest_kept: float
    largest_dropped: float
    method: str
    degree: int
    other: int | None = None
    foreign: bool = False

    @property
    def gap(self) -> float:
        """Smallest number kept over the largest dropped (inf where none, or an exact zero, was dropped)."""
        return self.smallest_kept / self.largest_dropped if self.largest_dropped > 0 else float("inf")

    @property
    def near_tie(self) -> bool:
        """Whether a decision was close.

        A deciding number lies within a factor 100 of the tolerance (Krylov, above it: 10,000), entries of
        rounding size decide, or there are some in units that nobody knows.
        """
        above = KRYLOV_TIE_FACTOR if self.method == "krylov" else TIE_FACTOR
        close = self.smallest_kept < above * self.rtol or self.largest_dropped * TIE_FACTOR > self.rtol
        return close or self.other is not None or self.foreign

    def __str__(self) -> str:
        tie = "; NEAR-TIE, read the spectrum" if self.near_tie else ""
        if self.other is not None:
            tie = f"; NEAR-TIE, entries of rounding size decide between {self.rank} and {self.other}"
        elif self.foreign:
            tie = "; NEAR-TIE, entries of rounding size in other units of the states"
        return (
            f"k = {self.rank} ({self.method}): smallest kept {self.smallest_kept:.2g}, "
            f"largest dropped {self.largest_dropped:.2g}, tolerance {self.rtol:.2g}{tie}"
        )


@system_first
def head_count(system: System | torch.Tensor, n: int | None = None, rtol: float | None = None) -> Count:
    """Return k = dim span{M_0 … M_(n-1)}: the fewest heads with input-independent coefficients that equal it.

    A real `System` and n >= 0, or lag operators M (n, p, d) alone; rtol a tolerance (``None``: 1e-10 for
    float64, 16 machine epsilons for shorter types). Result a settled `Count` with a `SpectrumReport` as
    evidence, computed in float64 whatever the dtype. A System is read from its modes or at most N orthonormal
    polynomials in A, never from n lags; ``HeadCountTieWarning`` when a decision was close. Of lags it is the
    rank of the matrix with rows vec M_tau, rtol relative to the largest singular value: modes that decay
    below it within n lags are not seen, and nothing warns.

    Raises ``TypeError`` for complex or integer entries, ``ValueError`` for a batch, shapes, non-finite
    entries, n < 0 and rtol outside [0, 1). Source: thm-head-count. Introduced in *head-count*.

    >>> turn = torch.tensor([[0.0, -0.9], [0.9, 0.0]])
    >>> print(head_count(System(turn, torch.eye(2), torch.eye(2)), n=100))
    2 heads (spectrum, modal)
    """
    if isinstance(system, torch.Tensor) and not isinstance(n, torch.Tensor):
        return _settled(_lags_report(lags_of(system, n), rtol))
    report = spectrum_report(system, n, rtol)
    if report.near_tie:
        warnings.warn(str(report), HeadCountTieWarning, stacklevel=3)
    return _settled(report)


def _settled(report: SpectrumReport) -> Count:
    return Count(report.rank, report.rank, f"spectrum, {report.method}", report)


@system_first
def spectrum_report(system: System, n: int, rtol=None) -> SpectrumReport:
    """Return the evidence of `head_count`, without its warning: spectrum, tolerance and closest calls.

    k does not change with the units of states, time, inputs and outputs, so all get units in which numbers
    compare; spectrum and tolerance are in those. Where entries of the size of rounding errors decide, they
    count as zeros if the lags do not feel it, and the report is a near-tie.
    """
    report = decide(*scaled_span(system, n, rtol)[:2])
    *matrices, D = check_real(system).double()
    cleared, elsewhere = (clear(*matrices, system.dtype) for clear in (rounding_cleared, rounding_elsewhere))
    readings = [reading for reading in (cleared, elsewhere) if reading is not None]
    if not readings:
        return report
    forms = (standard_form(*reading, literal=True) for reading in (matrices, *readings))
    counts = [decide(_form_span(form, n, D, report.rtol), report.rtol).rank for form in forms]
    other = next((count for count in counts if count != report.rank), None)
    return replace(report, other=other, foreign=elsewhere is not None)


def scaled_span(system: System, n: int, rtol=None):
    """Return rows that span the lags M_tau / scale, the tolerance used, and scale (p, d) > 0, of rank one."""
    *matrices, skip = check_real(system).double()
    n = check_integer("n", n, low=0)
    form, rtol = standard_form(*matrices, skip, dtype=system.dtype), tolerance(rtol, system.dtype)
    return _form_span(form, n, skip, rtol), rtol, form.scale


def _form_span(form: StandardForm, n, D, rtol) -> SpanRows:
    """Rows that span the lags, skip included, of a system in standard form; D in the units given."""
    A, B, C = form.A, form.B, form.C
    if D is None or not D.any():
        return span_rows(A, B, C, n, rtol)
    # M_0 = CB + D stands alone; from lag 1 on the lags are those of (A, AB, C).
    found = span_rows(A, _first_step(A, B, rtol), C, max(n - 1, 0), rtol)
    D = ldexp(D / form.rows[0] / form.columns[0], -form.rows[1] - form.columns[1])
    check_finite("D, in units of the rows of C and the columns of B,", D)
    head = _cancelled(C @ B + D, C.abs() @ B.abs() + D.abs(), rtol)
    head = (head / sizes(head, (0, 1))).reshape(1, -1)[: min(n, 1)]
    return found._replace(rows=torch.cat([head, found.rows]))


def _first_step(A, B, rtol):
    """A B of norm one, with zeros where it cancels: what drives the lags from 1 on."""
    AB = _cancelled(A @ B, A.abs() @ B.abs(), rtol)
    return AB / sizes(AB, (0, 1))


def _cancelled(total, terms, rtol):
    """A sum with zeros where at most rtol of its terms is left of it: that much is rounding."""
    return torch.where(total.abs() > rtol * terms, total, torch.zeros_like(total))


def _lags_report(M, rtol) -> SpectrumReport:
    """The spectrum of given lag operators, in units of its largest value."""
    rows = M.double().flatten(1)
    largest = rows.abs().amax() if rows.numel() else rows.new_zeros(())
    if largest > 0:
        rows = rows / largest
        rows = rows / torch.linalg.matrix_norm(rows, 2)
    return decide(SpanRows(rows, "lags", 0, float("inf"), 0.0), tolerance(rtol, M.dtype))


def decide(found: SpanRows, rtol: float) -> SpectrumReport:
    """Count the singular values of spanning rows and keep the closest calls."""
    spectrum = torch.linalg.svdvals(found.rows.detach())
    count = int((spectrum > rtol).sum())
    kept = min(found.kept, float(spectrum[count - 1]) if count else float("inf"))
    dropped = max(found.dropped, float(spectrum[count]) if count < len(spectrum) else 0.0)
    return SpectrumReport(count, spectrum, rtol, rtol, kept, dropped, found.method, found.degree)


@system_first
def head_count_bound(system: System, n: int, rtol: float | None = None) -> int:
    """Return the bound on k that needs no lag operator: min(n, nu, p d, rank B rank C), one more with a skip.

    A real `System`; n >= 0 an ``int``. With a non-zero skip the lags from 1 on are those of (A, AB, C), whose
    nu is one smaller when the minimal realization has the eigenvalue 0; the bound is then min(n, p d, 1 +
    min(that nu, rank AB rank C)).

    Raises as `head_count`. Source: prop-what-k-is. Introduced in *head-count*.

    >>> system = System(0.5 * torch.eye(3), torch.ones(3, 1), torch.ones(2, 3))
    >>> head_count_bound(system, 100)  # one input reached by one mode
    1
    """
    *matrices, D = check_real(system).double()
    n = check_integer("n", n, low=0)
    form, rtol = standard_form(*matrices, D, dtype=system.dtype), tolerance(rtol, system.dtype)
    skip = D is not None and bool(D.any())
    inputs = _first_step(form.A, form.B, rtol) if skip else form.B
    inputs = inputs / sizes(inputs, 0)
    ranks = [int(torch.linalg.matrix_rank(tensor, rtol=rtol)) for tensor in (inputs, form.C)]
    degree = span_rows(form.A, inputs, form.C, system.N, rtol).degree
    return min(n, system.p * system.d, min(degree, ranks[0] * ranks[1]) + int(skip))
