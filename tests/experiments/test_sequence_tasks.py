"""What the tasks, the dependency at a distance and the language models ask, and that training learns it."""

import math
import re
from pydoc_data.topics import topics

import pytest
import torch
from helpers import gen

from headsandstates.experiments import gradient_flow as distance
from headsandstates.experiments import language, tasks, tasks_longer
from headsandstates.experiments.results import measurement
from ssmbook import lens


def test_what_each_task_asks():
    tokens, answers = tasks.draw("copying", 5, 7, generator=gen())
    assert torch.equal(answers[:, 5:], tokens[:, :5]) and (answers[:, :5] == -1).all()
    assert (tokens[:, 5:] == tasks.ANSWER).all()
    for row, wanted in zip(*tasks.draw("selective copying", 5, 7, generator=gen()), strict=True):
        told = row[:10]
        assert (told == tasks.BLANK).sum() == 5 and torch.equal(told[told != tasks.BLANK], wanted[10:])
    tokens, answers = tasks.draw("recall", 4, 6, generator=gen())
    for row, wanted in zip(tokens.tolist(), answers.tolist(), strict=True):
        told = {(row[i], row[i + 1]): row[i + 2] for i in range(0, 12, 3)}
        assert told == {(row[i], row[i + 1]): wanted[i + 2] for i in range(12, 24, 3)} and len(told) == 4
    turns, answers = tasks.draw("rotation", 9, 5, generator=gen())
    assert torch.equal(answers, turns.cumsum(1) % 3)
    moves, answers = tasks.draw("permutations", 7, 5, generator=gen())
    for row, wanted in zip(moves.tolist(), answers.tolist(), strict=True):
        order = torch.eye(3)  # the matrix that puts things in the order so far
        for move, said in zip(row, wanted, strict=True):
            order = order[list(tasks.ORDERS[move])]
            assert torch.equal(order, torch.eye(3)[list(tasks.ORDERS[said])])
    with pytest.raises(ValueError, match="task must be"):
        tasks.draw("chess", 3, 1)


def test_the_rotating_layer_is_its_recurrence():
    layer = tasks.RotatingSSM(6, N=5, generator=gen()).double()
    x = torch.randn(2, 11, 6, generator=gen(1), dtype=torch.float64)
    B, C = (torch.complex(*part) for part in (layer.write, layer.read))
    h, wanted = torch.zeros(2, 5, dtype=torch.complex128), []
    for x_t in x.unbind(1):
        step = torch.nn.functional.softplus(x_t @ layer.decay.mT + layer.shift)
        h = torch.exp(torch.complex(-step, x_t @ layer.turn.mT)) * h + x_t.to(h.dtype) @ B.mT
        wanted.append((h @ C.mT).real)
    torch.testing.assert_close(layer(x), torch.stack(wanted, 1))


def test_models_of_one_size_that_see_no_later_token():
    for build, names, size, symbols in (
        (tasks.build, tasks.MODELS, 20_000, tasks.VOCABULARY),
        (tasks_longer.model, ("Mamba-3", "DeltaProduct"), 20_000, tasks.VOCABULARY),
        (language.build, language.MODELS, 40_000, language.CHARACTERS),
    ):
        codes = torch.randint(symbols, (2, 9), generator=gen())
        changed = codes.clone()
        changed[:, -1] = (changed[:, -1] + 1) % symbols
        for name in names:
            net = build(name)
            assert 0.96 * size < tasks.count_parameters(net) <= size
            with torch.no_grad():
                assert torch.allclose(net(codes)[:, :-1], net(changed)[:, :-1], atol=1e-5)
        with pytest.raises(ValueError, match="model must be"):
            build("LSTM")
    with pytest.raises(ValueError, match="parameters must be at least"):
        tasks.build("SSD", parameters=10)
    kinds = [layer.kind for layer in lens.layers(language.build("hybrid").eval())]
    assert kinds == ["SSD", "Attention", "SSD", "Attention"]


def test_training_is_repeatable_learns_what_is_easy_and_no_foreign_answers():
    found = []
    for shuffled in (False, False, True):
        net = tasks.build("SSD", d=16, parameters=9_000, seed=3)
        loss = tasks.train(net, "rotation", 1, steps=25, seed=1, shuffled=shuffled)
        found.append((loss, tasks.accuracy(net, "rotation", 1)))
    assert found[0] == found[1] and found[2][1] < 0.7 < 0.9 < found[0][1]


def test_the_text_and_its_shuffled_control():
    text, shuffled = language.manual(), language.manual(shuffled=1)
    whole = " ".join(" ".join(topics[name].split()) for name in sorted(topics))
    words = "".join(chr(32 + code) for code in torch.cat([*text]).tolist())
    assert words == re.sub("[^ -~]", "\x7f", whole) and 0 <= len(text.held_out) - len(whole) / 10 < 1
    for part, other in zip(text, shuffled, strict=True):
        assert torch.equal(part.sort()[0], other.sort()[0]) and not torch.equal(part, other)


def test_bits_of_a_model_that_knows_nothing_and_of_one_that_learned():
    net, text = language.build("SSD", d=16, layers=1, parameters=8_000), torch.arange(400) % 5
    with torch.no_grad():
        nothing = language.build("attention", layers=1, parameters=20_000)
        for parameter in nothing[-1].parameters():
            parameter.zero_()
        bits = language.bits(nothing, torch.zeros(3, 5, dtype=torch.int64))
    assert float(bits) == pytest.approx(math.log2(language.CHARACTERS), rel=1e-5)
    losses = language.train(net, text, steps=60, batch=4, n=12, rate=1e-2, seed=0)
    assert len(losses) == 10 and losses[-1] < 0.2 < 2 < losses[0]


@pytest.mark.parametrize("layer", distance.LAYERS)
def test_the_closed_form_is_the_recurrence(layer):
    g, start = gen(1), distance.start(layer, 2)
    parameters = {name: torch.randn(value.shape, generator=g) for name, value in start.items()}
    x, target = distance.flagged_tokens(2, 3, 5, generator=g)
    assert torch.equal(x[..., 0, 0], target) and not x[..., 1:, 0].any() and x[..., 2].sum() == 6
    h, total = torch.zeros(2, 3, 4), torch.zeros(2, 3, 4)
    for x_t in x.unbind(2):
        read = lambda name, x_t=x_t: torch.einsum("snc,sbc->sbn", parameters[name], x_t)  # noqa: E731
        if layer == "attention":
            h, total = h + read("u").exp() * read("B"), total + read("u").exp()
        else:
            if layer == "LTI":
                step = parameters["nu"].exp()[:, None]
            else:
                step = torch.nn.functional.softplus(read("w") + parameters["b"][:, None])
            h = (-step).exp() * h + read("B")
    h = h / total if layer == "attention" else h
    wanted = (h * parameters["C"][:, None]).sum(-1)
    assert torch.allclose(distance.answer(layer, parameters, x), wanted, rtol=1e-4, atol=1e-5)


def test_a_short_distance_is_learned_a_long_one_is_not_and_noise_stops_adam():
    near = distance.train("LTI", 4, rho=0.8, steps=300, seeds=2)
    far = distance.train("LTI", 60, rho=0.8, steps=100, seeds=2)
    assert near["error"].max() < 0.05 and far["error"].min() > 0.9
    assert math.isclose(float(far["weight"][0]), 0.8**60, rel_tol=1e-3)
    assert float(distance.train("attention", 6, steps=0, seeds=1)["weight"]) == pytest.approx(1 / 7)
    # at this distance every start keeps 4e-5 of the number: too little beside loud distractions only
    given = {"rho": 0.8, "optimizer": "Adam", "steps": 600, "seeds": 3}
    loud, quiet = (distance.train("LTI", 45, loud=each, **given)["error"] for each in (1.0, 0.0))
    assert loud.median() > 0.9 and quiet.max() < 0.1


@pytest.mark.parametrize("name", ["tasks", "tasks-longer"])
def test_within_a_task_every_model_has_the_same_budget(name):
    """As many steps, seeds and rates for each model of a task, in the results, not only in the settings."""
    run, budgets = measurement(name), {}
    for job, numbers in run.results.items():
        if job != "controls" and not numbers.get("shuffled"):
            kind = (job.split()[0] if name == "tasks-longer" else "", numbers["task"], numbers["L"])
            losses = numbers["loss"] if isinstance(numbers["loss"], list) else [numbers["loss"]]
            steps = numbers.get("steps", run.settings["steps"])
            budgets.setdefault(kind, {}).setdefault(numbers["model"], []).extend([steps] * len(losses))
    assert budgets
    for models in budgets.values():
        assert len({tuple(steps) for steps in models.values()}) == 1
