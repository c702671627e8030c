"""The compiled loops and the torch form beside them: the same numbers, however many threads, under every
transformation of PyTorch; and where Numba is missing or may not be kept in a cache.
"""

import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint

from ssmbook.scans import (
    _engine,
    _ops,
    diagonal_scan,
    diagonal_scan_naive,
    lti,
    lti_scan,
    lti_scan_naive,
    selective_scan,
    selective_scan_naive,
    ssd,
    ssd_scan,
    ssd_scan_naive,
)

numba_here = pytest.mark.skipif(not _engine.AVAILABLE, reason="Numba is not installed or switched off")


def draw(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed + sum(shape)))


def scans(T=150, dtype=torch.float64, batch=2):
    """(scan, arguments, their time dimensions) of each kind, with states and every other argument."""
    a, x, B, C = (draw(batch, T, m, dtype=dtype, seed=m) for m in (3, 3, 4, 4))
    A, D, state = -draw(3, 4, dtype=dtype).abs(), draw(3, dtype=dtype), draw(batch, 3, 4, dtype=dtype)
    heads, keys = draw(batch, T, 2, 3, dtype=dtype), draw(batch, T, 2, 4, dtype=dtype)
    turned = torch.polar(0.5 + 0.5 * a.sigmoid(), 3 * a), torch.complex(x, a), torch.complex(state[..., 0], D)
    return {
        "diagonal": (diagonal_scan, [a.sigmoid(), x, state[..., 0]], [1, 1, None]),
        "complex": (diagonal_scan, [t.to(dtype.to_complex()) for t in turned[:2]], [1, 1]),
        "logarithms": (lambda *t: diagonal_scan(*t, log=True), [-a.abs(), x, state[..., 0]], [1, 1, None]),
        "backwards": (lambda *t: diagonal_scan(*t, reverse=True), [a.sigmoid(), x], [1, 1]),
        "selective": (selective_scan, [x, a.abs(), A, B, C, D, state], [1, 1, None, 1, 1, None, None]),
        "lti": (
            lti_scan,
            [0.4 * draw(4, 4, dtype=dtype), A.mT, A, x, state[:, 0]],
            [None, None, None, 1, None],
        ),
        "ssd": (ssd_scan, [heads, -a[..., :2].abs(), keys, keys.flip(1)], [1, 1, 1, 1]),
    }


KINDS = list(scans())


def with_gradients(scan, arguments):
    leaves = [t.detach().clone().requires_grad_() for t in arguments]
    outputs = scan(*leaves)
    weights = [draw(*out.shape, dtype=out.dtype, seed=5) for out in outputs]
    return [*outputs, *torch.autograd.grad(outputs, leaves, weights)]


def test_the_loops_run_wherever_numba_is_installed_and_not_switched_off():
    """Else every test that needs them would be left out in silence."""
    try:
        import numba  # noqa: F401
    except ImportError:
        here = False
    else:
        here = os.environ.get("SSMBOOK_NUMBA") != "0"
    assert (_engine.loops_for(torch.zeros(3)) is not None) is here


@numba_here
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("T", [1, 33, 1000])
def test_the_torch_form_agrees_with_the_loops(name, T, dtype, monkeypatch):
    scan, arguments, _ = scans(T, dtype)[name]
    compiled = with_gradients(scan, arguments)
    monkeypatch.setattr(_engine, "_loops", lambda: None)
    plain = with_gradients(scan, arguments)
    for got, wanted in zip(compiled, plain, strict=True):
        assert got.dtype == wanted.dtype
        room = (2e-5 if dtype == torch.float32 else 1e-12) * wanted.abs().max().clamp(min=1)
        assert (got - wanted).abs().max() <= room


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_many_channels_are_scanned_and_differentiated_either_way(log, reverse):
    """With more than 64 the loops that go back in time take the channels from the last to the first."""
    a, b = draw(2, 5, 70), draw(2, 5, 70, seed=1)
    arguments = [-a.abs() if log else a.sigmoid(), b, b[:, 0]]

    def naive(a, b, state):
        turned = (lambda t: t.flip(1)) if reverse else (lambda t: t)
        h, end = diagonal_scan_naive(turned(a), turned(b), state, log=log)
        return turned(h), end

    found = with_gradients(lambda *t: diagonal_scan(*t, log=log, reverse=reverse), arguments)
    wanted = with_gradients(naive, arguments)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@numba_here
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("T", [1, 32, 33])
def test_the_loops_stay_inside_their_arrays(name, T, monkeypatch):
    """Compiled code reads past the end of an array without a word; run by Python, every index is checked."""
    scan, arguments, _ = scans(T)[name]
    compiled, loops = with_gradients(scan, arguments), _engine._loops()
    for loop, value in list(vars(loops).items()):
        if hasattr(value, "py_func"):
            monkeypatch.setattr(loops, loop, value.py_func)
    monkeypatch.setattr(loops, "exponential", lambda z: (np.exp(z), 0.0))
    monkeypatch.setattr(loops, "decayed", lambda power, rest, h: (power + rest) * h)
    torch.testing.assert_close(with_gradients(scan, arguments), compiled, rtol=1e-12, atol=1e-12)


@numba_here
@pytest.mark.parametrize("name", KINDS)
def test_two_threads_give_what_one_gives(name, monkeypatch):
    """Rows are independent: to the last bit. Five rows do not divide into two equal parts."""
    scan, arguments, _ = scans(400, batch=5)[name]
    monkeypatch.setattr(_engine, "PARALLEL", 1)
    started, begin = [], _engine.threading.Thread.start
    monkeypatch.setattr(_engine.threading.Thread, "start", lambda t: (started.append(t), begin(t)))
    alone = with_gradients(scan, arguments)
    assert torch.get_num_threads() == 1 and not started
    torch.set_num_threads(2)
    try:
        together = with_gradients(scan, arguments)
    finally:
        torch.set_num_threads(1)
    assert len(started) >= 2
    assert all(torch.equal(got, wanted) for got, wanted in zip(together, alone, strict=True))


@numba_here
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_exponential_has_the_digits_of_its_dtype_and_more_near_zero(dtype):
    import numba

    loops = _engine._loops()

    @numba.njit
    def parts(z, power, rest):
        for i in range(len(z)):
            power[i], rest[i] = loops.exponential(z[i])

    low, high = (-87, 88) if dtype == np.float32 else (-707, 709)
    tiny = np.logspace(-12, 0, 2000)
    z = np.concatenate([np.linspace(low, high, 20_001), tiny, -tiny]).astype(dtype)
    power, rest = np.empty_like(z), np.empty_like(z)
    parts(z, power, rest)
    exact, eps = z.astype(np.longdouble), np.finfo(dtype).eps
    assert np.abs((power.astype(np.longdouble) + rest) / np.exp(exact) - 1).max() < eps
    near = np.abs(z) < 0.3
    assert (power[near] == 1).all() and np.abs(rest[near] / np.expm1(exact[near]) - 1).max() < 2 * eps
    z = np.array([np.nan, np.inf, -np.inf, 0, -0.0, -1e4, 1e4], dtype)
    power, rest = np.empty_like(z), np.empty_like(z)
    parts(z, power, rest)
    np.testing.assert_array_equal(power + rest, [np.nan, np.inf, 0, 1, 1, 0, np.inf])


NAIVE = {
    "diagonal": diagonal_scan_naive,
    "complex": diagonal_scan_naive,
    "logarithms": lambda *t: diagonal_scan_naive(*t, log=True),
    "selective": selective_scan_naive,
    "lti": lti_scan_naive,
    "ssd": ssd_scan_naive,
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("place", [1, 2])
def test_infinite_weights_of_a_system_pass_without_a_warning(place):
    """Its steps are put together by NumPy, which warns of what PyTorch computes."""
    system = [torch.tensor([[0.5, 0.1], [0.0, 0.4]]), torch.ones(2, 1), torch.ones(1, 2)]
    system[place][0, 0] = torch.inf
    x = torch.ones(64, 1)
    torch.testing.assert_close(lti_scan(*system, x)[0], lti_scan_naive(*system, x)[0], equal_nan=True)


INFINITE = {  # where to put an infinite number: argument, entry
    "diagonal": [(0, (0, 2, 1)), (1, (1, 1, 2)), (2, (0, 1))],
    "complex": [(2, (0, 1))],
    "logarithms": [(0, (0, 2, 1)), (1, (1, 1, 2)), (2, (0, 1))],
    "selective": [(0, (0, 2, 1)), (6, (0, 1, 2))],
    "lti": [(3, (0, 60, 1)), (4, (1, 2))],
    "ssd": [(0, (0, 2, 1, 0)), (4, (0, 1, 2, 1))],
}


@pytest.mark.parametrize("value", [torch.inf, -torch.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", list(NAIVE))
def test_infinite_decays_inputs_and_states_go_where_the_naive_loop_takes_them(name, dtype, value, engine):
    scan, arguments, _ = scans(70 if name == "lti" else 40, dtype)[name]
    states = {"ssd": draw(2, 2, 3, 4, dtype=dtype), "complex": draw(2, 3, dtype=dtype.to_complex())}
    arguments += [states[name]] if name in states else []
    for place, entry in INFINITE[name]:
        given = [t.clone() for t in arguments]
        given[place][entry] = value
        got, wanted = with_gradients(scan, given), with_gradients(NAIVE[name], given)
        room = 1e-4 if dtype == torch.float32 else 1e-11
        torch.testing.assert_close(got, wanted, rtol=room, atol=room, equal_nan=True)
        with torch.no_grad():
            torch.testing.assert_close(scan(*given), tuple(wanted[:2]), rtol=room, atol=room, equal_nan=True)


@pytest.mark.parametrize(
    "dtype, logarithms",
    [(torch.float32, (-87, -88, -95, -101)), (torch.float64, (-708, -709, -730, -741))],
    ids=["float32", "float64"],
)
def test_subnormal_decays_are_not_zero(dtype, logarithms, engine):
    """What is infinite stays so, and what is as large as numbers go comes back from there."""
    for size in (torch.inf, torch.finfo(dtype).max / 8):
        z = torch.tensor(logarithms, dtype=dtype).expand(1, -1)
        h, zero, one = torch.full_like(z, size), torch.zeros_like(z), torch.ones_like(z)[:, :1]
        wanted = (z.to(torch.float64).exp() * h).to(dtype)
        for got, _ in (
            diagonal_scan(z, zero, h[0], log=True),
            selective_scan(zero, -torch.ones_like(z), -z.mT, one, one, state=h.mT),
            ssd_scan(
                zero.unsqueeze(-1),
                z,
                one.expand_as(z)[..., None],
                one.expand_as(z)[..., None],
                h.mT[..., None],
            ),
        ):
            torch.testing.assert_close(got.flatten(), wanted.flatten(), rtol=0.1, atol=0)


@numba_here
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128])
@pytest.mark.parametrize(
    "N, d, p, T, batch", [(1, 1, 1, 64, ()), (4, 2, 2, 333, (3,)), (16, 2, 3, 300, (2, 2))]
)
def test_blocks_of_a_time_invariant_system_are_the_recurrence(N, d, p, T, batch, dtype):
    """Also where the last block is not full."""
    A, B, C = 0.99 * torch.linalg.qr(draw(N, N))[0], draw(N, d), draw(p, N)
    given = [t.to(dtype) for t in (A, B, C, draw(*batch, T, d), draw(*batch, N))]
    found = lti._compiled(*given)
    wide = [t.to(_engine.wide(dtype)) for t in given]
    for got, wanted in zip(found, lti_scan_naive(*wide), strict=True):
        assert got.dtype == dtype
        room = torch.finfo(dtype).eps + 8 * N * torch.finfo(torch.float64).eps
        assert (got - wanted).abs().max() <= room * wanted.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128])
def test_a_loop_is_given_double_precision_without_gaps(dtype):
    t = draw(3, 2).to(dtype).mT
    found = _engine.array(t)
    assert found.flags.c_contiguous and found.dtype.itemsize == (16 if dtype.is_complex else 8)
    assert found.tolist() == t.tolist()


@numba_here
def test_blocks_are_left_to_systems_that_are_calm_and_to_calls_without_a_gradient(monkeypatch):
    runs, run = [], _engine.run
    monkeypatch.setattr(lti, "run", lambda loop, *given: (runs.append(loop.__name__), run(loop, *given)))
    A, x = 0.5 * torch.eye(4), torch.ones(200, 1)
    B, C = torch.ones(4, 1), torch.ones(1, 4)
    lti_scan(A, B, C, x)
    assert runs == ["blocks"]
    lti_scan(0.9 * torch.eye(4) + 40 * torch.ones(3).diag(1), B, C, x)
    lti_scan(A.requires_grad_(), B, C, x)
    torch.func.vmap(lti_scan, (None, None, None, 0))(A.detach(), B, C, x.expand(2, 200, 1))
    torch.func.jvp(lambda x: lti_scan(A.detach(), B, C, x)[0], (x,), (x,))
    assert runs == ["blocks"]


@numba_here
@pytest.mark.parametrize("name", KINDS)
def test_large_results_lie_in_memory_from_numpy(name, monkeypatch):
    scan, arguments, _ = scans()[name]
    wanted, given, from_numpy = with_gradients(scan, arguments), [], torch.from_numpy
    monkeypatch.setattr(torch, "from_numpy", lambda array: (given.append(array.size), from_numpy(array))[1])
    assert not scan(*arguments)[0].isnan().any() and not given
    monkeypatch.setattr(_engine, "LARGE", 0)
    assert not scan(*arguments)[0].isnan().any() and given
    forward = len(given)
    torch.testing.assert_close(with_gradients(scan, arguments), wanted, rtol=0, atol=0)
    assert len(given) > 2 * forward  # the gradients lie there as well


@pytest.mark.parametrize("name", KINDS)
def test_one_graph_for_every_length(name):
    """``torch.compile`` in one graph with its gradients, and ``torch.export`` with a dynamic length."""
    scan, arguments, time = scans()[name]
    torch._dynamo.reset()
    compiled = torch.compile(scan, backend="aot_eager", fullgraph=True, dynamic=True)
    got, wanted = with_gradients(compiled, arguments), with_gradients(scan, arguments)
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)

    class Layer(torch.nn.Module):
        def forward(self, *given):
            return scan(*given)

    length = torch.export.Dim("T", min=2, max=1 << 20)
    shapes = tuple(None if dim is None else {dim: length} for dim in time)
    program = torch.export.export(Layer(), tuple(arguments), dynamic_shapes=(shapes,)).module()
    for T in (2, 31, 64, 65, 1000):
        _, others, _ = scans(T)[name]
        torch.testing.assert_close(program(*others), scan(*others), rtol=1e-11, atol=1e-11)


@pytest.fixture
def no_numba(monkeypatch):
    monkeypatch.setattr(_engine, "AVAILABLE", False)
    monkeypatch.setattr(_engine, "_loops", lambda: None)


@pytest.mark.parametrize("name", ["selective", "ssd"])
def test_without_numba_a_scan_is_exported_with_a_dynamic_length(name, no_numba):
    scan, arguments, time = scans(20)[name]

    class Layer(torch.nn.Module):
        def forward(self, *given):
            return scan(*given)

    shapes = tuple(None if dim is None else {dim: torch.export.Dim.DYNAMIC} for dim in time)
    program = torch.export.export(Layer(), tuple(arguments), dynamic_shapes=(shapes,)).module()
    _, others, _ = scans(2 * _ops.PIECE + 1)[name]
    torch.testing.assert_close(program(*others), scan(*others), rtol=1e-11, atol=1e-11)


def test_without_numba_a_long_sequence_of_a_small_system_is_scanned(no_numba):
    A, B, C, x = 0.4 * draw(4, 4), draw(4, 1), draw(1, 4), draw(2, 300, 1)
    for found, wanted in zip(lti_scan(A, B, C, x), lti_scan_naive(A, B, C, x), strict=True):
        torch.testing.assert_close(found, wanted)


def test_without_numba_gradients_go_through_a_mapped_selective_scan(no_numba):
    _, arguments, _ = scans(_ops.PIECE + 1)["selective"]
    both = [torch.stack([t, 0.5 * t]) for t in arguments]
    wanted = with_gradients(
        lambda *t: tuple(map(torch.stack, zip(*map(selective_scan, *t), strict=True))), both
    )
    torch.testing.assert_close(with_gradients(torch.func.vmap(selective_scan), both), wanted)


def test_without_numba_only_what_is_not_finite_goes_one_step_at_a_time(no_numba, monkeypatch):
    stepwise, (scan, arguments, _) = [], scans(130)["ssd"]
    wanted = ssd_scan_naive(*arguments)
    naive = lambda *given: stepwise.append(1) or ssd_scan_naive(*given)  # noqa: E731
    monkeypatch.setattr(ssd, "ssd_scan_naive", naive)
    torch.testing.assert_close(scan(*arguments), wanted, rtol=1e-11, atol=1e-11)
    assert not stepwise
    arguments[0][0, 100] = torch.nan
    y, _ = scan(*arguments)
    assert stepwise and y[0, :100].isfinite().all() and y[1].isfinite().all()


def test_without_numba_differences_of_sums_of_logarithms_keep_their_digits(no_numba, monkeypatch):
    """A sum of a chunk may be huge, or minus infinity, and what is left between two of its steps is not."""
    _, (x, log_a, B, C), _ = scans(130, torch.float32)["ssd"]
    log_a[:, :60], log_a[:, 90] = -20.0, -torch.inf
    wanted = ssd_scan_naive(x, log_a, B, C)
    monkeypatch.setattr(ssd, "ssd_scan_naive", None)
    torch.testing.assert_close(ssd_scan(x, log_a, B, C), wanted, rtol=2e-5, atol=2e-5)


def test_without_numba_roundings_of_equal_decays_do_not_add_up(no_numba):
    T, one = 1 << 14, Fraction(1)
    for decay in (one - one / 2**13, one - one / 2**10):
        ones = torch.ones(T, 1, dtype=torch.float64)
        _, end = diagonal_scan(float(decay) * ones, ones)
        assert abs(end.item() / float((1 - decay**T) / (1 - decay)) - 1) < 3e-15


@pytest.mark.parametrize("name", KINDS)
def test_meta_tensors_have_the_shapes_and_strides_of_the_result(name):
    for T in (0, 1, 150):
        scan, arguments, _ = scans(T)[name]
        for got, wanted in zip(scan(*(t.to("meta") for t in arguments)), scan(*arguments), strict=True):
            assert got.is_meta and got.shape == wanted.shape and got.dtype == wanted.dtype


@pytest.mark.parametrize("name", KINDS)
def test_checkpoints(name):
    scan, arguments, _ = scans()[name]
    got = with_gradients(lambda *t: checkpoint(scan, *t, use_reentrant=False), arguments)
    torch.testing.assert_close(got, with_gradients(scan, arguments), rtol=0, atol=0)


def operations():
    a, b, state = draw(2, 40, 3).sigmoid(), draw(2, 40, 3, seed=1), draw(2, 3)
    A, u = 0.4 * draw(3, 3), draw(2, 40, 3)
    rows = (b, a, -A.abs(), draw(2, 40, 3, seed=2), draw(2, 40, 3, seed=3), draw(2, 3, 3))
    mask = draw(2, 40) > 1
    return {
        "diagonal": (_ops._diagonal.registered, (a, b, state, False, False)),
        "diagonal without a state": (_ops._diagonal.registered, (-a, b, None, True, True)),
        "dense": (_ops._dense.registered, (A, u, state, False, None)),
        "dense, reverse": (_ops._dense.registered, (A, u, None, True, None)),
        "dense, reset": (_ops._dense.registered, (A, u, state, False, u[..., 0] > 0)),
        **({"selective": (_ops._selective.registered, (*rows, True, mask))} if _engine.AVAILABLE else {}),
        **(
            {"shared rates": (_ops._selective.registered, (*rows[:2], -A[:1], *rows[3:], False, None))}
            if _engine.AVAILABLE
            else {}
        ),
    }


@pytest.mark.parametrize("name", list(operations()))
def test_operations_keep_the_rules_of_torch_library(name):
    operation, arguments = operations()[name]
    torch.library.opcheck(
        operation,
        tuple(
            t.clone().requires_grad_() if torch.is_tensor(t) and t.is_floating_point() else t
            for t in arguments
        ),
    )


RUN = """
import warnings; warnings.simplefilter("error")
import torch
from ssmbook.scans import _engine, diagonal_scan
h, _ = diagonal_scan(torch.full((2, 40, 3), 0.5), torch.ones(2, 40, 3))
loops = _engine._loops()
print(h[0, 1, 0].item(), loops and sum(loops.diagonal(False, False, False).stats.cache_hits.values()))
"""


def run(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True
    )
    return done.stdout.strip() or done.stderr.strip()


@numba_here
def test_a_second_process_finds_what_the_first_has_compiled(tmp_path):
    assert [run(RUN, NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(2)] == ["1.5 0", "1.5 1"]


def test_the_environment_switches_numba_off():
    assert run(RUN, SSMBOOK_NUMBA="0") == "1.5 None"


@numba_here
def test_a_numba_that_cannot_be_imported_is_named_and_left_out():
    broken = (
        "import sys, types; m = types.ModuleType('numba'); m.__spec__ = object(); sys.modules['numba'] = m\n"
    )
    assert "UserWarning: Numba cannot be used, so scans take the block form in torch" in run(broken + RUN)
    quiet = RUN.replace('warnings.simplefilter("error")', 'warnings.simplefilter("ignore")')
    assert run(broken + quiet) == "1.5 None"


@numba_here
def test_where_no_folder_may_be_written_loops_are_compiled_all_the_same(monkeypatch):
    loops = _engine._loops()
    njit = loops.numba.njit

    def refuse(cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return njit(**options)

    monkeypatch.setattr(loops.numba, "njit", refuse)
    assert loops.compiled(lambda x: x + 1)(1) == 2
