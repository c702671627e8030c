"""Overflow, NaN and infinity come out as in the recurrence itself."""

import os
from contextlib import nullcontext

import pytest
import torch
from scan_examples import draw
from torch.overrides import TorchFunctionMode

from ssmbook.scans import (
    diagonal_scan,
    diagonal_scan_naive,
    lti_scan,
    lti_scan_naive,
    selective_scan,
    selective_scan_naive,
    ssd_scan,
    ssd_scan_naive,
)

T = 3000
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # kernels run on a CPU


def agree(a, b, state=None):
    """The scan and the recurrence: the same finite numbers, the same infinities, NaN in the same places."""
    h, end = diagonal_scan(a, b, state)
    wanted, wanted_end = diagonal_scan_naive(a, b, state)
    torch.testing.assert_close(h, wanted, rtol=1e-9, atol=1e-9, equal_nan=True)
    torch.testing.assert_close(end, wanted_end, rtol=1e-9, atol=1e-9, equal_nan=True)
    return h


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("growth", [1.01, 1.5, -2.0, 1e30])
def test_growing_decays_overflow_to_the_infinities_of_the_recurrence(growth, dtype):
    a = torch.full((T, 2), growth, dtype=dtype)
    b = draw(T, 2, dtype=dtype)
    h, wanted = diagonal_scan(a, b)[0], diagonal_scan_naive(a, b)[0]
    assert torch.equal(h.isinf(), wanted.isinf()) and torch.equal(h.isnan(), wanted.isnan())
    finite = wanted.isfinite()
    torch.testing.assert_close(
        h[finite], wanted[finite], rtol=1e-3 if dtype == torch.float32 else 1e-9, atol=1e-4
    )


def test_a_growing_recurrence_is_not_cut_into_parts():
    """In single precision: a growing product of decays would amplify the rounding of the value before it."""
    a, b = torch.full((130, 2), 1.5), draw(130, 2, dtype=torch.float32)
    h, end = diagonal_scan(a, b)
    wanted = diagonal_scan_naive(a.double(), b.double())[0].float()
    torch.testing.assert_close((h, end), (wanted, wanted[-1]), rtol=1e-6, atol=0)


def test_a_growing_recurrence_at_rest_stays_at_rest():
    """Nothing goes in, so nothing comes out, though every product of decays overflows."""
    assert not agree(
        torch.full((T, 2), 1e300, dtype=torch.float64), torch.zeros(T, 2, dtype=torch.float64)
    ).any()


def test_an_unstable_fixed_point_is_held_exactly():
    """h = 2 h + 1 from h = -1 stays at -1; block sums would cancel 2^L against 2^L, all of them finite."""
    two, one = (torch.full((900, 1), v, dtype=torch.float64) for v in (2.0, 1.0))
    assert (agree(two, one, torch.tensor([-1.0], dtype=torch.float64)) == -1).all()


def test_decays_that_would_overflow_and_then_underflow_inside_a_block():
    a = torch.tensor([1e200, 1e200, 1e-200, 1e-200] * 800, dtype=torch.float64)[:, None]
    agree(a, torch.zeros_like(a), torch.tensor([1e-150], dtype=torch.float64))


def test_infinity_is_not_cured_by_products_that_underflow():
    a, b = torch.full((T, 2), 0.1, dtype=torch.float64), draw(T, 2)
    b[100, 0] = torch.inf
    h = agree(a, b)
    assert h[100:, 0].isinf().all() and h[:, 1].isfinite().all()


@pytest.mark.parametrize("where", ["a", "b", "state"])
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_a_non_finite_entry_stays_in_its_channel_and_in_later_times(where, poison):
    a, b, state = 2 * draw(T, 3).sigmoid() - 1, draw(T, 3, seed=1), draw(3, seed=2)
    a[1500] = 0
    a[2000, 2] = 1.0
    (state if where == "state" else {"a": a, "b": b}[where][1000])[1] = poison
    h = agree(a, b, state)
    start = 0 if where == "state" else 1000
    assert h[:, [0, 2]].isfinite().all() and h[:start].isfinite().all() and not h[start:, 1].isfinite().any()


def test_exact_zeros_forget_everything_exactly():
    """After a decay of zero no bit of the output depends on the past, and no gradient reaches it."""
    a, b = draw(T, 2).sigmoid() * 0.01 + 0.99, draw(T, 2, seed=1)
    a[1001] = 0
    other = b.clone()
    other[:1001] *= 100
    assert torch.equal(diagonal_scan(a, b)[0][1001:], diagonal_scan(a, other)[0][1001:])
    b.requires_grad_()
    (gradient,) = torch.autograd.grad(diagonal_scan(a, b)[0][1001:].sum(), b)
    assert not gradient[:1001].any() and gradient[1001:].all()


def test_large_logarithms_overflow_to_infinity_and_not_to_nan():
    five, one = (torch.full((T, 1), v, dtype=torch.float64) for v in (5.0, 1.0))
    h, _ = diagonal_scan(five, one, log=True)
    assert h[-1].isposinf().all() and not h.isnan().any()


def selective_arguments():
    return [
        draw(1, T, 2),
        draw(1, T, 2, seed=1).sigmoid(),
        -draw(2, 3).abs(),
        draw(1, T, 3),
        draw(1, T, 3, seed=2),
    ]


@pytest.mark.parametrize("method", ["auto", "recurrence", "chunked"])
def test_nan_stays_in_later_times_of_the_other_scans(method):
    x = draw(2, T, 2)
    x[1, 1000, 0] = torch.nan
    A, B, C = 0.5 * torch.eye(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64), draw(1, 2)
    y, _ = lti_scan(A, B, C, x, method=method)
    torch.testing.assert_close(y, lti_scan_naive(A, B, C, x)[0], equal_nan=True)
    assert y[0].isfinite().all() and y[1, :1000].isfinite().all() and y[1, 1000:].isnan().all()


def test_nan_stays_in_its_channel_of_a_selective_scan():
    arguments = selective_arguments()
    arguments[0][0, 1000, 1] = torch.nan
    y, state = selective_scan(*arguments)
    torch.testing.assert_close((y, state), selective_scan_naive(*arguments), equal_nan=True)
    assert y[..., 0].isfinite().all() and y[0, :1000].isfinite().all() and y[0, 1000:, 1].isnan().all()


class NoLook(TorchFunctionMode):
    """Refuses what makes a GPU wait: a number, or the places of numbers, that Python asks for."""

    ASKS = {"item", "tolist", "nonzero", "__bool__", "__int__", "__float__", "__index__"}

    def __torch_function__(self, function, types, args=(), kwargs=None):
        assert getattr(function, "__name__", "") not in self.ASKS, function
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("which", ["x", "log_a", "B", "C", "state", "nothing"])
def test_nan_of_each_argument_of_ssd_spreads_as_in_the_recurrence(which):
    """On a GPU, whose kernels an interpreter stands for here, without a look at any number."""
    given = dict(zip(("x", "log_a", "B", "C"), (draw(70, 2, m, seed=m) for m in (3, 1, 4, 5)), strict=True))
    given |= {"log_a": -given["log_a"][..., 0].abs(), "C": given["C"][..., :4], "state": draw(2, 3, 4)}
    given["log_a"][5] = -torch.inf
    if which != "nothing":
        given[which][(1, 2, 1) if which == "state" else (40, 1)] = torch.nan
    with NoLook() if INTERPRETED else nullcontext():
        found = ssd_scan(**given)
    torch.testing.assert_close(found, ssd_scan_naive(**given), equal_nan=True)


def test_growth_in_the_other_scans_overflows_to_infinity():
    A, one, x = torch.tensor([[3.0]]), torch.ones(1, 1), torch.ones(T, 1)
    for method in ("auto", "recurrence", "chunked"):
        y, state = lti_scan(A, one, one, x, method=method)
        assert (
            torch.equal(y.isposinf(), lti_scan_naive(A, one, one, x)[0].isposinf()) and state.isposinf().all()
        )
    y, state = ssd_scan(x[..., None], torch.full((T, 1), 3.0), x[..., None], x[..., None])
    assert not y.isnan().any() and state.isposinf().all()
    y, state = selective_scan(x, x, one, x, x)
    assert not y.isnan().any() and state.isposinf().all()


@pytest.mark.parametrize("discretization", ["zoh", "mixed"])
def test_a_selective_scan_forgets_and_overflows_as_its_recurrence(discretization):
    """In single precision: a large state is forgotten to the last bit, and growth ends at infinity."""
    x, delta = torch.ones(90, 1), torch.full((90, 1), 0.5)
    x[20], delta[40:43], rates = 1e20, 400.0, -torch.tensor([[1.0, 3.0]])
    for A in (rates, -rates):
        given = x, delta, A, x[:, [0, 0]] / x, x[:, [0, 0]] / x
        y, end = selective_scan(*given, discretization=discretization)
        wanted = selective_scan_naive(*given, discretization=discretization)
        torch.testing.assert_close((y, end), wanted, rtol=2e-5, atol=0)
    assert y.isfinite()[:40].all() and y[-1].isposinf()
