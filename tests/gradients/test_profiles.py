"""Gradient profiles by autograd: exact blocks for any callable, the law of linear recurrences."""

import math

import pytest
import torch
from helpers import F64, gen, randn

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
    blocks = gradients.jacobian_blocks(mixing, x, target)
    assert blocks.shape == (2, 3, 7, 2, 3)
    for a in range(2):
        for b in range(3):
            full = torch.autograd.functional.jacobian(mixing, x[a, b])  # (n, p, n, d)
            assert torch.allclose(blocks[a, b], full[target].permute(1, 0, 2), atol=1e-13)


def test_profile_counts_distance_backwards_from_the_target():
    x = randn(6, 3)
    distances, norms = gradients.gradient_profile(mixing, x, 4)
    blocks = gradients.jacobian_blocks(mixing, x, 4)
    assert distances.tolist() == [0, 1, 2, 3, 4] and distances.dtype == torch.int64 and norms.shape == (5,)
    for tau in range(5):
        assert float(norms[tau]) == pytest.approx(float(torch.linalg.svdvals(blocks[4 - tau])[0]), rel=1e-12)


@pytest.mark.guards("thm-gradient-highway")
@pytest.mark.guards("prop-lti-decay")
@pytest.mark.parametrize("rho", [0.5, 0.9, 0.99, 1.0])
def test_scaled_orthogonal_recurrence_decays_by_rho_exactly(rho):
    Q = torch.linalg.qr(randn(4, 4)).Q
    distances, norms = gradients.gradient_profile(
        lti(rho * Q, torch.eye(4).double(), torch.eye(4).double()), randn(400, 4)
    )
    assert torch.allclose(norms, rho ** distances.double(), rtol=1e-12)
    assert gradients.fit_log_slope(distances, norms).slope == pytest.approx(math.log(rho), abs=1e-12)


def test_profile_leaves_everything_as_it_was():
    x = randn(5, 3)
    kept, weight = x.clone(), randn(3, 3, seed=1).requires_grad_()
    with torch.no_grad():
        _, norms = gradients.gradient_profile(lambda z: torch.tanh(z @ weight), x)
    assert torch.equal(x, kept) and not x.requires_grad and weight.grad is None and not norms.requires_grad
    assert float(norms[0]) > 0 and float(norms[1:].abs().max()) == 0  # tokens do not mix
    single = gradients.gradient_profile(mixing, x.float())
    assert single[1].dtype == torch.float32


def test_custom_autograd_functions_without_batching_rules_work():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.from_numpy(x.detach().numpy() ** 2).cumsum(-2)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return torch.from_numpy(2 * x.numpy() * g.flip(-2).cumsum(-2).flip(-2).numpy())

    x = randn(6, 2)
    blocks = gradients.jacobian_blocks(Square.apply, x)
    assert torch.allclose(blocks, torch.diag_embed(2 * x), atol=1e-15)


def test_empty_batches_and_single_tokens():
    assert gradients.gradient_profile(mixing, randn(0, 4, 3))[1].shape == (0, 4)
    distances, norms = gradients.gradient_profile(mixing, randn(1, 3))
    assert distances.tolist() == [0] and norms.shape == (1,)


def test_bad_arguments_are_refused_by_name():
    x = randn(4, 3)
    bad = [
        (lambda: gradients.gradient_profile(mixing, x, 4), ValueError, "target must be between -4 and 3"),
        (lambda: gradients.gradient_profile(mixing, x[:0]), ValueError, "target must be"),
        (lambda: gradients.gradient_profile(mixing, x, 1.0), TypeError, "target must"),
        (lambda: gradients.gradient_profile(mixing, x.long()), TypeError, "x must be"),
        (lambda: gradients.gradient_profile(mixing, x * math.nan), ValueError, "x must"),
        (lambda: gradients.gradient_profile(mixing, x[0]), ValueError, "x must"),
        (lambda: gradients.gradient_profile(lambda z: z[:2], x), ValueError, r"F\(x\) must"),
        (lambda: gradients.gradient_profile(lambda z: (z, z), x), TypeError, r"F\(x\) must be .*got tuple"),
        (
            lambda: gradients.gradient_profile(lambda z: z.detach(), x),
            ValueError,
            r"F\(x\) must be differentiable",
        ),
    ]
    for call, error, words in bad:
        with pytest.raises(error, match=words):
            call()


MIXING = {
    "mean of the batch": lambda x: x - x.mean(0, keepdim=True),
    "neighbor in the batch": lambda x: x * x.roll(1, 0),
    "last batch dimension": lambda x: x + x.cumsum(-3),
    "no gradient leads there": lambda x: x * x.detach().square().mean((0, -1), keepdim=True),
    "through a maximum": lambda x: x / x.abs().amax(),
}


@pytest.mark.parametrize("name", MIXING)
def test_a_map_that_mixes_its_batch_is_refused_by_both_jacobians(name):
    F = MIXING[name]
    for batch in ((2,), (3, 5)):
        x = randn(*batch, 4, 2)
        for extract in (gradients.jacobian_blocks, gradients.gradient_profile, jacobian_operator):
            with pytest.raises(
                ValueError, match="each batch element by itself .* other elements of the batch"
            ):
                extract(F, x)


def test_one_implementation_serves_the_row_and_the_whole():
    x = randn(2, 3, 5, 3)
    whole = jacobian_operator(mixing, x)
    for target in (0, 3, -1):
        assert torch.equal(gradients.jacobian_blocks(mixing, x, target), whole.row(range(5)[target]))


def test_a_map_that_changes_from_call_to_call_is_refused():
    generator = gen(0)

    def noisy(x):
        return x * torch.rand(x.shape, generator=generator, dtype=x.dtype)

    with pytest.raises(ValueError, match="when F is called again"):
        gradients.jacobian_blocks(noisy, randn(4, 3))


def test_a_map_may_write_into_its_argument():
    def doubled(x):
        x *= 2
        return x * x

    x = randn(4, 3)
    kept = x.clone()
    assert torch.allclose(gradients.jacobian_blocks(doubled, x)[-1], torch.diag(8 * x[-1]))
    assert torch.equal(x, kept)


def test_a_gradient_that_is_not_finite_is_named():
    with pytest.raises(ValueError, match="the gradient of F must be finite; got 6"):
        gradients.gradient_profile(lambda z: z.abs().sqrt(), torch.zeros(2, 3, dtype=F64))
