"""The statements of the chapter *structured-dynamics* and its grader."""

import pytest
import torch
from helpers import F64, gen, randn

from headsandstates.chapters.structured_dynamics.examples import mass_on_spring
from ssmbook import systems
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
