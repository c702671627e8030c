"""The statements of the chapter *structured-dynamics* and its grader."""

import pytest
import torch
from helpers import F64, gen, randn
from hypothesis import given
from hypothesis import strategies as st

from headsandstates.chapters.structured_dynamics.examples import mass_on_spring
from ssmbook import systems
from ssmbook.maps import SelectiveSSM
from ssmbook.operators import RecurrentOperator
from ssmbook.systems import System


def hidden(system, seed, extra=2):
    """The system, ``extra`` states never reached and ``extra`` never seen, in another basis."""
    A, B, C, _ = system
    N, size = system.N, system.N + 2 * extra
    big = 0.2 * randn(size, size, seed=seed)
    big[:N, :N], big[: N + extra, N + extra :], big[N : N + extra, :N] = A, 0, 0
    B = torch.cat([B, torch.zeros(extra, B.shape[1], dtype=F64), randn(extra, B.shape[1], seed=seed + 1)])
    C = torch.cat([C, randn(len(C), extra, seed=seed + 2), torch.zeros(len(C), extra, dtype=F64)], 1)
    T = systems.random_orthogonal(size, generator=gen(seed + 3), dtype=F64) * torch.linspace(
        0.5, 2, size, dtype=F64
    )
    return System(T @ big @ T.inverse(), T @ B, C @ T.inverse())


def delay(N):
    eye = torch.eye(N, dtype=F64)
    return System(torch.diag(torch.ones(N - 1, dtype=F64), 1), eye[:, -1:], eye[:1])


@pytest.mark.guards("thm-realization")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 1), (4, 2, 2), (5, 1, 3), "delay"])
def test_the_hankel_matrix_finds_the_order_and_the_system_up_to_similarity(shape, seed):
    if shape == "delay":
        system = delay(4)
    else:
        N, d, p = shape
        system = systems.random_stable(N, d, p, rho=0.9, generator=gen(seed), dtype=F64)
    N, disguised = system.N, hidden(system, seed=10 * seed)
    M = disguised.lags(6 * N)
    assert torch.allclose(M, system.lags(6 * N), atol=1e-12)
    assert systems.mcmillan_degree(M).rank == disguised.minimal().N == N
    assert torch.allclose(disguised.minimal().lags(6 * N), M, atol=1e-12)
    assert int(systems.controllability_rank(disguised.A, disguised.B)) == N + 2  # of which 2 are never seen
    assert int(systems.observability_rank(disguised.A, disguised.C)) == N + 2
    for rows in range(1, 2 * N + 1):
        rank = int(torch.linalg.matrix_rank(systems.hankel_matrix(M, rows, 2 * N), rtol=1e-10))
        assert rank <= N and (rank == N or rows < N)
    found = systems.ho_kalman(M[: 2 * N])
    assert torch.allclose(found.lags(6 * N), M, atol=1e-7)
    seen, seen_found = (systems.observability_matrix(s.A, s.C) for s in (system, found))
    T = torch.linalg.pinv(seen_found) @ seen
    assert torch.linalg.cond(T) < 1e8
    for left, right in ((T @ system.A, found.A @ T), (T @ system.B, found.B), (system.C, found.C @ T)):
        assert torch.allclose(left, right, atol=1e-6)


@pytest.mark.guards("prop-zoh")
@pytest.mark.parametrize("case", ["random", "zero", "nilpotent", "spring", "stiff"])
def test_a_held_input_may_be_cut_into_pieces_and_solves_the_equation(case):
    A = {
        "random": randn(4, 4, seed=1),
        "zero": torch.zeros(3, 3, dtype=F64),
        "nilpotent": delay(4).A,
        "spring": mass_on_spring(1.0, 0.4, 4.0, dtype=F64).A,
        "stiff": systems.hippo_legs(8, dtype=F64)[0],
    }[case]
    N = len(A)
    B, h, x = randn(N, 2, seed=2), randn(N, seed=3), randn(2, seed=4)
    A_bar, B_bar = systems.zoh(A, B, 0.7)
    pieces = h
    for delta in (0.1, 0.25, 0.35):
        a, b = systems.zoh(A, B, delta)
        pieces = a @ pieces + b @ x
    assert torch.allclose(pieces, A_bar @ h + B_bar @ x, atol=1e-11)
    t = 1e-5  # the slope at t = 0.7 is A h + B x
    (a, b), (a_less, b_less) = (systems.zoh(A, B, 0.7 + s) for s in (t, -t))
    ahead, back = a @ h + b @ x, a_less @ h + b_less @ x
    assert torch.allclose((ahead - back) / (2 * t), A @ pieces + B @ x, atol=1e-5)


@pytest.mark.guards("prop-zoh-euler")
@pytest.mark.parametrize(("N", "delta"), [(1, 0.1), (4, 0.7), (9, 3.0)])
def test_with_a_fixed_step_the_readout_absorbs_the_factor(N, delta):
    system = systems.random_stable(N, 2, 3, rho=0.9, generator=gen(N), dtype=F64)
    system = system.replace(A=system.A - torch.eye(N, dtype=F64))
    A, C = system.A, system.C
    factor = torch.linalg.solve(delta * A, torch.linalg.matrix_exp(delta * A) - torch.eye(N, dtype=F64))
    want = system.discretize(delta).lags(20)
    got = system.replace(C=C @ factor).discretize(delta, "mixed").lags(20)
    assert torch.allclose(got, want, atol=1e-12)


@pytest.mark.guards("prop-zoh-euler")
@given(u=st.floats(1e-9, 1e6), re=st.floats(-50, 0), im=st.floats(-100, 100))
def test_phi_lies_between_backward_euler_and_bilinear(u, re, im):
    phi = float(systems.phi1(torch.tensor(-u, dtype=F64)))
    assert (1 - 1e-15) / (1 + u) <= phi <= (1 + 1e-15) / (1 + u / 2)
    z = torch.tensor(complex(re, im), dtype=torch.complex128)
    assert float((systems.phi1(z) - 1).abs()) <= float(z.abs()) / 2 + 1e-15


@pytest.mark.guards("prop-zoh-euler")
@pytest.mark.parametrize("seed", range(3))
def test_the_two_selective_layers_differ_by_less_than_the_bound(seed):
    held, mixed = (
        SelectiveSSM(3, N=5, discretization=form, generator=gen(seed), dtype=F64) for form in ("zoh", "mixed")
    )
    x = 3 * randn(12, 3, seed=seed)
    delta, A, B_bar, C = (t.detach() for t in mixed.selection(x))
    since = delta.cumsum(0)
    decay = torch.exp(A * (since[:, None] - since[None])[..., None].clamp(min=0))  # (i, j, channel, state)
    w = C[:, None, None] * decay * B_bar[None]
    bound = (delta[None, ..., None] * A.abs() * w.abs()).sum(-1) / 2
    gap = (held.interaction(x).to_dense() - mixed.interaction(x).to_dense()).detach()
    gap = gap.diagonal(dim1=-2, dim2=-1).abs()
    causal = torch.ones(12, 12, dtype=torch.bool).tril()
    assert (gap <= bound + 1e-14)[causal].all() and float(gap.max()) > 1e-4


def cut(W, m):
    n, _, p, d = W.shape
    return W[m:, : m + 1].transpose(1, 2).reshape((n - m) * p, (m + 1) * d)


def ranks(W):
    return [int(torch.linalg.matrix_rank(cut(W, m), rtol=1e-10)) for m in range(len(W))]


def states_for(W):
    n, _, p, d = W.shape
    N = max(ranks(W))
    bases = [torch.linalg.svd(cut(W, m), full_matrices=False).U[:, :r] for m, r in enumerate(ranks(W))]
    Q = [torch.nn.functional.pad(basis, (0, N - basis.shape[1])) for basis in bases]
    A = torch.stack([torch.zeros(N, N, dtype=F64)] + [Q[m + 1].T @ Q[m][p:] for m in range(n - 1)])
    B = torch.stack([Q[m].T @ W[m:, m].reshape(-1, d) for m in range(n)])
    return RecurrentOperator(A, B, torch.stack([basis[:p] for basis in Q]))


@pytest.mark.guards("prop-semiseparable")
@pytest.mark.parametrize(("n", "N", "p", "d"), [(7, 1, 1, 1), (9, 3, 2, 2), (12, 5, 1, 4), (1, 2, 3, 2)])
def test_a_recurrence_has_cuts_of_at_most_its_states(n, N, p, d):
    A, B, C = randn(n, N, N, seed=n), randn(n, N, d, seed=n + 1), randn(n, p, N, seed=n + 2)
    W = RecurrentOperator(A, B, C).to_dense()
    assert max(ranks(W)) == N
    skipped = RecurrentOperator(A, B, C, randn(n, p, d, seed=n + 3)).to_dense()
    for m in range(1, n):
        assert int(torch.linalg.matrix_rank(cut(skipped, m)[:, : m * d], rtol=1e-10)) <= N


@pytest.mark.guards("prop-semiseparable")
@pytest.mark.parametrize("case", ["random", "delay", "zero", "ranks that fall to zero and return"])
def test_every_causal_table_is_a_recurrence_with_as_many_states_as_its_largest_cut_rank(case):
    past = torch.ones(8, 8, dtype=F64).tril()[:, :, None, None]
    W = {
        "random": past * randn(8, 8, 2, 3, seed=1),
        "delay": torch.diag_embed(torch.ones(5, dtype=F64), -3)[:, :, None, None],
        "zero": 0 * past,
        "ranks that fall to zero and return": past * randn(8, 8, 1, 1, seed=2),
    }[case].clone()
    if "fall" in case:
        W[3:, :4] = 0
    made = states_for(W)
    assert torch.allclose(made.to_dense(), W, atol=1e-11) and made.N == max(ranks(W))
