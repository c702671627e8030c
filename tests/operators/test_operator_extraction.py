"""Path, Jacobian and secant operators: what each promises, and what none of them may hide."""

import itertools
import math

import pytest
import torch
from helpers import F64, mlp, randn

from ssmbook.operators import RecurrentOperator, jacobian_operator, path_operator, secant_operator


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


@pytest.mark.parametrize("batch", [(), (2,), (2, 3), (0,)])
@pytest.mark.parametrize("points", [1, 16])
def test_a_linear_map_has_its_matrix_as_path_operator_and_jacobian(batch, points):
    n, N = 5, 4
    W = RecurrentOperator(0.5 * randn(n, N, N), randn(n, N, 3), randn(n, 2, N), randn(n, 2, 3, seed=1))
    x = randn(*batch, n, 3)
    for found in (path_operator(W.apply, x, points), jacobian_operator(W.apply, x)):
        assert found.batch_shape == batch and not found.W.requires_grad
        assert torch.allclose(found.to_dense(), W.to_dense().expand(*batch, n, n, 2, 3), atol=1e-12)


@pytest.mark.parametrize(("F", "r"), [(linear_attention, 3), (lambda x: x.abs().sqrt() * x, 1.5)])
def test_homogeneous_maps_have_the_jacobian_over_the_degree(F, r):
    x = randn(6, 3)
    path, jacobian = path_operator(F, x, 64), jacobian_operator(F, x)
    assert torch.allclose(path.to_dense(), jacobian.to_dense() / r, atol=1e-5 if r == 1.5 else 1e-11)
    assert torch.allclose(jacobian.apply(x), r * F(x), rtol=1e-11)


@pytest.mark.parametrize(("F", "r"), [(row_normalized, 1), (rms_norm, 0)])
def test_maps_without_a_value_at_zero_leave_only_the_jacobian(F, r):
    x = randn(6, 3)
    assert torch.allclose(jacobian_operator(F, x).apply(x), r * F(x), rtol=1e-10, atol=1e-12)
    with pytest.raises(ValueError, match=r"F\(0\) must"):
        path_operator(F, x)


def test_the_jacobian_is_not_an_interaction_operator_in_general():
    F, x = mlp(torch.tanh), randn(4, 3)
    assert not torch.allclose(jacobian_operator(F, x).apply(x), F(x), rtol=1e-2)


@pytest.mark.parametrize(
    "F", [mlp(torch.relu), mlp(torch.tanh), mlp(torch.nn.functional.silu), softmax_attention, torch.sin]
)
@pytest.mark.parametrize("batch", [(), (3,)])
def test_the_path_operator_reproduces_the_map(F, batch):
    x = 0.5 * randn(*batch, 5, 3)
    W = path_operator(F, x, rtol=1e-10)
    assert torch.allclose(W.apply(x), F(x), rtol=0, atol=1e-9)


def test_a_map_that_vanishes_meets_its_tolerance():
    x = randn(4, 3)
    W = path_operator(lambda x: 0.0 * x, x, rtol=1e-12)
    assert bool((W.to_dense() == 0).all())
    swirl = path_operator(lambda v: v * (1 - v.square()), torch.ones(2, 1, dtype=F64), rtol=1e-12)
    assert torch.allclose(swirl.to_dense(), torch.zeros(2, 2, 1, 1, dtype=F64), atol=1e-14)


@pytest.mark.parametrize("F", [softmax_attention, linear_attention, mlp(torch.tanh)])
def test_causality_is_kept(F):
    x = randn(6, 3)
    for W in (path_operator(F, x), jacobian_operator(F, x)):
        assert bool((W.block_norms().triu(1) == 0).all()) and bool((W.block_norms().diagonal() > 0).all())


def test_batch_elements_are_extracted_one_by_one():
    x = randn(3, 4, 3)
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
        path_operator(lambda x: x + offset, randn(5, 3))
    with pytest.raises(ValueError, match=r"largest entry -0\.25 at .* \(3, 1\)"):
        path_operator(lambda x: x + offset, randn(2, 4, 5, 3))
    with pytest.raises(ValueError, match=r"F\(0\) must be 0"):
        path_operator(lambda x: F(x) + 1e-9, randn(5, 3))
    assert jacobian_operator(lambda x: x + offset, randn(5, 3)).interaction_rank() == 1


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_an_offset_beyond_rounding_is_refused(size):
    F, x = mlp(torch.tanh), randn(5, 3)
    rounding = torch.finfo(F64).eps * float(F(x).abs().max()) * size
    assert path_operator(lambda x: size * F(x) + 100 * rounding, x).n == 5
    with pytest.raises(ValueError, match=r"F\(0\) must be 0"):
        path_operator(lambda x: size * F(x) + 1e4 * rounding, x)


@pytest.mark.parametrize(
    ("dtype", "last_digits", "more"),
    [(F64, 3e-5, 1e-3), (torch.float32, 3e-5, 1e-3), (torch.bfloat16, 0.05, 0.3)],
)
def test_a_map_may_move_its_last_digits_from_call_to_call(dtype, last_digits, more):
    """The last digits of float32, in which a part of it may work, or of its own shorter dtype."""

    def unsteady(share):
        calls = itertools.count()
        return lambda x: x * (1 + share * (next(calls) % 2))

    x = randn(2, 5, 3).to(dtype)
    assert jacobian_operator(unsteady(last_digits), x).n == 5
    with pytest.raises(ValueError, match="got a result that changes when F is called again"):
        jacobian_operator(unsteady(more), x)


def test_elements_of_a_batch_may_touch_by_rounding_and_no_more():
    def touching(share):
        return lambda x: x + share * torch.finfo(F64).eps * x.flip(0)

    assert jacobian_operator(touching(100), randn(2, 5, 3)).n == 5
    with pytest.raises(ValueError, match="changes with the other elements of the batch"):
        jacobian_operator(touching(1e5), randn(2, 5, 3))


def test_what_is_not_a_sequence_map_is_refused():
    x = randn(5, 3)
    with pytest.raises(ValueError, match=r"F\(x\) must have shape \(\.\.\., n, p\) with n = 5; got \(3,\)"):
        path_operator(lambda x: x.sum(-2), x)
    with pytest.raises(TypeError, match=r"F\(x\) must"):
        path_operator(lambda x: x.float(), x)
    with pytest.raises(TypeError, match=r"F\(x\) must be a floating-point torch.Tensor; got list"):
        jacobian_operator(lambda x: x.tolist(), x)
    with pytest.raises(ValueError, match=r"F\(x\) must be differentiable"):
        path_operator(lambda x: x.detach().sin(), x)
    with pytest.raises(ValueError, match="stacked along a new leading dimension"):
        path_operator(lambda x: x - x.mean(0), x)
    with pytest.raises(ValueError, match=r"got shape \(2, 15\) for an input of shape \(2, 5, 3\)"):
        path_operator(lambda x: x if x.ndim == 2 else x.flatten(1), x)
    with pytest.raises(ValueError, match=r"got shape \(\) for an input of shape \(2, 5, 3\)"):
        path_operator(lambda x: x if x.ndim == 2 else x.tolist(), x)
    for operator in (path_operator, jacobian_operator):
        with pytest.raises(ValueError, match="^x must be finite"):
            operator(lambda x: x, x * torch.nan)
    with pytest.raises(ValueError, match=r"F\(0\) must"):
        path_operator(lambda x: x / x.norm(dim=-1, keepdim=True), x)
    for operator in (path_operator, jacobian_operator):
        with pytest.raises(ValueError, match=r"F\(x\) must be finite"):
            operator(lambda z: z / (z[..., :1, :1] - x[0, 0]), x)
    with pytest.raises(ValueError, match="the gradient of F must be finite"):
        jacobian_operator(lambda x: x.abs().sqrt(), torch.zeros(2, 2, dtype=F64))


def test_empty_sequences_and_unbatched_scalars():
    for batch in ((), (2,)):
        W = path_operator(torch.tanh, torch.zeros(*batch, 0, 3, dtype=F64))
        assert W.to_dense().shape == (*batch, 0, 0, 3, 3) and torch.equal(
            torch.as_tensor(W.interaction_rank()), torch.zeros(batch, dtype=torch.int64)
        )
        for extract in (path_operator, jacobian_operator):
            W = extract(lambda x: x[..., :0], torch.zeros(*batch, 2, 3, dtype=F64))
            assert W.to_dense().shape == (*batch, 2, 2, 0, 3)
        bias = torch.ones(3, dtype=F64, requires_grad=True)  # a graph, but not of x
        W = jacobian_operator(lambda x, bias=bias: 0 * x.detach() + bias, torch.ones(*batch, 2, 3, dtype=F64))
        assert W.to_dense().shape == (*batch, 2, 2, 3, 3) and not W.to_dense().any()
        W = jacobian_operator(lambda x: 0 * x.detach(), torch.ones(*batch, 2, 3, dtype=F64))
        assert W.to_dense().shape == (*batch, 2, 2, 3, 3) and not W.to_dense().any()
        assert (
            secant_operator(torch.zeros(*batch, 0, 2, dtype=F64), torch.zeros(*batch, 0, 3, dtype=F64)).n == 0
        )


def test_parameters_and_inputs_of_the_callable_are_left_alone():
    layer = torch.nn.Linear(3, 2, bias=False, dtype=F64)
    x = randn(4, 3).requires_grad_()
    with torch.no_grad():
        W = path_operator(layer, x)
    assert layer.weight.grad is None and x.grad is None
    assert torch.allclose(W.to_dense()[2, 2], layer.weight.detach(), atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_extraction_keeps_the_dtype(dtype):
    x = randn(3, 2).to(dtype)
    results = [path_operator(torch.tanh, x), jacobian_operator(torch.tanh, x), secant_operator(x.tanh(), x)]
    for W in results:
        assert W.dtype == dtype and W.apply(x).dtype == dtype


@pytest.mark.parametrize("batch", [(), (2,), (0,)])
def test_the_secant_operator_hits_any_target(batch):
    x, y = randn(*batch, 5, 3), randn(*batch, 5, 2, seed=1)
    W = secant_operator(y, x)
    assert torch.allclose(W.apply(x), y, atol=1e-13)
    if batch == ():
        assert W.interaction_rank() == 6
        huge = secant_operator(y, 1e200 * x)
        assert torch.allclose(huge.apply(1e200 * x), y, atol=1e-12)


def test_the_secant_operator_at_zero():
    zero, y = torch.zeros(4, 3, dtype=F64), randn(4, 2)
    assert bool((secant_operator(0 * y, zero).to_dense() == 0).all())
    with pytest.raises(ValueError, match="y must be 0 where x is 0"):
        secant_operator(y, zero)
