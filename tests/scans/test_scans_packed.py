"""Time backwards, sequences packed one after the other, and half precision beside float32 parameters."""

import pytest
import torch

from ssmbook import scans
from ssmbook.scans import diagonal_scan, diagonal_scan_naive, lti_scan, selective_scan, ssd_scan

T, CUTS = 200, (0, 1, 70, 133, 200)


def draw(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed + sum(shape)))


def cases(dtype=torch.float64):
    """(scan, what has a time, the dimension of time, other arguments by name, an initial state)."""
    a, x, B, C = (draw(2, T, m, dtype=dtype, seed=m) for m in (3, 3, 4, 4))
    heads, keys = draw(2, T, 2, 3, dtype=dtype), draw(2, T, 2, 4, dtype=dtype)

    def diagonal(a, b, **options):
        return diagonal_scan(a, b, **options)

    def logarithms(a, b, **options):
        return diagonal_scan(a, b, log=True, **options)

    A, D = -draw(3, 4, dtype=dtype).abs(), draw(3, dtype=dtype)

    def selective(x, delta, B, C, **options):
        return selective_scan(x, delta, A, B, C, D, **options)

    system = [t.bfloat16() for t in (draw(4, 4) / 3, draw(4, 3), draw(2, 4))]  # numbers of every dtype

    def lti(x, **options):
        return lti_scan(*(t.to(x.dtype) for t in system), x, **options)

    return {
        "lti": (lti, [x], draw(2, 4, dtype=dtype)),
        "diagonal": (diagonal, [a.sigmoid(), x], draw(2, 3, dtype=dtype)),
        "logarithms": (logarithms, [-a.abs(), x], draw(2, 3, dtype=dtype)),
        "selective": (selective, [x, a.abs(), B, C], draw(2, 3, 4, dtype=dtype)),
        "ssd": (ssd_scan, [heads, -a[..., :2].abs(), keys, keys.flip(1)], draw(2, 2, 3, 4, dtype=dtype)),
    }


def gradients(outputs, leaves):
    weights = [draw(*out.shape, seed=3) for out in outputs]
    return torch.autograd.grad(outputs, leaves, weights)


@pytest.mark.parametrize("name", list(cases()))
def test_time_backwards_is_the_scan_of_the_sequence_turned_around(name, engine):
    scan, given, state = cases()[name]
    leaves = [t.clone().requires_grad_() for t in (*given, state)]
    got = scan(*leaves[:-1], state=leaves[-1], reverse=True)
    y, end = scan(*(t.flip(1) for t in leaves[:-1]), state=leaves[-1])
    wanted = y.flip(1), end
    torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradients(got, leaves), gradients(wanted, leaves), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", list(cases()))
def test_packed_sequences_are_run_as_if_alone(name, reverse, engine):
    """The second row of the batch is one sequence; only the first of a row sees the initial state."""
    scan, given, state = cases()[name]
    reset = torch.zeros(2, T, dtype=torch.bool)
    reset[0, [t - 1 for t in CUTS[1:-1]] if reverse else CUTS[1:-1]] = True
    leaves = [t.clone().requires_grad_() for t in (*given, state)]
    got = scan(*leaves[:-1], state=leaves[-1], reset=reset, reverse=reverse)[0]
    pieces = []
    for low, high in zip(CUTS, CUTS[1:], strict=False):
        known = {"state": leaves[-1][0]} if (high == T if reverse else low == 0) else {}
        pieces.append(scan(*(t[0, low:high] for t in leaves[:-1]), reverse=reverse, **known)[0])
    other = scan(*(t[1] for t in leaves[:-1]), state=leaves[-1][1], reverse=reverse)[0]
    wanted = torch.stack((torch.cat(pieces), other))
    torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)
    got, wanted = (gradients([out], leaves) for out in (got, wanted))
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", list(cases()))
def test_a_reset_under_the_other_derivatives(name, engine):
    """The formula that is differentiated again forgets as the loop does."""
    scan, given, state = cases()[name]
    given, reset = [t[:1, :20] for t in given], torch.arange(20)[None] % 7 == 3
    leaves = [t.clone().requires_grad_() for t in (*given, state[:1])]

    def packed(*t):
        return scan(*t[:-1], state=t[-1], reset=reset)

    assert torch.autograd.gradcheck(packed, leaves, fast_mode=True)
    assert torch.autograd.gradgradcheck(packed, leaves, fast_mode=True)
    jacobians = [
        mode(lambda t: packed(t, *leaves[1:])[0])(leaves[0])
        for mode in (torch.func.jacfwd, torch.func.jacrev)
    ]
    torch.testing.assert_close(*jacobians)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_parameters_may_be_float32_beside_half_precision_inputs(half, engine):
    given = (
        draw(2, T, 3),
        draw(2, T, 3).abs(),
        -draw(3, 4).abs(),
        draw(2, T, 4),
        draw(2, T, 4, seed=1),
        draw(3),
    )
    x, delta, A, B, C, D = (t.float() for t in given)
    narrow = [t.to(half) for t in (x, delta, B, C)]
    y, state = selective_scan(*narrow[:2], A, *narrow[2:], D)
    exact, end = selective_scan(*(t.float() for t in narrow[:2]), A, *(t.float() for t in narrow[2:]), D)
    assert y.dtype == half and state.dtype == torch.float32
    torch.testing.assert_close((y, state), (exact.to(half), end), rtol=0, atol=0)
    heads, keys, log_a = draw(2, T, 2, 3).to(half), draw(2, T, 2, 4).to(half), -draw(2, T, 2).abs().float()
    y, state = ssd_scan(heads, log_a, keys, keys)
    exact, end = ssd_scan(heads.float(), log_a, keys.float(), keys.float())
    torch.testing.assert_close((y, state), (exact.to(half), end), rtol=0, atol=0)


@pytest.mark.parametrize("name", list(cases()))
def test_half_precision_with_every_option(name, engine):
    """Computed in float32 from the same state, and forgetting at the same steps, in the same direction."""
    scan, given, state = cases(torch.float32)[name]
    reset, half = torch.arange(T) % torch.tensor([[23], [31]]) == 5, [t.bfloat16() for t in given]
    options = {"state": state, "reverse": True, "reset": reset}
    y, end = scan(*half, **options)
    wanted, exact = scan(*(t.float() for t in half), **options)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close((y, end), (wanted.bfloat16(), exact), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["diagonal", "lti", "selective", "ssd"])
def test_the_naive_twins_go_on_in_half_precision_from_a_state_in_single(name):
    x, decay, keys, A = (t.bfloat16() for t in (draw(9, 3), -draw(9, 3).abs(), draw(9, 4), draw(3, 3) / 3))
    given = {
        "diagonal": ((decay.exp(), x), draw(3)),
        "lti": ((A, A.mT, A, x), draw(3)),
        "selective": ((x, decay.neg(), -draw(3, 4).abs().bfloat16(), keys, keys.flip(0), None), draw(3, 4)),
        "ssd": ((x[..., None], decay, *[keys[:, None].expand(9, 3, 4)] * 2), draw(3, 1, 4)),
    }
    arguments, state = given[name][0], given[name][1].float()
    y, end = getattr(scans, f"{name}_scan_naive")(*arguments, state)
    wanted, exact = getattr(scans, f"{name}_scan")(*arguments, state)
    torch.testing.assert_close((y.bfloat16(), end), (wanted, exact), rtol=0.02, atol=0.02)


def test_what_is_refused():
    a, x, mask = torch.rand(2, 9, 3), torch.rand(2, 9, 3), torch.zeros(2, 9, dtype=torch.bool)
    for reset in (mask[:, :8], mask[0], mask.unsqueeze(-1)):
        with pytest.raises(ValueError, match=r"reset must have shape \(2, 9\); got"):
            diagonal_scan(a, x, reset=reset)
    for reset in (mask.float(), mask.tolist()):
        with pytest.raises(TypeError, match="reset must be a boolean torch.Tensor; got"):
            diagonal_scan(a, x, reset=reset)
    with pytest.raises(ValueError, match="reset must be on the device of the inputs, cpu; got meta"):
        diagonal_scan(a, x, reset=mask.to("meta"))
    for option, scan, *given in (
        ("log", diagonal_scan, a, x),
        ("log", diagonal_scan_naive, a, x),
        ("reverse", diagonal_scan, a, x),
        *(("reverse", scan, *given) for scan, given, _ in cases().values()),
    ):
        with pytest.raises(TypeError, match=rf"{option} must be True or False; got 'no'"):
            scan(*given, **{option: "no"})
    half = torch.rand(2, 9, 3).bfloat16()
    with pytest.raises(TypeError, match="A must have the dtype of x"):
        selective_scan(half, half, torch.rand(3, 3).double(), half, half)
    double = half.double()
    with pytest.raises(TypeError, match="A must have the dtype of x, torch.float64; got torch.float32"):
        selective_scan(double, double, torch.rand(3, 3), double, double)


@pytest.mark.parametrize("name", list(cases()))
def test_no_steps_give_the_state_back_as_numbers_of_its_own(name, engine):
    scan, given, state = cases()[name]
    y, end = scan(*(t[:, :0] for t in given), state=state)
    assert y.shape[1] == 0 and torch.equal(end, state) and end.data_ptr() != state.data_ptr()


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("reverse", [False, True])
def test_gradients_of_a_system_that_forgets(reverse, dtype, engine):
    """Those of A, B and C too, and again; forward mode agrees; a first step may forget the initial state."""
    A, B, C = draw(3, 3, dtype=dtype) / 2, draw(3, 2, dtype=dtype), draw(1, 3, dtype=dtype)
    given = [A, B, C, draw(2, 9, 2, dtype=dtype), draw(2, 3, dtype=dtype)]
    reset = torch.arange(9) % torch.tensor([[4], [3]]) == torch.tensor([[0], [2]])
    leaves = [t.clone().requires_grad_() for t in given]

    def run(*t):
        return lti_scan(*t, reverse=reverse, reset=reset)

    assert torch.autograd.gradcheck(run, leaves, fast_mode=True, check_forward_ad=dtype.is_floating_point)
    assert torch.autograd.gradgradcheck(run, leaves, fast_mode=True)


def test_a_reset_wins_over_what_is_not_finite(engine):
    """A state that has overflowed is forgotten, not multiplied by zero; ``method`` changes nothing."""
    one = torch.ones(1, 1, dtype=torch.float64)
    x, reset = torch.ones(3000, 1, dtype=torch.float64), torch.arange(3000) % 1500 == 0
    for method in ("auto", "recurrence", "chunked"):
        y, end = lti_scan(2 * one, one, one, x, method=method, reset=reset)
        assert y[1499].isinf() and end.isinf() and y[1500:1503, 0].tolist() == [1.0, 3.0, 7.0]


def test_a_system_that_forgets_under_compile_and_vmap():
    A, B, C, x = draw(3, 3) / 2, draw(3, 2), draw(1, 3), draw(4, 11, 2)
    reset = torch.arange(11) == torch.tensor([[3], [5], [0], [10]])
    wanted = lti_scan(A, B, C, x, reset=reset)[0]
    torch._dynamo.reset()
    compiled = torch.compile(lti_scan, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(A, B, C, x, reset=reset)[0], wanted)
    mapped = torch.func.vmap(lambda x, reset: lti_scan(A, B, C, x, reset=reset)[0])(x, reset)
    torch.testing.assert_close(mapped, wanted)
