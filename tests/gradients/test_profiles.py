"""Gradient profiles by autograd: exact blocks for any callable, the law of linear recurrences."""

import math

import pytest
import scipy.stats
import torch
from helpers import randn

from ssmbook import gradients
from ssmbook.operators import jacobian_operator


def lti(A, B, C):
    def F(x):
        h, out = x.new_zeros((*x.shape[:-2], A.shape[0])), []
        for t in range(x.shape[-2]):
            h = h @ A.mT + x[..., t, :] @ B.mT
            out.append(h @ C.mT)
        return torch.stack(out, dim=-2)

    return F


def mixing(x):
    """A nonlinear map that looks both ways, 3 -> 2."""
    weights = torch.softmax(x @ x.mT, dim=-1)
    return torch.tanh(weights @ x)[..., :2] * x[..., 1:].sum(-1, keepdim=True)


@pytest.mark.parametrize("target", [-1, 0, 3, -5])
def test_blocks_are_the_full_jacobian_row_of_every_batch_entry(target):
    x = randn(2, 3, 7, 3)
    blocks = jacobian_operator(mixing, x)[target]
    assert blocks.shape == (2, 3, 7, 2, 3)
    for a in range(2):
        for b in range(3):
            full = torch.autograd.functional.jacobian(mixing, x[a, b])  # (n, p, n, d)
            assert torch.allclose(blocks[a, b], full[target].permute(1, 0, 2), atol=1e-13)


def test_profile_counts_distance_backwards_from_the_target():
    x = randn(6, 3)
    distances, norms = gradients.gradient_profile(mixing, x, 4)
    blocks = jacobian_operator(mixing, x)[4]
    assert distances.tolist() == [0, 1, 2, 3, 4] and distances.dtype == torch.int64 and norms.shape == (5,)
    for tau in range(5):
        assert float(norms[tau]) == pytest.approx(float(torch.linalg.svdvals(blocks[4 - tau])[0]), rel=1e-12)


@pytest.mark.guards("thm-gradient-highway")
@pytest.mark.guards("prop-lti-decay")
@pytest.mark.parametrize("rho", [0.5, 1.0])
def test_scaled_orthogonal_recurrence_decays_by_rho_exactly(rho):
    Q = torch.linalg.qr(randn(4, 4)).Q
    eye = torch.eye(4).double()
    distances, norms = gradients.gradient_profile(lti(rho * Q, eye, eye), randn(400, 4))
    assert torch.allclose(norms, rho ** distances.double(), rtol=1e-12)
    assert gradients.fit_log_slope(distances, norms) == pytest.approx(math.log(rho), abs=1e-12)


def test_profile_leaves_everything_as_it_was():
    x = randn(5, 3)
    kept, weight = x.clone(), randn(3, 3, seed=1).requires_grad_()
    with torch.no_grad():
        _, norms = gradients.gradient_profile(lambda z: torch.tanh(z @ weight), x)
    assert torch.equal(x, kept) and not x.requires_grad and weight.grad is None and not norms.requires_grad
    assert float(norms[0]) > 0 and float(norms[1:].abs().max()) == 0  # tokens do not mix
    single = gradients.gradient_profile(mixing, x.float())
    assert single[1].dtype == torch.float32


def test_a_map_that_mixes_its_batch_is_refused():
    for F in (lambda x: x - x.mean(0, keepdim=True), lambda x: x + x.cumsum(-3)):
        with pytest.raises(ValueError):
            gradients.gradient_profile(F, randn(3, 5, 4, 2))


def test_a_slope_is_the_slope_of_scipys_line():
    tau = torch.arange(30)
    logs = -0.1 * tau + 0.3 * randn(30, seed=1)
    want = scipy.stats.linregress(tau.numpy(), logs.numpy())
    assert gradients.fit_log_slope(tau, torch.exp(logs)) == pytest.approx(want.slope, rel=1e-10)


def test_a_window_leaves_out_other_rates_and_zeros():
    tau = torch.arange(100)
    norms = torch.where(tau < 50, 0.5 ** tau.double(), 0.5**50 * 0.9 ** (tau - 50).double())
    assert gradients.fit_log_slope(tau, norms, window=(50, 99)) == pytest.approx(math.log(0.9))
    early = gradients.fit_log_slope(tau, norms * (tau < 50), window=(0, 49))
    assert early == pytest.approx(math.log(0.5))
    with pytest.raises(ValueError):
        gradients.gradient_profile(mixing, randn(4, 3), 4)
    for wrong in ((tau, norms * (tau != 3)), (tau[:2], norms[:2]), (tau[:9], norms)):
        with pytest.raises(ValueError):
            gradients.fit_log_slope(*wrong)
