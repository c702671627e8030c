"""The path operator adapts to the map: it reproduces what it is given, or says by how much it does not."""

import pytest
import torch
from helpers import F64, mlp, randn
from hypothesis import given, settings
from hypothesis import strategies as st

from ssmbook.operators import jacobian_operator, path_operator
from ssmbook.operators.pullback import separate_pullback
from ssmbook.operators.quadrature import relative_noise


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
    with pytest.raises(ValueError, match="rtol must be reachable with max_points = 8: 8 nodes leave"):
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


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("name", STEEP)
def test_by_default_it_reproduces_maps_that_sixteen_nodes_do_not(name, scale, batch):
    F, x = STEEP[name], scale * randn(*batch, 5, 6)
    if name == "many kinks":
        x = x[..., :2, :]  # the elements of a batch share their panels, and each kink wants twenty
    y = F(x)
    miss = torch.linalg.matrix_norm(path_operator(F, x).apply(x) - y)
    assert bool((miss <= 1e-6 * torch.maximum(*map(torch.linalg.matrix_norm, (y, F(0.5 * x))))).all())


@settings(max_examples=30, deadline=None)
@given(at=st.floats(0.01, 0.99), jump=st.floats(0.1, 10.0), scale=st.floats(0.1, 30.0))
def test_a_kink_anywhere_on_the_ray_is_found(at, jump, scale):
    x = scale * randn(2, 2).abs()
    F = lambda z: z + jump * torch.relu(z - at * x)  # noqa: E731
    W = path_operator(F, x)
    assert torch.allclose(
        W.to_dense().diagonal(0, 0, 1).diagonal(0, 0, 1), 1 + jump * (1 - at) + 0 * x, rtol=1e-4
    )
    assert torch.allclose(W.apply(x), F(x), rtol=3e-6)


HIDDEN = [
    lambda x: x.detach() ** 2,
    lambda x: torch.sign(x) + 0 * x,
    lambda x: 1e-3 * (x > 0.3),
    lambda x: x.round(),
    lambda x: 1e-5 * x.detach(),
]


@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_what_autograd_does_not_see_is_reported_with_its_size(hidden, batch):
    x = randn(*batch, 3, 4)
    message = r"max_points = 1024: \d+ nodes leave ‖F\(x\) − W x‖ ≈ .* against a tolerance of"
    with pytest.raises(ValueError, match=message) as refusal:
        path_operator(lambda x: hidden(x) + 0.1 * x, x)
    said = float(str(refusal.value).split("W x‖ ≈ ")[1].split()[0])
    misses = torch.linalg.matrix_norm(hidden(x))
    assert float(misses.min()) / 2 < said < 2 * float(misses.max())


def test_every_batch_element_is_held_to_its_own_size():
    small, large = 1e-9 * randn(3, 2), randn(3, 2)
    F = lambda x: x + 1e-12 * torch.tanh(1e9 * x.detach())  # noqa: E731
    assert path_operator(F, large).n == 3
    with pytest.raises(ValueError, match=r"‖F.* against a tolerance of \S+e-15"):
        path_operator(F, torch.stack([large, small]))


def half_single(x):
    """A mixer in float64 with a norm in float32 inside: stacking may change its last float32 digits."""
    mixed = (torch.tril(x @ x.mT) @ x).float()
    together = mixed if x.ndim == 2 else mixed * (1 + 1e-7)
    return (together * torch.rsqrt(together.square().mean(-1, keepdim=True) + 1e-5)).double() @ randn(4, 4)


@pytest.mark.parametrize("scale", [0.3, 3.0])
def test_a_float32_part_inside_a_float64_map_is_accepted(scale):
    x = scale * randn(2, 6, 4)
    W = path_operator(half_single, x)
    assert W.dtype == F64
    assert torch.linalg.matrix_norm(W.apply(x) - half_single(x)).max() <= 5e-4 * half_single(x).norm()
    assert jacobian_operator(half_single, x).n == 6
    with pytest.raises(ValueError, match="rtol must be reachable"):
        path_operator(half_single, x, rtol=1e-12)
    with pytest.raises(ValueError, match="other elements of the batch"):
        path_operator(lambda z: half_single(z) + 1e-9 * z.mean(0), x)


def test_tokens_of_zeros_are_asked_for_what_they_mix_as_well():
    V, x = randn(2, 2), randn(3, 4, 2)
    x[:, ::2] = 0
    separate_pullback(lambda z: z @ V, x)
    for tokens in (x, torch.zeros_like(x)):
        with pytest.raises(ValueError, match="other elements of the batch"):
            separate_pullback(lambda z: z @ V + z.mean(0), tokens)


@pytest.mark.parametrize("step", [-1, 1])
def test_elements_that_see_their_neighbor_on_one_side_are_found(step):
    to_one_side = torch.diag(torch.ones(1, dtype=F64), step)
    F = lambda z: z + torch.einsum("ab,bnd->and", to_one_side, z) if z.ndim == 3 else z  # noqa: E731
    with pytest.raises(ValueError, match="other elements of the batch"):
        separate_pullback(F, randn(2, 3, 2))
    with pytest.raises(ValueError, match="other elements of the batch"):  # the first and the last of three
        separate_pullback(lambda z: z + z.flip(0), randn(3, 3, 2))


@pytest.mark.parametrize("rounding", [0.0, 1e-8])
def test_a_map_that_vanishes_at_x_is_judged_by_its_size_half_way(rounding):
    # Zero at X and at X/4, not at X/2: a tolerance relative to those zeros would be nothing.
    x = randn(3, 2)
    x = x / x.norm()

    def F(z):
        size = z.square().sum((-2, -1), keepdim=True)
        # Stacking may move the last digits of a map that works in float32 inside.
        return z * ((size - 1) * (size - 1 / 16) + (rounding if z.ndim == 2 else -rounding))

    W = path_operator(F, x)
    assert float((W @ x).norm()) < 1e-7 < float(W.to_dense().norm())


@pytest.mark.parametrize("extract", [path_operator, jacobian_operator])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_a_map_that_works_in_place_leaves_x_alone(extract, batch):
    x = randn(*batch, 4, 3)
    kept = x.clone()
    W = extract(lambda z: z.mul_(2), x)
    assert torch.equal(x, kept) and torch.allclose(W @ x, 2 * x)


def test_the_rounding_of_a_map_is_measured_and_not_its_steepness():
    x = randn(4, 3)
    eps = torch.finfo(F64).eps
    smooth = [torch.tanh, lambda x: torch.sin(2000 * x), lambda x: torch.relu(x - 0.3) * 1e6, lambda x: 0 * x]
    smooth += [lambda x: (x + 1e5) - 1e5]  # digits of float64 that cancel are no float32
    assert [relative_noise(F, x) for F in smooth] == [eps] * 5
    for F in (torch.tanh, lambda x: (x + 30) - 30):
        assert relative_noise(F, x.float()) == torch.finfo(torch.float32).eps
    for some in (x, torch.stack([x, 0 * x])):  # the largest over a batch
        assert 1e-9 < relative_noise(lambda x: torch.tanh(x.float()).double(), some) < 1e-6
    one = torch.tensor([[-0.9]], dtype=F64)  # a single number
    assert 1e-9 < relative_noise(lambda x: torch.tanh(x.float()).double(), one) < 1e-6
    # Rounded to steps of 2e-6, this map is out of reach of a tolerance of 3e-7.
    coarse = lambda x: ((x.float() + 30) - 30).double()  # noqa: E731
    assert 3e-7 < relative_noise(coarse, x) < 1e-5
    W = path_operator(coarse, x)
    assert 3e-7 < float((W.apply(x) - coarse(x)).norm() / x.norm()) < 3e-6
    with pytest.raises(ValueError, match="rtol must be reachable"):
        path_operator(coarse, x, rtol=3e-7)


def test_what_the_random_directions_cannot_see_is_found_in_the_end():
    x = randn(5, 4)
    probes = torch.linalg.qr(torch.randn(20, 16, generator=torch.Generator().manual_seed(0), dtype=F64)).Q
    unseen = torch.linalg.qr(probes, mode="complete").Q[:, -1].reshape(5, 4)

    def F(x):
        return x + unseen * x.detach().square().sum((-2, -1), keepdim=True)

    with pytest.raises(ValueError, match="rtol must be reachable"):
        path_operator(F, x)


@pytest.mark.parametrize(("seen", "rtol"), [(0.01, 1e-3), (0.02, 1e-6)])
def test_what_the_random_directions_hardly_see_is_followed_further(seen, rtol):
    x = randn(5, 4)
    probes = torch.linalg.qr(torch.randn(20, 16, generator=torch.Generator().manual_seed(0), dtype=F64)).Q
    basis = torch.linalg.qr(probes, mode="complete").Q
    bent = (seen * basis[:, 0] + basis[:, -1]).reshape(5, 4)

    def F(x):
        return x + bent * torch.relu(x.square().sum((-2, -1), keepdim=True) - 5.1)

    W = path_operator(F, x, 2, rtol=rtol)
    assert float((W @ x - F(x)).norm()) <= rtol * float(F(x).norm())


def test_the_mixer_of_another_library_with_its_float32_norm():
    transformers = pytest.importorskip("transformers")
    from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

    sizes = {"hidden_size": 8, "state_size": 4, "num_heads": 4, "head_dim": 4, "n_groups": 2, "chunk_size": 4}
    mixer = Mamba2Mixer(transformers.Mamba2Config(num_hidden_layers=1, **sizes), layer_idx=0).eval().double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator, dtype=F64))
        mixer.conv1d.bias.zero_()

    def F(x):
        return mixer(x.reshape(-1, *x.shape[-2:])).reshape(x.shape)

    for scale in (1.0, 30.0):
        x = scale * randn(5, 8)
        W = path_operator(F, x)
        assert (W.apply(x) - F(x)).norm() <= 5e-4 * F(x).norm()
