"""Every sentence of a refusal, once: elsewhere tests ask for its kind and the argument's name alone."""

import math
import re

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
        "x must hold values; got a tensor on the device meta, a shape without them",
        lambda: _checks.check_values("x", x.to("meta")),
    ),
    (ValueError, "x must be finite; got 6 non-finite of 6 entries", lambda: _checks.check_finite("x", x / 0)),
    (TypeError, "n must be an int; got float", lambda: _checks.check_integer("n", 2.0, low=1)),
    (ValueError, "n must be at least 1; got 0", lambda: _checks.check_integer("n", 0, low=1)),
    (ValueError, "H must be between 1 and 3; got 4", lambda: _checks.check_integer("H", 4, low=1, high=3)),
    (
        TypeError,
        "eps must be a finite number; got Tensor of shape (2, 3)",
        lambda: _checks.check_number("eps", x),
    ),
    (ValueError, "rtol must be a number in [0, 1); got 1.0", lambda: _checks.check_rtol(1.0)),
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
        "a must lie in [0.0, inf); got -1.0",
        lambda: _checks.as_real("a", -1.0, low=0.0, open_ends=False),
    ),
    (
        TypeError,
        "tau must be an int or an integer tensor; got float",
        lambda: _checks.as_count("tau", 1.0, low=0),
    ),
    (
        ValueError,
        "theta must be a number or have the shape of tau, (2, 3); got (3,)",
        lambda: _checks.together("tau", x, "theta", x[0]),
    ),
]


@pytest.mark.parametrize("error, words, call", SENTENCES)
def test_a_refusal_names_the_argument_what_was_wanted_and_what_came(error, words, call):
    with pytest.raises(error, match=f"^{re.escape(words)}$"):
        call()
