"""The scans under gradcheck, torch.func, torch.compile and autocast, and how much memory a backward pass
keeps.
"""

import pytest
import torch

from ssmbook.scans import diagonal_scan, lti_kernel_naive, lti_scan, selective_scan, ssd_scan
from ssmbook.scans.kernels import lags_by_states


def draw(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed + sum(shape)))


def cases(T=70, dtype=torch.float64):
    """(scan, arguments) for each scan, all small, every argument and the initial state given."""
    a, x, pair = draw(1, T, 2).to(dtype).sigmoid(), draw(1, T, 2).to(dtype), draw(1, T, 2, seed=3).to(dtype)
    A, state = draw(2, 2).to(dtype) * 0.4, draw(1, 2).to(dtype)
    heads = draw(1, T, 1, 2).to(dtype)
    return {
        "diagonal": (diagonal_scan, [a, x, state]),
        "logarithms": (lambda *args: diagonal_scan(*args, log=True), [-a, x, state]),
        "recurrence": (lambda *args: lti_scan(*args, method="recurrence"), [A, A, A, x, state]),
        "chunked": (lambda *args: lti_scan(*args, method="chunked"), [A, A, A, x, state]),
        "selective": (selective_scan, [x, a, -A.abs(), x, pair, state[0], draw(1, 2, 2).to(dtype)]),
        "ssd": (ssd_scan, [heads, -a[..., :1], heads, pair.unsqueeze(-2), draw(1, 1, 2, 2).to(dtype)]),
    }


NAMES = list(cases())


def leaves(arguments):
    return [t.detach().clone().requires_grad_() for t in arguments]


@pytest.mark.parametrize("name", NAMES)
def test_gradcheck(name):
    scan, arguments = cases(41)[name]
    assert torch.autograd.gradcheck(scan, leaves(arguments), fast_mode=True)


@pytest.mark.parametrize("reduced", [False, True])
def test_gradcheck_of_the_complex_scan_and_second_derivatives(reduced):
    a, b, state = draw(40, 2), draw(40, 2, seed=1), draw(2)
    assert torch.autograd.gradgradcheck(diagonal_scan, leaves([a.sigmoid(), b, state]), fast_mode=reduced)
    turned = [t.to(torch.complex128) * (0.6 + 0.5j) for t in (a.sigmoid(), b, state)]
    assert torch.autograd.gradcheck(diagonal_scan, leaves(turned), fast_mode=reduced)
    assert torch.autograd.gradgradcheck(diagonal_scan, leaves(turned), fast_mode=True)


@pytest.mark.parametrize("name", NAMES)
def test_forward_mode_and_second_derivatives(name):
    """Jacobians and Hessians by forward and by reverse mode agree; gradgradcheck knows the rest."""
    scan, arguments = cases(20)[name]
    assert torch.autograd.gradgradcheck(scan, leaves(arguments), fast_mode=True)
    for i, t in enumerate(arguments):

        def outputs(u, i=i):
            return scan(*(u if j == i else v for j, v in enumerate(arguments)))

        def loss(u):
            return sum((out**2).sum() for out in outputs(u))

        got, wanted = torch.func.jacfwd(outputs)(t), torch.func.jacrev(outputs)(t)
        torch.testing.assert_close(got, wanted, rtol=1e-11, atol=1e-11)
        got, wanted = torch.func.hessian(loss)(t), torch.func.jacrev(torch.func.jacrev(loss))(t)
        torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_forward_mode_without_a_graph(name):
    """Dual tensors that require no gradient: nothing but their level tells that a tangent is wanted."""
    scan, arguments = cases(20)[name]
    tangents = [draw(*t.shape, seed=9) for t in arguments]
    with torch.autograd.forward_ad.dual_level():
        duals = [torch.autograd.forward_ad.make_dual(*pair) for pair in zip(arguments, tangents, strict=True)]
        y = scan(*duals)[0]
        got = torch.autograd.forward_ad.unpack_dual(y).tangent
    _, wanted = torch.func.jvp(lambda *t: scan(*t)[0], tuple(arguments), tuple(tangents))
    torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("name", NAMES)
def test_a_tangent_goes_through_a_backward_pass_that_records_nothing(name):
    """Forward mode over reverse mode, by hand: a Hessian times a vector, as two backward passes give it."""
    scan, arguments = cases(20)[name]
    vectors = [draw(*t.shape, seed=9) for t in arguments]
    leaves = [t.detach().requires_grad_() for t in arguments]

    def gradients(inputs, graph):
        y = scan(*inputs)[0]
        return torch.autograd.grad(y.square().sum(), inputs, create_graph=graph)

    wanted = torch.autograd.grad(gradients(leaves, True), leaves, vectors)
    with torch.autograd.forward_ad.dual_level():
        duals = [torch.autograd.forward_ad.make_dual(*pair) for pair in zip(leaves, vectors, strict=True)]
        got = [torch.autograd.forward_ad.unpack_dual(g).tangent for g in gradients(duals, False)]
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_vmap_equals_a_loop(name):
    scan, arguments = cases()[name]
    many = [torch.stack([t, 0.5 * t, 0.9 * t], 1) for t in arguments]
    got = torch.func.vmap(scan, in_dims=1)(*many)
    for i in range(3):
        for out, wanted in zip(got, scan(*(t.select(1, i) for t in many)), strict=True):
            torch.testing.assert_close(out[i], wanted, rtol=1e-11, atol=1e-11)
    for k, t in enumerate(arguments):  # one of them mapped, the others shared
        alone = tuple(0 if j == k else None for j in range(len(arguments)))
        pair = [torch.stack([u, 0.5 * u]) if j == k else u for j, u in enumerate(arguments)]
        got = torch.func.vmap(scan, in_dims=alone)(*pair)[0][1]
        wanted = scan(*arguments[:k], 0.5 * t, *arguments[k + 1 :])[0]
        torch.testing.assert_close(got, wanted, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", NAMES)
def test_gradient_transforms_and_their_vmap_equal_autograd(name):
    """Per-sample gradients (vmap of grad) of each argument, the others shared; and vectorized Jacobians."""
    scan, arguments = cases()[name]

    def loss(*args):
        y, state = scan(*args)
        return (y**2).sum() + state.sum()

    given = leaves(arguments)
    wanted = torch.autograd.grad(loss(*given), given)
    for i, t in enumerate(arguments):
        in_dims = tuple(0 if j == i else None for j in range(len(arguments)))
        mapped = [torch.stack([u, 0.5 * u]) if j == i else u for j, u in enumerate(arguments)]
        got = torch.func.vmap(torch.func.grad(loss, argnums=i), in_dims=in_dims)(*mapped)
        assert got.shape == (2, *t.shape)
        torch.testing.assert_close(got[0], wanted[i], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("which", [slice(0, 2), slice(0, 1), slice(1, 2)], ids=["both", "outputs", "end"])
@pytest.mark.parametrize("name", NAMES)
def test_batched_gradients_equal_one_at_a_time(name, which):
    """``is_grads_batched`` and ``vmap``, the ways to many rows of a Jacobian at once."""
    scan, arguments = cases()[name]
    given = leaves(arguments)
    outputs = scan(*given)[which]
    many = [torch.stack([torch.ones_like(out), draw(*out.shape)]) for out in outputs]

    def pulled(*changes, batched=False):
        more = {"is_grads_batched": batched, "retain_graph": True, "allow_unused": True}
        return [t for t in torch.autograd.grad(outputs, given, changes, **more) if t is not None]

    wanted = [torch.stack(rows) for rows in zip(*map(pulled, *many), strict=True)]
    for got in (pulled(*many, batched=True), torch.func.vmap(pulled)(*many)):
        torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_compiled_equals_eager(name):
    torch._dynamo.reset()
    scan, arguments = cases()[name]
    given = leaves(arguments)
    got, wanted = torch.compile(scan, backend="aot_eager")(*given), scan(*given)
    torch.testing.assert_close(got, wanted, rtol=1e-11, atol=1e-11)
    for out in (got, wanted):
        (out[0].sum() + out[1].sum()).backward()
    grads = [t.grad.clone() for t in given]
    assert all(g.isfinite().all() and g.any() for g in grads)


@pytest.mark.parametrize("sizes", [(4, 2, 3), (3, 3, 3), (2, 5, 1)], ids=str)
@pytest.mark.parametrize("n", [1, 2, 9])
def test_lags_for_tracers_are_the_plain_loop_with_its_gradients(sizes, n):
    """A tracer sees no values, so no powers are weighed there: the lags are read from the states."""
    N, d, p = sizes
    given, results = (0.4 * draw(N, N), draw(N, d), draw(p, N)), []
    for run in (lags_by_states, lti_kernel_naive):
        system = leaves(given)
        M = run(*system, n)
        weights = draw(*M.shape, seed=5)
        results.append(
            (M, *torch.autograd.grad(M, system, weights, allow_unused=True, materialize_grads=True))
        )
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("log", [False, True], ids=["decays", "logarithms"])
@pytest.mark.parametrize("T", [1, 70, 530])
def test_compiled_diagonal_scan_is_one_graph_with_the_same_gradients(T, log):
    torch._dynamo.reset()
    given = leaves([draw(2, T, 3).sigmoid(), draw(2, T, 3, seed=1), draw(2, 3)])
    compiled = torch.compile(diagonal_scan, backend="aot_eager", fullgraph=True)
    got, wanted = compiled(*given, log=log), diagonal_scan(*given, log=log)
    torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)
    weights = [draw(*out.shape, seed=2) for out in wanted]
    got, wanted = (torch.autograd.grad(outputs, given, weights) for outputs in (got, wanted))
    torch.testing.assert_close(got, wanted, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", NAMES)
def test_under_autocast_states_and_results_stay_in_float32(name):
    scan, arguments = cases(dtype=torch.float32)[name]
    wanted = scan(*arguments)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = scan(*arguments)
        mixed = scan(arguments[0].bfloat16(), *arguments[1:])
    torch.testing.assert_close(got, wanted, rtol=0, atol=0)
    assert mixed[0].dtype == mixed[1].dtype == torch.float32


@pytest.mark.parametrize("name", NAMES)
def test_autocast_leaves_double_precision_and_masks_alone(name):
    scan, arguments = cases()[name]
    a, x, state = cases()["diagonal"][1]
    packed = {"state": state, "reset": torch.arange(70)[None] % 7 == 3}
    wanted = scan(*arguments), diagonal_scan(a, x, **packed)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = scan(*arguments), diagonal_scan(a, x, **packed)
    torch.testing.assert_close(got, wanted, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_inputs_keep_a_float32_state(dtype):
    for scan, arguments in cases(dtype=torch.float32).values():
        half = [t.to(dtype) for t in arguments]
        y, state = scan(*half[:-1], arguments[-1])
        exact, _ = scan(*(t.float() for t in half[:-1]), arguments[-1])
        assert y.dtype == dtype and state.dtype == torch.float32
        torch.testing.assert_close(y, exact.to(dtype), rtol=0, atol=0)


def saved_numbers(run):
    """How many numbers autograd keeps for the backward pass of a run."""
    kept = {}

    def pack(t):
        kept[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes() // t.element_size()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        run()
    return sum(kept.values())


def test_selective_scan_keeps_only_its_inputs_and_block_states():
    T, d, N = 4096, 8, 64
    x, delta = leaves([draw(T, d), draw(T, d).sigmoid()])
    A, B, C = leaves([-draw(d, N).abs(), draw(T, N), draw(T, N, seed=1)])
    inputs = sum(t.numel() for t in (x, delta, A, B, C))
    assert saved_numbers(lambda: selective_scan(x, delta, A, B, C)) <= inputs + (T // 32 + 3) * d * N


def test_diagonal_scan_keeps_two_tensors():
    a, b = leaves([draw(4096, 8).sigmoid(), draw(4096, 8)])
    assert saved_numbers(lambda: diagonal_scan(a, b)) == 2 * a.numel()
