"""Head counts in rational arithmetic, with a certificate that fractions alone re-check.

Over the rationals a rank is no decision. The lags C A^tau B of a rational system are
rational, Gaussian elimination finds a first-come basis among them, and N of them are enough
(one more with a skip), because by Cayley and Hamilton every later one is a combination of
the N before it. The certificate has three parts:

    independent    the basis has a minor whose determinant is not zero;
    dependent      each other lag among those decided is written on the basis;
    complete       all later lags follow by a recurrence, because A satisfies its polynomial.

sympy searches, because its elimination is fast; `ExactCertificate.verify` re-checks with
plain fractions. Importing this module loads no sympy; calling it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch

from ssmbook._checks import check_finite, check_integer
from ssmbook.heads._count import Count
from ssmbook.systems.system import System, check_system

Vector = tuple[Fraction, ...]
Rows = tuple[Vector, ...]
Matrix = Sequence[Sequence[int | Fraction]] | torch.Tensor  # sympy's matrices too
Exact = System | tuple[Matrix, Matrix, Matrix] | tuple[Matrix, Matrix, Matrix, Matrix | None]


# The certificate --------------------------------------------------------------------------


@dataclass(frozen=True)
class ExactCertificate:
    """The proof of a count over the rationals: independent lags, relations for the others, a recurrence.

    Printing it shows the proof; `verify` checks it.

    Parameters
    ----------
    system : tuple of four matrices
        A, B, C, D as tuples of rows of fractions.
    n : int
        The number of tokens.
    decided : int
        How many lags were looked at: min(n, N), one more with a skip.
    basis_lags : tuple of int
        The k lags whose operators are independent.
    minor : tuple of int
        k entries of vec M (row-major) on which they are.
    determinant : Fraction
        That of the k x k matrix of these entries, not zero.
    relations : dict of int to tuple of Fraction
        For every other lag below ``decided`` its coefficients on the basis.
    recurrence : tuple of Fraction
        (c_1 … c_N) with M_tau = sum_i c_i M_(tau-i) for every tau >= ``decided``.

    Examples
    --------
    >>> turn, eye = [[0, -1], [1, 0]], [[1, 0], [0, 1]]
    >>> proof = head_count((turn, eye, eye), 8, exact=True).evidence
    >>> proof.basis_lags, str(proof.recurrence[1])
    ((0, 1), '-1')
    """

    system: tuple[Rows, Rows, Rows, Rows]
    n: int
    decided: int
    basis_lags: tuple[int, ...]
    minor: tuple[int, ...]
    determinant: Fraction
    relations: dict[int, Vector]
    recurrence: Vector

    @property
    def count(self) -> int:
        return len(self.basis_lags)

    def verify(self) -> bool:
        """Re-check the certificate with ``fractions.Fraction`` alone, with no code of the search."""
        sized = all(len(each) == self.count for each in (self.minor, *self.relations.values()))
        if not sized or sorted([*self.basis_lags, *self.relations]) != list(range(self.decided)):
            return False

        lags = _lags(*self.system, self.decided)
        basis = [lags[tau] for tau in self.basis_lags]
        square = [[lag[entry] for entry in self.minor] for lag in basis]
        independent = self.determinant != 0 and _determinant(square) == self.determinant
        dependent = all(
            value == sum(c * lag[entry] for c, lag in zip(coefficients, basis, strict=True))
            for tau, coefficients in self.relations.items()
            for entry, value in enumerate(lags[tau])
        )
        complete = self.decided == self.n or (self.decided < self.n and self._recurs())
        return independent and dependent and complete

    def _recurs(self) -> bool:
        """Whether A satisfies the recurrence's polynomial and enough lags were decided to start it."""
        A, _, _, D = self.system
        value = [[Fraction(i == j) for j in range(len(A))] for i in range(len(A))]
        for c in self.recurrence:  # A^N - c_1 A^(N-1) - ... - c_N by Horner's scheme
            value = _product(A, value)
            for i in range(len(A)):
                value[i][i] -= c
        skip = any(any(row) for row in D)
        return self.decided >= len(self.recurrence) + int(skip) and not any(map(any, value))

    def __str__(self) -> str:
        lines = [f"k = {self.count} over the rationals, n = {self.n}"]
        if self.basis_lags:
            names = ", ".join(f"M_{tau}" for tau in self.basis_lags)
            lines.append(f"basis: {names} (minor of entries {list(self.minor)} is {self.determinant})")
        for tau, coefficients in self.relations.items():
            lines.append(f"M_{tau} = {_sum_text(coefficients, self.basis_lags)}")
        if self.decided < self.n:
            text = _sum_text(self.recurrence, [f"(t-{i + 1})" for i in range(len(self.recurrence))])
            lines.append(f"M_t = {text} for t = {self.decided} … {self.n - 1}")
        return "\n".join(lines)


# The search -------------------------------------------------------------------------------


def exact_head_count(system: Exact, n: int | None) -> Count[ExactCertificate]:
    """Return k over the rationals, with an `ExactCertificate`; min(n, N) lags decide, one more with a skip.

    Raises ``TypeError`` for entries that are not rational.
    """
    n = check_integer("n", n, low=0)
    system = rational_system(system)
    size, skip = len(system[0]), any(any(row) for row in system[3])
    decided = min(n, size + int(skip))
    lags = _lags(*system, decided)
    basis, relations = pivots(lags)
    rows = [lags[tau] for tau in basis]
    minor, _ = pivots(list(zip(*rows, strict=True)))  # k independent entries of these rows
    determinant = _determinant([[row[entry] for entry in minor] for row in rows])
    last = rational_matrix(system[0], (size, size)).charpoly()[1:] if decided < n else ()
    recurrence = tuple(-from_qq(c) for c in last)
    evidence = ExactCertificate(
        system, n, decided, tuple(basis), tuple(minor), determinant, relations, recurrence
    )
    return Count(evidence.count, evidence.count, "exact, over the rationals", evidence)


def exact_minimal_degree(system: Exact) -> int:
    """Return nu over the rationals, the order of the shortest scalar recurrence of the lags C A^tau B.

    That is the rank of the N x (N p d) Hankel matrix with rows (M_i, M_(i+1), …).
    ``system`` and errors as in `head_count`; a skip has no part in it. Source:
    prop-what-k-is.

    >>> turn, eye = [[0, -1], [1, 0]], [[1, 0], [0, 1]]
    >>> exact_minimal_degree((turn, eye, eye))
    2
    """
    A, B, C, D = rational_system(system)
    size, without = len(A), tuple((Fraction(0),) * len(row) for row in D)
    lags = _lags(A, B, C, without, 2 * size)
    hankel = [[entry for lag in lags[i : i + size] for entry in lag] for i in range(size)]
    return len(pivots(hankel)[0])


def pivots(vectors: Sequence[Sequence[Fraction]]) -> tuple[list[int], dict[int, Vector]]:
    """First-come basis among vectors of fractions, and the coefficients of every other one on it."""
    if not vectors or not vectors[0]:
        return [], {i: () for i in range(len(vectors))}
    reduced, basis = rational_matrix(list(zip(*vectors, strict=True))).rref()
    table = reduced.to_list()
    others = (i for i in range(len(vectors)) if i not in basis)
    return list(basis), {i: tuple(from_qq(table[r][i]) for r in range(len(basis))) for i in others}


# Reading a system -------------------------------------------------------------------------


def rational_system(system: Exact) -> tuple[Rows, Rows, Rows, Rows]:
    """Read a system as tuples of fractions, its shapes checked; raises as `head_count`."""
    if isinstance(system, System):
        check_finite("system", check_system(system, batched=False, complex_ok=False).A)
        parts = [part if part is None else _binary_fractions(part) for part in system]
    else:
        parts = list(system)
        if len(parts) not in (3, 4):
            raise ValueError(f"system must hold A, B, C (and D); got {len(parts)} parts")
    *first, D = parts if len(parts) == 4 else (*parts, None)
    A, B, C = (_rational(name, part) for name, part in zip("ABC", first, strict=True))
    D = None if D is None else _rational("D", D)
    N, d, p = len(A), len((B or D or [()])[0]), len(C)
    D = tuple((Fraction(0),) * d for _ in range(p)) if D is None else D
    shapes = ("A", A, (N, N)), ("B", B, (N, d)), ("C", C, (p, N)), ("D", D, (p, d))
    for name, rows, shape in shapes:
        if len(rows) != shape[0] or any(len(row) != shape[1] for row in rows):
            lengths = sorted({len(row) for row in rows})
            raise ValueError(f"{name} must have shape {shape}; got {len(rows)} rows of lengths {lengths}")
    return A, B, C, D


def _binary_fractions(part: torch.Tensor) -> list[list[Fraction]]:
    """Each float as the fraction that it is."""
    return [[Fraction(entry) for entry in row] for row in part.detach().double().tolist()]


def _rational(name: str, matrix: Matrix) -> Rows:
    rows = matrix.tolist() if hasattr(matrix, "tolist") else matrix
    return tuple(tuple(_fraction(name, entry) for entry in row) for row in rows)


def _fraction(name: str, entry: object) -> Fraction:
    if isinstance(entry, (int, Fraction)) and not isinstance(entry, bool):
        return Fraction(entry)
    if getattr(entry, "is_Rational", False):
        return Fraction(int(entry.p), int(entry.q))
    hint = f"; pass Fraction({entry!r}) to mean its binary value exactly" if isinstance(entry, float) else ""
    raise TypeError(f"{name} must hold ints or Fractions; got {type(entry).__name__} {entry!r}{hint}")


# Arithmetic -------------------------------------------------------------------------------


def _lags(A: Rows, B: Rows, C: Rows, D: Rows, count: int) -> list[list[Fraction]]:
    """vec M_tau (row-major) for tau < count, by the plain recurrence."""
    lags, state = [], B
    for tau in range(count):
        lag = _product(C, state) if A else [[Fraction(0)] * len(row) for row in D]
        if tau == 0:  # the skip
            lag = [[x + y for x, y in zip(*rows, strict=True)] for rows in zip(lag, D, strict=True)]
        lags.append([entry for row in lag for entry in row])
        state = _product(A, state)
    return lags


def characteristic(A):
    """The characteristic polynomial of a ``DomainMatrix``, a sympy ``Poly`` in z over the same field."""
    from sympy import Poly, Symbol

    return Poly(A.charpoly(), Symbol("z"), domain=A.domain)


def rational_matrix(rows, shape=None):
    """A sympy ``DomainMatrix`` over the rationals from rows of fractions; the first call loads sympy.

    ``shape``: what empty rows do not tell.
    """
    from sympy import QQ
    from sympy.polys.matrices import DomainMatrix

    shape = (len(rows), len(rows[0])) if shape is None else shape
    return DomainMatrix([[QQ(x.numerator, x.denominator) for x in row] for row in rows], shape, QQ)


def from_qq(x) -> Fraction:
    return Fraction(int(x.numerator), int(x.denominator))


def _product(left: Sequence[Sequence[Fraction]], right: Sequence[Sequence[Fraction]]) -> list[list[Fraction]]:
    columns = list(zip(*right, strict=True))
    return [[sum((x * y for x, y in zip(r, c, strict=True)), Fraction(0)) for c in columns] for r in left]


def _determinant(rows: Sequence[Sequence[Fraction]]) -> Fraction:
    """Determinant by Gaussian elimination on fractions; 1 for the empty matrix."""
    rows, value = [list(row) for row in rows], Fraction(1)
    for i in range(len(rows)):
        swap = next((r for r in range(i, len(rows)) if rows[r][i]), None)
        if swap is None:
            return Fraction(0)
        if swap != i:
            rows[i], rows[swap], value = rows[swap], rows[i], -value
        value *= rows[i][i]
        for r in range(i + 1, len(rows)):
            factor = rows[r][i] / rows[i][i]
            rows[r] = [x - factor * y for x, y in zip(rows[r], rows[i], strict=True)]
    return value


def _sum_text(coefficients: Vector, labels: Sequence[object]) -> str:
    """A sum of lags such as M_0 - 1/2 M_1."""
    text = ""
    for c, label in zip(coefficients, labels, strict=True):
        if c:
            size = f"M_{label}" if abs(c) == 1 else f"{abs(c)} M_{label}"
            minus, plus = (" - ", " + ") if text else ("-", "")
            text += (minus if c < 0 else plus) + size
    return text or "0"
