"""The verdicts on the predictions of *which-heads* follow their numbers; other attention is what it says."""

from copy import deepcopy
from itertools import combinations

import pytest
import torch

from headsandstates.chapters.how_many_states.figures import savings
from headsandstates.experiments import fewer_heads, which_heads_gemma
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


def test_a_prediction_on_costs_falls_with_its_number():
    results = measurement("fewer-heads").results
    found = fewer_heads.verdicts(results)
    assert len(found) == len(fewer_heads.PREDICTIONS) and any(found) and not all(found)
    other = deepcopy(results)
    for name, row in other.items():  # as if nothing had lost anything
        row["loss"] = results["as it is"]["loss"] if name != "as it is" else row["loss"]
    fallen = fewer_heads.verdicts(other)
    assert fallen[0] and fallen[7] and not any(fallen[i] for i in (2, 3, 4, 5, 6))
    merged, cut = savings(4, 4, 1)[2:4]
    narrow, best = results["merged, narrow"], results["best heads"]
    assert [narrow[name] for name in ("parameters", "score matrices", "cache")] == merged[1:]
    assert best["parameters"] <= cut[1] and best["score matrices"] == cut[2] and best["cache"] <= cut[3]


@pytest.fixture
def small():
    """small(change): a model of one layer, four heads, two groups, recorded on six texts; four are fitted."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 24, "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 40}

    def make(change=None):
        torch.manual_seed(0)
        config = transformers.LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2)
        model = transformers.LlamaForCausalLM(config).eval().requires_grad_(False)
        for part in model.parameters():
            part.normal_(0, 0.5)
        own = model.model.layers[0].self_attn
        for name in ("k_proj", "v_proj") if change is not None else ():
            weight = getattr(own, name).weight
            weight[6:] = change @ weight[:6]
        layers, rope = fewer_heads.recorded(model, torch.randint(40, (6, 15)), 4)
        return model, layers[0], rope

    return make


def test_other_attention_is_exact_where_nothing_is_lost(small):
    model, at, rope = small()
    for way in (fewer_heads.merged, fewer_heads.remixed, fewer_heads.narrow_remixed, fewer_heads.best_heads):
        assert fewer_heads.missed(way(at, 4), at, rope, 4) < 1e-9
        assert fewer_heads.missed(way(at, 2), at, rope, 4) > 1e-4
    texts, own = torch.randint(40, (2, 15)), model.model.layers[0].self_attn
    before = model(texts).logits
    with fewer_heads.attending(model, [fewer_heads.as_it_is(at, 4)]):
        assert torch.allclose(model(texts).logits, before, atol=1e-4)
    assert model.model.layers[0].self_attn is own
    turn = torch.linalg.qr(
        torch.randn(6, 6)
    ).Q  # the second group's keys and values are the first one's, turned
    _, at, rope = small(turn)
    for way in (fewer_heads.rebuilt, fewer_heads.rebuilt_keys):
        assert fewer_heads.missed(way(at, 4), at, rope, 4) < 1e-8
    assert fewer_heads.missed(fewer_heads.grouped(at, 4), at, rope, 4) > 1e-4
    _, at, rope = small(torch.eye(6))
    assert fewer_heads.missed(fewer_heads.grouped(at, 4), at, rope, 4) < 1e-9


def test_heads_are_chosen_by_what_the_output_misses_and_refitted_by_least_squares(small):
    _, at, rope = small()

    @torch.no_grad()
    def error(new):
        return float((new(at.x[:4], rope)[0] - at.y[:4]).square().sum())

    errors = [error(fewer_heads.cut(at, kept)) for kept in combinations(range(4), 2)]
    best = fewer_heads.best_heads(at, 2)
    assert error(best) == pytest.approx(min(errors), rel=1e-4)
    group = fewer_heads.best_group(at, 2)
    assert error(group) == pytest.approx(min(errors[0], errors[-1]), rel=1e-4)
    Z = best.values(at.x[:4], rope).detach().transpose(-3, -2).flatten(-2).flatten(0, 1)
    Y = at.y[:4].flatten(0, 1)
    left = Y - Z @ torch.linalg.lstsq(Z, Y).solution
    assert error(fewer_heads.heal(best, at, rope, 4, [1e-9])) == pytest.approx(
        float(left.square().sum()), rel=1e-3
    )
    assert error(fewer_heads.heal(best, at, rope, 4, [1e9])) == pytest.approx(error(best), rel=1e-3)
