"""The traps of the chapter *scans* and its grader."""

import pytest
import torch
from helpers import randn as rand

from headsandstates.chapters.scans import rosetta
from headsandstates.exercises import check
from ssmbook import scans


def test_attention_heads_are_built_in_double_precision_and_applied_to_rounded_tables():
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
