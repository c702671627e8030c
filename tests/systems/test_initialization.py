"""The starting systems have the spectra, shapes and laws they are named for."""

import math

import numpy as np
import pytest
import torch
from helpers import gen

from headsandstates.chapters.structured_dynamics.examples import mass_on_spring, s4d_legs
from ssmbook import systems

F64, C128 = torch.float64, torch.complex128


def test_hippo_legs_projects_onto_legendre_polynomials():
    # d/dt c = (A c + B f)/t: the coefficients of a fixed polynomial f of degree < N stretch but stay exact.
    N, t = 6, 1.7
    A, B = systems.hippo_legs(N, dtype=F64)
    assert torch.equal(torch.diagonal(A), -torch.arange(1, N + 1, dtype=F64))
    nodes, weights = (torch.from_numpy(v) for v in np.polynomial.legendre.leggauss(20))

    def coefficients(end):
        s = (nodes + 1) / 2 * end
        f = 1 - 2 * s + 0.5 * s**3
        columns = [torch.special.legendre_polynomial_p(nodes, n) * math.sqrt(2 * n + 1) for n in range(N)]
        return torch.stack([(weights / 2 * f * column).sum() for column in columns])

    step = 1e-5
    slope = (coefficients(t + step) - coefficients(t - step)) / (2 * step)
    f_now = 1 - 2 * t + 0.5 * t**3
    assert float((slope - (A @ coefficients(t) + B[:, 0] * f_now) / t).abs().max()) < 1e-8


@pytest.mark.parametrize("N", [1, 32])
def test_hippo_is_normal_plus_rank_one(N):
    A, B = systems.hippo_legs(N, dtype=F64)
    S = A + B @ B.mT / 2
    assert float((S @ S.mT - S.mT @ S).abs().max()) < 1e-9 * N**2
    assert torch.allclose(S + S.mT, -torch.eye(N, dtype=F64), atol=1e-12)


@pytest.mark.parametrize("N", [2, 32])
def test_s4d_legs_is_the_spectrum_of_the_normal_part(N):
    lam = s4d_legs(N)
    A, B_full = systems.hippo_legs(N, dtype=F64)
    S = A + B_full @ B_full.mT / 2
    want = torch.linalg.eigvals(S).imag.sort().values
    got = torch.cat([lam.imag, -lam.imag]).sort().values
    assert lam.dtype == C128 and torch.all(lam.imag > 0) and torch.all(lam.real == -0.5)
    assert torch.allclose(got, want, rtol=1e-9)


def test_s4d_lin_and_its_real_form():
    lam, m = systems.s4d_lin(8, dtype=F64), torch.arange(4, dtype=F64)
    assert torch.allclose(lam, torch.complex(0 * m - 0.5, math.pi * m))
    A = systems.real_modes(lam)
    assert A.shape == (8, 8) and A.dtype == F64
    want = torch.cat([lam, lam.conj()])
    distance = (torch.linalg.eigvals(A)[:, None] - want).abs()
    assert float(distance.min(0).values.max()) < 1e-12 and float(distance.min(1).values.max()) < 1e-12
    assert systems.real_modes(lam.reshape(2, 2)).shape == (2, 4, 4)
    z = torch.tensor([0.3 + 0.4j], dtype=C128)
    assert torch.equal(systems.real_modes(z), torch.tensor([[0.3, -0.4], [0.4, 0.3]], dtype=F64))


@pytest.mark.parametrize(
    ("N", "d", "p", "rho"), [(1, 1, 1, 0.5), (5, 1, 1, 0.9), (8, 3, 2, 1.0), (32, 2, 4, 0.99)]
)
def test_random_stable_has_its_radius_and_is_minimal(N, d, p, rho):
    system = systems.random_stable(N, d, p, rho=rho, generator=gen(N), dtype=F64)
    A, B, C, _ = system
    assert (A.shape, B.shape, C.shape) == ((N, N), (N, d), (p, N))
    assert float(system.spectral_radius()) == pytest.approx(rho, rel=1e-10)
    assert int(systems.controllability_rank(A, B)) == N and int(systems.observability_rank(A, C)) == N
    again = systems.random_stable(N, d, p, rho=rho, generator=gen(N), dtype=torch.float32)
    assert again.dtype == torch.float32 and torch.equal(again.A, A.float())


def test_rotations_and_orthogonal_matrices_scale_every_vector_by_rho():
    for N in (1, 2, 7):
        Q = systems.random_orthogonal(N, rho=0.9, generator=gen(N), dtype=F64)
        assert torch.allclose(Q.mT @ Q, 0.81 * torch.eye(N, dtype=F64), atol=1e-14)
    signs = [float(systems.random_orthogonal(1, generator=gen(s), dtype=F64)) for s in range(40)]
    assert set(signs) == {1.0, -1.0}
    R = 0.5 * systems.rotation(0.7, dtype=F64)
    x = torch.tensor([1.0, 0.0], dtype=F64)
    assert torch.allclose(R @ x, 0.5 * torch.tensor([math.cos(0.7), math.sin(0.7)], dtype=F64))
    angles = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float32, requires_grad=True)
    assert systems.rotation(angles).shape == (3, 2, 2) and systems.rotation(angles).dtype == torch.float32


def test_jordan_blocks_and_the_spring():
    J = systems.jordan_block(3, 0.5, dtype=F64)
    assert torch.equal(J, torch.tensor([[0.5, 1, 0], [0, 0.5, 1], [0, 0, 0.5]], dtype=F64))
    assert systems.jordan_block(2, 0.5j, dtype=F64).dtype == C128
    assert systems.jordan_block(2, 2).dtype == torch.get_default_dtype()
    spring = mass_on_spring(2.0, 0.0, 8.0, dtype=F64)
    # undamped at frequency 2; a unit force for 0.1: q(t) = (cos 2t - cos 2(t + 0.1))/(m w^2)
    t = 0.1 * torch.arange(20, dtype=F64)
    want = (torch.cos(2 * t) - torch.cos(2 * (t + 0.1))) / 8
    assert torch.allclose(spring.discretize(0.1).lags(20)[:, 0, 0], want, atol=1e-14)


def test_bad_sizes_and_radii_are_refused():
    for call in (
        lambda: systems.hippo_legs(0),
        lambda: systems.s4d_lin(5),
        lambda: systems.random_stable(3, 0, 1, rho=0.5),
        lambda: systems.random_stable(3, 1, 1, rho=1.5),
        lambda: systems.random_orthogonal(3, rho=-1.0),
        lambda: systems.jordan_block(2, math.inf),
    ):
        with pytest.raises(ValueError):
            call()
    with pytest.raises(TypeError):
        systems.real_modes(torch.ones(2))
