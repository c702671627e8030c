"""What the committed numbers start from is drawn again: systems, floors, laws, students before training."""

import inspect

import pytest
import torch
from helpers import F64

from ssmbook.experiments import (
    _gradient_flow,
    _learning_heads,
    _tasks,
    language,
    learning_distance,
    learning_heads,
    students,
    tasks,
)
from ssmbook.experiments.__main__ import experiment
from ssmbook.experiments._runs import plain
from ssmbook.experiments.results import NAMES, measurement

HEADS, FLOW, TASKS = (measurement(name) for name in ("learning-heads", "gradient-flow", "tasks"))
SHORT = {"steps": 0, "class_steps": 1, "pairwise_steps": 1, "data_steps": 1}


def same(got, wanted, rel=1e-5):
    got, wanted = (torch.as_tensor(value, dtype=F64) for value in (got, wanted))
    assert got.shape == wanted.shape
    return torch.allclose(got, wanted, rtol=rel, atol=1e-12)


def test_the_commands_of_today_would_measure_what_is_committed():
    for name in NAMES:
        kept, command = measurement(name), experiment(name)
        assert plain(command.settings("full")) == plain(kept.settings) and kept.size == "full"
        small = command.settings("small")
        assert set(small) == set(kept.settings)
        for key in (key for key in small if key.endswith("steps")):
            assert small[key] < kept.settings[key], key


def test_a_small_run_does_a_few_jobs_of_every_kind():
    jobs = {name: list(experiment(name).jobs(experiment(name).settings("small"))) for name in NAMES}
    assert jobs["gradient-flow"] == ["slopes", "SGD, LTI 0.8", "Adam, LTI 0.8"]
    assert len(jobs["language"]) == 2 * len(language.MODELS)  # as it is and shuffled, of one seed
    assert len(jobs["tasks"]) == 1 + 4 * 2 * 2  # the controls; four tasks of two models, shuffled too
    classes = [f"{kind}, {name}" for name in students.class_systems() for kind in students.CLASSES]
    last = ["pairwise", "data 64", "spectrum"]
    assert jobs["learning-heads"] == ["teacher 0", "teacher 1", "shuffled target", *classes, *last]


BOOKS = [
    (tasks.build, "tasks", ("d", "parameters")),
    (tasks.train, "tasks", ("batch",)),
    (language.build, "language", ("d", "layers", "parameters")),
    (learning_distance.train, "gradient-flow", ("steps", "batch")),
    (learning_heads.train_heads, "learning-heads", ("seeds", "steps")),
    (students.fit_class, "learning-heads", ("seeds",)),
]


@pytest.mark.parametrize(("function", "name", "keys"), BOOKS, ids=lambda part: getattr(part, "__name__", ""))
def test_without_options_the_sizes_are_those_of_the_committed_runs(function, name, keys):
    defaults, full = inspect.signature(function).parameters, measurement(name).settings
    assert {key: defaults[key].default for key in keys} == {key: full[key] for key in keys}


def test_distances_grow_until_two_in_a_row_fail(monkeypatch):
    errors = {4: 0, 8: 1, 16: 0, 32: 1, 64: 1, 128: 0}  # most of the runs fail, or none
    run = lambda layer, T, **options: {  # noqa: E731
        "error": errors[T] * torch.tensor([0.0, 0.6, 0.6]), "weight": torch.ones(3),
    }  # fmt: skip
    monkeypatch.setattr(_gradient_flow, "train", run)
    given = {"grid": list(errors), "seeds": 3, "batch": 1}
    assert _gradient_flow._reach(given, "LTI", 0.9, "SGD", 1)["T"] == [4, 8, 16, 32, 64]


def untrained(run, jobs):
    """The jobs of a committed run with next to no training."""
    given = {**run.settings, **SHORT}
    given["spectrum"] = {**run.settings["spectrum"], "steps": 1}
    return jobs(given)


@pytest.mark.parametrize("name", HEADS.results)
def test_floors_and_students_before_training_are_the_committed_ones(name):
    found, kept = untrained(HEADS, _learning_heads.jobs)[name](), HEADS.results[name]
    assert set(found) == set(kept)
    for key in {"k", "H", "floor", "rho", "condition", "untrained", "m", "states", "free"} & set(kept):
        assert same(found[key], kept[key]), key
    if "untrained" in kept:  # no step was made
        assert same(found["trained"], kept["untrained"])
    elif name == "spectrum":
        assert same(found["sigma"], kept["sigma"], rel=1e-4)
        for way in ("population", "samples"):  # the start and the first step
            assert same(found[way]["spectrum"][0], kept[way]["spectrum"][0], rel=1e-4)
    else:
        assert torch.as_tensor(found["trained"]).shape == torch.tensor(kept["trained"]).shape


def test_slopes_and_their_laws_are_the_committed_ones():
    found, kept = _gradient_flow.jobs(FLOW.settings)["slopes"](), FLOW.results["slopes"]
    assert set(found) == set(kept)
    for name, rows in kept.items():
        assert same(found[name]["law"], rows["law"])
        assert torch.allclose(
            torch.tensor(found[name]["measured"]), torch.tensor(rows["measured"]), atol=1e-6
        )


@pytest.mark.parametrize("name", [name for name in FLOW.results if name != "slopes"])
def test_an_untrained_layer_fails_twice_and_keeps_what_it_kept(name):
    given = {**FLOW.settings, "steps": 0, "budgets": [0] * len(FLOW.settings["budgets"])}
    job = _gradient_flow.jobs(given)[name.replace("250 steps", "0 steps")]
    found, kept = job(), FLOW.results[name]
    assert found["T"] == kept["T"][:2] and same(found["weight"], kept["weight"][:2])
    assert found["error"].shape == (2, given["seeds"]) and bool((found["error"].median(1)[0] > 0.5).all())
    assert [found[key] for key in ("layer", "rho")] == [kept[key] for key in ("layer", "rho")]


def test_the_controls_of_the_tasks_are_the_committed_ones():
    found, kept = _tasks.jobs(TASKS.settings)["controls"](), TASKS.results["controls"]
    assert found["parameters"] == kept["parameters"]
    assert found["guessing"] == pytest.approx(kept["guessing"], rel=1e-5)
    for model, shares in kept["untrained"].items():
        for task, share in shares.items():
            assert found["untrained"][model][task] == pytest.approx(share, abs=0.01)


def test_a_task_is_tested_at_half_once_twice_and_four_times_its_length():
    given = {**TASKS.settings, "steps": 1, "batch": 2, "seeds": 2, "d": 8, "parameters": 4_000}
    jobs = _tasks.jobs(given)
    assert list(jobs) == list(TASKS.results)
    for name, seeds in (("recall 4, attention", 2), ("recall 4, attention, shuffled", 1)):
        found = jobs[name]()
        assert found["tested"] == [2, 4, 8, 16] and [len(row) for row in found["right"]] == [seeds] * 4
        assert len(found["loss"]) == seeds and found["shuffled"] == (seeds == 1)
