"""Softmax heads with a sink, built: they are the system, by an actual softmax."""

import math

import numpy as np
import pytest
import torch
from helpers import F64, random_system, rotation, toeplitz
from hypothesis import given, settings
from hypothesis import strategies as st

from ssmbook.heads.softmax.construct import _checked, slice_simplex, softmax_heads_from_ssm
from ssmbook.systems import System


def check_heads(heads, M, tolerance=1e-10):
    """Finite logits, positive coefficients, rows below 1, and the operator itself, through the softmax."""
    n = M.shape[0]
    visible = torch.ones(n, n, dtype=torch.bool).tril()
    assert torch.isfinite(heads.logits[:, visible]).all()
    assert (heads.logits[:, ~visible] == -math.inf).all()
    alpha = heads.coefficients()
    assert (alpha[:, visible] > 0).all() and (alpha[:, ~visible] == 0).all()
    assert alpha.sum(-1).max() < 1
    W = torch.einsum("hij,hpd->ijpd", alpha, heads.V)
    assert (W - toeplitz(M)).norm() <= tolerance * toeplitz(M).norm()
    assert torch.allclose(heads.operator().to_dense(), W, atol=1e-12 * float(heads.V.abs().max()))


@pytest.mark.guards("thm-sink-count")
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 3), st.integers(1, 3), st.integers(1, 15))
def test_built_heads_are_the_system(seed, N, p, d, n):
    A, B, C, _ = random_system(N, d, p, 0.95, seed)
    D = torch.ones(p, d, dtype=F64) if seed % 3 == 0 else None
    heads = softmax_heads_from_ssm(System(A, B, C, D), n)
    assert heads.H in (heads.certificate.k, heads.certificate.k + 1)
    if heads.certificate.kind == "separating" and heads.certificate.margin > 1e-4:
        assert heads.H == heads.certificate.k
    check_heads(heads, System(A, B, C, D).lags(n))


@pytest.mark.guards("thm-sink-count")
@pytest.mark.parametrize(
    "theta,n,wanted", [(0.7, 5, 2), (0.7, 6, 3), (0.7, 20, 3), (math.pi, 5, 2), (0.01, 315, 2)]
)
def test_rotation_heads(theta, n, wanted):
    eye = torch.eye(2, dtype=F64)
    heads = softmax_heads_from_ssm(System(0.9 * rotation(theta), eye, eye), n, rtol=1e-8)
    assert heads.H == wanted
    check_heads(heads, System(0.9 * rotation(theta), eye, eye).lags(n))


@pytest.mark.guards("thm-sink-count")
def test_one_head_more_is_always_available_and_k_only_when_certified():
    eye = torch.eye(2, dtype=F64)
    M = System(0.9 * rotation(0.7), eye, eye).lags(5)
    check_heads(softmax_heads_from_ssm(System(0.9 * rotation(0.7), eye, eye), 5, H=3), M)
    check_heads(softmax_heads_from_ssm(System(0.9 * rotation(0.7), eye, eye), 5, H=2), M)
    M = System(0.9 * rotation(0.7), eye, eye).lags(6)
    check_heads(softmax_heads_from_ssm(System(0.9 * rotation(0.7), eye, eye), 6, H=3), M)
    assert softmax_heads_from_ssm(System(eye, eye, 0 * eye), 6, H=0).H == 0
    with pytest.raises(ValueError, match="H = 2 is not certified"):
        softmax_heads_from_ssm(System(0.9 * rotation(0.7), eye, eye), 6, H=2)
    with pytest.raises(ValueError, match="H must be 2 or 3; got 4"):
        softmax_heads_from_ssm(System(0.9 * rotation(0.7), eye, eye), 5, H=4)


@pytest.mark.guards("thm-sink-count")
def test_large_systems_to_ten_digits():
    for seed in range(2):
        A, B, C, _ = random_system(32, 8, 8, 0.98, seed)
        heads = softmax_heads_from_ssm(System(A, B, C), 512)
        assert heads.H == 33 and heads.relative_error < 1e-10
        alpha = heads.coefficients()
        last = torch.einsum("hj,hpd->jpd", alpha[:, -1], heads.V)
        M = System(A, B, C).lags(512)
        assert (last - M.flip(0)).norm() < 1e-10 * M.norm() and (alpha[:, -1] > 0).all()


@pytest.mark.guards("thm-sink-count")
@pytest.mark.parametrize("radius", [0.3, 1.0, 1.5])
def test_fast_and_unstable_systems(radius):
    for seed in range(4):
        A, B, C, _ = random_system(6, 3, 3, radius, seed)
        check_heads(softmax_heads_from_ssm(System(A, B, C), 60), System(A, B, C).lags(60))
    defective = torch.diag(torch.ones(5, dtype=F64), 1) + 0.9 * torch.eye(6, dtype=F64)
    heads = softmax_heads_from_ssm(System(defective, B, C), 60)
    assert heads.H == 6
    check_heads(heads, System(defective, B, C).lags(60))


@pytest.mark.guards("thm-sink-count")
def test_zero_lags_and_the_zero_system():
    shift, eye = torch.diag(torch.ones(2, dtype=F64), 1), torch.eye(3, dtype=F64)
    heads = softmax_heads_from_ssm(System(shift, eye, eye), 6)
    assert heads.H == 4
    check_heads(heads, System(shift, eye, eye).lags(6))
    none = softmax_heads_from_ssm(System(0 * shift, 0 * eye, eye), 4)
    assert none.H == 0 and none.operator().to_dense().abs().max() == 0
    assert none.operator().to_dense().shape == (4, 4, 3, 3)


def test_rank_that_was_cut_too_early_is_refused_with_the_spectrum():
    A = torch.diag(torch.tensor([0.9, 0.5], dtype=F64))
    B, C = torch.eye(2, dtype=F64), torch.diag(torch.tensor([1.0, 1e-8], dtype=F64))
    with pytest.raises(ValueError, match="singular values"):
        softmax_heads_from_ssm(System(A, B, C), 10, rtol=1e-6)
    assert softmax_heads_from_ssm(System(A, B, C), 10).relative_error < 1e-10
    kept = softmax_heads_from_ssm(
        System(A, B, torch.diag(torch.tensor([1.0, 2e-11], dtype=F64))), 10, rtol=1e-9
    )
    assert kept.H == 1 and 1e-12 < kept.relative_error < 1e-10  # one direction left out, and ten digits kept


def test_dtype_follows_and_nothing_is_changed():
    A, B, C, _ = (t.float() for t in random_system(3, 2, 2, 0.95, 3))
    copies = [t.clone() for t in (A, B, C)]
    heads = softmax_heads_from_ssm(System(A, B, C), 7)
    assert heads.logits.dtype == heads.V.dtype == torch.float32
    check_heads(heads, System(A, B, C).lags(7), tolerance=1e-5)
    assert all(torch.equal(x, y) for x, y in zip((A, B, C), copies, strict=True))


def test_bad_input_is_named():
    A, B, C, _ = random_system(3, 2, 2, 0.95, 0)
    with pytest.raises(ValueError, match="n must be"):
        softmax_heads_from_ssm(System(A, B, C), 0)
    with pytest.raises(TypeError, match="system must be real"):
        softmax_heads_from_ssm(System(A, B, C).to(torch.complex128), 4)
    with pytest.raises(TypeError, match="system must be a System; got Tensor"):
        softmax_heads_from_ssm(A, B, C, 4)


def test_the_error_of_heads_counts_each_lag_as_often_as_it_occurs():
    rows, exponents = np.arange(1.0, 16.0).reshape(5, 3), np.array([0, 3, 0, -2, 1])
    assert _checked(rows, exponents, np.eye(3), rows / 2, np.eye(3))[3] == pytest.approx(0.5)
    kept = rows * [[1.0], [1.0], [0.0], [1.0], [1.0]]  # lag 2 is missed: it stands three times
    energy = [
        (5 - tau) * 4.0**e * row @ row for tau, (e, row) in enumerate(zip(exponents, rows, strict=True))
    ]
    missed = (energy[2] / sum(energy)) ** 0.5
    assert _checked(rows, exponents, np.eye(3), kept, np.eye(3))[3] == pytest.approx(missed)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_heads_along_a_functional_do_not_depend_on_its_length(k):
    Z = np.random.default_rng(k).standard_normal((9, k)) + 4 * np.eye(k)[0]
    Z[:, 0] = np.abs(Z[:, 0])
    (alpha, generators), longer = (slice_simplex(Z, size * np.eye(k)[0]) for size in (1.0, 3.0))
    np.testing.assert_allclose(alpha @ generators, Z, atol=1e-13)
    assert (alpha > 0).all()
    for one, other in zip((alpha, generators), longer, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-13)
