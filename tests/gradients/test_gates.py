"""Holding a value: the selective gate against autograd, the logarithmic price, the sensitivity of a pole."""

import math

import pytest
import torch
import torch.nn.functional as nnf
from helpers import F64, randn

from ssmbook import gradients


def selective_states(x, A, w, bias, W_B, first=None):
    """States (T, d, N) of a selective SSM, Delta and B read off the token; ``first`` is added to h_0."""
    h, states = x.new_zeros(A.shape), []
    for t in range(x.shape[0]):
        delta = nnf.softplus(w * x[t] + bias)
        h = torch.exp(delta[:, None] * A) * h + (delta * x[t])[:, None] * (x[t] @ W_B.mT)
        h = h if first is None or t else h + first
        states.append(h)
    return torch.stack(states)


@pytest.mark.guards("prop-selective-hold")
@pytest.mark.parametrize("bias", [-6.0, 0.0, 2.0])
def test_attenuation_across_the_gap_is_exact_whatever_the_tokens(bias):
    T, d, N = 12, 3, 2
    x, A, w, W_B = randn(T + 1, d), -torch.exp(randn(d, N, seed=1)), randn(d, seed=2), randn(N, d, seed=3)
    delta = nnf.softplus(w * x + bias)
    first = torch.zeros(d, N, dtype=F64)
    jacobian = torch.autograd.functional.jacobian(
        lambda f: selective_states(x, A, w, bias, W_B, f)[-1], first
    )
    want = torch.exp(gradients.selective_log_attenuation(A, delta[1:]))
    assert want.shape == (d, N)
    diagonal = torch.einsum("abab->ab", jacobian)
    assert torch.allclose(diagonal, want, rtol=1e-12)
    assert torch.allclose(
        jacobian, torch.einsum("ab,ac,bd->abcd", want, torch.eye(d).double(), torch.eye(N).double())
    )


@pytest.mark.guards("prop-selective-hold")
def test_the_source_factor_holds_the_derivatives_of_delta_and_b():
    T, d, N = 5, 2, 2
    x, A, w, W_B = (
        randn(T + 1, d, seed=5),
        -torch.exp(randn(d, N, seed=1)),
        randn(d, seed=2),
        randn(N, d, seed=3),
    )
    full = torch.autograd.functional.jacobian(lambda z: selective_states(z, A, w, 0.0, W_B)[-1], x)[:, :, 0]
    source = torch.autograd.functional.jacobian(lambda z: selective_states(z[:1], A, w, 0.0, W_B)[0], x)[
        :, :, 0
    ]
    delta = nnf.softplus(w * x)
    kept = torch.exp(gradients.selective_log_attenuation(A, delta[1:]))
    assert torch.allclose(full, kept[..., None] * source, atol=1e-14)
    frozen = torch.einsum("ac,b->abc", torch.diag(delta[0]), W_B @ x[0])
    assert not torch.allclose(source, frozen, rtol=0.1)


@pytest.mark.guards("prop-selective-hold")
def test_a_short_convolution_breaks_the_product_form():
    d, N = 2, 2
    x, A, w, W_B = randn(4, d, seed=5), -torch.exp(randn(d, N, seed=1)), randn(d, seed=2), randn(N, d, seed=3)

    def mixed(z):
        u = z + 0.5 * nnf.pad(z, (0, 0, 1, 0))[:-1]
        return selective_states(u, A, w, 0.0, W_B)

    full = torch.autograd.functional.jacobian(lambda z: mixed(z)[-1], x)[:, :, 0]
    source = torch.autograd.functional.jacobian(lambda z: mixed(z)[0], x)[:, :, 0]
    u = x + 0.5 * nnf.pad(x, (0, 0, 1, 0))[:-1]
    kept = torch.exp(gradients.selective_log_attenuation(A, nnf.softplus(w * u)[1:]))
    assert not torch.allclose(full, kept[..., None] * source, rtol=0.1)


@pytest.mark.guards("prop-selective-hold")
@pytest.mark.parametrize(("b", "m"), [(0.0, 1.0), (1.0, 8.0), (-2.0, 0.0), (3.0, 15.0)])
def test_suppressed_gap_tokens_hold_the_state(b, m):
    A, T = torch.tensor([[-1.0, -16.0]], dtype=F64), 1000
    delta = nnf.softplus(torch.full((T, 1), b - m, dtype=F64))
    assert float(delta.max()) <= math.exp(b - m)
    log_kept = gradients.selective_log_attenuation(A, delta)
    assert bool((log_kept >= A * T * math.exp(b - m)).all())


@pytest.mark.guards("prop-logarithmic-price")
@pytest.mark.guards("prop-selective-hold")
@pytest.mark.parametrize("a", [0.01, 0.5, 0.99])
@pytest.mark.parametrize("A", [-0.1, 16.0])
def test_the_gate_preactivation_holds_exactly_the_fraction_asked_for(a, A):
    for T in (1, 10, 10_000, 10**8):
        z = gradients.gate_preactivation_for_hold(a, A, float(T))
        delta = nnf.softplus(z)
        assert math.exp(-abs(A) * T * float(delta)) == pytest.approx(a, rel=1e-9)
    assert float(gradients.gate_preactivation_for_hold(1e-300, 1e-3, 1.0)) == pytest.approx(
        690775.5, rel=1e-6
    )


@pytest.mark.guards("prop-logarithmic-price")
def test_softmax_gate_and_pole_all_pay_the_logarithm():
    a, T = 0.5, 2.0 ** torch.arange(4, 30, dtype=F64)
    logs = torch.log(T)
    gate = gradients.gate_preactivation_for_hold(a, -1.0, T)
    assert torch.allclose(gate + logs, torch.full_like(T, math.log(math.log(2))), atol=0.05)
    assert float((gate + logs)[-1]) == pytest.approx(math.log(math.log(2)), abs=1e-8)
    nu = gradients.lru_parameter_for_hold(a, T)
    assert torch.allclose(nu + logs, torch.full_like(T, math.log(math.log(2))), atol=1e-13)
    assert torch.allclose(torch.exp(-torch.exp(nu)) ** T, torch.full_like(T, a))
    margin = gradients.required_margin(a, T.long() + 1)
    assert torch.allclose(margin - logs, torch.zeros_like(T), atol=1e-12)


@pytest.mark.guards("prop-logarithmic-price")
@pytest.mark.parametrize("lam", [0.0, 0.5, -0.9, 0.99])
def test_pole_sensitivity_by_its_series_and_by_autograd(lam):
    # white input: the squared impulse response of dh/dlam, by autograd, sums to the stationary variance
    def kernel(value, scale):
        return (torch.sqrt(1 - value**2) if scale else 1.0) * value ** torch.arange(4000)

    value = torch.tensor(lam, dtype=F64)
    for scale in (False, True):
        each = value.expand(4000).clone().requires_grad_()  # one copy for each lag: the gradient of the sum
        (response,) = torch.autograd.grad(kernel(each, scale).sum(), each)
        want = float(gradients.pole_sensitivity(lam, normalized=scale))
        assert float((response**2).sum()) == pytest.approx(want, rel=1e-10)


@pytest.mark.guards("prop-logarithmic-price")
def test_the_price_of_a_pole_near_one_is_cubic_and_quadratic_when_normalized():
    gap = torch.tensor([1e-3, 1e-6, 1e-9], dtype=F64)
    assert torch.allclose(
        gradients.pole_sensitivity(1 - gap) * gap**3, torch.full((3,), 0.25, dtype=F64), rtol=1e-2
    )
    squared = gradients.pole_sensitivity(1 - gap, normalized=True) * gap**2
    assert torch.allclose(squared, torch.full((3,), 0.25, dtype=F64), rtol=1e-2)


def test_tensors_of_one_shape_go_together_entry_by_entry():
    a, A, T = (torch.tensor(pair, dtype=F64) for pair in ([0.5, 0.9], [-1.0, -0.2], [10.0, 500.0]))
    z = gradients.gate_preactivation_for_hold(a, A, T)
    kept = [math.exp(float(A[i] * T[i]) * math.log1p(math.exp(z[i]))) for i in range(2)]
    assert kept == pytest.approx([0.5, 0.9], rel=1e-12)
    margins = gradients.required_margin(a, torch.tensor([2, 11]))
    assert margins.tolist() == pytest.approx([0.0, math.log(90)], rel=1e-12)


def test_batches_empty_gaps_and_half_steps():
    half = gradients.lru_parameter_for_hold(0.25, 0.5)  # half a step: T need not be whole
    assert math.exp(-math.exp(half)) ** 0.5 == pytest.approx(0.25)
    A = -torch.ones(3, 2, dtype=F64)
    delta = torch.rand(4, 7, 3, generator=torch.Generator().manual_seed(0), dtype=F64)
    assert gradients.selective_log_attenuation(A, delta).shape == (4, 3, 2)
    assert float(gradients.selective_log_attenuation(A, delta[:, :0]).abs().max()) == 0.0
    assert gradients.gate_preactivation_for_hold(0.5, 1.0, torch.ones(3)).dtype == torch.float32


def test_bad_arguments_are_refused_by_name():
    A, delta = -torch.ones(3, 2, dtype=F64), torch.ones(7, 3, dtype=F64)
    column, pair = torch.rand(2, 1), torch.ones(2)  # no pair of equal shapes, though they broadcast
    bad = [
        (lambda: gradients.gate_preactivation_for_hold(column, 1.0, pair), ValueError, "T must"),
        (lambda: gradients.gate_preactivation_for_hold(column, pair, 5.0), ValueError, "A must"),
        (lambda: gradients.gate_preactivation_for_hold(0.5, column, pair), ValueError, "T must"),
        (lambda: gradients.selective_log_attenuation(-A, delta), ValueError, "A must be negative"),
        (lambda: gradients.selective_log_attenuation(A + torch.eye(3, 2), delta), ValueError, "got 0.0"),
        (
            lambda: gradients.gate_preactivation_for_hold(0.5, pair - torch.eye(2)[0], 5.0),
            ValueError,
            "A must be",
        ),
        (lambda: gradients.selective_log_attenuation(A, delta - 2 * torch.eye(7, 3)), ValueError, "got -1.0"),
        (lambda: gradients.pole_sensitivity(0.5, normalized="no"), TypeError, "normalized must"),
        (lambda: gradients.selective_log_attenuation(A, -delta), ValueError, "delta must be at least 0"),
        (lambda: gradients.selective_log_attenuation(A, delta[:, :2]), ValueError, "delta must"),
        (
            lambda: gradients.selective_log_attenuation(A, delta.float()),
            TypeError,
            "delta must",
        ),
        (lambda: gradients.gate_preactivation_for_hold(1.0, 1.0, 5), ValueError, "a must lie"),
        (lambda: gradients.gate_preactivation_for_hold(0.5, 0.0, 5), ValueError, "A must be nonzero"),
        (lambda: gradients.gate_preactivation_for_hold(0.5, 1.0, 0), ValueError, "T must lie"),
        (
            lambda: gradients.lru_parameter_for_hold(torch.rand(2), torch.ones(3)),
            ValueError,
            "T must be a number",
        ),
        (lambda: gradients.pole_sensitivity(1.0), ValueError, "lam must lie"),
    ]
    for call, error, words in bad:
        with pytest.raises(error, match=words):
            call()
