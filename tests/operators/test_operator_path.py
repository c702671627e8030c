"""The path operator adapts to the map: it reproduces what it is given, or refuses."""

import pytest
import torch
from helpers import F64, mlp, randn
from hypothesis import given, settings
from hypothesis import strategies as st

from ssmbook.operators import path_operator


def test_gauss_legendre_is_exact_for_polynomials_up_to_its_degree():
    x = randn(3, 2)
    for degree in range(1, 9):
        W = path_operator(lambda x, r=degree: x.pow(r), x, 4)
        assert torch.allclose(W.apply(x), x.pow(degree), rtol=1e-12)
    with pytest.raises(ValueError, match="max_points = 4"):
        path_operator(lambda x: x.pow(9), x, 4, max_points=4)


def test_the_ray_is_bisected_until_the_identity_holds():
    x = 8 * randn(4, 3)
    F = mlp(torch.tanh)
    for rtol in (1e-3, 1e-6, 1e-11):
        W = path_operator(F, x, 4, rtol=rtol)
        assert (W.apply(x) - F(x)).norm() <= rtol * F(x).norm()
    with pytest.raises(ValueError, match="max_points = 8"):
        path_operator(F, x, 4, rtol=1e-8, max_points=8)


def rms_like(eps):
    return lambda x: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def biased_relu(x):
    bias = randn(12, seed=3)
    return torch.relu(x @ randn(12, x.shape[-1]).mT + bias) - torch.relu(bias)


def layer_norm(x):
    return torch.nn.functional.layer_norm(x, x.shape[-1:]) @ randn(4, x.shape[-1]).mT


STEEP = {
    "RMSNorm": rms_like(1e-6),
    "RMSNorm of a tiny floor": rms_like(1e-12),
    "LayerNorm and a matrix": layer_norm,
    "many kinks": biased_relu,
    "saturated gates": lambda x: torch.tanh(30 * x.cumsum(-2)) * x.sigmoid(),
    "wiggles": lambda x: torch.sin(40 * torch.tanh(x)),
    "a kink and a root": lambda x: torch.relu(x.abs().sqrt() * x - 0.1),
}


@pytest.mark.parametrize(("batch", "scale"), [((), 1e-3), ((3,), 1.0), ((), 100.0), ((3,), 100.0)])
@pytest.mark.parametrize("name", STEEP)
def test_by_default_it_reproduces_maps_that_sixteen_nodes_do_not(name, scale, batch):
    F, x = STEEP[name], scale * randn(*batch, 5, 6)
    if name == "many kinks":
        x = x[..., :2, :]  # the elements of a batch share their panels, and each kink wants twenty
    y = F(x)
    miss = torch.linalg.matrix_norm(path_operator(F, x).apply(x) - y)
    assert bool((miss <= 1e-6 * torch.maximum(*map(torch.linalg.matrix_norm, (y, F(0.5 * x))))).all())


@pytest.mark.guards("thm-path-operator")
@settings(max_examples=20, deadline=None)
@given(at=st.floats(0.01, 0.99), jump=st.floats(0.1, 10.0), scale=st.floats(0.1, 30.0))
def test_a_kink_anywhere_on_the_ray_is_found(at, jump, scale):
    x = scale * randn(2, 2).abs()
    F = lambda z: z + jump * torch.relu(z - at * x)  # noqa: E731
    W = path_operator(F, x)
    assert torch.allclose(
        W.to_dense().diagonal(0, 0, 1).diagonal(0, 0, 1), 1 + jump * (1 - at) + 0 * x, rtol=1e-4
    )
    assert torch.allclose(W.apply(x), F(x), rtol=3e-6)


@pytest.mark.parametrize("hidden", [lambda x: x.detach() ** 2, torch.round, lambda x: 1e-5 * x.detach()])
def test_what_autograd_does_not_see_is_refused(hidden):
    for x in (randn(3, 4), randn(2, 3, 4)):
        with pytest.raises(ValueError, match="rtol"):
            path_operator(lambda x: hidden(x) + 0.1 * x, x)


def test_a_zero_map_and_one_that_cancels_meet_their_tolerance():
    assert bool((path_operator(lambda x: 0.0 * x, randn(4, 3), rtol=1e-12).to_dense() == 0).all())
    swirl = path_operator(lambda v: v * (1 - v.square()), torch.ones(2, 1, dtype=F64), rtol=1e-12)
    assert torch.allclose(swirl.to_dense(), torch.zeros(2, 2, 1, 1, dtype=F64), atol=1e-14)


def test_every_batch_element_is_reproduced_relative_to_its_own_size():
    small, large = 1e-9 * randn(3, 2), randn(3, 2)
    F = lambda x: x + 1e-12 * torch.tanh(1e9 * x.detach())  # noqa: E731
    assert path_operator(F, large).n == 3
    with pytest.raises(ValueError, match="rtol"):
        path_operator(F, torch.stack([large, small]))


def half_single(x):
    """A mixer in float64 with a norm in float32 inside."""
    mixed = (torch.tril(x @ x.mT) @ x).float()
    return (mixed * torch.rsqrt(mixed.square().mean(-1, keepdim=True) + 1e-5)).double() @ randn(4, 4)


def test_a_float32_part_inside_a_float64_map_needs_its_tolerance():
    x = randn(6, 4)
    W = path_operator(half_single, x, rtol=3e-4)
    assert (W.apply(x) - half_single(x)).norm() <= 3e-4 * half_single(x).norm()
    with pytest.raises(ValueError, match="float32"):
        path_operator(half_single, x, rtol=1e-12)
