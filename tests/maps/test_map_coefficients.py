"""The functional pieces: coefficients, decays, slopes, against their definitions written as loops."""

import math
from functools import partial

import pytest
import torch
from helpers import F64, close, randn
from hypothesis import given, settings
from hypothesis import strategies as st

from ssmbook.maps import (
    Attention,
    activate,
    alibi_bias,
    causal_mask,
    decay_matrix,
    delta_coefficients,
    distances,
    draw_steps,
    inverse_softplus,
    linear_coefficients,
    scalar_decay_coefficients,
    secant_slope,
    softmax_coefficients,
    vector_decay_coefficients,
)
from ssmbook.systems import phi1


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.0, 1.5), min_size=1, max_size=12))
def test_decay_matrix_holds_products_of_decays(decays):
    L = decay_matrix(torch.tensor(decays, dtype=F64).log())
    for i in range(len(decays)):
        for j in range(len(decays)):
            wanted = math.prod(decays[j + 1 : i + 1]) if j <= i else 0.0
            assert float(L[i, j]) == pytest.approx(wanted, rel=1e-12, abs=1e-290)


def test_decay_matrix_does_not_cancel():
    log_a = torch.full((1200,), -1e-3, dtype=F64)
    log_a[:10] = -1e9
    L = decay_matrix(log_a)
    assert float(L[-1, 200]) == pytest.approx(math.exp(-1e-3 * 999), rel=1e-12)


def test_vector_and_scalar_decay_against_the_recurrence():
    q, k, log_a = randn(2, 9, 3), randn(2, 9, 3, seed=1), -randn(2, 9, 3, seed=2).abs()
    for i in range(9):
        for j in range(i + 1):
            decay = log_a[:, j + 1 : i + 1].sum(1).exp()
            wanted = (q[:, i] * decay * k[:, j]).sum(-1)
            close(vector_decay_coefficients(q, k, log_a)[:, i, j], wanted, tol=1e-11)
    scalar = log_a[..., :1]
    close(
        scalar_decay_coefficients(q, k, scalar.squeeze(-1)),
        vector_decay_coefficients(q, k, scalar.expand(2, 9, 3)),
    )


@pytest.mark.parametrize("strength", [0.5, 1.0, 2.0])
def test_delta_coefficients_are_the_product_of_erasures(strength):
    q = randn(9, 3)
    k = torch.nn.functional.normalize(randn(9, 3, seed=1), dim=-1)
    beta = strength * torch.rand(9, generator=torch.Generator().manual_seed(2), dtype=F64)
    alpha = delta_coefficients(q[None], k[None], beta[None])[0]
    for i in range(9):
        for j in range(9):
            row = beta[j] * k[j]
            for step in range(j + 1, i + 1):
                row = row - beta[step] * (row @ k[step]) * k[step]
            wanted = float(row @ q[i]) if j <= i else 0.0
            assert float(alpha[i, j]) == pytest.approx(wanted, rel=1e-10, abs=1e-14)


def test_a_unit_write_at_an_old_key_forgets_the_old_value():
    k = torch.tensor([[1.0, 0], [0, 1], [1, 0]], dtype=F64)
    alpha = delta_coefficients(k[None], k[None], torch.ones(1, 3, dtype=F64))[0]
    assert torch.equal(alpha, torch.eye(3, dtype=F64))


def test_normalized_linear_coefficients_sum_to_one_or_are_zero():
    q, k = randn(2, 6, 3), randn(2, 6, 3, seed=1)
    close(linear_coefficients(q, k, normalized=True).sum(-1), torch.ones(2, 6, dtype=F64), tol=1e-11)
    q[0, 3] = 0
    alpha = linear_coefficients(q, k, normalized=True)
    assert torch.isfinite(alpha).all()
    assert torch.equal(alpha[0, 3], torch.zeros(6, dtype=F64))
    q, k = torch.ones(1, 3, 1, dtype=F64), torch.tensor([2.0, -2.0, 1.0], dtype=F64)[None, :, None]
    alpha = linear_coefficients(q, k, normalized=True)  # the second row sums to 2 - 2
    assert alpha[0].tolist() == [[1, 0, 0], [0, 0, 0], [2, -2, 1]]


def test_unless_said_otherwise_no_row_is_divided_and_no_token_looks_ahead():
    q, k = randn(2, 6, 3), randn(2, 6, 3, seed=1)
    close(linear_coefficients(q, k), (q @ k.mT) * causal_mask(6))
    close(linear_coefficients(q, k), linear_coefficients(q, k, normalized=False))
    close(softmax_coefficients(q, k), softmax_coefficients(q, k, causal=True, bias=None, sink=False))


def test_softmax_coefficients_without_and_with_sink():
    q, k = randn(2, 6, 3), randn(2, 6, 3, seed=1)
    weight = (q @ k.mT / math.sqrt(3)).exp() * causal_mask(6)
    close(softmax_coefficients(q, k), weight / weight.sum(-1, keepdim=True))
    close(softmax_coefficients(q, k, sink=True), weight / (1 + weight.sum(-1, keepdim=True)))
    everywhere = (q @ k.mT / math.sqrt(3)).exp()
    close(softmax_coefficients(q, k, causal=False), everywhere / everywhere.sum(-1, keepdim=True))


def test_alibi_slopes_halve():
    bias = alibi_bias(8, 4, dtype=F64)
    assert torch.equal(-bias[:, 3, 2], torch.tensor([2.0**-h for h in range(1, 9)], dtype=F64))
    assert torch.equal(bias[:, 3, 0], 3 * bias[:, 3, 2])
    assert torch.equal(bias, bias.mT)
    assert alibi_bias(8, 0).shape == (8, 0, 0)


@pytest.mark.parametrize("name", ["tanh", "relu", "silu", "gelu", "identity"])
def test_secant_slope(name):
    z = torch.tensor([-800.0, -2.0, -1e-9, -5e-324, 0.0, 5e-324, 1e-200, 0.3, 1e4], dtype=F64)
    slope = secant_slope(name, z)
    assert torch.isfinite(slope).all()
    close(slope * z, activate(name, z), tol=1e-15)
    (at_zero,) = torch.autograd.functional.jacobian(partial(activate, name), torch.zeros(1, dtype=F64))
    assert float(slope[4]) == pytest.approx(float(at_zero), rel=1e-12)
    if name != "relu":
        near = secant_slope(name, torch.tensor([1e-8, -1e-8], dtype=F64))
        close(near, slope[4].expand(2), tol=1e-6)


def test_phi1():
    z = torch.tensor([-50.0, -1.0, -1e-12, 0.0, 1e-12, 2.0], dtype=F64)
    wanted = [(1 - math.exp(-50)) / 50, 1 - math.exp(-1), 1 - 5e-13, 1.0, 1 + 5e-13, (math.exp(2) - 1) / 2]
    close(phi1(z), torch.tensor(wanted, dtype=F64), tol=1e-15)
    close(phi1(1j * z).imag, torch.where(z == 0, 0, (1 - z.cos()) / torch.where(z == 0, 1, z)), tol=1e-12)


def test_inverse_softplus():
    a = torch.tensor([1e-12, 1e-3, 1.0, 50.0], dtype=F64)
    close(torch.nn.functional.softplus(inverse_softplus(a)) / a, torch.ones(4, dtype=F64), tol=1e-10)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda q: softmax_coefficients(q, q[:1]),
            ValueError,
            r"k must have shape \(\.\.\., H, n, width\) with H = 2, n = 5, width = 3; got \(1, 5, 3\)",
        ),
        (
            lambda q: softmax_coefficients(q[0], q[0]),
            ValueError,
            r"q must have shape \(\.\.\., H, n, width\)",
        ),
        (lambda q: softmax_coefficients(q, q.float()), TypeError, "k must"),
        (
            lambda q: softmax_coefficients(q, None),
            TypeError,
            "k must be a floating-point torch.Tensor; got NoneType",
        ),
        (
            lambda q: softmax_coefficients(q, q, bias=q),
            ValueError,
            r"bias must have shape \(\.\.\., H, n, n\)",
        ),
        (
            lambda q: linear_coefficients(q, q[..., :2]),
            ValueError,
            r"k must have shape .* width = 3; got \(2, 5, 2\)",
        ),
        (lambda q: scalar_decay_coefficients(q, q, q), ValueError, r"log_a must have shape \(\.\.\., H, n\)"),
        (
            lambda q: vector_decay_coefficients(q, q, q[..., 0]),
            ValueError,
            r"log_a must have shape .*; got \(2, 5\)",
        ),
        (
            lambda q: delta_coefficients(q, q, q[..., :2]),
            ValueError,
            r"beta must have shape \(\.\.\., H, n\)",
        ),
        (
            lambda q: decay_matrix(torch.zeros(3, dtype=torch.int64)),
            TypeError,
            "log_a must be a floating-point",
        ),
        (lambda q: alibi_bias(0, 3), ValueError, "H must be at least 1"),
        *(
            (partial(call, **{flag: 1}), TypeError, f"{flag} must be True or False; got 1")
            for flag, call in (
                ("causal", lambda q, **given: softmax_coefficients(q, q, **given)),
                ("sink", lambda q, **given: softmax_coefficients(q, q, **given)),
                ("normalized", lambda q, **given: linear_coefficients(q, q, **given)),
            )
        ),
        *(
            (lambda q, call=call: call(3, device="gpu"), ValueError, "device must")
            for call in (causal_mask, distances, partial(alibi_bias, 2), draw_steps)
        ),
        (lambda q: alibi_bias(2, 3, dtype="float64"), TypeError, "dtype must"),
        (lambda q: draw_steps(3, dtype=torch.int64), TypeError, "dtype must"),
        (lambda q: draw_steps(-1), ValueError, "shape must be at least 0; got -1"),
        (lambda q: draw_steps(3, low=0.0), ValueError, "low must be finite and positive; got 0.0"),
        (lambda q: draw_steps(3, high=math.inf), ValueError, "high must be finite and positive; got inf"),
        *(
            (call, TypeError, f"{name} must have the dtype of q, torch.float64; got torch.float32")
            for name, call in (
                ("log_a", lambda q: scalar_decay_coefficients(q, q, q[..., 0].float())),
                ("beta", lambda q: delta_coefficients(q, q, q[..., 0].float())),
                ("bias", lambda q: softmax_coefficients(q, q, bias=(q @ q.mT).float())),
            )
        ),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call(randn(2, 5, 3))


@pytest.mark.parametrize("options", [{}, {"alibi": True, "sink": True}])
def test_attention_is_exported_with_its_length_left_open(options):
    layer = Attention(4, 3, H=2, head_width=2, dtype=torch.float64, **options)
    x = torch.randn(2, 17, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    length = ({1: torch.export.Dim("n")},)
    exported = torch.export.export(layer, (x[:, :5].contiguous(),), dynamic_shapes=length).module()
    for n in (1, 17):
        torch.testing.assert_close(exported(x[:, :n]), layer(x[:, :n]))
