"""Language models of characters: the text, equal sizes, training, and weights that another reader reads."""

import math
import re
from pydoc_data.topics import topics

import pytest
import torch

from ssmbook import lens
from ssmbook.experiments import _language, language
from ssmbook.experiments._runs import run
from ssmbook.experiments.results import measurement
from ssmbook.experiments.weights import load, save


def test_the_text_and_its_shuffled_control():
    text, shuffled = language.manual(), language.manual(shuffled=1)
    assert len(text.train) > 8 * len(text.held_out) > 100_000
    whole = " ".join(" ".join(topics[name].split()) for name in sorted(topics))
    words = "".join(chr(32 + code) for code in torch.cat([*text]).tolist())
    assert words == re.sub("[^ -~]", "\x7f", whole) and "  " not in words
    assert 0 <= len(text.held_out) - len(whole) / 10 < 1  # the last tenth
    for part, other in zip(text, shuffled, strict=True):
        assert torch.equal(part.sort()[0], other.sort()[0]) and not torch.equal(part, other)


def test_models_of_one_size_that_see_no_later_character():
    codes = torch.randint(language.CHARACTERS, (2, 9), generator=torch.Generator().manual_seed(0))
    changed = codes.clone()
    changed[:, -1] = (changed[:, -1] + 1) % language.CHARACTERS
    for name in language.MODELS:
        net = language.build(name)
        size = sum(each.numel() for each in net.parameters())
        assert 0.98 * 40_000 < size <= 40_000
        with torch.no_grad():
            assert torch.allclose(net(codes)[:, :-1], net(changed)[:, :-1], atol=1e-5)
    kinds = [layer.kind for layer in lens.layers(language.build("hybrid").eval())]
    assert kinds == ["SSD", "Attention", "SSD", "Attention"]
    net = language.trained("attention")
    assert not net.training and all(layer.module.alibi for layer in lens.layers(net))


def test_bits_of_a_model_that_knows_nothing():
    net = language.build("attention", layers=1, parameters=20_000)
    with torch.no_grad():
        for parameter in net[-1].parameters():
            parameter.zero_()
        found = language.bits(net, torch.zeros(3, 5, dtype=torch.int64))
    assert float(found) == pytest.approx(math.log2(language.CHARACTERS), rel=1e-5)


def test_training_learns_what_repeats():
    text = torch.arange(400) % 5
    net = language.build("SSD", d=16, layers=1, parameters=8_000)
    losses = language.train(net, text, steps=60, batch=4, n=12, rate=1e-2, seed=0)
    assert len(losses) == 10 and losses[-1] < 0.2 < 2 < losses[0] and isinstance(losses[0], float)
    forward, backward = (float(language.bits(net, each[None, :13])) for each in (text, text.flip(0)))
    assert forward < 0.3 and backward > 2  # it read them from left to right


def test_the_losses_returned_are_means_of_ten_equal_parts(monkeypatch):
    seen = torch.arange(40.0)
    monkeypatch.setattr(language, "descend", lambda model, loss, **how: [*seen])
    found = language.train(None, None, steps=40, batch=1, n=1, rate=1.0, seed=0)
    assert found == [1.5 + 4 * part for part in range(10)]


def test_weights_of_both_dtypes_and_another_reader(tmp_path):
    path = tmp_path / "a.safetensors"
    kept = {"a.b": torch.nn.Parameter(torch.randn(3, 2).half()), "c": torch.randn(()), "d": torch.zeros(0, 4)}
    save(kept, path, {"command": "a command"})
    found, notes = load(path)
    assert notes == {"command": "a command"} and list(found) == list(kept)
    assert all(torch.equal(found[name], kept[name].float()) for name in kept)
    assert path.read_bytes()[0] % 8 == 0  # the tensors start where any reader may map them
    other = pytest.importorskip("safetensors.torch").load_file(path)
    assert all(
        torch.equal(other[name], kept[name]) and other[name].dtype == kept[name].dtype for name in kept
    )


def test_the_small_experiment_keeps_what_it_measured(tmp_path, monkeypatch):
    few = language.Text(*(part[:4_000] for part in language.manual()))
    mixed = language.Text(*(part.roll(7) for part in few))
    monkeypatch.setattr(language, "manual", lambda shuffled=None: few if shuffled is None else mixed)
    fewer = {"models": ["SSD"], "steps": 2, "layers": 1, "parameters": 20_000, "seeds": 2}
    experiment = _language.Experiment("language", _language.FULL, fewer, _language.jobs)
    results = run(experiment, "small", tmp_path / "language.json").results
    assert list(results) == ["SSD, seed 0", "SSD, shuffled text", "SSD, seed 1"]
    found = results["SSD, seed 0"]
    weights, notes = load(tmp_path / "language-SSD-seed-0.safetensors")
    assert notes["command"] == "python -m ssmbook.experiments language --size small"
    net = language.build("SSD", layers=1, parameters=20_000)
    net.load_state_dict(weights)
    report, read = _language.lens.report, []
    monkeypatch.setattr(_language.lens, "report", lambda *a, **b: read.append(a[1].shape) or report(*a, **b))
    again = _language._measured(net, _language._windows(language.manual().held_out, _language.FULL["n"]))
    assert read == [(_language.READ, _language.FULL["n"])]
    assert found["held out"] == found["trained"]["bits"] == pytest.approx(float(again["bits"]), rel=1e-6)
    (layer,) = found["trained"]["layers"]
    assert len(layer["permuted"]["0.1"]) == _language.READ
    assert layer["counts"] == again["layers"][0]["counts"] and layer["H"] == 8 and layer["miss"] < 1e-10
    control, other = results["SSD, shuffled text"], results["SSD, seed 1"]
    assert (control["seed"], other["seed"]) == (0, 1) and len(list(tmp_path.glob("*.safetensors"))) == 1
    assert control["held out"] != control["trained"]["bits"]  # of its own text, and of the real one
    assert other["held out"] == other["trained"]["bits"]


def test_a_layer_is_measured_in_the_form_that_is_committed():
    net = language.build("selective SSM", layers=1, parameters=20_000)
    windows = _language._windows(language.manual().held_out[:1_000], 64)
    (layer,) = _language._measured(net, windows)["layers"]
    kept = measurement("language").results["selective SSM, seed 0"]["trained"]["layers"][0]
    assert set(kept) - set(layer) == {"permuted"}
    for key in ("rank", "spectrum", "states", "distance"):
        assert len(layer[key]) == len(kept[key]), key
    assert {eps: len(each) for eps, each in layer["counts"].items()} == {"0.1": 4, "0.01": 4}


def test_bad_input():
    with pytest.raises(
        ValueError, match="model must be one of attention, selective SSM, SSD, hybrid; got 'GPT'"
    ):
        language.build("GPT")
    with pytest.raises(ValueError, match="parameters must be at least"):
        language.build("SSD", parameters=100)
