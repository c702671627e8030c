"""The contracts catch what breaks a law, by the law that names it, and pass what breaks none."""

import pytest
import torch

from ssmbook.maps import SelectiveSSM, SequenceMap
from ssmbook.operators import InteractionOperator
from ssmbook.testing import MapContract, OperatorContract, RecurrentMapContract


class Total(InteractionOperator):
    """y_i = V (x_0 + … + x_i)."""

    def __init__(self, V, n):
        super().__init__(V, V.shape[:-2], n, *V.shape[-2:])
        self.V = V

    def _apply(self, x):
        return x.cumsum(-2) @ self.V.mT

    def _scaled(self, factor):
        return type(self)(factor * self.V, self.n)

    def _mapped(self, change):
        return type(self)(change(self.V), self.n)


class Sum(SequenceMap):
    def __init__(self, d, p, **new):
        super().__init__(d, p)
        self.V = torch.nn.Parameter(torch.randn(p, d, **new))

    def _forward(self, x):
        return x.cumsum(-2) @ self.V.mT

    def _interaction(self, x):
        return Total(self.V.expand(*x.shape[:-2], *self.V.shape), x.shape[-2])


class TestTotal(OperatorContract):
    causal = True

    def make(self, random, batch, n):
        return Total(random(*batch, 3, 4), n)


class TestSum(MapContract):
    def make(self, **new):
        return Sum(4, 3, **new)


class TestSelective(RecurrentMapContract):
    def make(self, **new):
        return SelectiveSSM(3, N=2, **new)


def broken_laws(contract, make):
    """The laws by which a broken kind is caught."""
    with pytest.raises(AssertionError) as caught:
        type("Broken", (contract,), {"make": make})().check()
    return str(caught.value)


def wrong(name):
    """A method of every operator with another result."""
    return lambda self, *given: 2 * getattr(InteractionOperator, name)(self, *given)


OPERATORS = {
    "acts_as_the_sum": {"_apply": lambda self, x: x.cumsum(-2) @ self.V.mT + 1},
    "rows_columns_and_blocks": {"row": wrong("row")},
    "the_transpose": {  # with rows of its own, since those of InteractionOperator come from the transpose
        "_transposed": lambda self: Total(self.V.mT, self.n),
        "_row": lambda self, i: torch.stack([(j <= i) * self.V for j in range(self.n)], -3),
    },
    "sums_multiples": {"__add__": lambda self, other: self},
    "spectrum_and_rank": {"spectrum": wrong("spectrum")},
    "causal": {"_apply": lambda self, x: x.flip(-2).cumsum(-2).flip(-2) @ self.V.mT},
    "dtype": {"row": lambda self, i: InteractionOperator.row(self, i).double()},
    "gradients": {"detach": lambda self: self},
}


@pytest.mark.parametrize("law", OPERATORS)
def test_a_broken_operator_is_caught_by_its_law(law):
    kind = type("Broken", (Total,), OPERATORS[law])
    assert law in broken_laws(TestTotal, lambda self, random, batch, n: kind(random(*batch, 3, 4), n))


def spoiled(change):
    """A forward pass that reads other tokens."""
    return {"_forward": lambda self, x: Sum._forward(self, change(x))}


MAPS = {
    "forward_is_the_interaction": {"_interaction": lambda self, x: 2 * Sum._interaction(self, x)},
    "zero_input": {"_interaction": lambda self, x: x.abs().sum() / x.abs().sum() * Sum._interaction(self, x)},
    "batch_elements": spoiled(lambda x: x - x.mean(0) if x.dim() > 2 and x.shape[0] > 2 else x),
    "later_tokens": spoiled(lambda x: x.flip(-2)),
    "nothing_is_changed": spoiled(lambda x: x.mul_(1.5)),
    "gradients_by_input": spoiled(lambda x: 2 * x - x.detach()),
    "interaction_carries_gradients": {"_interaction": lambda self, x: Sum._interaction(self, x).detach()},
    "dtype_and_device": {"_forward": lambda self, x: Sum._forward(self, x).double()},
    "wrong_tokens": {"forward": lambda self, x: Sum.forward(self, torch.as_tensor(x).to(self.V))},
}


@pytest.mark.parametrize("law", MAPS)
def test_a_broken_map_is_caught_by_its_law(law):
    kind = type("Broken", (Sum,), MAPS[law])
    assert law in broken_laws(MapContract, lambda self, **new: kind(4, 3, **new))


STEPS = {
    "steps_make_the_whole": {"_run": lambda self, x, state: (SelectiveSSM._run(self, x, state)[0], state)},
    "pieces_make_the_whole": {"run": lambda self, x, state=None, resets=None: SelectiveSSM.run(self, x)},
    "resets_part": {"run": lambda self, x, state=None, resets=None: SelectiveSSM.run(self, x, state)},
    "gradients_reach": {
        "run": lambda self, x, state=None, resets=None: SelectiveSSM.run(
            self, x, None if state is None else state.detach(), resets
        )
    },
    "wrong_state": {
        "step": lambda self, x_t, state=None: SelectiveSSM.step(
            self, x_t, state if state is None else state.double()
        )
    },
}


@pytest.mark.parametrize("law", STEPS)
def test_a_broken_step_is_caught_by_its_law(law):
    kind = type("Broken", (SelectiveSSM,), STEPS[law])
    assert law in broken_laws(RecurrentMapContract, lambda self, **new: kind(3, N=2, **new))
