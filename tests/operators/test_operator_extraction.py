"""Path, Jacobian and secant operators: what each promises, and what none of them may hide."""

import pytest
import torch
from helpers import F64, mlp, randn

from ssmbook.operators import jacobian_operator, path_operator, secant_operator


def rms_norm(x):
    return x / x.square().mean(-1, keepdim=True).sqrt()


def test_maps_without_a_value_at_zero_leave_only_the_jacobian():
    x = randn(6, 3)
    assert torch.allclose(jacobian_operator(rms_norm, x).apply(x), torch.zeros_like(x), atol=1e-12)
    with pytest.raises(ValueError, match=r"F\(0\)"):
        path_operator(rms_norm, x)


def test_an_offset_is_kept_beside_the_operator():
    offset = torch.zeros(5, 3, dtype=F64)
    offset[3, 1] = -0.25
    for x in (randn(5, 3), randn(2, 4, 5, 3)):
        W = path_operator(lambda x: x + offset, x)
        assert torch.equal(W.offset, offset.expand_as(x)) and torch.allclose(W @ x, x)
    F, x = mlp(torch.tanh), randn(5, 3)
    for size in (1e3, 1e9):  # a bias far above what the map itself makes leaves only its rounding
        W = path_operator(lambda x, size=size: F(x) + size, x, rtol=1e-9)
        assert torch.allclose(W @ x + W.offset, F(x) + size, rtol=0, atol=1e-8 + 1e-12 * size)
        assert torch.allclose(W.to_dense(), path_operator(F, x).to_dense(), atol=1e-3)
    assert torch.equal(W.to(torch.float32).offset, W.offset.float())
    rounding = torch.finfo(F64).eps * float(F(x).abs().max())
    assert not path_operator(lambda x: F(x) + 100 * rounding, x).offset.any()
    assert path_operator(lambda x: F(x) + 1e4 * rounding, x).offset.all()
    layer = torch.nn.Sequential(torch.nn.Linear(3, 7), torch.nn.Tanh(), torch.nn.Linear(7, 2)).double()
    W = path_operator(layer.requires_grad_(False), x, rtol=1e-9)
    assert W.offset.any() and torch.allclose(W @ x + W.offset, layer(x), atol=1e-8)
    assert jacobian_operator(lambda x: x + offset, randn(5, 3)).interaction_rank() == 1


def refused():
    x, batch = randn(5, 3), randn(2, 5, 3)
    both = path_operator, jacobian_operator
    yield both, lambda x: x.sum(-2), x
    yield both, lambda x: x.tolist(), x
    yield both, lambda x: x.float(), x
    yield both, lambda x: x.detach().sin(), x
    yield both, lambda x: x, x * torch.nan
    yield both, lambda z: z / (z[..., :1, :1] - x[0, 0]), x
    yield both, lambda x: x + torch.rand_like(x), x  # dropout left on
    yield both, lambda x: x - x.mean(0), batch
    yield both, lambda x: x + x.roll(1, 0), batch
    yield (path_operator,), lambda x: x - x.mean(0), x  # its tokens, and the batch once there is one
    yield (path_operator,), lambda x: x if x.ndim == 2 else x.flatten(1), x
    whole = (lambda F, x: jacobian_operator(F, x).to_dense(),)
    yield whole, lambda x: x.abs().sqrt(), torch.zeros(2, 2, dtype=F64)


def test_what_is_not_a_sequence_map_is_refused():
    for extracts, F, x in refused():
        for extract in extracts:
            with pytest.raises((TypeError, ValueError), match="F|x must be finite"):
                extract(F, x)


def test_empty_sequences_and_maps_without_a_graph():
    W = path_operator(torch.tanh, torch.zeros(2, 0, 3, dtype=F64))
    assert W.shape == (2, 0, 0, 3, 3) and W.interaction_rank().tolist() == [0, 0]
    assert jacobian_operator(torch.tanh, torch.zeros(2, 0, 3, dtype=F64)).shape == (2, 0, 0, 3, 3)
    x, bias = torch.ones(2, 3, dtype=F64), torch.ones(3, dtype=F64, requires_grad=True)
    for extract in (path_operator, jacobian_operator):
        assert extract(lambda x: x[..., :0], x).shape == (2, 2, 0, 3)
    for F in (lambda x: 0 * x.detach() + bias, lambda x: 0 * x.detach()):  # a graph, but not of x, or none
        assert not jacobian_operator(F, x).to_dense().any()


def test_a_row_of_the_jacobian_takes_a_pass_for_each_of_its_entries():
    passes, x = [], randn(9, 3)

    class Counted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x[..., :2].cumsum(-2)

        @staticmethod
        def backward(ctx, g):
            passes.append(1)
            return torch.nn.functional.pad(2 * g.flip(-2).cumsum(-2).flip(-2), (0, 1))

    J = jacobian_operator(Counted.apply, x)
    assert torch.equal(J[-1, 0], 2 * torch.eye(2, 3, dtype=F64)) and len(passes) == 2
    assert torch.equal(J.to_dense()[:, 0], J.column(0)) and len(passes) == 2 + 9 * 2


def test_parameters_and_inputs_of_the_callable_are_left_alone():
    layer = torch.nn.Linear(3, 2, bias=False, dtype=F64)
    x = randn(4, 3).requires_grad_()
    with torch.no_grad():
        W = path_operator(layer, x)
    assert layer.weight.grad is None and x.grad is None and not W.W.requires_grad
    assert torch.allclose(W.to_dense()[2, 2], layer.weight.detach(), atol=1e-14)


@pytest.mark.guards("prop-non-uniqueness")
@pytest.mark.parametrize("batch", [(), (2,), (0,)])
def test_the_secant_operator_hits_any_target(batch):
    x, y = randn(*batch, 5, 3), randn(*batch, 5, 2, seed=1)
    W = secant_operator(y, x)
    assert torch.allclose(W.apply(x), y, atol=1e-13)
    zero = secant_operator(0 * y, 0 * x)
    assert bool((zero.to_dense() == 0).all())
    if batch != (0,):
        with pytest.raises(ValueError, match="0"):
            secant_operator(y, 0 * x)
