"""Every sentence of a refusal, once: elsewhere tests ask for its kind and the argument's name alone."""

import math
import re

import numpy as np
import pytest
import torch
from helpers import F64

from ssmbook import _checks

x = torch.zeros(2, 3, dtype=F64)
SENTENCES = [
    (
        TypeError,
        "x must be a floating-point torch.Tensor; got list",
        lambda: _checks.check_tensor("x", [1.0]),
    ),
    (
        TypeError,
        "x must be a floating-point or complex torch.Tensor; got dtype torch.int64",
        lambda: _checks.check_tensor("x", x.long(), complex_ok=True),
    ),
    (
        TypeError,
        "x must be a floating-point torch.Tensor, dense; got torch.sparse_coo",
        lambda: _checks.check_tensor("x", x.to_sparse()),
    ),
    (
        TypeError,
        "dtype must be a floating-point torch.dtype; got dtype torch.int8",
        lambda: _checks.check_dtype("dtype", torch.int8),
    ),
    (
        ValueError,
        "x must have shape (..., n, d) with d = 4; got (2, 3)",
        lambda: _checks.check_shape("x", x, "... n d", {"d": 4}),
    ),
    (
        TypeError,
        "x must be a floating-point torch.Tensor; got dtype torch.complex128",
        lambda: _checks.check_shape("x", x.to(torch.complex128), "n d"),
    ),
    (
        TypeError,
        "x must be a floating-point torch.Tensor, dense; got a nested tensor",
        lambda: _checks.check_tensor("x", torch.nested.nested_tensor([x, x], layout=torch.strided)),
    ),
    (
        TypeError,
        "dtype must be a floating-point torch.dtype; got 'float32'",
        lambda: _checks.check_dtype("dtype", "float32"),
    ),
    (
        TypeError,
        "dtype must be a floating-point torch.dtype; got dtype torch.float8_e4m3fn",
        lambda: _checks.check_like(dtype=torch.float8_e4m3fn),
    ),
    (
        TypeError,
        "dtype must be a floating-point torch.dtype; got dtype torch.complex64",
        lambda: _checks.check_like(dtype=torch.complex64),
    ),
    (
        TypeError,
        "dtype must be a floating-point torch.dtype; got dtype torch.complex32",
        lambda: _checks.check_like(dtype=torch.complex32, complex_ok=True),
    ),
    (
        TypeError,
        "generator must be a torch.Generator or None; got int",
        lambda: _checks.check_like(generator=0),
    ),
    (
        ValueError,
        "device must be one of this machine; got 'nowhere'",
        lambda: _checks.check_like(device="nowhere"),
    ),
    (
        ValueError,
        "n must leave tensors of at most 2^38 numbers; got shape (2, 524288, 524288)",
        lambda: _checks.check_room("n", 2, 2**19, 2**19),
    ),
    (ValueError, "A must have shape (N, N); got (2, 3)", lambda: _checks.check_shape("A", x, "N N")),
    (
        TypeError,
        "B must have the dtype of A, torch.float64; got torch.float32",
        lambda: _checks.check_alike(A=x, B=x.float()),
    ),
    (
        ValueError,
        "B must be on the device of A, cpu; got meta",
        lambda: _checks.check_alike(A=x, B=x.to("meta")),
    ),
    (
        ValueError,
        "B must have the batch shape of A, (5,); got ()",
        lambda: _checks.check_matrices(A=x.new_zeros(5, 2, 2), B=x),
    ),
    (
        ValueError,
        "y must have the batch shape of x, (2,); got ()",
        lambda: _checks.check_tensors(x=(x[:, None], "... n d"), y=(x, "... m d"), one_batch=True),
    ),
    (
        ValueError,
        "y must be finite; got 6 non-finite of 6 entries",
        lambda: _checks.check_tensors(x=(x, "n d"), y=(x / 0, "n d"), finite=True),
    ),
    (
        ValueError,
        "x must have shape (n, d) with d = 4; got (2, 3)",
        lambda: _checks.check_tensors({"d": 4}, x=(x, "n d")),
    ),
    (
        TypeError,
        "x must be a floating-point torch.Tensor; got dtype torch.complex128",
        lambda: _checks.check_tensors(x=(x.to(torch.complex128), "n d")),
    ),
    (
        ValueError,
        "y must have the batch shape of x, (2,), or none; got (3,)",
        lambda: _checks.shared_batch(W=(), x=(2,), y=(3,)),
    ),
    (
        ValueError,
        "x must hold values; got a tensor on the device meta, a shape without them",
        lambda: _checks.check_values("x", x.to("meta")),
    ),
    (ValueError, "x must be finite; got 6 non-finite of 6 entries", lambda: _checks.check_finite("x", x / 0)),
    (TypeError, "n must be an int; got float", lambda: _checks.check_integer("n", 2.0, low=1)),
    (TypeError, "n must be an int; got bool", lambda: _checks.check_integer("n", True, low=0)),
    (
        TypeError,
        "n must be an int; got Tensor of shape (1,)",
        lambda: _checks.check_integer("n", torch.ones(1, dtype=torch.int64), low=0),
    ),
    (
        ValueError,
        "n must hold values; got a tensor on the device meta, a shape without them",
        lambda: _checks.check_integer("n", torch.ones((), dtype=torch.int64, device="meta"), low=0),
    ),
    (ValueError, "n must be at least 1; got 0", lambda: _checks.check_integer("n", 0, low=1)),
    (ValueError, "H must be between 1 and 3; got 4", lambda: _checks.check_integer("H", 4, low=1, high=3)),
    (
        TypeError,
        "eps must be a finite number; got Tensor of shape (2, 3)",
        lambda: _checks.check_number("eps", x),
    ),
    (ValueError, "rtol must be a number in [0, 1); got 1.0", lambda: _checks.check_rtol(1.0)),
    (TypeError, "rtol must be a number in [0, 1); got bool", lambda: _checks.check_rtol(False)),
    (ValueError, "rho must be finite and positive; got 0", lambda: _checks.check_positive("rho", 0)),
    (ValueError, "rho must be finite and positive; got inf", lambda: _checks.check_positive("rho", math.inf)),
    (ValueError, "eps must be finite and at least 0; got -1.0", lambda: _checks.check_eps(-1.0)),
    (TypeError, "causal must be True or False; got 1", lambda: _checks.check_flags(causal=1)),
    (
        ValueError,
        "mode must be one of sum, mean; got 'max'",
        lambda: _checks.check_choice("mode", "max", ["sum", "mean"]),
    ),
    (
        TypeError,
        "theta must be a number or a floating-point tensor; got str",
        lambda: _checks.as_real("theta", "1"),
    ),
    (ValueError, "a must lie in (0.0, 1.0); got 1.0", lambda: _checks.as_real("a", 1.0, low=0.0, high=1.0)),
    (
        ValueError,
        "a must lie in (-inf, 1.0); got 2.0",
        lambda: _checks.as_real("a", torch.tensor([0.0, 2.0]), high=1.0),
    ),
    (ValueError, "a must lie in (0.0, inf); got 0.0", lambda: _checks.as_real("a", 0, low=0.0)),
    (
        ValueError,
        "a must be finite; got 1 non-finite of 1 entries",
        lambda: _checks.as_real("a", math.inf, low=0.0),
    ),
    (
        TypeError,
        "a must be a number or a floating-point tensor; got bool",
        lambda: _checks.as_real("a", True),
    ),
    (
        ValueError,
        "a must lie in [0.0, inf); got -1.0",
        lambda: _checks.as_real("a", -1.0, low=0.0, open_ends=False),
    ),
    (
        TypeError,
        "tau must be an int or an integer tensor; got float",
        lambda: _checks.as_count("tau", 1.0, low=0),
    ),
    (ValueError, "tau must be at least 1; got 0", lambda: _checks.as_count("tau", torch.arange(3), low=1)),
    (
        ValueError,
        f"tau must be below 2^63 in size, to fit 64 bits; got {2**63}",
        lambda: _checks.as_count("tau", 2**63, low=0),
    ),
    (
        ValueError,
        "tau must hold values; got a tensor on the device meta, a shape without them",
        lambda: _checks.as_count("tau", torch.arange(3, device="meta"), low=0),
    ),
    *[
        (
            TypeError,
            f"tau must be an int or an integer tensor; got dtype {dtype}",
            lambda dtype=dtype: _checks.as_count("tau", torch.ones(3, dtype=dtype), low=0),
        )
        for dtype in (torch.bool, torch.float32, torch.complex64)
    ],
    (
        ValueError,
        "theta must be a number or have the shape of tau, (2, 3); got (3,)",
        lambda: _checks.together(tau=x, theta=x[0]),
    ),
]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("error, words, call", SENTENCES)
def test_a_refusal_names_the_argument_what_was_wanted_and_what_came(error, words, call):
    with pytest.raises(error, match=f"^{re.escape(words)}$"):
        call()


@pytest.mark.parametrize("three", [3, np.int64(3), torch.tensor(3)])
def test_a_whole_number_comes_back_as_an_int_whatever_stood_for_it(three):
    found = _checks.check_integer("n", three, low=3, high=3)
    assert type(found) is int and found == 3


def test_numbers_come_back_as_floats_and_as_tensors_of_the_dtype_beside_them():
    for found in (_checks.check_number("eps", 3), _checks.check_eps(0), _checks.check_rtol(np.float32(0))):
        assert type(found) is float
    assert _checks.as_real("a", x) is x and _checks.as_real("a", 1).dtype == F64
    assert _checks.as_real("a", np.float32(1), like=x.float()).dtype == torch.float32
    assert _checks.as_count("tau", 2**63 - 1, low=1).item() == 2**63 - 1
    assert _checks.as_count("tau", np.int8(3), low=1).dtype == torch.int64


def test_ends_that_belong_to_the_allowed_pass():
    for end in (0.0, 1.0):
        assert _checks.as_real("a", end, low=0.0, high=1.0, open_ends=False) == end
    assert _checks.as_count("tau", torch.arange(1, 3), low=1).tolist() == [1, 2]
    _checks.check_room("n", 2**19, 2**19)


def test_what_is_not_asked_for_is_not_refused():
    _checks.check_like()
    _checks.check_like(dtype=torch.complex64, complex_ok=True)
    _checks.check_finite("x", x.to("meta"), meta_ok=True)
    _checks.check_matrices(A=x[:, :2], B=x, C=x.mT[:, :2], D=None)
    # Entries need not be finite, nor batches the same, until that is said.
    sizes = _checks.check_tensors(x=(x[:, None] / 0, "... n d"), y=(x, "... m d"))
    assert sizes == {"n": 1, "d": 3, "m": 2}
    assert _checks.shared_batch(x=(), y=(3,), z=(3,)) == (3,)
