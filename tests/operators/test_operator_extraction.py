"""Path, Jacobian and secant operators: what each promises, and what none of them may hide."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ssmbook.operators import RecurrentOperator, jacobian_operator, path_operator, secant_operator

F64 = torch.float64


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + 1000 * len(shape)), dtype=F64)


def linear_attention(x):
    return (x @ x.mT).tril() @ x


def row_normalized(x):
    weights = (x @ x.mT).square().tril()
    return weights / weights.sum(-1, keepdim=True) @ x


def rms_norm(x):
    return x / x.square().mean(-1, keepdim=True).sqrt()


def softmax_attention(x):
    hidden = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool, device=x.device).triu(1)
    return (x @ x.mT).masked_fill(hidden, -math.inf).softmax(-1) @ x


def mlp(activation, seed=0):
    W1, W2 = random(9, 3, seed=seed), random(2, 9, seed=seed + 1)
    return lambda x: activation(x.cumsum(-2) @ W1.mT) @ W2.mT


@pytest.mark.parametrize("batch", [(), (2,), (2, 3), (0,)])
@pytest.mark.parametrize("points", [1, 16])
def test_a_linear_map_has_its_matrix_as_path_operator_and_jacobian(batch, points):
    n, N = 5, 4
    W = RecurrentOperator(0.5 * random(n, N, N), random(n, N, 3), random(n, 2, N), random(n, 2, 3, seed=1))
    x = random(*batch, n, 3)
    for found in (path_operator(W.apply, x, points), jacobian_operator(W.apply, x)):
        assert found.batch_shape == batch and not found.W.requires_grad
        assert torch.allclose(found.to_dense(), W.to_dense().expand(*batch, n, n, 2, 3), atol=1e-12)


@pytest.mark.parametrize(("F", "r"), [(linear_attention, 3), (lambda x: x.abs().sqrt() * x, 1.5)])
def test_homogeneous_maps_have_the_jacobian_over_the_degree(F, r):
    x = random(6, 3)
    path, jacobian = path_operator(F, x, 64), jacobian_operator(F, x)
    assert torch.allclose(path.to_dense(), jacobian.to_dense() / r, atol=1e-5 if r == 1.5 else 1e-11)
    assert torch.allclose(jacobian.apply(x), r * F(x), rtol=1e-11)


@pytest.mark.parametrize(("F", "r"), [(row_normalized, 1), (rms_norm, 0)])
def test_maps_without_a_value_at_zero_leave_only_the_jacobian(F, r):
    x = random(6, 3)
    assert torch.allclose(jacobian_operator(F, x).apply(x), r * F(x), rtol=1e-10, atol=1e-12)
    with pytest.raises(ValueError, match=r"F\(0\) must be finite"):
        path_operator(F, x)


def test_the_jacobian_is_not_an_interaction_operator_in_general():
    F, x = mlp(torch.tanh), random(4, 3)
    assert not torch.allclose(jacobian_operator(F, x).apply(x), F(x), rtol=1e-2)


@pytest.mark.parametrize(
    "F", [mlp(torch.relu), mlp(torch.tanh), mlp(torch.nn.functional.silu), softmax_attention, torch.sin]
)
@pytest.mark.parametrize("batch", [(), (3,)])
def test_the_path_operator_reproduces_the_map(F, batch):
    x = 0.5 * random(*batch, 5, 3)
    W = path_operator(F, x, rtol=1e-10)
    assert torch.allclose(W.apply(x), F(x), rtol=0, atol=1e-9)


def test_gauss_legendre_is_exact_for_polynomials_up_to_its_degree():
    x = random(3, 2)
    for degree in range(1, 9):
        W = path_operator(lambda x, r=degree: x.pow(r), x, 4)
        assert torch.allclose(W.apply(x), x.pow(degree), rtol=1e-12)
    with pytest.raises(ValueError, match="max_points = 4"):
        path_operator(lambda x: x.pow(9), x, 4, max_points=4)


def test_the_ray_is_bisected_until_the_identity_holds():
    x = 8 * random(4, 3)
    F = mlp(torch.tanh)
    for rtol in (1e-3, 1e-6, 1e-11):
        W = path_operator(F, x, 4, rtol=rtol)
        assert (W.apply(x) - F(x)).norm() <= rtol * F(x).norm()
    with pytest.raises(ValueError, match="rtol must be reachable with max_points = 8: 8 nodes leave"):
        path_operator(F, x, 4, rtol=1e-8, max_points=8)


def rms_like(eps):
    return lambda x: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def biased_relu(x):
    bias = random(12, seed=3)
    return torch.relu(x @ random(12, x.shape[-1]).mT + bias) - torch.relu(bias)


def layer_norm(x):
    return torch.nn.functional.layer_norm(x, x.shape[-1:]) @ random(4, x.shape[-1]).mT


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
    F, x = STEEP[name], scale * random(*batch, 5, 6)
    if name == "many kinks":
        x = x[..., :2, :]  # the elements of a batch share their panels, and each kink wants twenty
    y = F(x)
    miss = torch.linalg.matrix_norm(path_operator(F, x).apply(x) - y)
    assert bool((miss <= 1e-6 * torch.maximum(*map(torch.linalg.matrix_norm, (y, F(0.5 * x))))).all())


@settings(max_examples=30, deadline=None)
@given(at=st.floats(0.01, 0.99), jump=st.floats(0.1, 10.0), scale=st.floats(0.1, 30.0))
def test_a_kink_anywhere_on_the_ray_is_found(at, jump, scale):
    x = scale * random(2, 2).abs()
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
    x = random(*batch, 3, 4)
    with pytest.raises(ValueError, match=r"leave ‖F\(x\) − W x‖ ≈ .* against a tolerance of") as refusal:
        path_operator(lambda x: hidden(x) + 0.1 * x, x)
    said = float(str(refusal.value).split("W x‖ ≈ ")[1].split()[0])
    misses = torch.linalg.matrix_norm(hidden(x))
    assert float(misses.min()) / 2 < said < 2 * float(misses.max())


def test_every_batch_element_is_held_to_its_own_size():
    small, large = 1e-9 * random(3, 2), random(3, 2)
    F = lambda x: x + 1e-12 * torch.tanh(1e9 * x.detach())  # noqa: E731
    assert path_operator(F, large).n == 3
    with pytest.raises(ValueError, match="‖F"):
        path_operator(F, torch.stack([large, small]))


def half_single(x):
    """A mixer in float64 with a norm in float32 inside: stacking may change its last float32 digits."""
    mixed = (torch.tril(x @ x.mT) @ x).float()
    together = mixed if x.ndim == 2 else mixed * (1 + 1e-7)
    return (together * torch.rsqrt(together.square().mean(-1, keepdim=True) + 1e-5)).double() @ random(4, 4)


@pytest.mark.parametrize("scale", [0.3, 3.0])
def test_a_float32_part_inside_a_float64_map_is_accepted(scale):
    x = scale * random(2, 6, 4)
    W = path_operator(half_single, x)
    assert W.dtype == F64
    assert torch.linalg.matrix_norm(W.apply(x) - half_single(x)).max() <= 5e-4 * half_single(x).norm()
    assert jacobian_operator(half_single, x).n == 6
    with pytest.raises(ValueError, match="rtol must be reachable"):
        path_operator(half_single, x, rtol=1e-12)
    with pytest.raises(ValueError, match="other elements of the batch"):
        path_operator(lambda z: half_single(z) + 1e-9 * z.mean(0), x)


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
        x = scale * random(5, 8)
        W = path_operator(F, x)
        assert (W.apply(x) - F(x)).norm() <= 5e-4 * F(x).norm()


def test_a_map_that_vanishes_meets_its_tolerance():
    x = random(4, 3)
    W = path_operator(lambda x: 0.0 * x, x, rtol=1e-12)
    assert bool((W.to_dense() == 0).all())
    swirl = path_operator(lambda v: v * (1 - v.square()), torch.ones(2, 1, dtype=F64), rtol=1e-12)
    assert torch.allclose(swirl.to_dense(), torch.zeros(2, 2, 1, 1, dtype=F64), atol=1e-14)


@pytest.mark.parametrize("F", [softmax_attention, linear_attention, mlp(torch.tanh)])
def test_causality_is_kept(F):
    x = random(6, 3)
    for W in (path_operator(F, x), jacobian_operator(F, x)):
        assert bool((W.block_norms().triu(1) == 0).all()) and bool((W.block_norms().diagonal() > 0).all())


def test_batch_elements_are_extracted_one_by_one():
    x = random(3, 4, 3)
    together = path_operator(softmax_attention, x).to_dense()
    for b in range(3):
        assert torch.allclose(together[b], path_operator(softmax_attention, x[b]).to_dense(), atol=1e-13)


def test_an_offset_is_reported_with_its_size_and_place():
    offset = torch.zeros(5, 3, dtype=F64)
    offset[3, 1] = -0.25
    F = mlp(torch.tanh)
    with pytest.raises(
        ValueError, match=r"F\(0\) must be 0.*norm 0\.25, largest entry -0\.25 at .* \(3, 1\)"
    ):
        path_operator(lambda x: x + offset, random(5, 3))
    with pytest.raises(ValueError, match=r"F\(0\) must be 0"):
        path_operator(lambda x: F(x) + 1e-9, random(5, 3))
    assert jacobian_operator(lambda x: x + offset, random(5, 3)).interaction_rank() == 1


def test_what_is_not_a_sequence_map_is_refused():
    x = random(5, 3)
    with pytest.raises(ValueError, match=r"F\(x\) must have shape \(\.\.\., n, p\) with n = 5; got \(3,\)"):
        path_operator(lambda x: x.sum(-2), x)
    with pytest.raises(TypeError, match=r"F\(x\) must have the dtype of x"):
        path_operator(lambda x: x.float(), x)
    with pytest.raises(TypeError, match=r"F\(x\) must be a floating-point torch.Tensor; got list"):
        jacobian_operator(lambda x: x.tolist(), x)
    with pytest.raises(ValueError, match=r"F\(x\) must be differentiable"):
        path_operator(lambda x: x.detach().sin(), x)
    with pytest.raises(ValueError, match="stacked along a new leading dimension"):
        path_operator(lambda x: x - x.mean(0), x)
    with pytest.raises(ValueError, match=r"F\(0\) must be finite"):
        path_operator(lambda x: x / x.norm(dim=-1, keepdim=True), x)
    with pytest.raises(ValueError, match=r"F\(x\) must be finite"):
        jacobian_operator(lambda x: x / 0, x)
    with pytest.raises(ValueError, match="the gradient of F must be finite"):
        jacobian_operator(lambda x: x.abs().sqrt(), torch.zeros(2, 2, dtype=F64))


def test_empty_sequences_and_unbatched_scalars():
    for batch in ((), (2,)):
        W = path_operator(torch.tanh, torch.zeros(*batch, 0, 3, dtype=F64))
        assert W.to_dense().shape == (*batch, 0, 0, 3, 3) and torch.equal(
            torch.as_tensor(W.interaction_rank()), torch.zeros(batch, dtype=torch.int64)
        )
        assert (
            secant_operator(torch.zeros(*batch, 0, 2, dtype=F64), torch.zeros(*batch, 0, 3, dtype=F64)).n == 0
        )


def test_parameters_and_inputs_of_the_callable_are_left_alone():
    layer = torch.nn.Linear(3, 2, bias=False, dtype=F64)
    x = random(4, 3).requires_grad_()
    with torch.no_grad():
        W = path_operator(layer, x)
    assert layer.weight.grad is None and x.grad is None
    assert torch.allclose(W.to_dense()[2, 2], layer.weight.detach(), atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_extraction_keeps_the_dtype(dtype):
    x = random(3, 2).to(dtype)
    results = [path_operator(torch.tanh, x), jacobian_operator(torch.tanh, x), secant_operator(x.tanh(), x)]
    for W in results:
        assert W.dtype == dtype and W.apply(x).dtype == dtype


@pytest.mark.parametrize("batch", [(), (2,), (0,)])
def test_the_secant_operator_hits_any_target(batch):
    x, y = random(*batch, 5, 3), random(*batch, 5, 2, seed=1)
    W = secant_operator(y, x)
    assert torch.allclose(W.apply(x), y, atol=1e-13)
    if batch == ():
        assert W.interaction_rank() == 6
        huge = secant_operator(y, 1e200 * x)
        assert torch.allclose(huge.apply(1e200 * x), y, atol=1e-12)


def test_the_secant_operator_at_zero():
    zero, y = torch.zeros(4, 3, dtype=F64), random(4, 2)
    assert bool((secant_operator(0 * y, zero).to_dense() == 0).all())
    with pytest.raises(ValueError, match="y must be 0 where x is 0"):
        secant_operator(y, zero)
