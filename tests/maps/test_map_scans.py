"""The maps that run by a fast scan equal their own recurrence, one step at a time, and their operator."""

import math

import pytest
import torch
from helpers import like, tokens

from ssmbook.maps import (
    GLA,
    LTISSM,
    RNN,
    SSD,
    Convolution,
    DeltaNet,
    DiagonalSSM,
    LinearAttention,
    RetNet,
    SelectiveSSM,
)

D = 3


def heads():
    return {"H": 3, "head_width": 2, **like()}


MAPS = {
    "LTI": lambda: LTISSM.random(D, 2, N=5, rho=0.95, **like()),
    "LTI with skip": lambda: LTISSM.random(D, 2, N=5, rho=0.95, skip=True, **like()),
    "S4D": lambda: DiagonalSSM(D, N=6, **like()),
    "S4D, real": lambda: DiagonalSSM(D, N=5, pairs=False, **like()),
    "selective, zoh": lambda: SelectiveSSM(D, N=5, discretization="zoh", **like()),
    "selective, Euler": lambda: SelectiveSSM(D, N=5, discretization="euler", **like()),
    "SSD": lambda: SSD(D, 2, N=5, **heads()),
    "SSD, groups": lambda: SSD(D, 2, N=5, groups=3, **heads()),
    "RetNet": lambda: RetNet(D, 2, **heads()),
    "RetNet without decay": lambda: RetNet(D, 2, decay=[1, 1, 1], **heads()),
    "GLA": lambda: GLA(D, 2, **heads()),
    "linear attention": lambda: LinearAttention(D, 2, **heads()),
    "linear attention, normalized": lambda: LinearAttention(D, 2, normalized=True, **heads()),
}


def assert_near(got, wanted, rtol=1e-12):
    assert got.shape == wanted.shape and got.dtype == wanted.dtype
    if wanted.numel():
        assert float((got - wanted).abs().max()) <= rtol * float(wanted.abs().max())


def gradients(m, y, x):
    """Of a fixed, uneven weighting of y, for x and every parameter."""
    weight = tokens(*y.shape, seed=5)
    return torch.autograd.grad((weight * y).sum(), [x, *m.parameters()])


@pytest.mark.parametrize("n", [0, 1, 2, 31, 32, 63, 65, 500])
@pytest.mark.parametrize("name", MAPS)
def test_forward_and_its_gradients_equal_the_recurrence(name, n):
    m = MAPS[name]()
    x = tokens(2, n, D).requires_grad_()
    fast, slow = m(x), m.run(x)[0]
    assert_near(fast.detach(), slow.detach())
    if n:
        got, wanted = (torch.cat([g.flatten() for g in gradients(m, y, x)]) for y in (fast, slow))
        assert_near(got, wanted, rtol=1e-11)


HALF = {"RNN": lambda: RNN(D, 2, N=4, **like()), "DeltaNet": lambda: DeltaNet(D, 2, **heads()), **MAPS}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", HALF)
def test_a_long_run_in_half_precision_keeps_its_sums_in_single(name, dtype):
    """A state in bfloat16 forgets what is below 1/256 of it: after 600 tokens it was off by up to a tenth."""
    m = HALF[name]().requires_grad_(False).to(dtype)
    x = tokens(600, D).to(dtype)
    assert m.initial_state().dtype in (torch.float32, torch.complex64)
    given, half = m.run(x), m(x)
    assert given[0].dtype == half.dtype == dtype and given[1].dtype == m.initial_state().dtype
    wanted = m.double()(x.double())
    for y in (given[0], half):
        assert_near(y.double(), wanted, rtol=2.5 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_window_of_tokens_is_kept_in_their_own_dtype(dtype):
    m, x = Convolution(D, 2, width=4, **like()).requires_grad_(False).to(dtype), tokens(2, 9, D).to(dtype)
    y, state = m.run(x)
    assert torch.equal(state, x[:, -3:]) and state.dtype == y.dtype == dtype
    assert_near(y.double(), m(x).double(), rtol=2 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_long_kernel_in_half_precision_counts_every_step(dtype):
    """In bfloat16 the step after the 256th is the 256th once more."""
    m = DiagonalSSM(D, N=64, **like()).requires_grad_(False)
    m.log_delta.fill_(math.log(1e-3))
    found, wanted = m.to(dtype).kernel(3000)[1:], m.double().kernel(3000)[1:]  # without the skip
    assert found.dtype == dtype
    assert_near(found.double(), wanted, rtol=torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_random_system_in_half_precision_has_the_radius_asked_for(dtype):
    A = LTISSM.random(D, 2, N=4, rho=0.7, dtype=dtype, generator=like()["generator"]).A.detach()
    assert A.dtype == dtype
    assert abs(torch.linalg.eigvals(A.double()).abs().max() / 0.7 - 1) < 8 * torch.finfo(dtype).eps


@pytest.mark.parametrize("name", MAPS)
def test_forward_equals_its_operator_beyond_one_block(name):
    m = MAPS[name]().requires_grad_(False)
    x = tokens(130, D)
    assert_near(m.interaction(x).apply(x), m(x))


@pytest.mark.parametrize("name", MAPS)
def test_a_long_sequence_takes_linear_memory_and_agrees_with_its_pieces(name):
    m = MAPS[name]().requires_grad_(False)
    x = tokens(4096, D)
    y = m(x)
    assert torch.isfinite(y).all()
    _, state = m.run(x[:4000])
    assert_near(m.run(x[4000:], state)[0], y[4000:], rtol=1e-11)
    assert_near(m(x[:1000]), y[:1000])


@pytest.mark.parametrize("name", MAPS)
def test_every_way_to_a_jacobian_agrees(name):
    m = MAPS[name]().requires_grad_(False)
    x = tokens(35, D)
    by_rows = torch.func.jacrev(m)(x)
    assert_near(torch.func.jacfwd(m)(x), by_rows)
    assert_near(torch.autograd.functional.jacobian(m, x, vectorize=True), by_rows)
    assert_near(torch.func.vmap(m)(torch.stack((x, 2 * x)))[1], m(2 * x))


@pytest.mark.parametrize("name", MAPS)
def test_second_derivatives(name):
    m = MAPS[name]().requires_grad_(False)

    def loss(x):
        return (m(x) ** 2).sum()

    x = tokens(5, D)
    assert torch.autograd.gradgradcheck(loss, x.requires_grad_(), fast_mode=True)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", MAPS)
def test_what_enters_late_changes_nothing_earlier(name, bad):
    m = MAPS[name]().requires_grad_(False)
    x = tokens(150, D)
    changed = x.clone()
    changed[140] = bad
    got = m(changed)
    assert_near(got[:140], m(x)[:140])
    assert not torch.isfinite(got[140]).any()
