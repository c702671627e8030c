"""The bounds of the page *gradient highway*: margin, dilution, ALiBi, held states, the price of a pole."""

import math

import pytest
import torch
import torch.nn.functional as nnf
from helpers import F64, gen, randn
from hypothesis import given, settings
from hypothesis import strategies as st

from headsandstates.chapters.gradient_highway import bounds
from ssmbook import gradients


@pytest.mark.guards("prop-margin")
@given(n=st.integers(2, 400), scale=st.floats(0.01, 20.0), seed=st.integers(0, 10**6))
@settings(max_examples=100, deadline=None)
def test_the_margin_over_the_log_mean_exp_is_an_identity(n, scale, seed):
    s = scale * torch.randn(n, generator=gen(seed), dtype=F64)
    alpha = torch.softmax(s, 0)[0]
    margin = s[0] - (torch.logsumexp(s[1:], 0) - math.log(n - 1))
    weight = float(gradients.weight_from_margin(margin, n))
    assert weight == pytest.approx(float(alpha), rel=1e-10, abs=1e-300)
    if 1e-12 < float(alpha) < 1 - 1e-12:
        assert float(gradients.required_margin(alpha, n)) == pytest.approx(float(margin), abs=1e-3)


@pytest.mark.guards("prop-margin")
@pytest.mark.guards("prop-logarithmic-price")
def test_the_margin_grows_by_the_log_of_the_competitors_and_not_with_distance():
    n = torch.tensor([2, 11, 101, 1001])
    margin = gradients.required_margin(0.9, n)
    assert torch.allclose(margin - torch.log((n - 1).double()), torch.full((4,), math.log(9), dtype=F64))
    for count in (11, 1001):
        s = torch.zeros(count, dtype=F64)
        s[3] = float(gradients.required_margin(0.9, count))
        assert float(torch.softmax(s, 0)[3]) == pytest.approx(0.9, rel=1e-12)


@pytest.mark.guards("prop-dilution")
@given(n=st.integers(1, 300), B=st.floats(0, 12), seed=st.integers(0, 10**6))
@settings(max_examples=100, deadline=None)
def test_bounded_logits_dilute(n, B, seed):
    s = B * (2 * torch.rand(n, generator=gen(seed), dtype=F64) - 1)
    bound = float(bounds.dilution_bound(B, n))
    assert float(torch.softmax(s, 0).max()) <= bound * (1 + 1e-12)
    s = torch.full((n,), -B, dtype=F64)
    s[n // 2] = B
    assert float(torch.softmax(s, 0)[n // 2]) == pytest.approx(bound, rel=1e-11)


@pytest.mark.guards("prop-alibi")
@given(n=st.integers(1, 60), B=st.floats(0, 6), slope=st.floats(0, 3), seed=st.integers(0, 10**6))
@settings(max_examples=100, deadline=None)
def test_alibi_starves_the_far_tokens(n, B, slope, seed):
    content = B * (2 * torch.rand(n, generator=gen(seed), dtype=F64) - 1)
    content = B * torch.sign(content) if seed % 2 else content
    distance = torch.arange(n).flip(0)
    alpha = torch.softmax(content - slope * distance, 0)
    assert bool((alpha <= bounds.alibi_bound(B, slope, distance) * (1 + 1e-12)).all())


@pytest.mark.guards("prop-alibi")
def test_alibi_decays_at_the_rate_of_its_slope_even_when_matched():
    # The best a far token can do, its logit at B and all others at -B, is a constant factor off the bound.
    B, slope = 2.0, 0.25
    ratios = []
    for tau in (50, 100, 200):
        distance = torch.arange(tau + 1).flip(0)
        content = torch.full((tau + 1,), -B, dtype=F64)
        content[0] = B
        alpha = torch.softmax(content - slope * distance, 0)[0]
        ratios.append(float(alpha / bounds.alibi_bound(B, slope, tau)))
    assert ratios[2] == pytest.approx(1 - math.exp(-slope), rel=1e-3)
    assert ratios[0] == pytest.approx(ratios[2], rel=1e-2)


def selective_states(x, A, w, bias, W_B, first=None):
    """States (T, d, N) of a selective SSM, Delta and B read off the token; ``first`` is added to h_0."""
    h, states = x.new_zeros(A.shape), []
    for t in range(x.shape[0]):
        delta = nnf.softplus(w * x[t] + bias)
        h = torch.exp(delta[:, None] * A) * h + (delta * x[t])[:, None] * (x[t] @ W_B.mT)
        h = h if first is None or t else h + first
        states.append(h)
    return torch.stack(states)


def selective_layer(T, d, N=2):
    return randn(T + 1, d, seed=5), -torch.exp(randn(d, N, seed=1)), randn(d, seed=2), randn(N, d, seed=3)


@pytest.mark.guards("prop-selective-hold")
@pytest.mark.parametrize("bias", [-6.0, 0.0, 2.0])
def test_attenuation_across_the_gap_is_exact_whatever_the_tokens(bias):
    x, A, w, W_B = selective_layer(12, 3)
    delta, first = nnf.softplus(w * x + bias), torch.zeros(3, 2, dtype=F64)
    jacobian = torch.autograd.functional.jacobian(
        lambda f: selective_states(x, A, w, bias, W_B, f)[-1], first
    )
    want = torch.exp(bounds.selective_log_attenuation(A, delta[1:]))
    eyes = torch.eye(3, dtype=F64), torch.eye(2, dtype=F64)
    assert torch.allclose(jacobian, torch.einsum("ab,ac,bd->abcd", want, *eyes), rtol=1e-12)


@pytest.mark.guards("prop-selective-hold")
@pytest.mark.parametrize("mixing", [0.0, 0.5])
def test_the_source_factor_holds_all_derivatives_unless_a_convolution_mixes_tokens(mixing):
    x, A, w, W_B = selective_layer(5, 2)

    def states(z):
        return selective_states(z + mixing * nnf.pad(z, (0, 0, 1, 0))[:-1], A, w, 0.0, W_B)

    full, source = (
        torch.autograd.functional.jacobian(lambda z, t=t: states(z)[t], x)[:, :, 0] for t in (-1, 0)
    )
    u = x + mixing * nnf.pad(x, (0, 0, 1, 0))[:-1]
    kept = torch.exp(bounds.selective_log_attenuation(A, nnf.softplus(w * u)[1:]))
    assert torch.allclose(full, kept[..., None] * source, atol=1e-14) == (mixing == 0)


@pytest.mark.guards("prop-logarithmic-price")
@pytest.mark.guards("prop-selective-hold")
@pytest.mark.parametrize("a", [0.01, 0.5, 0.99])
@pytest.mark.parametrize("A", [-0.1, 16.0])
def test_the_gate_preactivation_holds_exactly_that_fraction(a, A):
    for T in (1, 10, 10_000, 10**8):
        delta = nnf.softplus(bounds.gate_preactivation_for_hold(a, A, float(T)))
        assert math.exp(-abs(A) * T * float(delta)) == pytest.approx(a, rel=1e-9)


@pytest.mark.guards("prop-logarithmic-price")
def test_softmax_gate_and_pole_all_pay_the_logarithm():
    a, T = 0.5, 2.0 ** torch.arange(4, 30, dtype=F64)
    logs, constant = torch.log(T), torch.full_like(T, math.log(math.log(2)))
    gate = bounds.gate_preactivation_for_hold(a, -1.0, T)
    assert torch.allclose(gate + logs, constant, atol=0.05)
    assert float((gate + logs)[-1]) == pytest.approx(float(constant[0]), abs=1e-8)
    nu = bounds.lru_parameter_for_hold(a, T)
    assert torch.allclose(nu + logs, constant, atol=1e-13)
    assert torch.allclose(torch.exp(-torch.exp(nu)) ** T, torch.full_like(T, a))
    margin = gradients.required_margin(a, T.long() + 1)
    assert torch.allclose(margin - logs, torch.zeros_like(T), atol=1e-12)


@pytest.mark.guards("prop-logarithmic-price", "prop-pole-price")
@pytest.mark.parametrize("lam", [0.0, 0.5, -0.9, 0.99])
def test_pole_sensitivity_by_its_series_and_by_autograd(lam):
    # White input: the squared impulse response of dh/dlam, by autograd, sums to the stationary variance.
    for scale in (False, True):
        each = torch.full((4000,), lam, dtype=F64, requires_grad=True)  # a copy for each lag
        kernel = (torch.sqrt(1 - each**2) if scale else 1.0) * each ** torch.arange(4000)
        (response,) = torch.autograd.grad(kernel.sum(), each)
        want = float(bounds.pole_sensitivity(lam, normalized=scale))
        assert float((response**2).sum()) == pytest.approx(want, rel=1e-10)


@pytest.mark.guards("prop-jordan-decay")
@pytest.mark.parametrize("L", [1, 2, 5])
def test_stacked_equal_poles_by_autograd(L):
    def stack(x):
        for _ in range(L):
            h, out = torch.zeros_like(x[..., 0, :]), []
            for t in range(x.shape[-2]):
                h = 0.9 * h + x[..., t, :]
                out.append(h)
            x = torch.stack(out, dim=-2)
        return x

    distances, norms = gradients.gradient_profile(stack, randn(60, 1))
    assert torch.allclose(norms, bounds.stacked_pole_kernel(0.9, L, distances), rtol=1e-12)
    tau = torch.arange(500, 2000)
    slope = gradients.fit_log_slope(tau, bounds.stacked_pole_kernel(0.9, L, tau) / tau.double() ** (L - 1))
    assert slope == pytest.approx(math.log(0.9), rel=0.02)
