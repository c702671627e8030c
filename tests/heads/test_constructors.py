"""Heads from a system: exact, exactly k, best below k; what gates buy; and the rank gap itself."""

import pytest
import torch
from helpers import EYE, F64, randn, random_system, rotation, seen
from hypothesis import given, settings
from hypothesis import strategies as st

from headsandstates.chapters.gates_and_depth.stacks import diagonal_ssm_by_gates
from ssmbook.heads import head_count
from ssmbook.operators import DenseOperator, FactorizedOperator
from ssmbook.systems import System

quick = settings(max_examples=25, deadline=None)


def all_heads(system, n):
    """The operator of a system, and its best heads, as many as the count says."""
    W = system.operator(n)
    return W, W.best_heads(head_count(system, n).value)


@pytest.mark.guards("thm-head-count")
@pytest.mark.parametrize(("N", "rho"), [(1, 0.5), (9, 0.99), (32, 0.95)])
def test_exact_on_random_stable_systems_of_length_512(N, rho):
    A, B, C, D = random_system(N, 8, 8, rho, N)
    for skip in (None, D):
        W, heads = all_heads(System(A, B, C, skip), 512)
        assert heads.H == min(N + (skip is not None), 64)
        x = randn(512, 8, seed=5)
        assert (heads.apply(x) - W.apply(x)).norm() <= 1e-10 * W.apply(x).norm()
        first_column = torch.einsum("hi,hpd->ipd", heads.alpha[:, :, 0], heads.V)
        missed = torch.linalg.matrix_norm(first_column - W.M) / torch.linalg.matrix_norm(W.M)
        assert missed.max() < 1e-8  # lag by lag, down to lags of norm 0.5^511


@pytest.mark.guards("thm-head-count")
@quick
@given(st.integers(1, 6), st.integers(1, 3), st.integers(1, 3), st.integers(1, 9), st.integers(0, 10**6))
def test_dense_equality_causality_and_toeplitz_coefficients(N, d, p, n, seed):
    A, B, C, D = random_system(N, d, p, 0.9, seed)
    W, heads = all_heads(System(A, B, C, D), n)
    assert heads.H == min(n, N + 1, p * d)
    assert (heads - W).block_norms().norm() <= 1e-10 * W.block_norms().norm()
    assert not heads.alpha.triu(1).any()
    assert torch.equal(heads.alpha[:, 1:, 1:], heads.alpha[:, :-1, :-1])


@pytest.mark.guards("thm-head-count")
@pytest.mark.parametrize("kind", ["rotation", "jordan", "nilpotent", "unstable", "repeated"])
def test_exact_on_adversarial_systems(kind):
    A = {
        "rotation": rotation(0.3),
        "jordan": torch.tensor([[0.9, 1.0], [0.0, 0.9]], dtype=F64),
        "nilpotent": torch.tensor([[0.0, 1.0], [0.0, 0.0]], dtype=F64),
        "unstable": torch.tensor([[1.3, 0.2], [0.0, -1.1]], dtype=F64),
        "repeated": 0.7 * EYE,
    }[kind]
    W, heads = all_heads(seen(A), 40)
    assert heads.H == (1 if kind == "repeated" else 2)
    assert (heads - W).block_norms().norm() <= 1e-10 * W.block_norms().norm()


@pytest.mark.guards("thm-head-count")
def test_the_zero_system_gets_no_heads():
    A, B, C, D = random_system(3, 2, 4, 0.9, 0)
    _, heads = all_heads(System(A, 0 * B, C, 0 * D), 7)
    assert heads.H == 0 and heads.alpha.shape == (0, 7, 7) and heads.V.shape == (0, 4, 2)
    assert all_heads(System(A, B, C), 0)[1].H == 0


@pytest.mark.guards("thm-rank-gap")
@quick
@given(st.integers(1, 3), st.integers(1, 3), st.integers(2, 3), st.integers(2, 5), st.integers(0, 10**6))
def test_no_operator_of_h_heads_has_rank_above_h(H, p, d, n, seed):
    heads = FactorizedOperator(randn(H, n, n, seed=seed), randn(H, p, d, seed=seed + 1))
    assert DenseOperator(heads.to_dense()).interaction_rank() == min(H, p * d)


def parallel_maps(V, kernel_too):
    """Dimension of {M : M x parallel to V x for all x, M x = 0 on ker V if asked}: linear conditions on M."""
    p, d = V.shape
    conditions = []
    for seed in range(4 * p * d):
        x = randn(d, seed=seed)
        y = V @ x
        for a in range(p):
            for b in range(a):
                row = torch.zeros(p, d, dtype=F64)
                row[a], row[b] = y[b] * x, -y[a] * x
                conditions.append(row.flatten())
    _, sigma, Vh = torch.linalg.svd(V)
    if kernel_too:
        for x in Vh[int((sigma > 1e-12).sum()) :]:
            for a in range(p):
                row = torch.zeros(p, d, dtype=F64)
                row[a] = x
                conditions.append(row.flatten())
    return p * d - int(torch.linalg.matrix_rank(torch.stack(conditions), rtol=1e-10))


@pytest.mark.guards("thm-rank-gap")
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_strong_single_head_form_and_where_the_kernel_matters(rank):
    V = randn(3, rank, seed=rank) @ randn(rank, 4, seed=10 + rank)
    assert parallel_maps(V, kernel_too=True) == 1
    # The condition on ker V is implied as soon as rank V >= 2; for rank one it is what excludes a·m^T.
    assert parallel_maps(V, kernel_too=False) == (4 if rank == 1 else 1)


@pytest.mark.guards("thm-gates")
@pytest.mark.parametrize("p", [2, 3, 5])
def test_output_gates_widen_the_span_but_not_the_last_row(p):
    n, d = 9, 4
    alpha, V, gates = randn(1, n, n, seed=p).tril(), randn(1, p, d, seed=p + 1), randn(n, p, seed=p + 2)
    dense = FactorizedOperator(alpha, V).to_dense()
    output, inward = gates[:, None, :, None] * dense, dense * randn(n, d, seed=3)[None, :, None, :]
    gated = DenseOperator(output)
    assert gated.interaction_rank() == p and gated.row_rank(n - 1) == 1
    gated = DenseOperator(inward)
    assert gated.interaction_rank() == d and gated.column_rank(0) == 1


@pytest.mark.guards("thm-gates")
def test_row_n_minus_1_of_an_lti_system_holds_all_k_and_so_does_column_0():
    A, B, C, D = random_system(5, 3, 3, 0.9, 4)
    W = System(A, B, C, D).operator(9)
    assert W.interaction_rank() == W.row_rank(8) == W.column_rank(0) == 6
    # H gated heads put at most H independent operators in one row, whatever the gate.
    heads = FactorizedOperator(randn(4, 9, 9, seed=6).tril(), randn(4, 3, 3, seed=7))
    gated = DenseOperator(randn(9, 3, seed=8)[:, None, :, None] * heads.to_dense())
    assert gated.row_rank(8) == 4 < 6


@pytest.mark.guards("thm-gates")
@pytest.mark.parametrize("d", [1, 2, 5])
def test_input_and_output_gates_on_one_head_are_every_invertible_diagonal_ssm(d):
    lam = torch.linspace(-0.95, 1.1, d, dtype=F64) if d > 1 else torch.tensor([-0.6], dtype=F64)
    n, gain = 12, randn(d, seed=d)
    G, U = diagonal_ssm_by_gates(lam, n)
    head = torch.ones(n, n, dtype=F64).tril()
    W = head[:, :, None, None] * G[:, None, :, None] * torch.diag(gain) * U[None, :, None, :]
    target = System(torch.diag(lam), torch.eye(d, dtype=F64), torch.diag(gain)).operator(n)
    assert (W - target.to_dense()).abs().max() < 1e-10
    assert DenseOperator(W).interaction_rank() == target.interaction_rank() == d
