"""What k is made of: modal residues rebuild the lags and span what they span, defective systems included."""

import math
from functools import partial

import numpy as np
import pytest
import sympy
import torch
from helpers import floats
from hypothesis import given, settings
from hypothesis import strategies as st

from headsandstates.chapters.head_count.residues import exact_modal_head_count, exact_modal_residues
from ssmbook.heads import head_count
from ssmbook.systems import System

exact_head_count = partial(head_count, exact=True)


def check_residues(A, B, C, D):
    """M_tau is the sum of binom(tau, m) lam^(tau - m) R over the residues R of order m at the poles lam."""
    residues = exact_modal_residues((A, B, C, D))
    A, state, C = (sympy.Matrix(matrix.tolist()) for matrix in (A, B, C))
    for tau in range(len(A.tolist()) + 2):
        lag = C * state
        if tau == 0 and D is not None:
            lag += sympy.Matrix(D.tolist())
        made = 0 * lag
        for (lam, m), R in residues.items():
            if m <= tau:
                made += math.comb(tau, m) * lam ** (tau - m) * R  # sympy: 0 ** 0 = 1
        assert (made - lag).applyfunc(sympy.radsimp).applyfunc(sympy.expand) == 0 * lag
        state = A * state


@pytest.mark.guards("prop-what-k-is")
@pytest.mark.parametrize("blocks", [[(1, 3), (1, 2)], [(0, 2), (3, 1)], [(2, 1), (2, 1)], [(-1, 2), (2, 2)]])
@pytest.mark.parametrize("skip", [False, True])
def test_jordan_blocks_counted_by_their_exact_residues(blocks, skip):
    parts = [
        lam * torch.eye(m, dtype=torch.int64) + torch.diag(torch.ones(m - 1, dtype=torch.int64), 1)
        for lam, m in blocks
    ]
    A = torch.block_diag(*parts)
    N = len(A)
    generator = torch.Generator().manual_seed(N)
    B, C = (torch.randint(-2, 3, s, generator=generator) for s in ((N, 2), (3, N)))
    D = torch.randint(-2, 3, (3, 2), generator=generator) if skip else None
    k = exact_head_count((A, B, C, D), 3 * N).value
    assert exact_modal_head_count((A, B, C, D)) == k
    assert head_count(System(*floats(A, B, C), floats(D)[0]), 3 * N) == k
    check_residues(A, B, C, D)


@pytest.mark.guards("prop-what-k-is")
def test_irreducible_polynomials_are_counted_and_their_residues_refused():
    A = [[0, 0, 1], [1, 0, 1], [0, 1, 0]]
    eye = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert exact_modal_head_count((A, eye, eye)) == len(A)
    assert exact_modal_head_count((A, eye, eye, eye)) == len(A)  # I lies in the span of the powers
    with pytest.raises(ValueError):
        exact_modal_residues((A, eye, eye))


@pytest.mark.guards("prop-what-k-is")
@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_modal_ranks_over_the_rationals_are_those_of_the_lags(seed, N, p, d, sparse):
    rng = np.random.default_rng(seed)
    A = rng.choice([0, 0, 0, 1, -1], (N, N)) if sparse else rng.integers(-2, 3, (N, N))
    if N % 2 == 0 and rng.random() < 0.4:  # repeated factors, defective or not
        half = A[: N // 2, : N // 2]
        A = np.block([[half, np.eye(N // 2, dtype=int) * rng.integers(0, 2)], [0 * half, half]])
    A, B, C, D = (
        torch.from_numpy(m) for m in (A, *(rng.integers(-2, 3, s) for s in ((N, d), (p, N), (p, d))))
    )
    for skip in (None, D):
        assert exact_modal_head_count((A, B, C, skip)) == exact_head_count((A, B, C, skip), 2 * N + 2).value
    factors = sympy.Poly(sympy.Matrix(A.tolist()).charpoly().as_expr()).factor_list()[1]
    if max(factor.degree() for factor, _ in factors) <= 2:
        check_residues(A, B, C, D)
    else:
        with pytest.raises(ValueError):
            exact_modal_residues((A, B, C, D))
