"""One head with bounded coefficients, and the inputs its solver refuses."""

import math

import pytest
import torch
from helpers import EYE, F64, clock, like, rotation
from scipy.optimize import lsq_linear

from ssmbook.heads.single_head import one_head_coefficients, one_head_witness
from ssmbook.operators import LagOperator
from ssmbook.systems import System

# ------------------------------------------------------------------ prop-locally-bounded


@pytest.mark.guards("prop-locally-bounded", "prop-bounded-error")
@pytest.mark.parametrize("seed", range(6))
def test_bounded_coefficients_cannot_beat_the_bound(seed):
    M = System(torch.randn(3, 3, **like(seed)) / 2, *torch.randn(2, 3, 3, **like(seed + 20))).lags(5)
    for V in (torch.randn(3, 3, **like(seed + 40)), LagOperator(M).best_heads(1).V[0]):
        lag, token, gap = one_head_witness(M, V=V)
        for K, eps in ((1.0, 1e-1), (1.0, 1e-4), (1e3, 1e-6)):
            x = eps * torch.nn.functional.normalize(torch.randn(5, 3, **like(seed + 60)), dim=-1)
            x[0] = token
            columns, target = (x[: lag + 1] @ V.mT).mT, LagOperator(M).apply(x)[lag]
            low = [-math.inf] + [-K] * lag
            alpha = lsq_linear(columns.numpy(), target.numpy(), bounds=(low, [-v for v in low])).x
            error = float((columns @ torch.from_numpy(alpha) - target).norm())
            sizes = torch.linalg.matrix_norm(M[:lag], 2).sum()
            slack = eps * (lag * K * torch.linalg.matrix_norm(V, 2) + sizes)
            assert error >= gap - float(slack) - 1e-12


@pytest.mark.guards("prop-locally-bounded", "prop-bounded-error")
def test_the_needed_coefficient_grows_like_one_over_the_distance():
    needed = []
    for eps in (1e-2, 1e-4, 1e-6):
        x = torch.nn.functional.normalize(torch.randn(100, 6, 2, **like(0)), dim=-1)
        x[:, 1:] *= eps
        largest = one_head_coefficients(clock(), EYE, x).abs().flatten(1).amax(1).min()
        assert largest >= math.sin(0.7) / eps - 1
        needed.append(float(largest))
    assert needed[1] / needed[0] == pytest.approx(100, rel=0.05)
    assert needed[2] / needed[1] == pytest.approx(100, rel=0.01)


@pytest.mark.guards("prop-locally-bounded", "prop-bounded-error")
def test_limits_of_bounded_coefficients_serve_the_inputs_left_out():
    V, M = torch.stack([EYE, rotation(math.pi / 2)]), torch.randn(6, 2, 2, **like(0))

    def coefficients(x):  # bounded, and wrong on purpose where a token vanishes
        images = torch.einsum("hpd,jd->hjp", V, x)
        targets = torch.einsum("ijpd,jd->ijp", LagOperator(M).to_dense(), x)
        return torch.einsum("hjp,ijp->hij", images, targets) / x.square().sum(-1).clamp_min(1e-300)

    x = torch.randn(6, 2, **like(1))
    x[2:] = 0
    assert not coefficients(x)[:, :, 2:].any()
    steps = [coefficients(x + 10.0**-m * torch.ones(6, 2, dtype=F64)) for m in (6, 9, 12)]
    torch.testing.assert_close(steps[1], steps[2], rtol=1e-6, atol=1e-6)
    limit = torch.einsum("hij,hpd,jd->ip", steps[2], V, x)
    torch.testing.assert_close(limit, LagOperator(M).apply(x), rtol=1e-9, atol=1e-9)
    assert (steps[2].abs() <= torch.linalg.matrix_norm(LagOperator(M).to_dense(), 2) + 1e-9).all()


# ------------------------------------------------------------------ inputs


def test_scale_dtype_and_empty_inputs():
    M, x = clock(), torch.randn(12, 2, **like(0))
    alpha = one_head_coefficients(M, EYE, x)
    torch.testing.assert_close(one_head_coefficients(1e200 * M, 1e-100 * EYE, 1e307 * x), 1e300 * alpha)
    torch.testing.assert_close(one_head_coefficients(1e-200 * M, 1e-200 * EYE, 1e-200 * x), alpha)
    single = one_head_coefficients(M.float(), EYE.float(), x.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single, alpha.float(), rtol=1e-2, atol=1e-2)
    assert one_head_coefficients(M, EYE, x[:0]).shape == (0, 0)
    assert one_head_coefficients(M, EYE, x.new_zeros(0, 5, 2)).shape == (0, 5, 5)
    assert torch.equal(one_head_coefficients(M[:, :0], EYE[:0], x), x.new_zeros(12, 12))
    assert not one_head_coefficients(M, EYE, torch.zeros(4, 2, dtype=F64)).any()
    assert one_head_witness(M[:0], V=EYE) is None and one_head_witness(0 * M, V=EYE) is None
    kept = x.clone(), M.clone()
    one_head_coefficients(M, EYE, x), one_head_witness(M, V=EYE)
    assert torch.equal(kept[0], x) and torch.equal(kept[1], M)


def test_bad_input_is_refused_by_name():
    M, x = clock(), torch.randn(12, 2, **like(0))
    cases = [
        (TypeError, "V", (M, EYE.float(), x)),
        (TypeError, "x", (M, EYE, x.long())),
        (ValueError, "V must", (M, EYE[:1], x)),
        (ValueError, "x must", (M, EYE, x[:, :1])),
        (ValueError, "x must", (M, EYE, x * math.nan)),
        (ValueError, "M must", (M / 0, EYE, x)),
        (ValueError, "at most as many tokens as M has lags, 12", (M, EYE, torch.cat([x, x]))),
    ]
    for kind, words, arguments in cases:
        with pytest.raises(kind, match=words):
            one_head_coefficients(*arguments)
    with pytest.raises(ValueError, match="rtol must be"):
        one_head_coefficients(M, EYE, x, rtol=2.0)
    with pytest.raises(ValueError, match="rtol must be"):
        one_head_witness(M, V=EYE, rtol=2.0)
    with pytest.raises(ValueError, match="V must"):
        one_head_witness(M, V=EYE[0])
    with pytest.raises(ValueError, match="output 3 is not a combination"):
        late = torch.cat([x[:1] * 0, x[:1] * 0, x[2:3], x[3:] * 0])
        one_head_coefficients(M, EYE, late)
    with pytest.raises(ValueError, match="output 3 is not a combination"):  # of one sequence of the two
        one_head_coefficients(M, EYE, torch.stack([0 * x, late]))
    with pytest.raises(ValueError, match="output 1 is not a combination"):  # small, and missed all the same
        one_head_coefficients(
            torch.stack([EYE, 1e-9 * rotation(1.0)]), EYE, torch.stack([EYE[0], 0 * EYE[0]])
        )
    # The system asks for (3, 4) where the head can give (3, 0): four fifths of it are missed.
    system, V, x = (
        torch.tensor([[[3.0, 0], [4, 0]]]),
        torch.tensor([[1.0, 0], [0, 0]]),
        torch.tensor([[10.0, 0]]),
    )
    with pytest.raises(ValueError, match=r"output 0 .* is off by 0\.8 of its size"):
        one_head_coefficients(*(t.double() for t in (system, V, x)))


def test_dtypes_differ_and_tiny_tokens_are_told_from_exact_failure():
    with pytest.raises(TypeError, match="V must"):
        one_head_witness(torch.ones(3, 2, 2, dtype=torch.float64), V=torch.ones(2, 2))
    M = torch.stack([torch.eye(2), torch.tensor([[0.0, -1], [1, 0]])]).double()
    # Output 1 is (0, 1), which 1e17 times the second token would reach.
    x = torch.tensor([[1.0, 0], [0, 1e-17]], dtype=torch.float64)
    eye = torch.eye(2, dtype=torch.float64)
    with pytest.raises(ValueError, match="tokens below rounding are left out"):
        one_head_coefficients(M, eye, x)
    # A V that sees next to nothing of any token leaves none of them out.
    with pytest.raises(ValueError, match="wanted at most 1e-08$"):
        one_head_coefficients(eye.expand(2, 2, 2), torch.diag(eye[0]), 1e-9 * eye[:1] + eye[1:].expand(2, 2))
