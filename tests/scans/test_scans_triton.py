"""The kernels for a card, without one: run by an interpreter, compiled to machine code, or left alone."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from ssmbook.scans import _engine, _ops

HERE = Path(__file__).parent


def run(*arguments, **environment) -> str:
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
    assert not done.returncode, done.stderr[-2000:]
    return done.stdout


def test_interpreted_kernels_agree_with_the_naive_twins():
    pytest.importorskip("triton")
    double, single = run(HERE / "interpreted.py", TRITON_INTERPRET="1").splitlines()
    assert double.startswith("torch.float64") and double.endswith("in at most 1 parts")
    assert single.startswith("torch.float32") and int(single.split()[-2]) > 2


COMPILE = """
import itertools, warnings
warnings.simplefilter("ignore")
from triton import compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from ssmbook.scans import _triton

for kernel, log, reverse, summary, kind, one in itertools.product(
    (_triton._forward, _triton._backward), *[(False, True)] * 3, ("fp32", "fp64"), (False, True)
):
    if kind == "fp64" and (summary or one) or one and reverse:
        continue
    known = {"LOG": log, "REVERSE": reverse, "SUMMARY": summary, "BLOCK": 32}
    known |= dict.fromkeys("TDL", 1) if one else {}
    kinds = {name: f"*{kind}" for name in kernel.arg_names} | dict.fromkeys("TDL", "i32")
    kinds |= dict.fromkeys(("start", "end", "product"), "*fp64") | dict.fromkeys(known, "constexpr")
    print(len(compile(ASTSource(kernel, kinds, known), target=GPUTarget("cuda", 90, 32)).asm["cubin"]))

doubles = "start", "end", "g_end", "d_A", "d_B", "d_C", "d_state", "scratch"
for kernel, reset, kind, one in itertools.product(
    (_triton._selective, _triton._selective_backward), (False, True), ("fp32", "fp64"), (False, True)
):
    if one and (reset or kind == "fp64"):
        continue
    known = {"RESET": reset, "STATES": 1 if one else 16, "WIDTH": 32, "BLOCK": 32}
    known |= dict.fromkeys("TDNK", 1) if one else {}
    kinds = {name: f"*{kind}" for name in kernel.arg_names} | dict.fromkeys("TDNK", "i32")
    kinds |= dict.fromkeys([name for name in doubles if name in kinds], "*fp64") | {"reset": "*i8"}
    kinds |= dict.fromkeys(known, "constexpr")
    print(len(compile(ASTSource(kernel, kinds, known), target=GPUTarget("cuda", 90, 32)).asm["cubin"]))
"""


def test_kernels_compile_for_a_card(tmp_path):
    """Also for lengths and widths of one, which Triton takes for constants."""
    pytest.importorskip("triton", minversion="3.9")  # how a kernel is named to its compiler has changed
    sizes = run("-c", COMPILE, TRITON_CACHE_DIR=str(tmp_path)).split()
    assert len(sizes) == 42 and all(int(size) > 1000 for size in sizes)


def test_no_kernel_is_loaded_on_a_cpu():
    code = "import sys, torch; from ssmbook.scans import diagonal_scan; diagonal_scan(*torch.rand(2, 9, 3))\n"
    assert run("-c", code + "print('ssmbook.scans._triton' in sys.modules)") == "False\n"


def test_with_triton_a_card_gets_the_kernels(monkeypatch):
    monkeypatch.setattr(_engine.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "ssmbook.scans._triton", kernels := object())
    assert _engine._kernels.__wrapped__() is kernels


def test_without_triton_a_card_gets_the_form_in_torch(monkeypatch):
    monkeypatch.setattr(_engine.importlib.util, "find_spec", lambda name: None)
    assert _engine._kernels.__wrapped__() is None
    monkeypatch.undo()
    monkeypatch.setattr(_engine.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "ssmbook.scans._triton", raising=False)
    with pytest.warns(UserWarning, match="Triton cannot be used"):
        assert _engine._kernels.__wrapped__() is None


def test_where_there_are_kernels_every_operation_is_theirs(monkeypatch):
    asked = []
    names = ("diagonal", "diagonal_backward", "selective", "selective_backward")
    kernels = {name: lambda *given, name=name: asked.append((name, len(given))) or name for name in names}
    monkeypatch.setattr(_ops, "kernels_for", lambda t: SimpleNamespace(**kernels))
    t = torch.zeros(2, 3, 4)
    found = [
        _ops._h(t, t, None, False, False),
        _ops._gradients_of_h(t, t, None, t, t, False, False),
        _ops._y(t, t, t, t, t, t, True, None),
        _ops._gradients_of_y(t, t, t, t, t, True, None, t, t, t),
    ]
    assert found == list(names) and asked == list(zip(names, (5, 7, 7, 9), strict=True))
