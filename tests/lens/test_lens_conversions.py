"""Layers in another form: shared heads that can be trained, attention as recurrences, and the reverse."""

import pytest
import torch
from helpers import F64, randn

from ssmbook import lens, maps

N = 13


@pytest.mark.parametrize("family", ["llama", "mamba2"])
def test_shared_heads_take_gradients(family, build, ids):
    model, texts = build(family), ids(2, N)
    layer = lens.layers(model)[1]
    shared = lens.observe(model, texts)[layer.name].share(2)
    assert shared.change.cost["value maps"] == 2 and shared.change.lost == shared.lost
    with lens.replace(model, {layer: shared}):
        found = model(texts, use_cache=False).last_hidden_state
    gradients = torch.autograd.grad(found.square().sum(), list(shared.parameters()))
    assert all(bool(gradient.abs().sum() > 0) for gradient in gradients)
    again = lens.observe(model, ids(2, N, seed=1))[layer.name].share(2)
    again.load_state_dict(shared.state_dict())
    assert torch.equal(again.W_V, shared.W_V)


def test_narrow_value_maps_lose_their_smallest_singular_values(build, ids):
    model, texts = build("llama").double(), ids(3, N)
    layer = lens.layers(model)[0]
    seen, x = lens.observe(model, texts)[layer.name], torch.cat([lens.operator(layer, t).x for t in texts])
    full = seen.share(3)
    V = full.W_O @ full.W_V
    for width in (1, 4):
        narrow = seen.share(3, width=width)
        missed = ((V - narrow.W_O @ narrow.W_V) @ x.mT).square().sum((1, 2))
        wanted = torch.linalg.svdvals(V @ x.mT)[:, width:].square().sum(-1)
        assert narrow.W_V.shape[1] == width and narrow.lost is None
        torch.testing.assert_close(missed, wanted, rtol=1e-7, atol=1e-12)
    with pytest.raises(ValueError, match="width must be"):
        seen.share(3, width=0)


def test_a_recurrence_is_its_coefficients_and_runs_token_by_token():
    layer = lens.Recurrence(5, 4, H=3, head_width=2, N=3, dtype=F64)
    with torch.no_grad():
        for seed, parameter in enumerate(layer.parameters()):
            parameter += 0.5 * randn(*parameter.shape, seed=seed)
    x = randn(2, N, 5)
    alpha = layer.coefficients(x)
    torch.testing.assert_close(alpha.sum(-1), torch.ones(2, 3, N, dtype=F64))
    assert not alpha.triu(1).any()
    i, j, rate = 7, 3, layer.log_rate.exp()
    scores = layer.W_Q @ x[1, i]
    whole = [(scores + layer.W_K @ x[1, t] + layer.b_K - rate * (i - t)).exp().sum(-1) for t in range(i + 1)]
    torch.testing.assert_close(alpha[1, :, i, j], whole[j] / sum(whole))
    wanted = torch.einsum("bhij,hpd,bjd->bip", alpha, layer.value_maps(), x)
    for found in (layer(x), layer.run(x)[0], layer.interaction(x) @ x):
        torch.testing.assert_close(found, wanted)
    unnormalized = alpha[0, 0] / alpha[0, 0, :, :1]  # rows in other units keep the ranks of all cuts
    assert lens.states(unnormalized, 1e-12, cuts=N) <= 3


def test_attention_becomes_a_recurrence_that_reads_alike(build, ids):
    model, texts = build("llama"), ids(3, N)
    layer = lens.layers(model)[1]
    rough, fitted = (lens.convert(layer, texts, 2, steps=steps) for steps in (0, 60))
    alpha = torch.stack([lens.operator(layer, text).W.alpha for text in texts])
    x = torch.stack([lens.operator(layer, text).x for text in texts])
    rows = [each.double().coefficients(x) for each in (rough, fitted)]
    gaps = [-(alpha * (each + 1e-9).log()).sum(-1).mean() for each in rows]
    assert gaps[1] < gaps[0]
    torch.testing.assert_close(rough.value_maps(), lens.operator(layer, texts).W.V)
    found = lens.change_errors(layer, texts, fitted)
    assert 0 < found.output < 1 and fitted.change.cost == {"states": 2}
    with pytest.raises(ValueError, match="must be causal"):
        bert = build("bert")
        lens.convert(lens.layers(bert)[0], texts)


@pytest.mark.parametrize("family", ["mamba2", "qwen3_next"])
def test_a_recurrence_becomes_its_heads_exactly(family, build, ids):
    model, texts = build(family), ids(2, N)
    layer = lens.layers(model)[0]
    shared = lens.convert(layer, texts)
    assert isinstance(shared, lens.SharedHeads) and max(lens.change_errors(layer, texts, shared)) < 1e-10


def test_only_what_is_tuned_changes(capsys):
    generator = torch.Generator().manual_seed(0)
    model = torch.nn.Sequential(maps.Attention(6, 6, H=3, head_width=2, generator=generator)).eval()
    x = torch.randn(4, N, 6, generator=generator)
    with torch.no_grad():
        wanted = model(x)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    shared = lens.observe(model, x)["0"].share(1).float()
    with lens.replace(model, {0: shared}):
        losses = lens.train([shared], lambda: (model(x) - wanted).square().mean(), steps=20, rate=0.01)
    assert losses[-1] < losses[0] and len(losses) == 20
    assert "step 20 of 20: loss" in capsys.readouterr().err
    assert all(p.grad is None for p in [*model.parameters(), *shared.parameters()])
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())


def test_heads_that_were_cut_stay_out_when_the_others_are_trained(build, ids):
    model, texts = build("llama").double(), ids(2, N)
    layer = lens.layers(model)[1]
    seen = lens.observe(model, texts)[layer.name]
    kept, shared = seen.cut(2), seen.share(2)
    with lens.replace(model, {layer: kept}):
        loss = model(texts, use_cache=False).last_hidden_state.square().sum()
    kept.mix.grad, *_ = torch.autograd.grad(loss, [kept.mix])
    with torch.no_grad():
        kept.mix -= 0.1 * kept.mix.grad
    assert kept.change.cost["score matrices"] == int((kept.mix != 0).any(0).sum()) == 2
    alpha = torch.rand(4, N, N, dtype=F64)
    out = [h for h in range(4) if not kept.taken[h]]
    other = alpha.clone()
    other[out] = 5.0
    torch.testing.assert_close(kept.change.coefficients(alpha), kept.change.coefficients(other))
    for wrong in (kept, shared):
        with pytest.raises(ValueError, match="heads of cut"):
            seen.missed(wrong)
    for wrong in (3, [], [0, 0]):
        with pytest.raises(ValueError, match="keep must be different heads"):
            seen.remix(wrong)
    with pytest.raises(ValueError, match="coefficients alone"):
        lens.only(kept, [0])


def test_a_change_that_looks_at_no_coefficients_comes_first(build, ids):
    model, texts = build("llama").double(), ids(1, N)
    layer = lens.layers(model)[0]
    frozen, near = lens.freeze(layer, texts[0]), lens.window(4, sink=1)
    with pytest.raises(ValueError, match="frozen coefficients.*after"):
        near & frozen
    other = torch.rand(4, N, N, dtype=F64)
    torch.testing.assert_close(
        (frozen & near).coefficients(other), near.coefficients(frozen.coefficients(other))
    )
    signed = torch.tensor([[[1.0, 0, 0, 0], [1, -1, 0, 0], [1, -2, 1, 0], [1, 2, -3, 4]]])
    assert torch.equal(lens.window(3, sink=1).coefficients(signed)[0, :3], signed[0, :3])
