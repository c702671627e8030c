"""The verdicts on the predictions of *which-heads* follow the measured numbers."""

from copy import deepcopy

from headsandstates.experiments import which_heads_gemma
from headsandstates.experiments.results import measurement
from headsandstates.experiments.which_heads import PREDICTIONS, verdicts


def test_a_prediction_falls_with_the_number_that_it_is_about():
    results = measurement("which-heads").results
    found = verdicts(results)
    assert len(found) == len(PREDICTIONS) and found[1] and found[4] and not all(found)
    other = deepcopy(results)
    for kept in (0.37, 0.25):  # as if one window for all heads cost nothing
        other["256, uniform and random"][f"{kept}, uniform"]["loss"] = other["256, as it is"]
    for seed in range(5):
        other["256, plan"][f"path, seed {seed}"]["copy"]["miss"] = 0.2
    fallen = verdicts(other)
    assert not fallen[1] and not fallen[4] and not fallen[9]
    assert [fallen[i] for i in (3, 5)] == [found[i] for i in (3, 5)]


def test_a_prediction_on_the_second_model_falls_with_its_number():
    results = measurement("which-heads-gemma").results
    found = which_heads_gemma.verdicts(results)
    assert len(found) == len(which_heads_gemma.PREDICTIONS) and any(found) and not all(found)
    other = deepcopy(results)
    for kept in (0.37, 0.25):  # as if one window for all heads cost nothing
        other["256, uniform and random"][f"{kept}, uniform"]["loss"] = other["256, as it is"]
    for name, row in other["256, plan"].items():
        if name.startswith("path"):
            row["copy"]["miss"] = 0.2
        else:
            row["full"] = [0, 1, 5]
    fallen = which_heads_gemma.verdicts(other)
    assert not any(fallen[i] for i in (0, 1, 8)) and fallen[3:5] == found[3:5]
