"""Every refusal names the argument, what came and what was wanted."""

import math

import numpy as np
import pytest
import torch
from helpers import F64, gen

from ssmbook.operators import (
    DenseOperator,
    FactorizedOperator,
    LagOperator,
    ModalOperator,
    RecurrentOperator,
    SumOperator,
    numerical_rank,
    operator_span,
    path_operator,
    rank_report,
    secant_operator,
)


def z(*shape, dtype=torch.float64, device=None):
    return torch.zeros(*shape, dtype=dtype, device=device)


DENSE = DenseOperator(z(5, 5, 3, 2))
BATCHED = DenseOperator(z(4, 5, 5, 3, 2))
LAG = LagOperator(z(5, 3, 2))
LONG = LagOperator(z(5, 3, 2), 2**20)
F32 = torch.float32

CASES = {
    "dense not square": (
        lambda: DenseOperator(z(5, 4, 3, 2)),
        ValueError,
        r"W must have shape .*got \(5, 4, 3, 2\)",
    ),
    "heads not square": (
        lambda: FactorizedOperator(z(2, 5, 4), z(2, 3, 2)),
        ValueError,
        "alpha must",
    ),
    "heads disagree": (
        lambda: FactorizedOperator(z(2, 5, 5), z(3, 3, 2)),
        ValueError,
        "V must have shape .*H = 2",
    ),
    "heads of mixed batch": (
        lambda: FactorizedOperator(z(4, 2, 5, 5), z(3, 2, 3, 2)),
        ValueError,
        "V must",
    ),
    "heads that would broadcast": (
        lambda: FactorizedOperator(z(4, 2, 5, 5), z(1, 2, 3, 2)),
        ValueError,
        "V must",
    ),
    "lag too short": (lambda: LagOperator(z(5, 3, 2), 4), ValueError, "n must be at least L = 5.*got 4"),
    "A not square": (
        lambda: RecurrentOperator(z(5, 4, 3), z(5, 4, 2), z(5, 3, 4)),
        ValueError,
        "A must",
    ),
    "B of other N": (
        lambda: RecurrentOperator(z(5, 4, 4), z(5, 3, 2), z(5, 3, 4)),
        ValueError,
        "B must",
    ),
    "C of other n": (
        lambda: RecurrentOperator(z(5, 4, 4), z(5, 4, 2), z(6, 3, 4)),
        ValueError,
        "C must",
    ),
    "D of other p": (
        lambda: RecurrentOperator(z(5, 4, 4), z(5, 4, 2), z(5, 3, 4), z(5, 2, 2)),
        ValueError,
        "D must",
    ),
    "batch of C": (
        lambda: RecurrentOperator(z(2, 5, 4, 4), z(5, 4, 2), z(3, 5, 3, 4)),
        ValueError,
        "C must",
    ),
    "x of other n": (
        lambda: DENSE.apply(z(4, 2)),
        ValueError,
        r"x must have shape .*n = 5, d = 2; got \(4, 2\)",
    ),
    "x of other d": (lambda: DENSE.apply(z(5, 3)), ValueError, "x must"),
    "x of other batch": (
        lambda: BATCHED.apply(z(3, 5, 2)),
        ValueError,
        r"x must have the batch shape of W, \(4,\)",
    ),
    "x would broadcast": (lambda: BATCHED.apply(z(1, 5, 2)), ValueError, "x must"),
    "x deeper batch": (lambda: BATCHED.apply(z(2, 4, 5, 2)), ValueError, "x must"),
    "too many H": (lambda: LAG.best_heads(7), ValueError, "H must be between 0 and 6; got 7"),
    "H of a short sequence": (
        lambda: LagOperator(z(2, 3, 2)).best_heads(5),
        ValueError,
        "between 0 and 4; got 5",
    ),
    "H of an empty sequence": (lambda: LagOperator(z(0, 3, 2)).best_heads(1), ValueError, "between 0 and 0"),
    "rtol negative": (
        lambda: LAG.interaction_rank(-1e-3),
        ValueError,
        r"rtol must be a number in \[0, 1\); got -0.001",
    ),
    "rtol one": (lambda: LAG.interaction_rank(1.0), ValueError, "rtol must be"),
    "joint by a word": (lambda: LAG.spectrum("yes"), TypeError, "joint must be True or False; got 'yes'"),
    "V of other d": (lambda: LAG.coefficients(z(2, 3, 3)), ValueError, "V must"),
    "sum of other n": (
        lambda: DENSE + LagOperator(z(4, 3, 2)),
        ValueError,
        r"right must have \(n, p, d\) = \(5, 3, 2\)",
    ),
    "product of other batch": (
        lambda: BATCHED @ DenseOperator(z(3, 5, 5, 2, 2)),
        ValueError,
        r"right must have the batch shape of left, \(4,\), or none; got \(3,\)",
    ),
    "sum of other dtype": (
        lambda: LAG + LagOperator(z(5, 3, 2, dtype=F32)),
        TypeError,
        "right must",
    ),
    "sum of other batch": (
        lambda: BATCHED + DenseOperator(z(3, 5, 5, 3, 2)),
        ValueError,
        "right must",
    ),
    "sum with a tensor": (lambda: LAG + 1.0, TypeError, "unsupported operand"),
    "product of other dtype": (
        lambda: BATCHED @ DenseOperator(z(5, 5, 2, 2, dtype=F32)),
        TypeError,
        "right must have the dtype of left",
    ),
    "product of other d": (lambda: DENSE @ LAG, ValueError, r"right must have \(n, p\) = \(5, 2\)"),
    "product with a number": (lambda: DENSE @ 2.0, TypeError, "x must be .*Tensor; got float"),
    "product with an array": (lambda: DENSE @ np.ones((2, 2)), TypeError, "x must be .*Tensor; got ndarray"),
    "multiple by a string": (lambda: DENSE * "2", TypeError, "multiply"),
    "rank of negative values": (
        lambda: numerical_rank(torch.tensor([1.0, -2.0]), 0.1),
        ValueError,
        "singular_values must be at least 0; got -2.0",
    ),
    "report of an ascending spectrum": (
        lambda: rank_report(torch.tensor([1e-12, 1.0]), 1e-3),
        ValueError,
        "spectrum must descend",
    ),
    "sum of nothing": (lambda: SumOperator(), ValueError, "terms must hold at least one operator"),
    "sum of other widths": (
        lambda: SumOperator(DENSE, DenseOperator(z(5, 5, 2, 3))),
        ValueError,
        r"right must have \(n, p, d\) = \(5, 3, 2\) like left; got \(5, 2, 3\)",
    ),
    "sum of other dtypes": (
        lambda: SumOperator(DENSE, DENSE.to(F32)),
        TypeError,
        "right must",
    ),
    "sum of a tensor": (
        lambda: SumOperator(DENSE, z(5, 5, 3, 2)),
        TypeError,
        "term 1 must be an InteractionOperator; got Tensor",
    ),
    "modes of another N": (
        lambda: ModalOperator(z(5, 3), z(5, 4, 2), z(5, 3, 4)),
        ValueError,
        "B must have shape .*N = 3",
    ),
    "cap below points": (
        lambda: path_operator(torch.tanh, z(5, 2), max_points=15),
        ValueError,
        "max_points must be at least 16",
    ),
    "a table of n by n blocks": (lambda: LONG.to_dense(), ValueError, "n must leave tensors of at most"),
    "a table of n by n norms": (lambda: LONG.block_norms(), ValueError, "n must leave tensors of at most"),
    "a table of n by n coefficients": (
        lambda: LONG.coefficients(z(1, 3, 2)),
        ValueError,
        "n must leave tensors of at most",
    ),
    "an infinite value map": (
        lambda: FactorizedOperator(z(1, 5, 5) + 1, z(1, 3, 2) + math.inf).interaction_rank(),
        ValueError,
        "V must be finite; got 6 non-finite of 6 entries",
    ),
    "secant of other n": (lambda: secant_operator(z(4, 2), z(5, 2)), ValueError, "y must"),
    "secant of other batch": (
        lambda: secant_operator(z(5, 2), z(3, 5, 2)),
        ValueError,
        "y must",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_refused_by_name(case):
    call, error, message = CASES[case]
    with pytest.raises(error, match=message):
        call()


def test_value_maps_that_do_not_fit_are_refused_by_every_kind(kind):
    W, random = kind.operator((2,))
    for shape in ((3, W.p, W.d + 1), (3, W.p + 1, W.d), (W.p, W.d), (5, 3, W.p, W.d), (1, 3, W.p, W.d)):
        with pytest.raises(ValueError, match="^V must have"):
            W.coefficients(random(*shape))
    with pytest.raises(TypeError, match="^V must have the dtype of W"):
        W.coefficients(random(3, W.p, W.d).float())


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_memory_of_what_is_not_finite_is_refused_by_every_causal_kind(kind, bad):
    if kind.causal:
        W = kind.make(lambda *shape: torch.full(shape, bad, dtype=F64), (), 5, kind.p, kind.d)
        with pytest.raises(ValueError, match="^W must be finite; got"):
            W.past_future_rank()


def test_what_lies_on_a_device_without_float64_is_not_ranked_there(monkeypatch):
    monkeypatch.setattr(DenseOperator, "device", torch.device("mps"))
    W, eye = DenseOperator(z(5, 5, 2, 2)), torch.eye(5, dtype=F64)
    calls = [W.spectrum, W.span_matrix, W.interaction_rank, W.floor, W.past_future_rank]
    calls += [lambda: W.best_heads(1), lambda: W.row_rank(0), lambda: W.column_rank(0)]
    calls += [lambda: W.floor(1, time_covariance=eye), lambda: operator_span(W)]
    for call in calls:
        with pytest.raises(TypeError, match="^W must be on a device with float64, such as the CPU; got mps"):
            call()


def test_half_precision_operators_apply_and_rank():
    M = torch.randn(5, 3, 2, generator=gen(0)).to(torch.bfloat16)
    W = LagOperator(M)
    assert W.apply(torch.ones(5, 2, dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert W.interaction_rank() == DenseOperator(W.to_dense()).interaction_rank()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["recurrent", "modal", "lag", "composed"])
def test_long_sums_in_half_precision_are_taken_in_single(kind, dtype):
    """Two hundred tokens of a slow decay: a state in bfloat16 was off by 3 %, and W_ij far from j by more."""
    n, N = 200, 3
    log_decay = -(torch.arange(N) + 1) / 64 - torch.zeros(n, 1)
    B, C = torch.rand(n, N, 2, generator=gen(1)), torch.rand(n, 2, N, generator=gen(2))
    W = {
        "recurrent": lambda: RecurrentOperator(torch.diag_embed(log_decay.exp()), B, C),
        "modal": lambda: ModalOperator(log_decay, B, C),
        "lag": lambda: LagOperator(
            C[0] @ torch.diag_embed(torch.linspace(1, 0, n)[:, None].expand(n, N)) @ B[0]
        ),
        "composed": lambda: ModalOperator(log_decay, B, C) @ LagOperator(C @ B),
    }[kind]().to(dtype)
    x = torch.rand(n, 2, generator=gen(3)).to(dtype)
    wide, x_wide = W.to(F64), x.to(F64)
    for got, wanted in (
        (W @ x, wide @ x_wide),
        (W.T @ x, wide.T @ x_wide),
        (W.row(n - 1), wide.row(n - 1)),
        (W.column(0), wide.column(0)),
        (W.to_dense(), wide.to_dense()),
        (torch.stack(list(W.rows())), wide.to_dense()),
        (W[n - 1, 3], wide[n - 1, 3]),
    ):
        assert got.dtype == dtype
        assert float((got.to(F64) - wanted).abs().max() / wanted.abs().max()) <= 1.01 * torch.finfo(dtype).eps


def test_nan_in_a_token_stays_with_the_tokens_that_see_it():
    W = LagOperator(torch.ones(2, 1, 1), 5)
    x = torch.ones(5, 1)
    x[2] = float("nan")
    assert W.apply(x).isnan().squeeze(-1).tolist() == [False, False, True, True, False]
