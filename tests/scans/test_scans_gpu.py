"""Every scan on a GPU has the numbers and gradients of its naive twin on the CPU: `make test-gpu`."""

import pytest
import torch
from scan_examples import NAMES, assert_same, examples, with_gradients

if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)

DEVICE = "cuda"
F16, F32, F64 = torch.bfloat16, torch.float32, torch.float64


@pytest.mark.parametrize(("dtype", "tolerance"), [(F64, 1e-10), (F32, 1e-4)])
@pytest.mark.parametrize("T", [1, 33, 70, 1001])
@pytest.mark.parametrize("name", NAMES)
def test_outputs_and_gradients_are_those_of_the_naive_twin(name, T, dtype, tolerance):
    scan, naive, arguments, _ = examples(T, dtype)[name]
    found = with_gradients(scan, [t.to(DEVICE) for t in arguments])
    assert {t.device.type for t in found} == {DEVICE}
    assert_same([t.cpu() for t in found], with_gradients(naive, arguments), tolerance)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "complex"])
def test_half_precision_is_computed_in_single(name):
    scan, naive, arguments, _ = examples(1001, F32)[name]
    half = [t.to(F16) for t in arguments]
    y, state = scan(*(t.to(DEVICE) for t in half))
    wanted = naive(*(t.float() for t in half))
    assert (y.dtype, state.dtype) == (F16, F32)
    assert_same([y.cpu().float(), state.cpu()], wanted, 0.01)
