"""The plans of the page's model: they narrow the heads that the page narrows, to the same windows."""

import json

import torch

from headsandstates.experiments import page_heads, page_model
from headsandstates.experiments.page_heads import KEYS, edit_heads
from headsandstates.experiments.page_plan import EDITS, SINK, WINDOW, _CachedModel, budget, edits
from headsandstates.experiments.results import FOLDER
from ssmbook import lens
from ssmbook.lens.changes._groups import group_layers
from ssmbook.lens.changes._plan import compose


def test_a_plan_is_what_the_edits_of_the_page_are():
    model = page_model.load_trained().requires_grad_(False)
    cached, tokens = _CachedModel(model), page_heads.read("Emma knew it was so. Emma knew it, and never " * 4)
    torch.testing.assert_close(cached(tokens).logits, model(tokens), rtol=0, atol=1e-4)
    whole = torch.isin(torch.arange(32), torch.tensor([31, 30, 4]))
    plan = compose(cached, group_layers(cached), whole, WINDOW, SINK, tokens.shape[1])
    narrow = edits([31, 30, 4], EDITS["window"])
    changes = {
        at: edit_heads(model, at, {h: narrow[at, h] for h in range(8) if (at, h) in narrow})
        for at in range(4)
    }
    with plan.apply(cached), lens.replace(model, changes):
        planned, edited = cached(tokens).logits, model(tokens)
    assert (planned - model(tokens)).abs().max() > 0.1
    torch.testing.assert_close(planned, edited, rtol=0, atol=1e-3)


def test_causal_states_of_the_page_are_those_of_a_plan_and_know_nothing_of_what_comes():
    model = page_model.load_trained().requires_grad_(False)
    cached, tokens = _CachedModel(model), page_heads.read("Emma knew it was so. Emma knew it, and never " * 9)
    found, whole = group_layers(cached), torch.isin(torch.arange(32), torch.tensor([31, 30]))
    fitted = {
        layer.name: {**p, "better": torch.ones(8)}
        for layer, p in zip(found, page_heads.committed_features(), strict=True)
    }
    plan = compose(cached, found, whole, WINDOW, SINK, tokens.shape[1], fitted)
    assert plan.sizes["states"] == page_heads.NEAR + page_heads.SINK
    causal = edits([31, 30], {"causal": True})
    changes = {
        at: edit_heads(model, at, {h: causal[at, h] for h in range(8) if (at, h) in causal})
        for at in range(4)
    }
    with lens.replace(model, changes):
        edited, begun = model(tokens), model(tokens[:, :50])
    torch.testing.assert_close(begun, edited[:, :50], rtol=0, atol=1e-4)
    assert tokens.shape[1] == 128  # as long as the texts of the fit, whose places the features read
    with plan.apply(cached):
        torch.testing.assert_close(cached(tokens).logits, edited, rtol=0, atol=1e-3)


def test_the_committed_order_is_of_all_heads_and_copying_needs_the_first():
    results = json.loads((FOLDER / "page-plan.json").read_text("utf-8"))["results"]
    order, damage = results["page"]["plan"]["whole"], results["damages"]["copy"]
    assert sorted(order) == list(range(len(KEYS))) and budget(0) == WINDOW / 128
    needed = [damage[head] for head in order if damage[head] > 0]
    assert (
        needed == sorted(needed)[::-1]
        and order[: len(needed)] == sorted(range(32), key=lambda h: -damage[h])[: len(needed)]
    )
