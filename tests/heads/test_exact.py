"""Exact certificates: they hold, they print, and a forged one is caught."""

import math
from dataclasses import replace
from fractions import Fraction
from functools import partial

import pytest
import sympy
import torch
from helpers import F64
from hypothesis import given, settings
from hypothesis import strategies as st

from headsandstates.chapters.head_count.residues import exact_modal_head_count, exact_modal_residues
from ssmbook.heads import exact_minimal_degree, head_count
from ssmbook.systems import System, rotation

exact_head_count = partial(head_count, exact=True)

EYE = [[1, 0], [0, 1]]
TURN = [[Fraction(3, 5), Fraction(-4, 5)], [Fraction(4, 5), Fraction(3, 5)]]
matrices = lambda rows, columns: st.lists(  # noqa: E731
    st.lists(st.fractions(-2, 2, max_denominator=3), min_size=columns, max_size=columns),
    min_size=rows,
    max_size=rows,
)


def sympy_rank(A, B, C, n, D):
    A, B, C = sympy.Matrix(A), sympy.Matrix(B), sympy.Matrix(C)
    lags = [
        C * A**tau * B + (sympy.Matrix(D) if tau == 0 else sympy.zeros(C.rows, B.cols)) for tau in range(n)
    ]
    return sympy.Matrix([list(M) for M in lags]).rank()


@pytest.mark.guards("thm-rank-gap")
def test_a_rational_rotation_is_certified_at_two():
    proof = exact_head_count((TURN, EYE, EYE), 6).evidence
    assert proof.count == 2 and proof.basis_lags == (0, 1) and proof.verify()
    text = str(proof)
    assert "k = 2 over the rationals, n = 6" in text and "basis: M_0, M_1" in text
    assert "M_t = 6/5 M_(t-1) - M_(t-2) for t = 2 … 5" in text


@pytest.mark.guards("prop-what-k-is")
def test_the_delay_line_stalls_and_grows_again():
    A = [[int(i == j + 1) for j in range(6)] for i in range(6)]
    B = [[int(i == 0)] for i in range(6)]
    C = [[1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1]]
    proofs = [exact_head_count((A, B, C), n).evidence for n in range(1, 9)]
    assert [proof.count for proof in proofs] == [1, 1, 1, 1, 1, 2, 2, 2]
    assert all(proof.verify() for proof in proofs)
    assert proofs[-1].basis_lags == (0, 5) and "M_3 = 0" in str(proofs[-1])


@pytest.mark.guards("thm-head-count", "prop-what-k-is")
@settings(max_examples=30, deadline=None)
@given(st.data(), st.integers(1, 3), st.integers(1, 2), st.integers(1, 2), st.integers(0, 7), st.booleans())
def test_certificates_verify_and_agree_with_sympy_rank(data, N, d, p, n, skip):
    A, B, C = data.draw(matrices(N, N)), data.draw(matrices(N, d)), data.draw(matrices(p, N))
    D = data.draw(matrices(p, d)) if skip else [[0] * d for _ in range(p)]
    proof = exact_head_count((A, B, C, D), n).evidence
    assert proof.verify()
    assert proof.count == sympy_rank(A, B, C, n, D) <= min(n, exact_minimal_degree((A, B, C)) + skip, p * d)


def test_forged_certificates_fail():
    proof = exact_head_count(([[2, 1], [0, 3]], [[1], [1]], [[1, 1]], [[1]]), 5).evidence
    assert proof.verify() and proof.count == 1 and len(proof.relations) == 2
    first, second = proof.relations
    forgeries = [
        replace(proof, relations=proof.relations | {first: (Fraction(99),)}),
        replace(proof, relations={first: proof.relations[first]}),
        replace(proof, determinant=proof.determinant + 1),
        replace(proof, recurrence=(Fraction(1), Fraction(1))),
        replace(proof, decided=1, relations={}, basis_lags=(1,)),
        replace(proof, minor=(0, 0)),
    ]
    assert not any(forgery.verify() for forgery in forgeries)
    proof = exact_head_count((EYE, EYE, EYE), 2).evidence
    assert not replace(proof, basis_lags=(0, 1), minor=(0, 3), relations={}).verify()


def test_many_kinds_of_rational_input():
    expected = exact_head_count((TURN, EYE, EYE), 4).value
    assert exact_head_count((sympy.Matrix(TURN), sympy.eye(2), EYE), 4) == expected
    whole = [[0, -1], [1, 0]]
    assert exact_head_count((torch.tensor(whole), torch.eye(2, dtype=torch.int32), EYE), 4) == 2
    for rounded in ([[0.5]], sympy.Matrix([[sympy.sqrt(2)]])):
        with pytest.raises(TypeError):
            exact_head_count((rounded, [[1]], [[1]]), 3)


def test_empty_and_zero_systems():
    for count in (
        exact_head_count(([], [], []), 4),
        exact_head_count(([[0]], [[0]], [[1]]), 4),
        exact_head_count((EYE, EYE, EYE), 0),
    ):
        proof = count.evidence
        assert count == 0 and proof.verify() and "k = 0" in str(proof)


@pytest.mark.parametrize(
    ("dtype", "skip"), [(torch.float64, False), (torch.float32, True), (torch.bfloat16, True)]
)
def test_a_system_is_the_binary_fractions_that_it_holds(dtype, skip):
    """A turn by math.pi in floats is no half turn: its sine is 1.2e-16 and not 0."""
    turn = System(
        rotation(torch.tensor(math.pi, dtype=F64)).to(dtype), *torch.eye(2, dtype=dtype).expand(2, 2, 2)
    )
    turn = turn.replace(D=torch.tensor([[0, 1], [0, 0]]).to(dtype)) if skip else turn
    binary = [None if m is None else [[Fraction(v) for v in row] for row in m.tolist()] for m in turn]
    assert exact_head_count(turn, 9) == exact_head_count(binary, 9) == 2 + skip
    assert exact_minimal_degree(turn) == 2 and exact_modal_head_count(turn) == 2 + skip
    assert exact_modal_residues(turn) == exact_modal_residues(binary)


def test_the_shortest_recurrence_does_not_see_a_skip():
    for B, nu in (([[1]], 1), ([[0]], 0)):
        assert exact_minimal_degree(([[2]], B, [[1]], [[5]])) == exact_minimal_degree(([[2]], B, [[1]])) == nu
