"""Discretization against scipy and its own limits; the gap between zero-order hold and Mamba's form."""

import math

import numpy as np
import pytest
import scipy.linalg
import scipy.signal
import torch

from ssmbook import systems
from ssmbook.systems import System

F64, C128 = torch.float64, torch.complex128


def system(N, d, seed, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    A = torch.randn(N, N, generator=generator, dtype=F64) * scale
    return A, torch.randn(N, d, generator=generator, dtype=F64)


def near(got, want, tolerance=1e-12):
    got, want = torch.as_tensor(got), torch.as_tensor(want, dtype=got.dtype)
    return float((got - want).abs().max()) <= tolerance * max(1.0, float(want.abs().max()))


RULES = {"zoh": systems.zoh, "bilinear": systems.bilinear, "euler": systems.euler}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("N", "d", "delta"), [(1, 1, 0.3), (3, 2, 1.7), (7, 5, 0.01), (17, 3, 0.5)])
def test_rules_agree_with_scipy(rule, N, d, delta):
    A, B = system(N, d, seed=N)
    bar = RULES[rule](A, B, delta)
    C, D = np.ones((1, N)), np.zeros((1, d))
    want = scipy.signal.cont2discrete((A.numpy(), B.numpy(), C, D), delta, method=rule)
    assert near(bar[0], want[0]) and near(bar[1], want[1])


@pytest.mark.parametrize(
    "A",
    [
        torch.zeros(3, 3, dtype=F64),
        torch.diag(torch.ones(4, dtype=F64), 1),
        torch.tensor([[0.0, 1.0], [0.0, -2.0]], dtype=F64),
        torch.ones(5, 5, dtype=F64),
    ],
    ids=["zero", "nilpotent", "free mass with drag", "rank one"],
)
def test_zoh_of_singular_a_is_the_integral_of_the_exponential(A):
    delta, B = 0.8, torch.linspace(-1, 2, A.shape[0], dtype=F64)[:, None]
    nodes, weights = np.polynomial.legendre.leggauss(40)
    want = sum(
        w / 2 * delta * scipy.linalg.expm(A.numpy() * delta * (t + 1) / 2) @ B.numpy()
        for t, w in zip(nodes, weights, strict=True)
    )
    A_bar, B_bar = systems.zoh(A, B, delta)
    assert near(A_bar, scipy.linalg.expm(delta * A.numpy())) and near(B_bar, want)


def test_zoh_does_not_lose_digits_when_the_input_is_huge_or_tiny():
    A, B = system(5, 2, seed=3)
    reference = systems.zoh(A, B, 0.2)[1]
    for scale in (1e-12, 1e12):
        assert near(systems.zoh(A, B * scale, 0.2)[1] / scale, reference, 1e-13)


def test_zoh_of_stiff_hippo_agrees_with_scipy():
    A, B = systems.hippo_legs(48, dtype=F64)
    for delta in (1e-3, 0.1, 1.0):
        A_bar, B_bar = systems.zoh(A, B, delta)
        assert near(A_bar, scipy.linalg.expm(delta * A.numpy()), 1e-10)
        assert near(A @ B_bar, (A_bar - torch.eye(48, dtype=F64)) @ B, 1e-9)


@pytest.mark.parametrize("z", [0.0, 1e-300, -1e-12, 1e-8, 0.4999999, 0.5, -3.0, -800.0, 20.0])
def test_phi1_matches_exact_arithmetic(z):
    import sympy

    want = (
        1.0
        if z == 0
        else float(sympy.N((sympy.exp(sympy.Rational(z)) - 1) / sympy.Rational(z), 30, maxn=3000))
    )
    got = float(systems.phi1(torch.tensor(z, dtype=F64)))
    assert got == pytest.approx(want, rel=4e-16)
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


@pytest.mark.parametrize("single", [False, True], ids=["double", "single"])
@pytest.mark.parametrize("rule", ["zoh", "bilinear", "euler", "mixed_euler"])
def test_a_complex_system_takes_real_steps_as_its_real_twin_does(rule, single):
    """Poles -0.5 +- 2i: one of them and twice the real part, or a turn in the plane."""
    twin = torch.tensor([[-0.5, -2.0], [2.0, -0.5]], dtype=F64), torch.tensor([[1.0], [0.0]], dtype=F64)
    pole = torch.tensor([[-0.5 + 2j]], dtype=C128), torch.ones(1, 1, dtype=C128)
    step = torch.tensor(0.3, dtype=F64)
    A, B = getattr(systems, rule)(*twin, step)
    wanted = (A @ A @ A @ B)[:, 0]
    if single:
        pole, step = [part.to(torch.complex64) for part in pole], step.float()
    A, B = getattr(systems, rule)(*pole, step)
    found = (A**3 * B).flatten()
    assert near(torch.cat([found.real, found.imag]).double(), wanted, 1e-5 if single else 1e-13)


def test_two_half_steps_make_one_step():
    A, B = system(4, 3, seed=9)
    whole, half = systems.zoh(A, B, 0.6), systems.zoh(A, B, 0.3)
    assert near(half[0] @ half[0], whole[0]) and near(half[0] @ half[1] + half[1], whole[1])


@pytest.mark.parametrize(("rule", "order"), [("euler", 1), ("mixed_euler", 1), ("bilinear", 2)])
def test_orders_of_convergence_to_the_zero_order_hold(rule, order):
    A, B = system(4, 2, seed=5, scale=0.5)
    sizes = []
    for steps in (64, 128):
        A_bar, B_bar = getattr(systems, rule)(A, B, 1.0 / steps)
        h = torch.zeros(4, 2, dtype=F64)
        for _ in range(steps):
            h = A_bar @ h + B_bar
        sizes.append(float((h - systems.zoh(A, B, 1.0)[1]).norm()))
    assert math.log2(sizes[0] / sizes[1]) == pytest.approx(order, abs=0.05)


def test_mixed_form_keeps_the_poles_and_scales_every_lag_by_phi1():
    lam, B = torch.tensor([-0.4, -2.0], dtype=F64), torch.ones(2, 1, dtype=F64)
    C = torch.eye(2, dtype=F64)
    kernels = []
    for rule in ("zoh", "mixed"):
        step = System(torch.diag(lam), B, C).discretize(0.9, rule)
        assert near(torch.diagonal(step.A), torch.exp(0.9 * lam))
        kernels.append(systems.impulse_response(step, 12))
    ratio = kernels[0][..., 0] / kernels[1][..., 0]
    assert near(ratio, systems.phi1(0.9 * lam).expand(12, 2), 1e-12)
    assert near(step.B, 0.9 * B)


def test_bilinear_keeps_stability_where_forward_euler_loses_it():
    A, B = systems.hippo_legs(6, dtype=F64)
    stable = [systems.spectral_radius(rule(A, B, 5.0)[0]) < 1 for rule in (systems.bilinear, systems.zoh)]
    assert all(stable) and systems.spectral_radius(systems.euler(A, B, 5.0)[0]) > 1


@pytest.mark.parametrize("rule", ["zoh", "euler", "mixed_euler", "bilinear"])
def test_batches_of_steps_and_of_systems(rule):
    A, B = system(3, 2, seed=1)
    rule = getattr(systems, rule)
    delta = torch.rand(4, 5, generator=torch.Generator().manual_seed(2), dtype=F64)
    A_bar, B_bar = rule(A, B, delta)
    one = rule(A, B, float(delta[2, 3]))
    assert A_bar.shape == (4, 5, 3, 3) and B_bar.shape == (4, 5, 3, 2)
    assert near(A_bar[2, 3], one[0]) and near(B_bar[2, 3], one[1])
    again = rule(A.expand(4, 5, 3, 3), B.expand(4, 5, 3, 2), delta)
    assert near(again[0], A_bar) and near(again[1], B_bar)
    empty = rule(A, B, delta[:0])
    assert empty[0].shape == (0, 5, 3, 3) and empty[1].shape == (0, 5, 3, 2)
    single = rule(A.float(), B.float(), 0.25)
    assert single[0].dtype == single[1].dtype == torch.float32


BAD_STEPS = [
    (-0.1, ValueError, "delta must lie in"),
    (math.nan, ValueError, "delta must"),
    ("0.1", TypeError, "delta"),
    (torch.tensor(0.1, dtype=torch.float32), TypeError, "delta must have the dtype of the real part"),
    (1e6, ValueError, "delta must keep"),
]


@pytest.mark.parametrize(("delta", "error", "words"), BAD_STEPS)
def test_bad_steps_are_refused_by_name(delta, error, words):
    A, B = torch.eye(2, dtype=F64), torch.ones(2, 1, dtype=F64)
    with pytest.raises(error, match=words):
        systems.zoh(A, B, delta)


def test_malformed_systems_are_refused_by_name():
    A, B = torch.eye(2, dtype=F64), torch.ones(2, 1, dtype=F64)
    with pytest.raises(ValueError, match="A must"):
        systems.zoh(A[:1], B, 0.1)
    with pytest.raises(ValueError, match="B must"):
        systems.euler(A, torch.ones(3, 1, dtype=F64), 0.1)
    with pytest.raises(TypeError, match="B must"):
        systems.bilinear(A, B.float(), 0.1)
    with pytest.raises(ValueError, match="A must"):
        systems.zoh(A * math.inf, B, 0.1)
    with pytest.raises(ValueError, match="batch shape of A"):
        systems.zoh(A.expand(3, 2, 2), B, 0.1)
    with pytest.raises(ValueError, match="delta must"):
        systems.zoh(A.expand(3, 2, 2), B.expand(3, 2, 1), torch.ones(4, dtype=F64))
    with pytest.raises(ValueError, match="singular"):
        systems.bilinear(2 * A, B, 1.0)
    with pytest.raises(TypeError, match="z must be"):
        systems.phi1(torch.tensor([1, 2]))


@pytest.mark.parametrize("rule", RULES)
def test_a_step_on_another_device_is_named(rule):
    A, B = system(3, 2, seed=0)
    with pytest.raises(ValueError, match="delta must be on the device"):
        RULES[rule](A.to("meta"), B.to("meta"), torch.tensor(0.1, dtype=F64))
