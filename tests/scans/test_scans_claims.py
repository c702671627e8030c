"""The traps of the chapter *scans*, its table of forms, its grader and its measured times."""

import pytest
import torch
from helpers import F64
from helpers import randn as rand

from headsandstates.chapters.scans import rosetta
from headsandstates.chapters.scans.counting import (
    measured,
    measured_ratios,
    written_backward,
)
from headsandstates.exercises import check
from ssmbook import scans


def test_rosetta_matrix_rounds_once_and_leaves_out_the_half_precision_transform():
    errors = rosetta.rosetta_matrix(rosetta.FORMS, (F64, torch.bfloat16), (0.999,), (33, 500))
    assert errors["float64"].max() < 1e-12
    assert list(errors["bfloat16"].isnan().all(1)) == [name == "Fourier" for name in rosetta.FORMS]
    assert errors["bfloat16"].nan_to_num(0).max() < 1e-2
    narrow = rosetta.rosetta_matrix({"narrow": rosetta.narrow_state}, (torch.bfloat16,), (0.999,), (500,))
    assert narrow["bfloat16"].min() > 1e-2


def test_attention_heads_are_built_in_double_precision_and_applied_to_rounded_tables():
    A, B, C = (torch.tensor([[value]], dtype=F64) for value in (0.5, 2.0, 3.0))
    x = torch.tensor([[1.0], [-1.0], [2.0]], dtype=F64)
    torch.testing.assert_close(
        rosetta.heads(A, B, C, x).flatten(), torch.tensor([6, -3, 10.5], dtype=F64), rtol=1e-14, atol=0
    )
    # at the tolerance of bfloat16 these three poles are too few for exact heads, which are then refused
    A = torch.diag(torch.tensor([0.9, 0.8, 0.7])) + torch.diag(torch.tensor([0.1, 0.1]), 1)
    system = [t.bfloat16() for t in (A, torch.eye(3), torch.eye(3), rand(60, 3))]
    assert rosetta.heads(*system).dtype == torch.float32
    assert 2**-14 < rosetta.relative_error(rosetta.heads, *system) < 2**-7


def test_the_pointwise_operator_loses_the_gradient_of_the_gates_and_ours_does_not():
    module = pytest.importorskip("torch._higher_order_ops.associative_scan")
    a, b = rand(9, 3).requires_grad_(), rand(9, 3, seed=1).requires_grad_()

    def pointwise(a, b):
        return module.associative_scan_op(lambda p, q, r, s: (p * r, r * q + s), (a, b), ())[1]

    wanted = torch.autograd.grad(scans.diagonal_scan_naive(a, b)[0].sum(), (a, b))
    ours = torch.autograd.grad(scans.diagonal_scan(a, b)[0].sum(), (a, b))
    torch.testing.assert_close(ours, wanted)
    if torch.__version__.startswith("2.13."):
        lost = torch.autograd.grad(pointwise(a, b).sum(), (a, b))
        torch.testing.assert_close(pointwise(a, b), scans.diagonal_scan_naive(a, b)[0])
        torch.testing.assert_close(lost[1], wanted[1])
        assert not lost[0].any() and wanted[0].any()


def test_backward_traffic_of_indexing_is_quadratic_and_that_of_the_scan_linear():
    def indexed(a, b):
        h, out = torch.zeros_like(b[0]), []
        for t in range(len(b)):
            h = a[t] * h + b[t]
            out.append(h)
        return torch.stack(out)

    def growth(function):
        few, many = (written_backward(function, rand(T, 3), rand(T, 3, seed=1)) for T in (100, 200))
        return many / few

    assert growth(indexed) > 3.8
    assert growth(lambda a, b: scans.diagonal_scan_naive(a, b)[0]) < 2.1
    assert growth(lambda a, b: scans.diagonal_scan(a, b)[0]) < 2.3


def test_the_grader_of_the_backward_pass():
    def backward(a, state, h, d, shift=1):
        g, out = torch.zeros_like(state), []
        later = torch.cat((a[shift:], torch.zeros_like(a[:shift])))
        for t in reversed(range(len(h))):
            g = d[t] + later[t] * g
            out.append(g)
        g = torch.stack(out[::-1])
        return g * torch.cat((state[None], h[:-1])), g, a[0] * g[0]

    assert check("scans/backward", backward)
    assert not check("scans/backward", lambda *t: backward(*t, shift=0))
    assert "backwards in time" in check("scans/backward", lambda *t: backward(*t, shift=0)).hint
    assert not check("scans/backward", 3)


def test_the_measured_times_are_those_of_the_committed_benchmark():
    _, results = measured()
    rows = measured_ratios(results, list(results["diagonal"]))
    assert all(ratio is None or ratio > 0 for row in rows for ratio in row[1:])
    key = "1x65536x16, uniform, forward"
    times = results["diagonal"][key]
    best = min(times["mambapy (B,T,D,1)"], times["mambapy (B,T,1,D)"])
    assert measured_ratios(results, [key])[0][1:3] == [t / times["ours"] for t in (times["naive twin"], best)]
