"""The pictures of Part IV show the committed results, and the results say what the pages say of them."""

from statistics import median

import pytest
import torch

from ssmbook import lens
from ssmbook.chapters.gradient_flow import figures as flow
from ssmbook.chapters.learning_heads import figures as learning
from ssmbook.chapters.tasks import figures as tasks
from ssmbook.chapters.trained_layers import figures as trained
from ssmbook.experiments.results import measurement


def lines(ax):
    return [(list(line.get_xdata()), list(line.get_ydata())) for line in ax.get_lines()]


def test_an_unknown_measurement():
    with pytest.raises(
        ValueError, match="name must be one of gradient-flow, language, learning-heads, tasks; got 'x'"
    ):
        measurement("x")


def test_students_over_their_floor():
    teacher = measurement("learning-heads").results["teacher 7"]
    (floor, *others) = lines(learning.students(teacher, "title").axes[0])
    assert floor == (teacher["H"][:6], teacher["floor"][:6])
    circles = [y for x, y in others if x == [3] * 4]
    assert teacher["trained"][3] in circles and teacher["untrained"][3] in circles


def test_every_teacher_is_learned():
    found = measurement("learning-heads").results
    for i in range(8):
        teacher = found[f"teacher {i}"]
        k, floor = teacher["k"], teacher["floor"]
        for H, errors in zip(teacher["H"], teacher["trained"], strict=True):
            assert len(errors) == 4
            assert max(errors) < 1e-6 if H >= k else max(errors) / floor[H] < 1.01 > floor[H] / min(errors)


def test_learned_distances_and_their_law():
    jobs = {"ρ = 0.9": measurement("gradient-flow").results["SGD, LTI 0.9"]}
    ax = flow.learned(jobs, {"ρ = 0.9": 43.7}).axes[0]
    (x, y), (mark, _) = lines(ax)
    job = jobs["ρ = 0.9"]
    assert x == job["T"] and y == [median(errors) for errors in job["error"]] and mark == [43.7]
    dots = lines(flow.kept_at_first(job, 0.01, "title").axes[0])
    wanted = torch.tensor([0.9**T for T in job["T"]], dtype=torch.float64)
    assert torch.allclose(torch.tensor(dots[0][1], dtype=torch.float64), wanted, rtol=1e-3)


def test_heads_needed_of_a_trained_layer():
    report = lens.measurement("minilm")
    has, permuted, as_trained = (y for _, y in lines(trained.needed(report).axes[0]))
    assert has == [12] * 6 and as_trained == [3, 6, 6, 5, 5, 6] and min(permuted) >= 8
    assert len(lines(trained.spectra(report.layers[0], "title").axes[0])[0][0]) == 12
    for (_, norm), (_, floor) in zip(*[iter(lines(trained.reach(report).axes[0]))] * 2, strict=True):
        assert all(a >= b for a, b in zip(norm, floor, strict=True))


def test_accuracies_of_the_tasks():
    found, guessing = {}, {"rotation": 1 / 3, "recall": 1 / 8}
    for name, job in measurement("tasks").results.items():
        if name != "controls":
            found.setdefault(job["task"], {})[job["model"]] = job
    fig = tasks.accuracies(found, guessing)
    for ax, (task, models) in zip(fig.axes, found.items(), strict=True):
        (chance, _), *rows = lines(ax)
        assert chance == [guessing[task]] * 2
        wanted = [job[key] for job in models.values() for key in ("accuracy", "beyond")]
        assert [x for x, _ in rows] == wanted
    assert min(found["rotation"]["rotating SSM"]["accuracy"]) > 0.95
    assert min(found["recall"]["attention"]["accuracy"]) > 0.95
