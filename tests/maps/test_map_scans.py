"""Maps that run by a fast scan equal their own recurrence, one step at a time, and their operator."""

import copy
import math

import pytest
import torch
from helpers import like, tokens

from ssmbook import maps

D = 3


def heads():
    return {"H": 3, "head_width": 2, **like()}


MAPS = {
    "LTI with skip": lambda: maps.LTISSM.random(D, 2, N=5, rho=0.95, skip=True, **like()),
    "S4D": lambda: maps.DiagonalSSM(D, N=6, **like()),
    "S4D, real": lambda: maps.DiagonalSSM(D, N=5, pairs=False, **like()),
    "selective, zoh": lambda: maps.SelectiveSSM(D, N=5, discretization="zoh", **like()),
    "selective, Euler": lambda: maps.SelectiveSSM(D, N=5, discretization="mixed", **like()),
    "SSD, groups": lambda: maps.SSD(D, 2, N=5, groups=3, **heads()),
    "RetNet": lambda: maps.RetNet(D, 2, **heads()),
    "GLA": lambda: maps.GLA(D, 2, **heads()),
    "linear attention": lambda: maps.LinearAttention(D, 2, **heads()),
    "linear attention, normalized": lambda: maps.LinearAttention(D, 2, normalized=True, **heads()),
    "mLSTM": lambda: maps.MLSTM(D, 2, **heads()),
    "RG-LRU": lambda: maps.RGLRU(D, **like()),
    "Mamba-3": lambda: maps.Mamba3(D, 2, N=6, **heads()),
    "Mamba-3, MIMO": lambda: maps.Mamba3(D, 2, N=4, R=3, **heads()),
}
DELTA = {
    f"{rule}, pairs = {pairs}": lambda rule=rule, pairs=pairs: maps.DeltaNet(
        D, 2, rule=rule, pairs=pairs, **heads()
    )
    for rule, pairs in (("DeltaNet", 1), ("Gated DeltaNet", 3), ("KDA", 2), ("RWKV-7", 1))
}
HALF = {name: make for name, make in MAPS.items() if name != "mLSTM"} | {  # whose normalizer may cancel
    "RNN": lambda: maps.RNN(D, 2, N=4, **like()),
    "DeltaNet": lambda: maps.DeltaNet(D, 2, **heads()),
}


def assert_near(got, wanted, rtol=1e-12):
    assert got.shape == wanted.shape and got.dtype == wanted.dtype
    if wanted.numel():
        assert float((got - wanted).abs().max()) <= rtol * float(wanted.abs().max())


def gradients(m, y, x):
    """Of a fixed, uneven weighting of y, for x and every parameter."""
    weight = tokens(*y.shape, seed=5)
    return torch.autograd.grad((weight * y).sum(), [x, *m.parameters()])


CASES = [(name, n) for name in MAPS for n in (1, 65, 500)] + [
    (name, n) for name in DELTA for n in (1, 16, 70)
]


@pytest.mark.parametrize(("name", "n"), CASES)
def test_forward_and_its_gradients_equal_the_recurrence(name, n):
    m = (MAPS | DELTA)[name]()
    x = tokens(2, n, D).requires_grad_()
    fast, slow = m(x), m.run(x)[0]
    assert_near(fast.detach(), slow.detach())
    assert_near((m.interaction(x) @ x).detach(), fast.detach())
    got, wanted = (torch.cat([g.flatten() for g in gradients(m, y, x)]) for y in (fast, slow))
    assert_near(got, wanted, rtol=1e-11)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", HALF)
def test_a_long_run_in_half_precision_keeps_its_sums_in_single(name, dtype):
    """A state in bfloat16 loses what is below 1/256 of it: after 600 tokens it was off by up to a tenth."""
    m = HALF[name]().requires_grad_(False).to(dtype)
    x = tokens(600, D).to(dtype)
    y, state = m.run(x)
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
    assert_near(m.float()(x.float()).double(), m.double().run(x)[0], rtol=1e-6)


@pytest.mark.parametrize("name", MAPS | DELTA)
def test_every_way_to_a_jacobian_agrees(name):
    m = (MAPS | DELTA)[name]().requires_grad_(False)
    x = tokens(35, D)
    by_rows = torch.func.jacrev(m)(x)
    assert_near(torch.func.jacfwd(m)(x), by_rows)
    assert_near(torch.func.vmap(m)(torch.stack((x, 2 * x)))[1], m(2 * x))
    x = tokens(5, D).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: (m(x) ** 2).sum(), x, fast_mode=True)
