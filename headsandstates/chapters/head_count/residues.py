"""What the head count is made of, over the rationals: residues from factors of the characteristic polynomial.

No Jordan form: with chi = f^m g and h the inverse of g modulo f^m, (g h)(A) is the spectral projector of the
roots of f.
"""

from __future__ import annotations

import sympy
from sympy.polys.matrices import DomainMatrix

from ssmbook.heads.exact import Exact, characteristic, rational_matrix, rational_system


def exact_modal_residues(system: Exact) -> dict:
    """Return {(eigenvalue, m): R} with M_tau = sum binom(tau, m) lam^(tau - m) R, sympy matrices.

    ``system`` as in `head_count`, defective or not; 0^0 = 1, and the skip joins R_(0,0). Raises
    ``ValueError`` for an eigenvalue of degree above two over the rationals. Source: prop-what-k-is.

    >>> defective, eye = [[2, 1], [0, 2]], [[1, 0], [0, 1]]
    >>> sorted(m for _, m in exact_modal_residues((defective, eye, eye)))
    [0, 1]
    """
    *system, skip = _matrices(system)
    factors = _factors(system[0])
    steep = [factor for factor, _ in factors if factor.degree() > 2]
    if steep:
        raise ValueError(f"A must have eigenvalues of degree at most two; got a root of {steep[0].as_expr()}")
    residues = {(sympy.S.Zero, 0): skip.to_Matrix()} if any(skip.to_list_flat()) else {}
    for factor, multiplicity in factors:
        for value in sympy.roots(factor):
            for m, R in enumerate(_residues_of(value, multiplicity, *system)):
                residues[value, m] = residues.get((value, m), sympy.zeros(*R.shape)) + R
    return residues


def exact_modal_head_count(system: Exact) -> int:
    """Return k for every n >= nu (nu + 1 with a skip): the rank of the residues, without roots.

    Each irreducible factor f of the characteristic polynomial, of multiplicity m, contributes the span of
    C A^j P B for j < m deg f, with P the rational projector of f. Source: prop-what-k-is.

    >>> defective, eye = [[2, 1], [0, 2]], [[1, 0], [0, 1]]
    >>> exact_modal_head_count((defective, eye, eye))
    2
    """
    a, b, c, skip = _matrices(system)
    rows, skipped = [], not any(skip.to_list_flat())
    for factor, multiplicity in _factors(a):
        state = _projected(factor, multiplicity, a, b)
        for power in range(factor.degree() * multiplicity):
            R = c * state
            if power == 0 and not any(factor.all_coeffs()[1:]):  # the factor z: here the skip joins
                R, skipped = R + skip, True
            rows.append(R.to_list_flat())
            state = a * state
    rows += [] if skipped else [skip.to_list_flat()]
    return DomainMatrix(rows, (len(rows), c.shape[0] * b.shape[1]), sympy.QQ).rank()


def _matrices(system):
    """The four matrices over the rationals, of shapes that empty rows alone do not tell."""
    a, b, c, d = rational_system(system)
    size, columns = len(a), len(d[0]) if d else len(b[0]) if b else 0
    shapes = (size, size), (size, columns), (len(c), size), (len(c), columns)
    return map(rational_matrix, (a, b, c, d), shapes)


def _factors(a):
    """Irreducible monic factors of the characteristic polynomial with their multiplicities."""
    return [(factor.monic(), multiplicity) for factor, multiplicity in characteristic(a).factor_list()[1]]


def _projected(factor, multiplicity, a, b):
    """P b for the spectral projector P of the roots of a factor of the characteristic polynomial of a."""
    power = factor**multiplicity
    rest = characteristic(a.convert_to(factor.domain)).quo(power)
    if rest.degree() == 0:
        return b
    projector = rest * rest.invert(power)
    state = b * projector.domain.zero
    for coefficient in projector.rep.to_list():
        state = a * state + b * coefficient
    return state


def _residues_of(value, multiplicity, a, b, c):
    """The residues C N^m P B of one eigenvalue as sympy matrices, as long as N^m P is not zero."""
    domain = sympy.QQ if value.is_rational else sympy.QQ.algebraic_field(value)
    a, b, c = (matrix.convert_to(domain) for matrix in (a, b, c))
    size = a.shape[0]
    eye = DomainMatrix.eye(size, domain)
    factor = sympy.Poly([1, -value], sympy.Symbol("z"), domain=domain)
    nilpotent = a - eye * domain.from_sympy(value)
    part = _projected(factor, multiplicity, a, eye)
    while any(part.to_list_flat()):
        yield (c * part * b).to_Matrix().applyfunc(sympy.expand)
        part = nilpotent * part
