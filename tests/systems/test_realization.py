"""Lag operators to systems and back: impulse responses, Hankel ranks, Ho-Kalman, minimal realizations."""

import math

import numpy as np
import pytest
import scipy.linalg
import scipy.signal
import torch
from helpers import F64, gen
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ssmbook import systems
from ssmbook.systems import System


def stable(N, d, p, rho=0.9, seed=0):
    return systems.random_stable(N, d, p, rho=rho, generator=gen(seed), dtype=F64)


def test_hankel_blocks_are_the_lag_operators_and_factor_through_the_state():
    A, B, C, _ = stable(4, 2, 3)
    M = System(A, B, C).lags(9)
    H = systems.hankel_matrix(M)
    assert H.shape == (15, 10)
    for r in range(5):
        for c in range(5):
            assert torch.equal(H[3 * r : 3 * r + 3, 2 * c : 2 * c + 2], M[r + c])
    small = systems.hankel_matrix(M, 4, 4)
    factored = systems.observability_matrix(A, C) @ systems.observability_matrix(A.mT, B.mT).mT
    assert torch.allclose(small, factored, atol=1e-13)
    assert systems.observability_matrix(A[None, :0, :0], C[None, :, :0]).shape == (1, 0, 0)
    assert systems.hankel_matrix(M[:0]).numel() == 0
    scalar = systems.hankel_matrix(torch.arange(5.0, dtype=F64)[:, None, None])
    assert np.array_equal(scalar.numpy(), scipy.linalg.hankel([0.0, 1, 2], [2.0, 3, 4]))
    batch = systems.hankel_matrix(torch.stack([M, 2 * M]))
    assert torch.equal(batch[1], 2 * H)


@pytest.mark.guards("thm-realization")
@given(N=st.integers(1, 8), d=st.integers(1, 3), p=st.integers(1, 3), seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_ho_kalman_reproduces_lags_and_poles(N, d, p, seed):
    Q = systems.random_orthogonal(N, generator=gen(seed), dtype=F64)
    radii = torch.linspace(0.95, 0.5, N, dtype=F64)
    A = Q @ torch.diag(radii * (-1.0) ** torch.arange(N)) @ Q.mT
    B, C = (torch.randn(s, generator=gen(seed + 1), dtype=F64) for s in ((N, d), (p, N)))
    M = System(A, B, C).lags(40)
    report = systems.mcmillan_degree(M)
    # a nearly hidden mode makes the degree a near-tie
    assume(float(report.spectrum[N - 1]) > 1e-9 * float(report.spectrum[0]))
    found = systems.ho_kalman(M)
    assert int(report) == found.N == N
    again = found.lags(80)
    assert float((again - System(A, B, C).lags(80)).abs().max() / M.abs().max()) < 1e-6
    assert float((again[:40] - M).abs().max() / M.abs().max()) < 1e-8


def test_ho_kalman_is_balanced_over_its_window_and_truncates():
    M = stable(5, 2, 2, seed=3).lags(30)
    A, B, C, _ = systems.ho_kalman(M)
    N = A.shape[0]
    powers = [torch.linalg.matrix_power(A, t) for t in range(15)]
    reach = sum(P @ B @ B.mT @ P.mT for P in powers)
    see = sum(P.mT @ C.mT @ C @ P for P in powers)
    sigma = torch.linalg.svdvals(systems.hankel_matrix(M, 15, 15))[:N]
    assert all(torch.allclose(gramian, torch.diag(sigma), atol=1e-8) for gramian in (reach, see))
    errors = []
    for order in range(N + 1):
        small = systems.ho_kalman(M, order)
        assert small.N == order
        errors.append(float((small.lags(30) - M).norm()))
    assert errors[-1] < 1e-9 and errors[0] == pytest.approx(float(M.norm()))


def test_ho_kalman_of_zero_short_complex_and_single_precision():
    zero = systems.ho_kalman(torch.zeros(8, 3, 2, dtype=F64))
    assert (zero.N, zero.d, zero.p) == (0, 2, 3)
    lam = torch.tensor([0.9j, 0.5 + 0.2j], dtype=torch.complex128)
    ones = torch.ones(2, 1, dtype=lam.dtype)
    M = System(torch.diag(lam), ones, ones.mT).lags(8)
    poles = torch.linalg.eigvals(systems.ho_kalman(M).A)
    assert float((poles[:, None] - lam).abs().min(0).values.max()) < 1e-12
    single = systems.ho_kalman(stable(3, 2, 2, seed=8).lags(12).float())
    assert single.dtype == torch.float32 and single.N == 3


def test_a_pure_delay_is_found_only_by_a_window_that_reaches_it():
    M = torch.zeros(12, 1, 1, dtype=F64)
    M[5] = 1.0
    assert int(systems.mcmillan_degree(M)) == 6
    assert int(systems.mcmillan_degree(M[:4])) == 0
    assert torch.allclose(systems.ho_kalman(M).lags(12), M, atol=1e-14)


def test_the_staircase_survives_where_raw_powers_fail():
    # 40 positive poles driven by one input: a Vandermonde matrix of numerical rank far below 40.
    lam = torch.linspace(0.05, 0.95, 40, dtype=F64)
    Q = systems.random_orthogonal(40, generator=gen(4), dtype=F64)
    A, B = Q @ torch.diag(lam) @ Q.mT, Q @ torch.ones(40, 1, dtype=F64)
    assert int(torch.linalg.matrix_rank(systems.observability_matrix(A.mT, B.mT).mT)) < 30
    report = systems.controllability_rank(A, B)
    assert report.rank == 40 and report.gap == math.inf and float(report.spectrum[-1]) > 1e-3
    hippo = systems.controllability_rank(*systems.hippo_legs(64, dtype=F64))
    assert hippo.rank == 64


def test_scaling_and_zero_systems():
    A, B, C, _ = stable(5, 1, 1, seed=11)
    for scale in (1e-12, 1e12):
        assert int(systems.controllability_rank(A, scale * B)) == 5
        assert int(systems.controllability_rank(scale * A, B)) == 5
    zero = systems.controllability_rank(A, 0 * B)
    assert zero.rank == 0 and zero.gap == math.inf and zero.spectrum.dtype == F64
    none = System(A, 0 * B, C).minimal()
    assert (none.N, none.d, none.p) == (0, 1, 1)
    for hollow in ((A[:0, :0], B[:0]), (A, B[:, :0])):
        assert int(systems.controllability_rank(*hollow)) == 0


def test_complex_systems_and_gaps():
    lam = torch.tensor([0.9j, -0.9j, 0.4], dtype=torch.complex128)
    B = torch.tensor([[1.0], [0.0], [1.0]], dtype=torch.complex128)
    assert int(systems.controllability_rank(torch.diag(lam), B)) == 2
    C = torch.tensor([[1j, 1.0, 0.0]], dtype=torch.complex128)
    assert System(torch.diag(lam), B, C).minimal().N == 1
    # Of four turned modes one is not reached, one is not seen and one is neither.
    Q = torch.linalg.qr(torch.randn(4, 4, generator=gen(0), dtype=lam.dtype)).Q
    modes = Q @ torch.diag(torch.tensor([0.9j, -0.5 + 0.2j, 0.4, 0.7j], dtype=lam.dtype)) @ Q.mH
    turned = System(modes, Q[:, :2] @ B[::2], (Q[:, [0, 2]] @ B[::2] * 1j).mH)
    assert int(systems.controllability_rank(turned.A, turned.B)) == 2
    assert int(systems.observability_rank(turned.A, turned.C)) == 2
    small = turned.minimal()
    assert small.N == 1 and torch.allclose(small.lags(6), turned.lags(6), atol=1e-12)
    small = torch.tensor([[1.0], [1e-3]], dtype=F64)
    two = System(torch.diag(torch.tensor([0.9, 0.5], dtype=F64)), small, small.mT)
    for rtol, N in ((None, 2), (1e-2, 1)):
        assert two.minimal(rtol).N == systems.ho_kalman(two.lags(8), rtol=rtol).N == N
        assert int(systems.mcmillan_degree(two.lags(8), rtol=rtol)) == N


def test_spectral_radius_and_stability():
    A = torch.stack([r * systems.rotation(1.0, dtype=F64) for r in (0.5, 1.0, 1.5)])
    many, one = System(A, A, A), System(A[2], A[2], A[2])
    assert torch.allclose(many.spectral_radius(), torch.tensor([0.5, 1.0, 1.5], dtype=F64))
    assert many.is_stable().tolist() == [True, False, False] and one.is_stable() is False
    assert System(A[0, :0, :0], A[0, :0], A[0, :, :0]).spectral_radius() == 0
    tall = torch.tensor([[0.5, 1e6], [0.0, 0.5]], dtype=F64)
    assert System(tall, tall, tall).is_stable() is True


def test_windows_and_orders_that_do_not_fit_are_refused():
    M = stable(3, 2, 2).lags(6)
    for call in (
        lambda: systems.hankel_matrix(M, 5, 3),
        lambda: systems.hankel_matrix(M[0, 0]),
        lambda: systems.ho_kalman(M * math.inf),
        lambda: systems.ho_kalman(M[:1]),
        lambda: systems.ho_kalman(M, 4),
        lambda: systems.mcmillan_degree(M, rtol=-1.0),
        lambda: systems.controllability_rank(torch.eye(2)[None], torch.eye(2)),
        lambda: System(*torch.eye(2).expand(3, 1, 2, 2)).minimal(),
    ):
        with pytest.raises(ValueError):
            call()
