"""Argument checks: an error names the argument, what came, and what was wanted."""

import math

import numpy as np
import pytest
import torch

from ssmbook import _checks as checks

x = torch.ones(2, 3, dtype=torch.float64)
REFUSED = [  # the error, what its message names, the call
    (TypeError, ("x", "torch.Tensor", "list"), lambda: checks.check_tensor("x", [1.0])),
    (TypeError, ("x", "floating", "torch.int64"), lambda: checks.check_tensor("x", x.long())),
    (TypeError, ("x", "complex128"), lambda: checks.check_tensor("x", x.to(torch.complex128))),
    (TypeError, ("x", "dense", "sparse"), lambda: checks.check_tensor("x", x.to_sparse())),
    (ValueError, ("x", "(..., n, d) with d = 4", "(2, 3)"), lambda: shape("... n d", {"d": 4})),
    (ValueError, ("x", "(N, N)", "(2, 3)"), lambda: shape("N N")),
    (ValueError, ("x", "(2, 2)", "(2, 3)"), lambda: shape("2 2")),
    (ValueError, ("x", "(n)", "(2, 3)"), lambda: shape("n")),
    (TypeError, ("y", "dtype of x", "float32"), lambda: pair(x.float())),
    (ValueError, ("y", "device of x", "meta"), lambda: pair(x.to("meta"))),
    (ValueError, ("y", "(n, d) with n = 2, d = 3", "(3, 2)"), lambda: pair(x.mT)),
    (ValueError, ("y", "finite", "6 non-finite of 6"), lambda: pair(x / 0, finite=True)),
    (ValueError, ("x", "values", "meta"), lambda: checks.check_finite("x", x.to("meta"))),
    (ValueError, ("B", "batch shape of A", "()"), lambda: checks.check_matrices(A=x.new_zeros(5, 2, 2), B=x)),
    (ValueError, ("y", "batch shape of x", "(3,)"), lambda: checks.shared_batch(W=(), x=(2,), y=(3,))),
    (TypeError, ("n", "int", "bool"), lambda: checks.check_integer("n", True, low=0)),
    (TypeError, ("n", "int", "shape (1,)"), lambda: checks.check_integer("n", torch.ones(1).long(), low=0)),
    (ValueError, ("H", "between 1 and 3", "4"), lambda: checks.check_integer("H", 4, low=1, high=3)),
    (TypeError, ("rho", "number", "str"), lambda: checks.check_number("rho", "1", 0)),
    (ValueError, ("rho", "[0, 1)", "1.0"), lambda: checks.check_number("rho", 1.0, 0, 1)),
    (ValueError, ("eps", "nan"), lambda: checks.check_number("eps", math.nan, 0)),
    (TypeError, ("theta", "str"), lambda: checks.as_real("theta", "1")),
]


def shape(pattern, sizes=None):
    return checks.check_shape("x", x, pattern, sizes)


def pair(y, **options):
    return checks.check_tensors(x=(x, "n d"), y=(y, "n d"), **options)


@pytest.mark.parametrize("error, words, call", REFUSED)
def test_an_error_names_the_argument_what_was_wanted_and_what_came(error, words, call):
    with pytest.raises(error) as refusal:
        call()
    message = str(refusal.value)
    assert message.startswith(words[0]) and all(word in message for word in words)


def test_letters_stand_for_sizes_and_may_be_bound_beforehand():
    assert checks.check_shape("x", x, "... n d") == {"n": 2, "d": 3}
    assert checks.check_shape("x", x[None, None], "... n 3", {"n": 2}) == {"n": 2}
    assert checks.check_tensors(A=(torch.eye(2), "N N"), B=(torch.ones(2, 5), "N d")) == {"N": 2, "d": 5}


@pytest.mark.parametrize("three", [3, np.int64(3), torch.tensor(3)])
def test_a_whole_number_comes_back_as_an_int(three):
    found = checks.check_integer("n", three, low=3, high=3)
    assert type(found) is int and found == 3


def test_numbers_become_tensors_like_the_one_beside_them():
    assert checks.as_real("a", 1).dtype == torch.float64
    assert checks.as_real("a", np.float32(0.5), like=x.float()).dtype == torch.float32
    assert checks.as_real("a", x, low=1.0, high=1.0) is x
