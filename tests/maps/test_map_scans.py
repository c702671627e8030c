"""Maps that run by a fast scan equal their own recurrence, one step at a time, and their operator."""

import copy
import math

import pytest
import torch
from helpers import gen, like, tokens

from ssmbook import maps

D = 3


def recurrent():
    """The recurrent layers of the zoo, and three that it leaves out."""
    found = maps.zoo(D, 2, 600, H=3, head_width=2, N=6, generator=gen())
    found = {name: layer for name, layer in found.items() if isinstance(layer, maps.RecurrentMap)}
    new = {"H": 3, "head_width": 2, **like()}
    found["SSD, groups"] = maps.SSD(D, 2, N=5, groups=3, **new)
    found["Gated DeltaNet, three pairs"] = maps.DeltaNet(D, 2, rule="Gated DeltaNet", pairs=3, **new)
    return found | {"KDA, two pairs": maps.DeltaNet(D, 2, rule="KDA", pairs=2, **new)}


NAMES = list(recurrent())
# The normalizer of an mLSTM may cancel, and the state of a convolution is tokens, not sums.
SUMS = [name for name in NAMES if name not in ("mLSTM", "convolution")]


def assert_near(got, wanted, rtol=1e-12):
    assert got.shape == wanted.shape and got.dtype == wanted.dtype
    if wanted.numel():
        assert float((got - wanted).abs().max()) <= rtol * float(wanted.abs().max())


def by_steps(m, x):
    """The outputs and the last state, one token at a time."""
    state, outputs = None, []
    for x_t in x.unbind(-2):
        y_t, state = m.step(x_t, state)
        outputs.append(y_t)
    return torch.stack(outputs, -2), state


def gradients(m, y, x):
    """Of a fixed, uneven weighting of y, for x and every parameter."""
    weight = tokens(*y.shape, seed=5)
    return torch.autograd.grad((weight * y).sum(), [x, *m.parameters()])


@pytest.mark.parametrize("n", [1, 64, 500])
@pytest.mark.parametrize("name", NAMES)
def test_forward_and_its_gradients_equal_the_recurrence(name, n):
    m = recurrent()[name]
    x = tokens(2, n, D).requires_grad_()
    fast, (slow, last) = m(x), by_steps(m, x)
    assert_near(fast.detach(), slow.detach())
    assert_near(m.run(x)[1].detach(), last.detach())
    assert_near((m.interaction(x) @ x).detach(), fast.detach())
    got, wanted = (torch.cat([g.flatten() for g in gradients(m, y, x)]) for y in (fast, slow))
    assert_near(got, wanted, rtol=1e-11)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", SUMS)
def test_a_long_run_in_half_precision_keeps_its_sums_in_single(name, dtype):
    """A state in bfloat16 loses what is below 1/256 of it: after 600 tokens it was off by up to a tenth."""
    m = recurrent()[name].requires_grad_(False).to(dtype)
    x = tokens(600, D).to(dtype)
    y, state = by_steps(m, x)
    assert state.dtype in (torch.float32, torch.complex64)
    half = m(x)
    assert y.dtype == half.dtype == dtype
    wanted = m.double()(x.double())
    for found in (y, half):
        assert_near(found.double(), wanted, rtol=2.5 * torch.finfo(dtype).eps)


def test_kernels_and_random_systems_in_half_precision():
    # In bfloat16 the step after the 256th is the 256th once more.
    m = maps.DiagonalSSM(D, N=64, **like()).requires_grad_(False)
    m.log_delta.fill_(math.log(1e-3))
    found, wanted = m.to(torch.bfloat16).kernel(3000)[1:], m.double().kernel(3000)[1:]  # without the skip
    assert_near(found.double(), wanted, rtol=0.01)
    A = maps.LTISSM.random(D, 2, N=4, rho=0.7, **like() | {"dtype": torch.bfloat16}).A.detach()
    assert abs(torch.linalg.eigvals(A.double()).abs().max() / 0.7 - 1) < 0.07


@torch.no_grad()
def test_positions_past_256_in_half_precision():
    m, x = maps.LatentAttention(D, 2, H=2, head_width=2, latent=3, **like()).bfloat16(), tokens(600, D)
    found, wanted = m(x.bfloat16()), m.double()(x.bfloat16().double())
    assert_near(found.double(), wanted, rtol=0.03)


def test_closed_gates_in_half_precision_have_slopes():
    m, x = maps.RGLRU(D, **like()).half(), (20 * tokens(20, D)).half()
    found, wanted = (
        torch.cat(
            [g.flatten().double() for g in torch.autograd.grad(m(x).square().mean(), [*m.parameters()])]
        )
        for m, x in ((m, x), (copy.deepcopy(m).double(), x.double()))
    )
    assert_near(found, wanted, rtol=0.01)


@torch.no_grad()
def test_a_strong_decay_costs_the_weak_ones_after_it_no_digits():
    m, x = maps.DeltaNet(D, 2, H=1, head_width=8, rule="KDA", **like()), tokens(40, D)
    m.W_w.zero_(), m.W_V[..., 0].zero_(), m.W_Q[..., 0].zero_()
    m.W_w[..., 0], x[:, 0], x[3, 0] = 1, 0, 1e5  # the first channel makes the decays
    assert_near(m.float()(x.float()).double(), by_steps(m.double(), x)[0], rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_every_way_to_a_jacobian_agrees(name):
    m = recurrent()[name].requires_grad_(False)
    x = tokens(35, D)
    by_rows = torch.func.jacrev(m)(x)
    assert_near(torch.func.jacfwd(m)(x), by_rows)
    both, states = torch.stack((x, 2 * x)), m.run(tokens(2, 4, D))[1]
    assert_near(torch.func.vmap(m)(both)[1], m(2 * x))
    for got, wanted in zip(torch.func.vmap(m)(both, states), m(both, states), strict=True):
        assert_near(got, wanted)
    x = tokens(5, D).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: (m(x) ** 2).sum(), x, fast_mode=True)
