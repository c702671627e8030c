"""Secant slopes of activations: value, first and second derivative against 120 digits, at and around 0."""

import mpmath
import pytest
import torch
from helpers import F64, close

from ssmbook.maps import FeedForward

POINTS = [0, 1e-20, -1e-12, 1e-8, -1e-4, 0.01, -0.3, 0.499, 0.999, -0.9999, 1.0001, -1.5, 3, -5, 12, -30]
ACTIVATIONS = ["tanh", "relu", "silu", "gelu", "identity"]


def unit(name, dtype=F64):
    """The map x -> sigma(x) of one channel."""
    layer = FeedForward(1, 1, width=1, activation=name, dtype=dtype).requires_grad_(False)
    layer.W_1.fill_(1.0), layer.W_2.fill_(1.0)
    return layer


def function(name, dtype=F64):
    """The secant slope of an activation, which is the operator of one channel."""
    layer = unit(name, dtype)
    return lambda z: layer.interaction(z[:, None]).to_dense().diagonal()[0, 0]


def quotient_derivative(sigma):
    def derivative(z, order):
        # d^k/dz^k of sigma(z)/z at 0 is the next Taylor coefficient of sigma, times k!
        if z == 0:
            return mpmath.taylor(sigma, 0, order + 1)[order + 1] * mpmath.factorial(order)
        return mpmath.diff(lambda z: sigma(z) / z, z, order)

    return derivative


EXACT = {
    "tanh": quotient_derivative(mpmath.tanh),
    "silu": quotient_derivative(lambda z: z / (1 + mpmath.exp(-z))),
    "gelu": quotient_derivative(lambda z: z * mpmath.erfc(-z / mpmath.sqrt(2)) / 2),
}


def three(f, z):
    """Value, first and second derivative by autograd, entry by entry."""
    z = z.clone().requires_grad_()
    value = f(z)
    (first,) = torch.autograd.grad(value.sum(), z, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), z)
    return value.detach(), first.detach(), second


def assert_exact(name, z):
    results, eps = three(function(name, z.dtype), z), torch.finfo(z.dtype).eps
    with mpmath.workdps(120):
        for order, got in enumerate(results):
            for at, found in zip(z.tolist(), got.tolist(), strict=True):
                wanted = EXACT[name](mpmath.mpf(at), order)
                miss = abs(mpmath.mpf(found) - wanted)
                assert miss <= 4 * eps * (1 + abs(wanted)), (name, order, at, found, float(wanted))


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("name", EXACT)
def test_value_and_two_derivatives_are_exact_to_rounding(name, dtype):
    assert_exact(name, torch.tensor(POINTS, dtype=dtype))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_slope_times_its_input_is_the_activation_and_nan_stays(name):
    z = torch.tensor([-800.0, -2.0, -1e-9, -5e-324, 0.0, 5e-324, 1e-200, 0.3, 1e4, 1e30], dtype=F64)
    slope = function(name)(z)
    assert torch.isfinite(slope).all() and function(name)(z * torch.nan).isnan().all()
    close(slope * z, unit(name)(z[:, None])[:, 0], tol=1e-15)
    at_zero = torch.autograd.functional.jacobian(unit(name), torch.zeros(1, 1, dtype=F64)).flatten()
    assert float(slope[4]) == pytest.approx(float(at_zero), rel=1e-12)
