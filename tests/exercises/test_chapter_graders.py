"""Graders of the chapters: the natural mistakes fail, and every answer that the exercise asks for passes."""

from importlib import import_module

import pytest
import torch
from torch import nn

from ssmbook.chapters._graded import rank
from ssmbook.chapters.zoo.graders import grade_own_map
from ssmbook.exercises import _grader, check
from ssmbook.maps import LinearAttention, SequenceMap
from ssmbook.operators import FactorizedOperator
from ssmbook.testing import MapContract

for chapter in _grader._chapters():
    import_module(f"ssmbook.chapters.{chapter.replace('-', '_')}.graders")
CATALOGUES = sorted(
    name
    for name, found in _grader._GRADERS.items()
    if found.mistakes and found.function.__module__.startswith("ssmbook.chapters.")
)


@pytest.mark.parametrize("name", CATALOGUES)
def test_each_mistake_gets_its_own_sentence(name, each_mistake):
    assert len(_grader._find(name).mistakes) >= 3
    each_mistake(name)


def test_what_is_below_a_billionth_of_the_largest_adds_nothing_to_a_rank():
    assert rank(torch.diag(torch.tensor([1.0, 2e-9, 5e-10], dtype=torch.float64))) == 2


def selective(delta, A, B, C, bound):
    elapsed = delta.cumsum(0)
    decay = torch.exp(bound(A * (elapsed[:, None] - elapsed[None, :])[..., None]))
    return torch.einsum("is,ijs,js->ij", C, decay, delta[:, None] * B).tril()


def clamped(delta, A, B, C):
    return selective(delta, A, B, C, lambda exponent: exponent.clamp(max=0))


def unclamped(delta, A, B, C):
    return selective(delta, A, B, C, lambda exponent: exponent)


def masked(delta, A, B, C):
    future = torch.ones(len(delta), len(delta)).triu(1).bool()
    return selective(delta, A, B, C, lambda exponent: exponent.masked_fill(future[..., None], -torch.inf))


def step_by_step(delta, A, B, C):
    table = torch.zeros(len(delta), len(delta), dtype=torch.float64)
    for j in range(len(delta)):
        h = delta[j] * B[j]
        table[j, j] = C[j] @ h
        for i in range(j + 1, len(delta)):
            h = (delta[i] * A).exp() * h
            table[i, j] = C[i] @ h
    return table


@pytest.mark.parametrize("answer", [clamped, masked, step_by_step])
def test_selective_table_accepts(answer):
    assert check("zoo/selective-table", answer)


def test_selective_table_asks_for_a_finite_gradient():
    case = torch.full((9,), 200.0), -torch.ones(2), torch.ones(9, 2), torch.ones(9, 2)
    assert torch.equal(unclamped(*case), clamped(*case))  # the overflow is seen backwards alone
    verdict = check("zoo/selective-table", unclamped)
    assert not verdict and "its gradient by delta is not finite" in verdict.hint


def test_selective_table_asks_for_every_gradient():
    verdict = check("zoo/selective-table", lambda delta, A, B, C: clamped(delta, A.detach(), B, C))
    assert not verdict and "its gradient by A is not" in verdict.hint
    verdict = check("zoo/selective-table", lambda *given: clamped(*given).detach())
    assert not verdict and "its gradient by delta is not" in verdict.hint


class GatedMean(SequenceMap):
    """The solution: the mean of what has come so far, gated by the present token."""

    def __init__(self, d, p, **new):
        super().__init__(d, p)
        self.u = nn.Parameter(torch.randn(d, **new))
        self.V = nn.Parameter(torch.randn(p, d, **new))

    def coefficients(self, x):
        count = torch.arange(1, x.shape[-2] + 1).to(x)
        return torch.sigmoid(x @ self.u) / count

    def _forward(self, x):
        return self.coefficients(x)[..., None] * (x.cumsum(-2) @ self.V.mT)

    def _interaction(self, x):
        rows = self.coefficients(x)[..., None].expand(*x.shape[:-1], x.shape[-2])
        return FactorizedOperator(rows.tril()[..., None, :, :], self.V[None])


class GatedByTheSource(GatedMean):
    def _interaction(self, x):
        columns = self.coefficients(x)[..., None, :].expand(*x.shape[:-1], x.shape[-2])
        return FactorizedOperator(columns.tril()[..., None, :, :], self.V[None])


class FrozenMean(GatedMean):
    def _interaction(self, x):
        return super()._interaction(x).detach()


class AcausalMean(GatedMean):
    def _forward(self, x):
        return self.coefficients(x)[..., None] * (x.sum(-2, keepdim=True) @ self.V.mT)


def contract(kind, *sizes, **more):
    return type("TestMine", (MapContract,), {"make": lambda self, **new: kind(*sizes, **new), **more})


def test_own_map_accepts_the_solution():
    assert grade_own_map(contract(GatedMean, 4, 3)) is None
    assert grade_own_map(contract(GatedMean, 2, 2)) is None


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (GatedMean, "inherits from MapContract"),
        (contract(GatedMean, 4, 3)(), "inherits from MapContract"),
        (contract(GatedByTheSource, 4, 3), "law is broken: test_forward_is_the_interaction_applied"),
        (contract(FrozenMean, 4, 3), "law is broken: test_the_interaction_carries_gradients"),
        (contract(AcausalMean, 4, 3), "law is broken: test_forward_is_the_interaction_applied"),
        (contract(GatedMean, 4, 3, check=lambda self: None), "changes check"),
        (contract(GatedMean, 4, 3, test_batch_elements_do_not_meet=None), "changes test_batch"),
    ],
)
def test_own_map_refuses(answer, hint):
    assert hint in grade_own_map(answer)


def test_own_map_asks_for_a_map_that_the_library_does_not_have():
    make = {"make": lambda self, **new: LinearAttention(4, 3, H=1, head_width=2, **new)}
    assert "a map of the library" in grade_own_map(type("TestMine", (MapContract,), make))
