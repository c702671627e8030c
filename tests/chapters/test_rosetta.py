"""Seven forms of one map against its sum written out, in every precision."""

import pytest
import torch
from helpers import F64, randn, random_system

from headsandstates.chapters.scans import rosetta

FORMS = {**rosetta.FORMS, "narrow state": rosetta.narrow_state}


def written_out(A, B, C, x):
    """y_t = sum over s <= t of C A^(t - s) B x_s, in float64."""
    A, B, C, x = (t.double() for t in (A, B, C, x))
    power = torch.linalg.matrix_power
    return torch.stack([sum(C @ power(A, t - s) @ B @ x[s] for s in range(t + 1)) for t in range(len(x))])


def case(n, dtype=F64):
    A, B, C, _ = random_system(3, 2, 4, 0.9, seed=n)
    return [t.to(dtype) for t in (A, B, C, randn(n, 2, seed=1))]


@pytest.mark.parametrize("name", FORMS)
def test_every_form_is_the_sum(name):
    for n in (1, 7, 40):
        for dtype, error in ((F64, 1e-13), (torch.float32, 3e-6)):
            given = case(n, dtype)
            y, wanted = FORMS[name](*given), written_out(*given)
            assert y.dtype == dtype and y.shape == (n, 4)
            assert float((y - wanted).abs().max() / wanted.abs().max()) < error


@pytest.mark.parametrize("name", [name for name in FORMS if name != "Fourier"])
def test_bfloat16_keeps_tables_narrow_and_states_wide(name):
    given = case(200, torch.bfloat16)
    error = rosetta.relative_error(FORMS[name], *given)
    half = 2.0**-8  # the rounding of one number
    if name == "narrow state":
        assert error > half
    elif name in ("convolution", "matrix", "attention heads"):  # a rounded table adds its own errors
        assert rosetta.relative_error(rosetta.recurrence, *given) < error < 20 * half
    else:
        assert 0 < error <= half
