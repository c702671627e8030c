"""phi1 and the secant slopes: value, first and second derivative against 120 digits, at and around 0."""

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ssmbook import systems
from ssmbook.maps import RNN, FeedForward, secant_slope

POINTS = [
    0.0,
    1e-20,
    -1e-12,
    1e-8,
    -1e-4,
    0.01,
    -0.3,
    0.499,
    0.999,
    -0.9999,
    1.0001,
    -1.5,
    3.0,
    -5.0,
    12.0,
    -30.0,
]
DTYPES = [torch.float32, torch.float64]


def phi_derivative(z, order):
    return mpmath.hyp1f1(order + 1, order + 2, z) / (order + 1)


def quotient_derivative(sigma):
    def derivative(z, order):
        # d^k/dz^k of sigma(z)/z at 0 is the next Taylor coefficient of sigma, times k!
        if z == 0:
            return mpmath.taylor(sigma, 0, order + 1)[order + 1] * mpmath.factorial(order)
        return mpmath.diff(lambda z: sigma(z) / z, z, order)

    return derivative


EXACT = {
    "phi1": phi_derivative,
    "tanh": quotient_derivative(mpmath.tanh),
    "silu": quotient_derivative(lambda z: z / (1 + mpmath.exp(-z))),
    "gelu": quotient_derivative(lambda z: z * mpmath.erfc(-z / mpmath.sqrt(2)) / 2),
}


def function(name):
    return systems.phi1 if name == "phi1" else lambda z: secant_slope(name, z)


def three(f, z):
    """Value, first and second derivative by autograd, entry by entry."""
    z = z.clone().requires_grad_()
    value = f(z)
    (first,) = torch.autograd.grad(value.sum(), z, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), z)
    return value.detach(), first.detach(), second


def assert_exact(name, z):
    results = three(function(name), z)
    eps = torch.finfo(z.dtype).eps
    with mpmath.workdps(120):
        for order, got in enumerate(results):
            for at, found in zip(z.tolist(), got.tolist(), strict=True):
                wanted = EXACT[name](mpmath.mpf(at), order)
                miss = abs(mpmath.mpf(found) - wanted)
                assert miss <= 4 * eps * (1 + abs(wanted)), (name, order, at, found, float(wanted))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", EXACT)
def test_value_and_two_derivatives_are_exact_to_rounding(name, dtype):
    assert_exact(name, torch.tensor(POINTS, dtype=dtype))


@settings(max_examples=40, deadline=None)
@given(name=st.sampled_from(list(EXACT)), z=st.floats(-20, 20), scale=st.sampled_from([1.0, 1e-3, 1e-7]))
def test_they_are_exact_wherever_drawn(name, z, scale):
    assert_exact(name, torch.tensor([z * scale], dtype=torch.float64))


@pytest.mark.parametrize("name", ["tanh", "gelu"])
def test_a_derivative_that_vanishes_at_zero_is_right_in_every_digit_beside_it(name):
    z = torch.tensor([1e-9, -3e-6, 1e-3], dtype=torch.float64)
    order = 1 if name == "tanh" else 2
    got = three(function(name), z)[order]
    with mpmath.workdps(120):
        wanted = [float(EXACT[name](mpmath.mpf(at), order)) for at in z.tolist()]
    assert got.tolist() == pytest.approx(wanted, rel=1e-14)


def test_the_derivatives_that_a_zero_input_meets():
    wanted = {"phi1": 0.5, "silu": 0.25, "gelu": 0.3989422804014327, "tanh": 0, "identity": 0, "relu": 0}
    for name, slope in wanted.items():
        zero = torch.zeros(1, dtype=torch.float64, requires_grad=True)
        (got,) = torch.autograd.grad(function(name)(zero).sum(), zero)
        assert float(got) == pytest.approx(slope, abs=1e-16), name


def test_complex_phi1_and_its_derivatives_on_the_imaginary_axis():
    for angle in (0.0, 1e-9, 0.3, 0.999, 1.001, 2.0, 40.0):
        z = torch.tensor(1j * angle, dtype=torch.complex128, requires_grad=True)
        value = systems.phi1(z)
        (slope,) = torch.autograd.grad(value.real, z)
        with mpmath.workdps(60):
            wanted = [complex(phi_derivative(mpmath.mpc(0, angle), order)) for order in (0, 1)]
        assert complex(value.detach()) == pytest.approx(wanted[0], abs=1e-15)
        assert complex(slope).conjugate() == pytest.approx(wanted[1], abs=1e-15)


@pytest.mark.parametrize("name", ["tanh", "relu", "silu", "gelu", "identity"])
def test_nan_stays_and_a_saturated_slope_is_finite(name):
    slope = secant_slope(name, torch.tensor([float("nan"), -1e30, 1e30], dtype=torch.float64))
    assert bool(slope[0].isnan()) and bool(slope[1:].isfinite().all())
    with pytest.raises(ValueError, match="activation must be one of tanh, .*got 'sigmoid'"):
        secant_slope("sigmoid", slope)


@pytest.mark.parametrize("activation", ["tanh", "silu", "gelu"])
def test_the_operator_of_a_zero_token_has_its_derivative(activation):
    new = {"activation": activation, "generator": torch.Generator().manual_seed(0), "dtype": torch.float64}
    x = torch.zeros(3, 2, dtype=torch.float64, requires_grad=True)
    for layer in (FeedForward(2, 2, width=3, **new), RNN(2, 2, N=3, **new)):
        assert torch.autograd.gradcheck(lambda x, layer=layer: layer.interaction(x).to_dense(), (x,))
