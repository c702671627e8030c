"""The bounds of the page *gradient highway*, where its check cells do not try them."""

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
