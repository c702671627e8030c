"""The scans under torch.func, forward mode, torch.compile, torch.export, autocast and checkpoints."""

import functools

import pytest
import torch
from scan_examples import NAMES, assert_same, draw, examples, with_gradients
from torch.utils.checkpoint import checkpoint

from headsandstates.chapters.scans.counting import kept_for_backward
from ssmbook.scans import diagonal_scan, lti_kernel, selective_scan

by_name = pytest.mark.parametrize("name", NAMES)


def leaves(arguments):
    return [t.detach().clone().requires_grad_() for t in arguments]


@by_name
def test_second_derivatives_and_forward_mode(name):
    scan, _, arguments, _ = examples(20, batch=())[name]
    assert torch.autograd.gradcheck(
        scan, leaves(arguments), fast_mode=True, check_forward_ad=name != "complex"
    )
    assert torch.autograd.gradgradcheck(scan, leaves(arguments), fast_mode=True)
    tangents = [draw(*t.shape, dtype=t.dtype, seed=9) for t in arguments]
    _, got = torch.func.jvp(lambda *t: scan(*t)[0], tuple(arguments), tuple(tangents))
    more, less = (
        scan(*(t + s * 1e-6 * v for t, v in zip(arguments, tangents, strict=True)))[0] for s in (1, -1)
    )
    assert (got - (more - less) / 2e-6).abs().max() <= 1e-7 * got.abs().max()


@by_name
def test_jacobians_by_either_mode(name):
    scan, _, arguments, _ = examples(9, batch=())[name]
    if name == "complex":
        return
    for i, t in enumerate(arguments):

        def outputs(u, i=i):
            return scan(*(u if j == i else v for j, v in enumerate(arguments)))

        forward, reverse = torch.func.jacfwd(outputs)(t), torch.func.jacrev(outputs)(t)
        torch.testing.assert_close(forward, reverse, rtol=1e-11, atol=1e-11)


@by_name
def test_vmap_equals_a_loop(name):
    scan, _, arguments, _ = examples()[name]
    many = [torch.stack([t, 0.5 * t], 1) for t in arguments]
    got = torch.func.vmap(scan, in_dims=1)(*many)
    for i in range(2):
        wanted = scan(*(t.select(1, i) for t in many))
        torch.testing.assert_close(tuple(out[i] for out in got), wanted, rtol=1e-11, atol=1e-11)
    for k, t in enumerate(arguments):  # one of them mapped, the others shared: gradients of each sample
        alone = tuple(0 if j == k else None for j in range(len(arguments)))
        pair = [torch.stack([u, 0.5 * u]) if j == k else u for j, u in enumerate(arguments)]
        got = torch.func.vmap(scan, in_dims=alone)(*pair)[0][1]
        wanted = scan(*arguments[:k], 0.5 * t, *arguments[k + 1 :])[0]
        torch.testing.assert_close(got, wanted, rtol=1e-11, atol=1e-11)


@by_name
def test_gradients_of_each_sample_and_many_at_once(name):
    if name == "complex":
        return
    scan, _, arguments, _ = examples(20)[name]

    def loss(*args):
        y, state = scan(*args)
        return (y**2).sum() + state.sum()

    given = leaves(arguments)
    wanted = torch.autograd.grad(loss(*given), given)
    for i in range(len(arguments)):
        in_dims = tuple(0 if j == i else None for j in range(len(arguments)))
        mapped = [torch.stack([u, 0.5 * u]) if j == i else u for j, u in enumerate(arguments)]
        got = torch.func.vmap(torch.func.grad(loss, argnums=i), in_dims=in_dims)(*mapped)
        torch.testing.assert_close(got[0], wanted[i], rtol=1e-10, atol=1e-10)
    y = scan(*given)[0]
    rows = torch.stack([torch.ones_like(y), draw(*y.shape)])
    options = {"retain_graph": True, "materialize_grads": True}
    many = torch.autograd.grad(y, given, rows, is_grads_batched=True, **options)
    one = torch.autograd.grad(y, given, rows[1], **options)
    torch.testing.assert_close(tuple(g[1] for g in many), one, rtol=1e-10, atol=1e-10)


@by_name
def test_one_graph_for_every_length(name):
    """``torch.compile`` in one graph with its gradients, and ``torch.export`` with a dynamic length."""
    scan, _, arguments, time = examples(150)[name]
    torch._dynamo.reset()
    compiled = torch.compile(scan, backend="aot_eager", fullgraph=True, dynamic=True)
    assert_same(with_gradients(compiled, arguments), with_gradients(scan, arguments), 1e-10)

    class Layer(torch.nn.Module):
        def forward(self, *given):
            return scan(*given)

    length = torch.export.Dim("T", min=2, max=1 << 20)
    shapes = tuple(
        None if dim is None else {t.dim() + dim: length} for t, dim in zip(arguments, time, strict=True)
    )
    program = torch.export.export(Layer(), tuple(arguments), dynamic_shapes=(shapes,)).module()
    for T in (2, 65, 500):
        _, _, others, _ = examples(T)[name]
        torch.testing.assert_close(program(*others), scan(*others), rtol=1e-11, atol=1e-11)


def test_a_compiled_kernel():
    A, B, C = 0.4 * draw(3, 3), draw(3, 2), draw(1, 3)
    torch._dynamo.reset()
    compiled = torch.compile(lambda *t: [lti_kernel(*t, 20)], backend="aot_eager", fullgraph=True)
    assert_same(
        with_gradients(compiled, (A, B, C)), with_gradients(lambda *t: [lti_kernel(*t, 20)], (A, B, C)), 1e-12
    )


@by_name
def test_meta_tensors_have_the_shapes_of_the_result(name):
    scan, _, arguments, _ = examples()[name]
    for got, wanted in zip(scan(*(t.to("meta") for t in arguments)), scan(*arguments), strict=True):
        assert got.is_meta and got.shape == wanted.shape and got.dtype == wanted.dtype


@by_name
def test_autocast_and_checkpoints(name):
    """Under autocast everything is computed in float32 and comes back in it."""
    scan, _, arguments, _ = examples(dtype=torch.float32)[name]
    wanted = scan(*arguments)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(scan(*arguments), wanted, rtol=0, atol=0)
        if name != "complex":
            y, state = scan(arguments[0].bfloat16(), *arguments[1:])
            assert y.dtype == state.dtype == torch.float32
    again = with_gradients(lambda *t: checkpoint(scan, *t, use_reentrant=False), arguments)
    assert_same(again, with_gradients(scan, arguments), 0)


def test_what_is_kept_for_the_backward_pass():
    """Two tensors of the diagonal scan; of the selective scan its inputs and a state every 32 steps."""
    a, b = draw(4096, 8).sigmoid(), draw(4096, 8)
    assert kept_for_backward(diagonal_scan, a, b) == 2 * a.numel()
    d, N = 8, 64
    A, B, C = -draw(d, N).abs(), draw(4096, N), draw(4096, N, seed=1)
    inputs = sum(t.numel() for t in (a, b, A, B, C))
    for form in ("zoh", "mixed"):
        scan = functools.partial(selective_scan, discretization=form)
        kept = kept_for_backward(scan, b, a, A, B, C)
        assert kept <= inputs + (4096 // 32 + 3) * d * N
