"""What the scans refuse, by name: one wrong shape for each argument, mixed dtypes and options."""

import pytest
import torch
from scan_examples import NAMES, examples

from ssmbook.scans import diagonal_scan, lti_kernel, lti_scan, selective_scan


@pytest.mark.parametrize("name", NAMES)
def test_wrong_shapes_and_dtypes_are_refused_by_name(name):
    for scan in examples(9)[name][:2]:
        arguments = examples(9)[name][2]
        for i, t in enumerate(arguments):
            for wrong, error in (
                (t[..., :-1], ValueError),
                (t.to(torch.float32), TypeError),
                ([1.0], TypeError),
            ):
                with pytest.raises(error, match="must .*; got"):
                    scan(*arguments[:i], wrong, *arguments[i + 1 :])
            if t.dim() > 2:
                with pytest.raises(ValueError, match="must have .*; got"):
                    scan(*arguments[:i], t[:1], *arguments[i + 1 :])


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "complex"])
def test_half_and_single_precision_do_not_mix(name, half):
    scan, naive, arguments, _ = examples(9, torch.float32)[name]
    for i, t in enumerate(arguments[:-1]):  # the last one is the state
        for each in (scan, naive):
            with pytest.raises(TypeError, match="must have the dtype of"):
                each(*arguments[:i], t.to(half), *arguments[i + 1 :])


def test_wrong_options_are_refused():
    a, _, (x, delta, A, B, C, *_), _ = examples(9)["selective"]
    with pytest.raises(ValueError, match="discretization must"):
        selective_scan(x, delta, A, B, C, discretization="euler")
    with pytest.raises(ValueError, match="real log-decays"):
        diagonal_scan(x + 0j, x + 0j, log=True)
    eye = torch.eye(3, dtype=x.dtype)
    with pytest.raises(ValueError, match="method must"):
        lti_scan(eye, eye, eye, x, method="fast")
    for n, error in ((-1, ValueError), (2.0, TypeError)):
        with pytest.raises(error, match="n must"):
            lti_kernel(eye, eye, eye, n)
