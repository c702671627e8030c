"""The dependency at distance T: what is asked, what each layer keeps at first, and what training finds."""

import math

import pytest
import torch

from ssmbook.experiments import learning_distance as distance


def test_the_answer_is_the_flagged_number_and_nothing_else_is_flagged():
    x, target = distance.flagged_tokens(2, 5, 7, generator=torch.Generator().manual_seed(0))
    assert x.shape == (2, 5, 8, 3) and torch.equal(x[..., 0, 0], target)
    assert not x[..., 1:, 0].any() and not x[..., 0, 1].any() and x[..., 2].sum() == 10


def test_a_gradient_is_cut_to_length_one_layer_by_layer():
    parts = {"a": torch.zeros(2, 3, requires_grad=True), "b": torch.zeros(2, 1, requires_grad=True)}
    parts["a"].grad = torch.tensor([[0.0, 6.0, 0.0], [0.3, 0.0, 0.0]])
    parts["b"].grad = torch.tensor([[8.0], [0.4]])
    distance._cut(parts)
    assert torch.allclose(parts["a"].grad, torch.tensor([[0.0, 0.6, 0.0], [0.3, 0.0, 0.0]]))
    assert torch.allclose(parts["b"].grad, torch.tensor([[0.8], [0.4]]))


def test_every_step_of_training_cuts_its_gradients(monkeypatch):
    seen = []
    monkeypatch.setattr(distance, "_cut", lambda parameters: seen.append({*parameters}))
    distance.train("LTI", 3, steps=4, seeds=2)
    assert seen == [{*distance.start("LTI", 2)}] * 4


@pytest.mark.parametrize(("layer", "weight"), [("LTI", 0.9**6), ("selective", 0.9**6), ("attention", 1 / 7)])
def test_before_training_a_layer_keeps_what_its_law_says(layer, weight):
    parameters = distance.start(layer, 3, rho=0.9, generator=torch.Generator().manual_seed(0))
    x, _ = distance.flagged_tokens(3, 4, 6)
    kept = distance.kept(layer, parameters, x)
    assert torch.allclose(kept[:, :, 0], torch.tensor(weight), rtol=1e-5)
    if layer == "attention":
        assert torch.allclose(kept.sum(2), torch.ones(()))


@pytest.mark.parametrize("layer", distance.LAYERS)
def test_the_closed_form_is_the_recurrence(layer):
    g = torch.Generator().manual_seed(1)
    parameters = {
        name: torch.randn(value.shape, generator=g) for name, value in distance.start(layer, 2).items()
    }
    x, _ = distance.flagged_tokens(2, 3, 5, generator=g)
    h, total = torch.zeros(2, 3, 4), torch.zeros(2, 3, 4)
    for x_t in x.unbind(2):
        Bx = torch.einsum("snc,sbc->sbn", parameters["B"], x_t)
        if layer == "attention":
            weight = torch.einsum("snc,sbc->sbn", parameters["u"], x_t).exp()
            h, total = h + weight * Bx, total + weight
        else:
            step = (
                parameters["nu"].exp()[:, None]
                if layer == "LTI"
                else torch.nn.functional.softplus(
                    torch.einsum("snc,sbc->sbn", parameters["w"], x_t) + parameters["b"][:, None]
                )
            )
            h = (-step).exp() * h + Bx
    h = h / total if layer == "attention" else h
    wanted = (h * parameters["C"][:, None]).sum(-1)
    assert torch.allclose(distance.answer(layer, parameters, x), wanted, rtol=1e-4, atol=1e-5)


def test_distractions_are_as_loud_as_asked_for_and_the_flagged_number_stays():
    drawn = [
        distance.flagged_tokens(2, 5, 7, **given, generator=torch.Generator().manual_seed(0))
        for given in ({}, {"loud": 0.1}, {"loud": 0.0})
    ]  # unless said, as loud as the flagged number
    for (x, target), loud in zip(drawn, (1.0, 0.1, 0.0), strict=True):
        assert torch.equal(target, drawn[0][1])
        assert torch.allclose(x[:, :, 1:, 1], loud * drawn[0][0][:, :, 1:, 1])


def test_the_error_is_of_1024_new_sequences(monkeypatch):
    real, drawn = distance.flagged_tokens, []
    monkeypatch.setattr(
        distance, "flagged_tokens", lambda *sizes, **how: drawn.append(sizes) or real(*sizes, **how)
    )
    distance.train("LTI", 3, steps=1, batch=5, seeds=2)
    assert drawn[1:] == [(2, 5, 3), (2, 1024, 3)]


def test_noise_is_what_stops_adam():
    """At this distance every start keeps 4e-5 of the number: too little beside loud distractions only."""
    loud, quiet = (
        distance.train("LTI", 45, rho=0.8, optimizer="Adam", steps=600, seeds=3, loud=each)["error"]
        for each in (1.0, 0.0)
    )
    assert loud.median() > 0.9 and quiet.max() < 0.1


def test_a_short_distance_is_learned_and_a_long_one_is_not():
    near = distance.train("LTI", 4, rho=0.8, steps=300, seeds=2)
    far = distance.train("LTI", 60, rho=0.8, steps=100, seeds=2)
    assert near["error"].max() < 0.05 and far["error"].min() > 0.9
    assert math.isclose(float(far["weight"][0]), 0.8**60, rel_tol=1e-3)


@pytest.mark.parametrize(("optimizer", "rate"), [("SGD", 0.05), ("Adam", 0.01)])
def test_without_options_training_is_the_documented_one(optimizer, rate):
    said = {"rho": 0.9, "optimizer": optimizer, "rate": rate, "loud": 1.0, "seeds": 8}
    left_out = {} if optimizer == "SGD" else {"optimizer": "Adam"}
    wanted = distance.train("LTI", 3, steps=3, batch=4, **said)
    for key, value in distance.train("LTI", 3, steps=3, batch=4, **left_out).items():
        assert torch.equal(value, wanted[key]), key


def test_bad_input():
    for given, words in (
        ({"layer": "RNN"}, "layer must be one of"),
        ({"rho": 1.0}, "rho must"),
        ({"optimizer": "LBFGS"}, "optimizer must be one of"),
        ({"T": 0}, "T must be"),
        ({"loud": -1.0}, "loud must be"),
        ({"rate": 0.0}, "rate must be finite and positive; got 0"),
    ):
        with pytest.raises(ValueError, match=words):
            distance.train(**{"layer": "LTI", "T": 3, "steps": 0, "seeds": 1, **given})
