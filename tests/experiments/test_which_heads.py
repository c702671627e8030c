"""The verdicts on the predictions of *which-heads* follow the measured numbers."""

from copy import deepcopy

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
