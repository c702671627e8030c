"""Scans over the slices of two and three processes equal the naive scan of the whole; what crosses between
them; and what the others see when one process calls otherwise, stays away or dies.
"""

import cmath
import json
import os
import subprocess
import sys
from pathlib import Path

import mpmath
import pytest
import torch
import torch.distributed as dist

from ssmbook.scans.distributed import _wire
from ssmbook.scans.distributed.__main__ import _difference, _drawn, _slice
from ssmbook.scans.distributed._factor import factor_of_logarithms, factor_of_product

WORKER = Path(__file__).with_name("distributed_worker.py")
ROOT = WORKER.parents[2]
ALONE = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="this PyTorch has no gloo"
)


def start(*arguments, **environment):
    environment = {**os.environ, **ALONE, **environment}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)], cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True
    )


def finish(processes, seconds):
    """Exit codes and what was written; a process that hangs is ended and fails the test."""
    try:
        written = [process.communicate(timeout=seconds) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, *texts) for process, texts in zip(processes, written, strict=True)]


@pytest.fixture(scope="module", params=[2, 3], ids=["two processes", "three processes"])
def found(request, tmp_path_factory):
    """What every process found; three of them without the compiled loops."""
    size, folder = request.param, tmp_path_factory.mktemp("group")
    engine = {"SSMBOOK_NUMBA": "0"} if size == 3 else {}
    ended = finish([start(WORKER, rank, size, folder, **engine) for rank in range(size)], 120)
    assert [code for code, *_ in ended] == [0] * (size - 1) + [3], ended
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(size)]


def test_the_self_check_tells_the_largest_difference_over_the_largest_number():
    wanted = torch.tensor([1.0, -4.0, 2.0])
    assert _difference(wanted + torch.tensor([0.0, 1.0, -2.0]), wanted, wanted) == 0.5
    assert _difference(wanted[1:] - 1, wanted[1:], wanted) == 0.25
    assert _difference(wanted[:0], wanted[:0], wanted) == 0.0
    for spoiled in (wanted[:2], wanted * torch.nan, wanted / 0.0):
        assert _difference(spoiled, wanted, wanted) == float("inf")


@pytest.mark.parametrize("T", [40, 4000])
def test_the_self_check_feels_the_first_token_at_the_end(T):
    """Its decays keep a state of ordinary size, whatever the length."""
    for name, log in (("diagonal_scan", False), ("selective_scan", True), ("ssd_scan", True)):
        arguments = _drawn(name, T, torch.float64, "cpu")[0]
        decay = {"selective_scan": lambda delta, A: delta[..., None] * A, "ssd_scan": lambda log_a, _: log_a}
        kept = decay[name](*arguments[1:3]).sum(0).exp() if log else arguments[0].prod(0).abs()
        assert 1e-7 < float(kept.min()) and float(kept.max()) < 1


def test_values_and_every_gradient_are_those_of_the_naive_scan(found):
    for one in found:
        assert len(one["errors"]) >= 18
        for case, error in one["errors"].items():
            assert error < 1e-13, case


def test_products_beyond_double_precision(found):
    for one in found:
        assert all(one["extremes"].values()) and len(one["extremes"]) == 3


def error_of(factor, exact):
    """The relative error of a factor of one channel, found in 40 digits."""
    got = mpmath.mpmathify(factor.fraction.item()) * mpmath.mpf(2) ** int(factor.power.item())
    return float(abs(got - exact) / abs(exact))


@pytest.mark.parametrize("decay", [1 - 1e-6, -0.99999, cmath.rect(0.999999, 1.0), 1.001])
def test_the_product_of_a_million_equal_decays(decay):
    """Its roundings would all go the same way; 1.001 to the power of a million is far beyond 1e308."""
    T = 1_000_003
    a = torch.full((T, 1), decay, dtype=torch.complex128 if isinstance(decay, complex) else torch.float64)
    with mpmath.workdps(40):
        assert error_of(factor_of_product(a), mpmath.mpmathify(decay) ** T) < 2e-12


@pytest.mark.parametrize("kind", ["signed", "huge and tiny", "complex", "float32"])
@pytest.mark.parametrize("T", [1, 2, 33, 1003])
def test_the_product_of_random_decays(kind, T):
    generator = torch.Generator().manual_seed(T)
    a = torch.randn(T, 1, dtype=torch.float64, generator=generator)
    if kind == "huge and tiny":
        a = a * 10 ** (100 * torch.randn(T, 1, dtype=a.dtype, generator=generator)).clamp(-290, 290)
    a = torch.complex(a, a.flip(0) * 0.7) if kind == "complex" else a
    a = a.float() if kind == "float32" else a
    with mpmath.workdps(40):
        exact = mpmath.fprod(mpmath.mpmathify(v) for v in a.flatten().tolist())
        assert error_of(factor_of_product(a), exact) < (1e-10 if kind == "huge and tiny" else 1e-12)


def test_the_product_of_none_of_zero_and_of_logarithms():
    one = torch.ones(2, dtype=torch.float64)
    assert torch.equal(factor_of_product(torch.zeros(3, 0, 2)).times(one), one.expand(3, 2))
    assert (
        not factor_of_product(torch.tensor([[0.5, 1e300], [0.0, 0.0]], dtype=torch.float64)).times(one).any()
    )
    total = torch.tensor([-torch.inf, 0.0, 800.0, -1e9], dtype=torch.float64)
    state = torch.tensor([1.0, 1.0, 1e-300, 1e300], dtype=torch.float64)
    wanted = torch.tensor([0.0, 1.0, float(mpmath.exp(800) * mpmath.mpf(1e-300)), 0.0], dtype=torch.float64)
    torch.testing.assert_close(factor_of_logarithms(total).times(state), wanted, rtol=1e-12, atol=0)


def test_bytes_do_not_depend_on_the_length(found):
    """A note of 512 bytes; factor and state; and, backward, the gradients of two states: in doubles."""
    numbers = {"diagonal_scan": (18, 12), "selective_scan": (72, 48), "ssd_scan": (56, 96)}
    for one in found:
        short, long = one["bytes"]
        assert short == long and len(short) == 9
        for case, sizes in short.items():
            forward, backward = numbers[case.partition(",")[0]]
            if "complex" in case:
                forward, backward = 45, 36
            assert sizes == [512, 8 * forward, 8 * backward], case


@pytest.mark.parametrize("misfit", ["shape", "dtype", "scan", "recording"])
def test_what_does_not_fit_together_raises_everywhere(found, misfit):
    wanted = {
        "shape": ("(3,), process 1 has", "(4,)"),
        "dtype": ("torch.float64", "torch.float32"),
        "scan": ("process 0 has diagonal_scan", "process 1 has ssd_scan"),
        "recording": ("process 0 asks for them", "process 1 runs without"),
    }
    for one in found:
        kind, text = one["misfits"][misfit]
        assert kind == "ValueError" and all(words in text for words in wanted[misfit]), text


def test_a_process_with_a_bad_argument_raises_and_tells_the_others(found):
    for rank, one in enumerate(found):
        kind, text = one["misfits"]["argument"]
        assert kind == ("ValueError" if rank == 1 else "RuntimeError")
        assert "b must have shape" in text and (rank == 1 or "because process 1 failed" in text)


def test_a_process_that_stays_away_or_dies_is_an_error_for_the_others(found):
    kind, text = found[0]["group"][1:]
    assert kind == "RuntimeError" and "did not call within the group's timeout" in text
    for one in found[:-1]:
        kind, text = one["death"]
        assert kind == "RuntimeError" and "another process has ended" in text


def test_a_note_is_as_long_as_its_bytes_and_a_longer_one_is_cut(monkeypatch):
    monkeypatch.setattr(_wire, "_gathered", lambda name, note, group: [note])
    for long in (0, 1, _wire.NOTE, _wire.NOTE + 1):
        assert _wire._notes("a scan", "a" * long, "cpu", None) == ["a" * min(long, _wire.NOTE)]


def test_groups_autocast_and_gradients_that_only_one_process_asks_for(found):
    for one in found:
        assert one["one asks"] is True and one["autocast"] is True
    assert found[0]["group"][0] is True and found[-1]["group"][0] is True
    if len(found) == 3:
        kind, text = found[1]["group"]
        assert kind == "ValueError" and text.startswith("group must be one that this process")


def test_without_a_group_the_error_says_what_to_call(found):
    kind, text = found[0]["before"]
    assert kind == "RuntimeError" and "init_process_group" in text


def test_the_scans_do_not_import_it(found):
    assert [one["imported"] for one in found] == [False] * len(found)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_the_slices_of_the_self_check_are_the_whole_length(size, monkeypatch):
    """In order and without a gap; with three processes or more, one slice is empty."""
    monkeypatch.setattr(dist, "get_world_size", lambda: size)
    cuts = []
    for rank in range(size):
        monkeypatch.setattr(dist, "get_rank", lambda rank=rank: rank)
        cuts.append(_slice(3001))
    starts, ends = zip(*cuts, strict=True)
    assert starts == (0, *ends[:-1]) and ends[-1] == 3001
    lengths = sorted(end - start for start, end in cuts)
    assert (lengths[0] == 0) == (size > 2) and lengths[size > 2] > 100


SELF_CHECK = "-m", "ssmbook.scans.distributed", "--length", "3001"


def test_the_self_check_ends_in_one_line():
    torchrun = "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"
    ((code, result, progress),) = finish([start(*torchrun, *SELF_CHECK)], 120)
    assert code == 0, progress
    (line,) = result.splitlines()
    assert line.startswith("OK: diagonal_scan, selective_scan, ssd_scan of 3,001 steps, 2 processes, cpu")
    assert progress.count("2 processes ...") == 3


def test_the_self_check_fails_where_numbers_differ_or_a_scan_raises():
    """A process alone: its scan is a little off, then the scan of one process is not to be had."""
    code = """if True:
        import os
        import torch
        from ssmbook import scans
        from ssmbook.scans import distributed
        from ssmbook.scans.distributed.__main__ import main

        genuine = distributed.ssd_scan
        def off(*arguments):
            y, end = genuine(*arguments)
            return y * (1 + (1e-10 if y.dtype == torch.float64 else 1e-3)), end
        distributed.ssd_scan = off
        found = [main(["--length", "77"]), main(["--length", "77", "--dtype", "float32"])]
        distributed.ssd_scan, scans.ssd_scan = genuine, None
        found.append(main(["--length", "77"]))
        del os.environ["RANK"]
        try:
            main([])
        except SystemExit as ended:
            found.append(ended.code)
        print(found)
    """
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    ((code, result, errors),) = finish([start("-c", code, **alone)], 120)
    *failed, codes = result.splitlines()
    assert code == 0 and codes == "[1, 1, 1, 2]"
    for line, limit in zip(failed, ("1e-12", "1e-05"), strict=True):
        assert line.startswith("FAILED: diagonal_scan, selective_scan, ssd_scan of 77")
        assert "(ssd_scan," in line and line.endswith(f"limit {limit}")
    assert "FAILED in process 0: ssd_scan" in errors or "FAILED in process 0: 'NoneType'" in errors
    assert "start it with torchrun" in errors
