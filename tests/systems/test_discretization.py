"""Discretization against scipy and its own limits; the gap between zero-order hold and Mamba's form."""

import math

import numpy as np
import pytest
import scipy.linalg
import scipy.signal
import sympy
import torch
from helpers import F64, randn

from ssmbook import systems
from ssmbook.systems import System

C128 = torch.complex128
METHODS = ["zoh", "bilinear", "euler", "mixed"]


def continuous(N, d, seed, scale=1.0):
    return System(scale * randn(N, N, seed=seed), randn(N, d, seed=seed + 1), torch.eye(N, dtype=F64))


def near(got, want, tolerance=1e-12):
    got, want = torch.as_tensor(got), torch.as_tensor(want, dtype=got.dtype)
    return float((got - want).abs().max()) <= tolerance * max(1.0, float(want.abs().max()))


@pytest.mark.guards("prop-zoh")
@pytest.mark.parametrize("method", METHODS[:3])
@pytest.mark.parametrize(("N", "d", "delta"), [(1, 1, 0.3), (7, 5, 0.01), (17, 3, 0.5)])
def test_steps_are_those_of_scipy(method, N, d, delta):
    """C and D stay here; scipy's bilinear form changes them, because its output reads another state."""
    system = continuous(N, d, seed=N).replace(D=randn(N, d))
    found = system.discretize(delta, method)
    A, B, *_ = scipy.signal.cont2discrete([part.numpy() for part in system], delta, method)
    assert near(found.A, A) and near(found.B, B)
    assert torch.equal(found.C, system.C) and torch.equal(found.D, system.D)


def test_zoh_keeps_its_digits_on_stiff_systems_and_in_any_unit_of_the_input():
    A, B = systems.hippo_legs(48, dtype=F64)
    for delta in (1e-3, 1.0):
        A_bar, B_bar = systems.zoh(A, B, delta)
        assert near(A_bar, scipy.linalg.expm(delta * A.numpy()), 1e-10)
        assert near(A @ B_bar, (A_bar - torch.eye(48, dtype=F64)) @ B, 1e-9)
    for scale in (1e-12, 1e12):
        assert near(systems.zoh(A, B * scale, 0.2)[1] / scale, systems.zoh(A, B, 0.2)[1], 1e-13)
    rates = torch.tensor([-1e8, -1.0, -1e-8], dtype=F64)
    A_bar, B_bar = systems.zoh(torch.diag(rates), torch.ones(3, 1, dtype=F64), 1.0)
    assert A_bar[2, 2] == math.exp(-1e-8) and System(A_bar, B_bar, B_bar.mT).is_stable()
    assert near(B_bar[:, 0], torch.expm1(rates) / rates, 1e-15)


STIFF = {
    "upper": [[-1e8, 1.0, 0.0], [0.0, -1.0, 1.0], [0.0, 0.0, -1e-8]],
    # of three modes: scipy before 1.12 takes two by a formula that overflows
    "lower": [[-1e-8, 0.0, 0.0], [1.0, -1.0, 0.0], [0.0, 1.0, -1e8]],
    "modes": [[-1e8, 0.0, 0.0], [0.0, -0.5, 2.0], [0.0, -2.0, -0.5]],
}


@pytest.mark.parametrize("method", ["zoh", "mixed"])
@pytest.mark.parametrize("name", STIFF)
def test_fast_modes_cost_slow_ones_no_digits(name, method):
    """scipy takes triangular and diagonal blocks one by one."""
    A = torch.tensor(STIFF[name], dtype=F64)
    fast = [scipy.linalg.expm(block.numpy()) for block in (A[:1, :1], A[1:, 1:])]
    wanted = scipy.linalg.block_diag(*fast) if name == "modes" else scipy.linalg.expm(A.numpy())
    found = System(A, A, A, dt=0).discretize(1.0, method)
    assert near(found.A, wanted, 1e-15)
    if method == "zoh":
        assert near(found.B, wanted - np.eye(len(A)), 1e-15)  # phi1(A) A


def test_a_damped_mass_keeps_its_slow_pole():
    """q'' + 1e8 q' + q = 0: the slow pole is close to -1e-8, where scipy keeps no digit of it."""
    A = torch.tensor([[0.0, 1.0], [-1.0, -1e8]], dtype=F64, requires_grad=True)
    held = System(A, A, A, dt=0).discretize(1.0)
    assert held.is_stable() and near(held.spectral_radius(), math.exp(-1e-8), 4e-16)
    held.A.sum().backward()
    assert A.grad.isfinite().all()


@pytest.mark.parametrize("z", [0.0, 1e-300, -1e-12, 1e-8, 0.4999999, 0.5, -3.0, -800.0, 20.0])
def test_phi1_matches_exact_arithmetic(z):
    exact = (sympy.exp(sympy.Rational(z)) - 1) / sympy.Rational(z) if z else sympy.S.One
    want = float(sympy.N(exact, 30, maxn=3000))
    assert float(systems.phi1(torch.tensor(z, dtype=F64))) == pytest.approx(want, rel=4e-16)
    got = complex(systems.phi1(torch.tensor(complex(z, 0.0), dtype=C128)))
    assert got.real == pytest.approx(want, rel=1e-15) and got.imag == 0


def test_phi1_vanishes_at_whole_turns_and_has_clean_derivatives_at_zero():
    turns = torch.tensor([2j * math.pi, -4j * math.pi], dtype=C128)
    assert float(systems.phi1(turns).abs().max()) < 1e-15
    z = torch.tensor([0.0, 1e-9, -1e-4, 0.49, 0.51, -2.0], dtype=F64, requires_grad=True)
    (slope,) = torch.autograd.grad(systems.phi1(z).sum(), z)
    nodes, weights = np.polynomial.legendre.leggauss(30)
    s = torch.from_numpy((nodes + 1) / 2)
    want = (torch.from_numpy(weights / 2) * s * torch.exp(z.detach()[:, None] * s)).sum(-1)
    assert near(slope, want, 2e-15)


@pytest.mark.parametrize("method", METHODS)
def test_a_complex_system_takes_real_steps_as_its_real_twin_does(method):
    """Poles -0.5 +- 2i: one of them and twice the real part, or a rotation in the plane."""
    twin = System(torch.tensor([[-0.5, -2.0], [2.0, -0.5]]), torch.eye(2)[:, :1], torch.eye(2)).double()
    pole = System(torch.tensor([[-0.5 + 2j]]), torch.ones(1, 1) + 0j, torch.ones(1, 1) + 0j).double()
    step = torch.tensor(0.3, dtype=F64)
    found = pole.discretize(step, method).lags(4).flatten()
    assert near(
        torch.stack([found.real, found.imag], -1), twin.discretize(step, method).lags(4)[..., 0], 1e-13
    )


def test_bilinear_keeps_stability_where_forward_euler_loses_it():
    A, B = systems.hippo_legs(6, dtype=F64)
    stable = [System(A, B, B.mT).discretize(5.0, method).is_stable() for method in METHODS[:3]]
    assert stable == [True, True, False]


@pytest.mark.parametrize("method", METHODS)
def test_batches_of_steps_and_of_systems(method):
    system = continuous(3, 2, seed=1)
    delta = torch.rand(4, 5, generator=torch.Generator().manual_seed(2), dtype=F64)
    many, one = system.discretize(delta, method), system.discretize(float(delta[2, 3]), method)
    assert many.batch_shape == (4, 5) and many.C.shape == (4, 5, 3, 3)
    assert near(many.A[2, 3], one.A) and near(many.B[2, 3], one.B)
    batch = System(*(part.expand(4, 5, *part.shape) for part in (system.A, system.B, system.C)))
    assert near(batch.discretize(delta, method).B, many.B)
    assert system.discretize(delta[:0], method).A.shape == (0, 5, 3, 3)
    assert system.to(torch.float32).discretize(0.25, method).dtype == torch.float32


def test_steps_that_cannot_be_taken_are_refused():
    A, B = torch.eye(2, dtype=F64), torch.ones(2, 1, dtype=F64)
    for delta in (-0.1, math.nan, 1e6, torch.ones(4, dtype=F64)):
        with pytest.raises(ValueError):
            systems.zoh(A.expand(3, 2, 2), B.expand(3, 2, 1), delta)
    for delta in ("0.1", torch.tensor(0.1)):
        with pytest.raises(TypeError):
            systems.zoh(A, B, delta)
    with pytest.raises(ValueError, match="singular"):
        System(2 * A, B, B.mT).discretize(1.0, "bilinear")
    with pytest.raises(ValueError, match="one of zoh, bilinear, euler, mixed"):
        System(A, B, B.mT).discretize(0.1, "tustin")
