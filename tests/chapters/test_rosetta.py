"""Seven forms of one map against its sum written out, in every precision, and the table of their errors."""

import math

import pytest
import torch
from helpers import F64, gen, randn, random_system

from ssmbook.chapters.scans import rosetta
from ssmbook.systems import rotation

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
@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_every_form_is_the_sum(name, n):
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
    by_table = name in ("convolution", "matrix", "attention heads")
    if name == "narrow state":
        assert error > half
    elif by_table:  # a rounded table adds its own errors to that of the result
        exact = rosetta.relative_error(rosetta.recurrence, *given)
        assert exact < error < 20 * half
    else:
        assert 0 < error <= half


def test_the_error_is_relative_to_the_largest_output():
    given = case(9)
    wanted = written_out(*given)
    off = torch.zeros_like(wanted)
    off[3, 1] = 1e-3
    error = rosetta.relative_error(lambda *_: wanted - off, *given)
    assert error == pytest.approx(1e-3 / float(wanted.abs().max()), rel=1e-6)
    with pytest.raises(ValueError, match="n must be at least 1"):
        rosetta.relative_error(rosetta.recurrence, *given[:3], given[3][:0])


def test_the_table_of_errors_is_made_of_single_ones():
    forms = {name: rosetta.FORMS[name] for name in ("matrix", "Fourier", "recurrence")}
    dtypes, rhos, lengths = (torch.float32, torch.bfloat16), (0.5, 1.0), (3, 8, 20)
    table = rosetta.rosetta_matrix(forms, dtypes, rhos, lengths, generator=gen(2))
    assert list(table) == ["float32", "bfloat16"]
    generator, eye = gen(2), torch.eye(2)
    for dtype in dtypes:
        errors = table[str(dtype)[6:]]
        assert errors.shape == (3, 6) and errors.dtype == F64
        for column, (rho, n) in enumerate((rho, n) for rho in rhos for n in lengths):
            A = (rho * rotation(0.7, dtype=F64)).to(dtype)
            x = torch.randn(n, 2, generator=generator, dtype=F64).to(dtype)
            for row, (name, form) in enumerate(forms.items()):
                if name == "Fourier" and dtype == torch.bfloat16:
                    assert math.isnan(errors[row, column])
                else:
                    wanted = rosetta.relative_error(form, A, eye.to(dtype), eye.to(dtype), x)
                    assert float(errors[row, column]) == wanted < 0.02
