"""Positive dependencies in exact arithmetic: from which length on a system needs its extra softmax head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from sympy import Poly, Rational, Symbol


@dataclass(frozen=True)
class PositiveMultiple:
    """The nonnegative multiple q of least degree of a polynomial mu, from z^0 up, with a proof of both.

    ``solution``: ``degree`` numbers u(0), u(1), ... > 0 with sum_l mu_l u(tau + l) = 0. A multiple q >= 0 of
    lower degree cannot exist, because sum_l q_l u(l) would be 0.
    """

    polynomial: tuple[Fraction, ...]
    multiple: tuple[Fraction, ...]
    solution: tuple[Fraction, ...]

    @property
    def degree(self) -> int:
        """The least degree of a nonzero multiple with coefficients >= 0."""
        return len(self.multiple) - 1

    def verify(self) -> bool:
        """Check the proof from its numbers alone: signs, the division without remainder, the recurrence."""
        mu, q, u = self.polynomial, list(self.multiple), self.solution
        signs = min(q) >= 0 and q[-1] > 0 and all(value > 0 for value in u) and len(u) == self.degree
        for top in range(len(q) - 1, len(mu) - 2, -1):
            factor = q[top] / mu[-1]
            for shift, value in enumerate(mu):
                q[top - len(mu) + 1 + shift] -= factor * value
        sums = (sum(a * b for a, b in zip(mu, u[t:], strict=False)) for t in range(len(u) - len(mu) + 1))
        return signs and not any(q) and not any(sums)


def least_positive_multiple(polynomial: Sequence) -> PositiveMultiple:
    """Return the nonzero multiple of least degree all of whose coefficients are >= 0, with a proof.

    If the residues of a system are independent and mu is its minimal polynomial, it takes k + 1 softmax heads
    with a sink from 1 + degree tokens onward, and k before. ``polynomial``: from z^0 up, floats as the
    fractions they are. Raises ``ValueError`` for one with a positive root, which has no such multiple, and if
    the last coefficient is 0. Source: prop-eigenvalue-test.

    >>> found = least_positive_multiple([1, -1, 1])  # z^2 - z + 1, roots at 60 degrees
    >>> found.degree, [str(c) for c in found.multiple], found.verify()
    (3, ['1/2', '0', '0', '1/2'], True)
    """
    mu = tuple(Fraction(value) for value in polynomial)
    if not mu or mu[-1] == 0:
        raise ValueError(f"polynomial must end with a coefficient that is not 0; got {polynomial!r}")
    coefficients = [Rational(value.numerator, value.denominator) for value in mu]
    if Poly(coefficients, Symbol("z")).count_roots(0, None):  # of z^size mu(1/z), of which 0 is no root
        raise ValueError(f"polynomial must have no positive root; got {polynomial!r}")
    size = len(mu) - 1
    program, power, positive = _PhaseOne(size), [Fraction(i == 0) for i in range(size)], []
    while program.infeasible:
        positive = [-value for value in program.prices()[:-1]]  # <positive, point> > 0 for all so far
        program.add(power)
        power = [low - power[-1] * value / mu[-1] for low, value in zip([0, *power], mu[:-1], strict=False)]
    q = program.weights()
    u = [sum(a * b for a, b in zip(positive, z, strict=True)) for z in program.points[:-1]] if size else []
    return PositiveMultiple(mu, tuple(q), tuple(u))


class _PhaseOne:
    """The exact program: weights >= 0 with sum 1 on points added one by one, and sum weight point = 0.

    Phase one of the revised simplex method with Bland's rule, which never cycles. The basis starts with one
    artificial variable an equation (None), and their values are the infeasibility.
    """

    def __init__(self, size: int):
        self.points, self.basis = [], [None] * (size + 1)
        self.inverse = [[Fraction(i == j) for j in range(size + 1)] for i in range(size + 1)]
        self.value = [Fraction(i == size) for i in range(size + 1)]

    @property
    def infeasible(self) -> bool:
        return any(v != 0 for v, b in zip(self.value, self.basis, strict=True) if b is None)

    def add(self, point):
        """Take in one more point, and pivot until nothing improves."""
        self.points.append(list(point))
        while True:
            y = self.prices()
            gain = (sum(a * b for a, b in zip(y, [*z, 1], strict=True)) for z in self.points)
            entering = next((j for j, g in enumerate(gain) if g > 0), None)
            if entering is None:
                return
            self._pivot(entering)

    def weights(self) -> list[Fraction]:
        """The weights of the points so far, if the program is feasible."""
        found = [Fraction(0)] * len(self.points)
        for v, b in zip(self.value, self.basis, strict=True):
            if b is not None:
                found[b] = v
        return found

    def prices(self):
        """The dual variables of the infeasibility."""
        rows = [row for row, b in zip(self.inverse, self.basis, strict=True) if b is None]
        return [sum((row[i] for row in rows), Fraction(0)) for i in range(len(self.value))]

    def _pivot(self, entering):
        column = [*self.points[entering], Fraction(1)]
        step = [sum(a * b for a, b in zip(row, column, strict=True)) for row in self.inverse]
        order = [len(self.points) + i if b is None else b for i, b in enumerate(self.basis)]
        out = min((i for i, s in enumerate(step) if s > 0), key=lambda i: (self.value[i] / step[i], order[i]))
        self.inverse[out] = [a / step[out] for a in self.inverse[out]]
        self.value[out] /= step[out]
        for i, s in enumerate(step):
            if i != out and s != 0:
                self.inverse[i] = [a - s * b for a, b in zip(self.inverse[i], self.inverse[out], strict=True)]
                self.value[i] -= s * self.value[out]
        self.basis[out] = entering
