"""The contract of maps catches what breaks a law, by the law that names it, and passes what breaks none."""

import pytest
import torch
from helpers import Total

from ssmbook.maps import SequenceMap
from ssmbook.testing import MapContract


class Sum(SequenceMap):
    def __init__(self, d, p, **new):
        super().__init__(d, p)
        self.V = torch.nn.Parameter(torch.randn(p, d, **new))

    def _forward(self, x):
        return x.cumsum(-2) @ self.V.mT

    def _interaction(self, x):
        return Total(self.V.expand(*x.shape[:-2], *self.V.shape), x.shape[-2])


class TestSum(MapContract):
    def make(self, **new):
        return Sum(4, 3, **new)


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
    with pytest.raises(AssertionError, match=law):
        type("Broken", (MapContract,), {"make": lambda self, **new: kind(4, 3, **new)})().check()
