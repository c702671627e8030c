"""Tasks and models: what is asked, equal parameter counts, the rotating control against its recurrence."""

import json
import math

import pytest
import torch
from helpers import gen

from ssmbook.chapters.tasks import figures
from ssmbook.experiments import tasks
from ssmbook.experiments._runs import plain


def test_copying_asks_for_the_symbols_in_order():
    tokens, answers = tasks.draw("copying", 5, 7, generator=gen())
    assert tokens.shape == answers.shape == (7, 10)
    assert torch.equal(answers[:, 5:], tokens[:, :5]) and (answers[:, :5] == -1).all()
    assert (tokens[:, 5:] == tasks.ANSWER).all()


def test_selective_copying_skips_the_blanks():
    tokens, answers = tasks.draw("selective copying", 5, 7, generator=gen())
    for row, wanted in zip(tokens, answers, strict=True):
        told = row[:10]
        assert (told == tasks.BLANK).sum() == 5
        assert torch.equal(told[told != tasks.BLANK], wanted[10:])


def test_recall_answers_each_key_once_with_its_value():
    tokens, answers = tasks.draw("recall", 4, 6, generator=gen())
    assert tokens.shape == (6, 24)
    for row, wanted in zip(tokens.tolist(), answers.tolist(), strict=True):
        told = {(row[i], row[i + 1]): row[i + 2] for i in range(0, 12, 3)}
        asked = {(row[i], row[i + 1]): wanted[i + 2] for i in range(12, 24, 3)}
        assert len(told) == 4 and told == asked
        assert sum(each >= 0 for each in wanted) == 4


def test_rotation_asks_for_the_position_so_far():
    turns, answers = tasks.draw("rotation", 9, 5, generator=gen())
    position = torch.zeros(5, dtype=torch.int64)
    for i in range(9):
        position = (position + turns[:, i]) % 3
        assert torch.equal(answers[:, i], position)


def test_the_rotating_layer_is_its_recurrence():
    layer = tasks.RotatingSSM(6, N=5, generator=gen()).double()
    x = torch.randn(2, 11, 6, generator=gen(1), dtype=torch.float64)
    state, outputs = torch.zeros(2, 5, dtype=torch.complex128), []
    for x_t in x.unbind(1):
        decay = torch.nn.functional.softplus(x_t @ layer.decay.mT + layer.shift)
        turn = torch.polar(torch.exp(-decay), x_t @ layer.turn.mT)
        state = turn * state + x_t.to(turn.dtype) @ torch.complex(*layer.write).mT
        outputs.append((state @ torch.complex(*layer.read).mT).real)
    assert torch.allclose(layer(x), torch.stack(outputs, 1), rtol=1e-10, atol=1e-12)


def test_every_model_is_causal_and_of_one_size():
    sizes = []
    tokens, _ = tasks.draw("copying", 4, 2, generator=gen())
    changed = tokens.clone()
    changed[:, -1] = 0
    for name in tasks.MODELS:
        net = tasks.build(name, parameters=16_000, longest=8)
        sizes.append(tasks.counted(net))
        with torch.no_grad():
            assert torch.allclose(net(tokens)[:, :-1], net(changed)[:, :-1], atol=1e-5)
    assert max(sizes) <= 16_000 and min(sizes) > 0.98 * 16_000


def test_training_is_repeatable_and_learns_what_is_easy():
    found = []
    for _ in range(2):
        net = tasks.build("SSD", d=16, parameters=9_000, seed=3)
        found.append((tasks.train(net, "rotation", 1, steps=25, seed=1), tasks.accuracy(net, "rotation", 1)))
    assert found[0] == found[1] and found[0][1] > 0.9


@pytest.mark.parametrize(("steps", "last"), [(1, 1), (19, 1), (20, 2), (100, 10)])
def test_the_final_loss_is_the_mean_of_the_last_tenth(monkeypatch, steps, last):
    monkeypatch.setattr(tasks, "descend", lambda *given, steps, rate: torch.arange(steps) ** 2.0)
    wanted = sum(step**2 for step in range(steps)[-last:]) / last
    assert tasks.train(None, "recall", 3, steps=steps) == pytest.approx(wanted)


def test_a_run_that_diverges_is_reported_and_not_drawn():
    net = tasks.build("attention", d=16, parameters=9_000)
    loss = tasks.train(net, "copying", 2, steps=8, rate=1e30)
    right = tasks.accuracy(net, "copying", 2)
    assert math.isnan(loss) and math.isnan(right)
    job = {"L": 2, "right": [[0.5, right]] * 4}
    kept = json.loads(json.dumps(plain(job)))
    assert kept["right"][1] == [0.5, None]
    axes = figures.accuracies({task: {"attention": kept} for task in "abc"}, dict.fromkeys("abc", 0.1)).axes
    assert [len(line.get_xdata()) for line in axes[0].get_lines()[1:]] == [1, 1]


def test_accuracy_is_the_share_of_right_answers_on_256_sequences(monkeypatch):
    real, drawn = tasks.draw, []
    monkeypatch.setattr(tasks, "draw", lambda *sizes, **how: drawn.append(sizes) or real(*sizes, **how))
    two, blank = torch.eye(tasks.VOCABULARY)[[2, tasks.BLANK]]
    always_two = lambda tokens: (two + 2 * blank).expand(*tokens.shape, -1)  # noqa: E731
    found = tasks.accuracy(always_two, "copying", 3)
    _, answers = real("copying", 3, 256, generator=gen(10_001))
    # what is no symbol is no answer
    assert drawn == [("copying", 3, 256)] and found == float((answers[:, 3:] == 2).double().mean())


def test_answers_of_another_sequence_cannot_be_learned():
    found = []
    for shuffled in (False, True):
        net = tasks.build("SSD", d=16, parameters=9_000, seed=3)
        tasks.train(net, "rotation", 1, steps=25, seed=1, shuffled=shuffled)
        found.append(tasks.accuracy(net, "rotation", 1))
    assert found[1] < 0.7 < 0.9 < found[0]


def test_bad_input():
    with pytest.raises(ValueError, match="task must be one of copying"):
        tasks.draw("chess", 3, 1)
    with pytest.raises(ValueError, match="model must be one of attention"):
        tasks.build("LSTM")
    with pytest.raises(ValueError, match="parameters must be at least"):
        tasks.build("SSD", parameters=10)
    with pytest.raises(ValueError, match="L must be at least 1"):
        tasks.draw("recall", 0, 1)
