"""Every scan equals its naive twin, with the gradient of every argument, on every engine that is here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from scan_examples import NAMES, assert_same, draw, examples, with_gradients

from ssmbook import scans
from ssmbook.scans import diagonal_scan, diagonal_scan_naive, lti_kernel, lti_kernel_naive, lti_scan

REAL, COMPLEX = torch.float64, torch.complex128
by_name = pytest.mark.parametrize("name", NAMES)


@by_name
@pytest.mark.parametrize("T", [0, 1, 2, 33, 129, 700])
def test_a_scan_is_its_naive_twin(name, T):
    scan, naive, arguments, _ = examples(T)[name]
    assert_same(with_gradients(scan, arguments), with_gradients(naive, arguments), 1e-12)
    with torch.no_grad():
        assert_same(scan(*arguments), naive(*arguments), 1e-12)


@by_name
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_less_precision(name, dtype):
    """Half precision is computed in float32, and the state stays in it; the first argument decides."""
    scan, naive, arguments, _ = examples(130, torch.float32)[name]
    if dtype == torch.float32:
        wide = [t.to(COMPLEX if t.is_complex() else REAL) for t in arguments]
        for got, want in zip(with_gradients(scan, arguments), with_gradients(naive, wide), strict=True):
            assert got.dtype == arguments[0].dtype
            assert (got - want).abs().max() <= 2e-5 * want.abs().max().clamp(min=1)
    elif name != "complex":
        half = [t.to(dtype) for t in arguments[:-1]] + arguments[-1:]
        y, end = scan(*half)
        exact, state = scan(*(t.float() for t in half))
        assert y.dtype == dtype and end.dtype == torch.float32
        torch.testing.assert_close((y, end), (exact.to(dtype), state), rtol=0, atol=0)
        torch.testing.assert_close(naive(*half)[1], state, rtol=1e-3, atol=1e-3)


@by_name
def test_a_sequence_in_two_pieces_and_one_without_a_state(name):
    scan, _, arguments, time = examples(100)[name]
    pieces = [
        [t if dim is None else t.narrow(dim, *part) for t, dim in zip(arguments, time, strict=True)]
        for part in ((0, 37), (37, 63))
    ]
    y, end = scan(*arguments)
    first, state = scan(*pieces[0])
    second, last = scan(*pieces[1][:-1], state)
    torch.testing.assert_close((torch.cat((first, second), time[-2] or time[0]), last), (y, end))
    torch.testing.assert_close(scan(*arguments[:-1]), scan(*arguments[:-1], 0 * arguments[-1]))


@pytest.mark.parametrize("name", ["diagonal", "logarithms", "ssd"])
def test_a_decay_of_zero_separates_packed_sequences(name):
    T, cut = 100, 40
    scan, _, arguments, time = examples(T)[name]
    place = 1 if name == "ssd" else 0  # of the decays
    arguments[place][:, cut] = 0 if name == "diagonal" else -torch.inf
    y, end = scan(*arguments)
    rest = [t.narrow(dim, cut, T - cut) for t, dim in zip(arguments[:-1], time, strict=False)]
    alone = scan(*rest)
    torch.testing.assert_close((y.narrow(time[0], cut, T - cut), end), alone, rtol=1e-12, atol=1e-12)


def test_every_number_of_blocks_and_left_over_steps():
    for T in (*range(1, 120, 3), 480, 841, 2000):
        for D in (3, 70):
            a, b = draw(T, D).sigmoid(), draw(T, D, seed=1)
            found = with_gradients(diagonal_scan, (a, b, b[0]))
            assert_same(found, with_gradients(diagonal_scan_naive, (a, b, b[0])), 1e-12)


def test_ssd_with_wide_heads():
    """Where gradients are wanted in float32, this is another form."""
    x, log_a, state = draw(2, 130, 2, 64), -draw(2, 130, 2).abs(), draw(2, 2, 64, 64)
    given = [x, log_a, draw(2, 130, 2, 64, seed=1), draw(2, 130, 2, 64, seed=2), state]
    found = with_gradients(scans.ssd_scan, [t.float() for t in given])
    wanted = with_gradients(scans.ssd_scan_naive, given)
    assert_same(found, [t.float() for t in wanted], 2e-5)


def test_any_strides_and_large_results():
    """Transposed, expanded and sliced inputs; results of some megabytes."""
    a, b = draw(5, 700).sigmoid(), draw(700, 10)
    torch.testing.assert_close(diagonal_scan(a.T, b[:, ::2]), diagonal_scan_naive(a.T, b[:, ::2]))
    row, b = draw(1, 100).sigmoid().expand(6000, 100), draw(6000, 100)
    assert_same(with_gradients(diagonal_scan, (row, b)), with_gradients(diagonal_scan_naive, (row, b)), 1e-12)


@pytest.mark.parametrize("dtype", [REAL, COMPLEX])
@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_kernels(batch, dtype):
    A = draw(*batch, 4, 4, dtype=dtype)
    system = [A / torch.linalg.eigvals(A).abs().max(), draw(*batch, 4, 2, dtype=dtype)]
    system.append(draw(*batch, 3, 4, dtype=dtype))
    for n in (1, 2, 3, 17, 300):
        found = with_gradients(lambda *t, n=n: [lti_kernel(*t, n)], system)
        wanted = with_gradients(lambda *t, n=n: [lti_kernel_naive(*t, n)], system)
        assert_same(found, wanted, 1e-11)
    assert lti_kernel(*system, 0).shape == (*batch, 0, 3, 2)


@pytest.mark.parametrize("method", ["auto", "recurrence", "chunked"])
@pytest.mark.parametrize("N, d, p, batch", [(0, 2, 3, ()), (3, 0, 2, (2,)), (3, 2, 0, ()), (3, 2, 2, (0,))])
def test_systems_with_nothing_in_a_dimension(N, d, p, batch, method):
    """Without inputs a state still runs on freely."""
    system = 0.5 * draw(N, N), draw(N, d), draw(p, N), draw(*batch, 70, d), draw(*batch, N)
    torch.testing.assert_close(lti_scan(*system, method=method), scans.lti_scan_naive(*system))


@pytest.mark.parametrize(
    "N, d, p, batch", [(1, 1, 1, ()), (4, 2, 2, (3,)), (16, 2, 3, (2, 2)), (80, 9, 1, ())]
)
@pytest.mark.parametrize("dtype", [torch.float32, REAL, COMPLEX])
def test_systems_of_many_sizes(N, d, p, batch, dtype):
    A, B, C = 0.99 * torch.linalg.qr(draw(N, N))[0], draw(N, d), draw(p, N)
    given = [t.to(dtype) for t in (A, B, C, draw(*batch, 333, d), draw(*batch, N))]
    wide = [t.to(COMPLEX if t.is_complex() else REAL) for t in given]
    for method in ("auto", "chunked"):
        for got, want in zip(lti_scan(*given, method), scans.lti_scan_naive(*wide), strict=True):
            room = 1e-6 if dtype == torch.float32 else 1e-12
            assert got.dtype == dtype and (got - want).abs().max() <= room * want.abs().max()


def run(*arguments, **environment):
    """The output of a process of its own; it must end well."""
    done = subprocess.run(
        [sys.executable, *arguments], env=os.environ | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


HERE = Path(__file__).parent
PYTEST = "-m", "pytest", "-q", "-p", "no:cacheprovider"


@pytest.mark.skipif(os.environ.get("SSMBOOK_NUMBA") == "0", reason="this is that process")
def test_all_this_without_numba():
    files = [
        str(HERE / f"test_scans_{name}.py") for name in ("naive", "numerics", "not_finite", "transients")
    ]
    run(*PYTEST, *files, SSMBOOK_NUMBA="0")


@pytest.mark.skipif(os.environ.get("SSMBOOK_NUMBA") == "0", reason="this is a process without Numba")
def test_all_this_by_triton_kernels_in_their_interpreter():
    pytest.importorskip("triton")
    kinds = "diagonal", "logarithms", "selective", "zero-order hold", "ssd"
    chosen = [f"test_a_scan_is_its_naive_twin[33-{kind}]" for kind in kinds]
    chosen += [f"test_less_precision[dtype0-{kind}]" for kind in kinds[:1]]  # long enough for parts of time
    chosen += [f"test_a_decay_of_zero_separates_packed_sequences[{kind}]" for kind in kinds[:2]]
    nodes = [f"{__file__}::{test}" for test in chosen]
    nodes += [
        str(HERE / f"test_scans_{file}.py::test_{test}")
        for file, test in (
            ("numerics", "a_selective_scan_keeps_what_a_slow_decay_lacks_of_one[zoh]"),
            ("not_finite", "a_selective_scan_forgets_and_overflows_as_its_recurrence"),
            ("not_finite", "a_growing_recurrence_is_not_cut_into_parts"),
            ("not_finite", "nan_of_each_argument_of_ssd_spreads_as_in_the_recurrence"),
        )
    ]
    run(*PYTEST, *nodes, SSMBOOK_NUMBA="0", TRITON_INTERPRET="1")


def test_the_compiled_loops_are_used_where_numba_is_installed(tmp_path):
    """And kept for later processes; without Numba, or with a broken one, PyTorch computes the same."""
    pytest.importorskip("numba")
    code = (
        "import torch; from ssmbook import scans; one = torch.ones(2, 9, 3).requires_grad_()\n"
        "scans.diagonal_scan(one, one)[0].sum().backward()\n"
        "scans.selective_scan(one, one, one[0, :3], one, one)[0].sum().backward()\n"
        "print(one.grad.sum().item())"
    )
    quiet = {"NUMBA_CACHE_DIR": str(tmp_path)}
    wanted = float(run("-c", code, **quiet, SSMBOOK_NUMBA="0"))
    assert not list(tmp_path.rglob("*.nbi"))
    broken = (
        "import sys, types; m = types.ModuleType('numba'); m.__spec__ = object(); sys.modules['numba'] = m\n"
    )
    assert float(run("-W", "ignore", "-c", broken + code, **quiet)) == pytest.approx(wanted, rel=1e-5)
    assert float(run("-c", code, **quiet, SSMBOOK_NUMBA="1")) == pytest.approx(wanted, rel=1e-5)
    kept = {file.name.split("-")[0] for file in tmp_path.rglob("*.nbi")}
    assert sum(any(word in name for name in kept) for word in ("diagonal", "selective")) == 2, kept


def test_two_threads_give_what_one_gives():
    """Rows are independent: to the last bit. Five rows do not divide into two equal parts."""
    before = torch.get_num_threads()
    given = [draw(5, 3000, 40).sigmoid(), draw(5, 3000, 40, seed=1)]
    try:
        torch.set_num_threads(1)
        alone = with_gradients(diagonal_scan, given)
        torch.set_num_threads(2)
        assert all(map(torch.equal, with_gradients(diagonal_scan, given), alone))
    finally:
        torch.set_num_threads(before)
