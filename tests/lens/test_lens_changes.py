"""Heads merged, cut, carried by states, without their sink, frozen; and the model afterwards as before."""

from types import SimpleNamespace

import pytest
import torch
from helpers import F64, causal_softmax, cut, randn

from ssmbook import lens, maps
from ssmbook.operators import DenseOperator, DiagonalOperator, FactorizedOperator

N = 13


def causal(build, family, size=0):
    """A language model of this family with its output head, random weights everywhere."""
    transformers = pytest.importorskip("transformers")
    body = build(family, size)
    model = transformers.AutoModelForCausalLM.from_config(body.config).eval()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


@torch.no_grad()
def logits(model, ids):
    return model(ids, use_cache=False).logits


def relative(got, wanted):
    return float((got - wanted).abs().max() / wanted.abs().max())


def shares(dense, other, x):
    """The three errors written out for dense blocks (n, n, p, d)."""
    root = torch.linalg.qr(x / len(x) ** 0.5, mode="r").R.mT
    gap, y = dense - other, torch.einsum("ijpd,jd->ip", dense, x)
    lost = torch.einsum("ijpd,jd->ip", gap, x)
    energy = [part.square().sum() for part in (gap, dense, gap @ root, dense @ root, lost, y)]
    return [float(a / b) for a, b in zip(energy[::2], energy[1::2], strict=True)]


def test_three_errors_are_their_definitions():
    x, alpha = randn(9, 4), randn(3, 9, 9, seed=1)
    heads = FactorizedOperator(alpha, randn(3, 5, 4, seed=2)), FactorizedOperator(alpha[:2], randn(2, 5, 4))
    dense = DenseOperator(randn(9, 9, 5, 4)), DenseOperator(randn(9, 9, 5, 4, seed=3))
    one = torch.ones(1, 1, 1, dtype=F64)
    channels = [DiagonalOperator(FactorizedOperator(randn(4, 1, 9, 9, seed=seed), one)) for seed in (4, 5)]
    for W, other in (heads, dense, channels, (heads[0], dense[0])):
        wanted = shares(W.to_dense(), other.to_dense(), x)
        assert list(lens.errors(W, other, x)) == pytest.approx(wanted, rel=1e-9)
    same = torch.ones(9, 1, dtype=F64) * x[:1]  # tokens that are alike: heads of opposite sign cancel
    both = FactorizedOperator(torch.stack([alpha[0], -alpha[0]]), randn(2, 5, 4))
    found = lens.errors(both, both * 0, same)
    assert list(found) == pytest.approx([1, 1, 1])


@pytest.fixture(scope="module")
def seen(build, ids):
    model = build("llama").double()
    layer, texts = lens.layers(model)[1], ids(3, N)
    return layer, texts, lens.observe(model, texts)[layer.name]


def test_merged_heads_lose_the_tail_of_singular_values(seen):
    """One SVD of all blocks of all texts, with value maps that they share, as they are and weighted."""
    layer, texts, observed = seen
    reads = [lens.operator(layer, text) for text in texts]
    blocks = torch.cat([read.W.to_dense().flatten(0, 1) for read in reads])
    x = torch.cat([read.x for read in reads])
    root = torch.linalg.qr(x / len(x) ** 0.5, mode="r").R.mT
    for k in range(1, 5):
        for fit, rows in (("operator", blocks), ("uncorrelated", blocks @ root)):
            energy = torch.linalg.svdvals(rows.flatten(1)).square()
            change = observed.share(k, fit).change
            wanted = float(energy[k:].sum() / energy.sum())
            assert getattr(change.lost, fit) == pytest.approx(wanted, rel=1e-6, abs=1e-12)
            assert change.cost == {"score matrices": 4, "value maps": k}


def test_each_fit_is_best_at_its_own_error(seen):
    _, _, observed = seen
    fits = "operator", "uncorrelated", "output"
    for k in (1, 2, 3):
        found = {fit: observed.share(k, fit).lost for fit in fits}
        for fit in fits:
            assert getattr(found[fit], fit) <= min(getattr(each, fit) for each in found.values()) * (1 + 1e-9)
        assert found["output"].output < observed.cut(k).lost.output
    assert max(observed.share(4).lost) < 1e-12 and max(observed.cut(4, ridge=0.01).lost) < 1e-12


@pytest.mark.parametrize("family", ["gpt2", "llama", "bert", "mamba2", "qwen3_next", "recurrent_gemma"])
def test_what_a_change_says_it_loses_is_what_it_loses(family, build, ids):
    """From Gram matrices, and by the changed operator on the same texts."""
    model, texts = build(family), ids(3, N)
    layer = lens.layers(model)[-1]
    observed = lens.observe(model, texts)[layer.name]
    for change in (observed.share(2), observed.share(2, "output"), observed.cut(2), observed.cut(2, 0.01)):
        found = lens.change_errors(layer, texts, change)
        assert list(found) == pytest.approx(list(change.lost), rel=1e-5, abs=1e-9)
    refitted, plain = observed.cut(2, ridge=0.01), observed.cut(2)
    assert refitted.lost.output < plain.lost.output and torch.equal(refitted.W_V, plain.W_V)


def test_a_ridge_holds_refitted_weights_near_the_own_ones(seen):
    layer, texts, observed = seen
    own, found = observed.cut(2).W_O, [observed.cut(2, ridge) for ridge in (0.0, 0.1, 10.0, 1e9)]
    away = [float((heads.W_O - own).detach().norm()) for heads in found]
    missed = [observed.missed(heads) for heads in found]
    assert sorted(away, reverse=True) == away and sorted(missed) == missed
    assert missed == [heads.lost.output for heads in found]
    assert missed[-1] == pytest.approx(observed.cut(2).lost.output) and away[-1] < 1e-6 * own.norm()
    with pytest.raises(ValueError, match="ridge must lie in"):
        observed.cut(2, -1.0)


def test_what_was_observed_adds_up(seen):
    layer, texts, whole = seen
    parts = [lens.observe(layer.model, part)[layer.name] for part in (texts[:1], texts[1:])]
    both = parts[0] + parts[1]
    assert both.tokens == whole.tokens and parts[0].tokens == texts.shape[1]
    for fit in ("operator", "uncorrelated", "output"):
        assert list(both.share(2, fit).lost) == pytest.approx(list(whole.share(2, fit).lost), rel=1e-6)
    assert list(both.cut(2, 0.1).lost) == pytest.approx(list(whole.cut(2, 0.1).lost), rel=1e-9)


def test_changes_are_made_where_the_observed_tensors_are(seen):
    """Any tensor made without their device would be on another one here, which torch refuses to mix."""
    _, _, observed = seen
    with torch.device("meta"):
        found = observed.share(2, "output"), observed.cut(2), observed.cut(2, 0.1)
        alpha = lens.truncate(2).coefficients(torch.full((3, 8, 8), 0.1, device="cpu").tril())
    assert all(0 < change.lost.output < 1 for change in found) and alpha.device.type == "cpu"


FAMILIES = [
    "gpt2", "llama", "gpt_neox", "phi3", "mamba", "mamba2", "jamba", "recurrent_gemma", "qwen3_next",
    "olmo_hybrid", "kimi_linear", "falcon_h1", "lfm2", "deepseek_v3",
]  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_changes_where_nothing_is_changed(family, build, ids):
    """Carried by as many states as there are tokens, or merged to all heads."""
    model, texts = causal(build, family), ids(2, N)
    wanted, found = logits(model, texts), lens.layers(model)
    carried = {layer: lens.truncate(N) for layer in found}
    merged = {
        place: lens.observe(model, texts, [layer.name])[layer.name].share()
        for place, layer in enumerate(found)
        if layer.family in ("attention", "SSD")
    }
    for changes in (carried, merged):
        with lens.replace(model, changes):
            assert relative(logits(model, texts), wanted) < 1e-5
        assert torch.equal(logits(model, texts), wanted)


@pytest.mark.parametrize("family", ["llama", "gpt2", "mamba2"])
def test_a_replaced_layer_passes_gradients_on(family, build, ids):
    """To the weights of all layers, as the model does where nothing is changed."""
    model, texts = causal(build, family), ids(2, N)

    def gradients():
        model.zero_grad()
        model(texts, labels=texts, use_cache=False).loss.backward()
        return {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}

    wanted = gradients()
    with lens.replace(model, {0: cut([]), 1: cut([])}):
        found = gradients()
    for name, each in wanted.items():
        assert (each is None) == (found[name] is None), name
        if each is not None:
            assert float((found[name] - each).norm()) <= 1e-4 * float(each.norm()) + 1e-7, name


def test_the_model_is_left_bit_for_bit_after_an_exception(build, ids):
    model, texts = causal(build, "jamba"), ids(2, N)
    model.set_attn_implementation("sdpa")
    model.config.use_cache = True
    wanted, before = logits(model, texts), {name: p.clone() for name, p in model.named_parameters()}
    kept = [dict(vars(part)) for part in model.modules()]

    for stop in (RuntimeError, KeyboardInterrupt):

        def breaks(alpha, stop=stop):
            raise stop("on the way")

        with (
            pytest.raises(stop, match="on the way"),
            lens.replace(model, {0: lens.truncate(2), 1: lens.Change("breaks", breaks)}),
        ):
            model(texts)
    assert torch.equal(logits(model, texts), wanted)
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    for part, was in zip(model.modules(), kept, strict=True):
        assert set(vars(part)) == set(was) and not part._forward_hooks and not part._forward_pre_hooks
    assert model.config._attn_implementation == "sdpa" and model.config.use_cache


def test_a_cut_head_is_one_whose_output_weights_are_zero(build, ids):
    """What the bias of the head's values adds is no part of its operator, and stays."""
    texts, model = ids(2, N), causal(build, "gpt2")
    layer = lens.layers(model)[1]
    r, out = layer.module.head_dim, layer.module.c_proj
    with lens.replace(model, {layer.name: cut([1])}):
        found = logits(model, texts)
    with torch.no_grad():
        b = layer.module.c_attn.bias[2 * 24 + r : 2 * 24 + 2 * r]
        out.bias += b @ out.weight[r : 2 * r]
        out.weight[r : 2 * r] = 0
    assert relative(found, logits(model, texts)) < 1e-5


def test_a_change_inside_another_changes_what_that_one_made(build, ids):
    """The inner one was passed over without a word."""
    model, texts = causal(build, "llama"), ids(2, N)
    with lens.replace(model, {0: cut([0, 1])}):
        wanted = logits(model, texts)
    with lens.replace(model, {0: cut([0])}):
        outer = logits(model, texts)
        with lens.replace(model, {0: cut([1])}):
            assert relative(logits(model, texts), wanted) < 1e-6
        with lens.replace(model, {1: cut([1])}):
            assert relative(logits(model, texts), outer) > 1e-3
        assert torch.equal(logits(model, texts), outer)
    layer, few = lens.layers(model)[0], cut([0, 1])
    shared = lens.observe(model, texts)[layer.name].share()
    for pair in ((shared, few), (few, shared)):
        with lens.replace(model, {0: pair[0]}), lens.replace(model, {0: pair[1]}):
            assert relative(logits(model, texts), wanted) < 1e-4
    for inner in (shared, lens.convert(layer, texts, steps=1)):
        with (
            lens.replace(model, {0: shared}),
            pytest.raises(ValueError, match="must use the heads that the other made"),
            lens.replace(model, {0: inner}),
        ):
            pass


def padded(texts, left, right):
    """The same texts between padding, as keyword arguments of a model."""
    wide = torch.nn.functional.pad(texts, (left, right), value=3)
    mask = torch.nn.functional.pad(torch.ones_like(texts), (left, right))
    return {"input_ids": wide, "attention_mask": mask}


PADDED = ["gpt2", "llama", "mistral", "gpt_oss", "bert", "mamba", "mamba2", "qwen3_next", "lfm2"]


@pytest.mark.parametrize("left", [0, 3])
@pytest.mark.parametrize("family", PADDED)
def test_a_padded_text_is_changed_as_the_text_alone(family, left, build, ids):
    """Padding was taken for the first key, and its own rows for weights on later tokens."""
    model = build(family) if family == "bert" else causal(build, family)
    texts, inputs = ids(2, N), padded(ids(2, N), left, 4)
    if "mamba" not in family:
        inputs["position_ids"] = (inputs["attention_mask"].cumsum(-1) - 1).clamp_min(0)
    changes = [cut([]), cut([0])] + [lens.window(2, sink=1)] * (family != "bert")
    changes += [lens.truncate(3)] * (family != "bert")
    with torch.no_grad():
        plain = model(texts)[0]
        for change in changes:
            with lens.replace(model, {0: change, 1: change}):
                wanted, found = model(texts)[0], model(**inputs)[0][:, left : left + N]
            assert relative(found, wanted) < 2e-5, change.name
            assert (relative(found, plain) < 2e-5) == (change is changes[0]), change.name


@pytest.mark.parametrize("family", ["llama", "gpt_oss", "mamba2"])
def test_states_and_reports_of_padded_texts_are_those_of_the_texts(family, build, ids):
    model, texts = build(family), ids(2, N)
    inputs = padded(texts, 3, 2)
    inputs = {key: torch.stack([each[0], each[1].roll(2)]) for key, each in inputs.items()}  # 3 and 5 before
    few = {"permuted": False, "gradient": False}
    assert lens.report(model, inputs, **few) == lens.report(model, texts, **few)
    if family != "mamba2":
        whole = {**inputs, "position_ids": (inputs["attention_mask"].cumsum(-1) - 1).clamp_min(0)}
        alpha, alone = (lens.operator(lens.layers(model)[0], each).W.alpha for each in (whole, texts))
        for first in (True, False):
            assert torch.equal(lens.states(alpha, first=first), lens.states(alone, first=first))
        assert lens.states(alone).tolist() != lens.states(alone, first=False).tolist()
    for wrong, error in (({"token_type_ids": texts}, TypeError), ({"attention_mask": texts % 2}, ValueError)):
        with pytest.raises(error, match="token_type_ids|one run of tokens"):
            lens.report(model, {**inputs, **wrong}, **few)


def test_frozen_coefficients_are_those_of_their_text(build, ids):
    model, text, other = causal(build, "llama"), ids(1, N), ids(1, N, seed=1)
    layer = lens.layers(model)[0]
    frozen, wanted = lens.freeze(layer, text), logits(model, text)
    with lens.replace(model, {layer: frozen}):
        assert relative(logits(model, text), wanted) < 1e-5
        moved = logits(model, other)
        with pytest.raises(ValueError, match="texts of 13 tokens; got 9"):
            logits(model, ids(1, 9))
    x = lens.operator(layer, other).x[0].float()
    alpha, V = lens.operator(layer, text).W.alpha[0].float(), lens.operator(layer, text).W.V.float()
    y = torch.einsum("hij,hpd,jd->ip", alpha, V, x)  # written out and put there by hand
    hook = layer.module.o_proj.register_forward_hook(lambda *_: y[None])
    by_hand = logits(model, other)
    hook.remove()
    assert relative(moved, by_hand) < 1e-5 < relative(moved, logits(model, other))


def test_states_are_ranks_between_past_and_future():
    alpha = causal_softmax(4, 24, 24, scale=2.0)
    for first in (True, False):
        for eps in (0.0001, 0.01, 0.2):
            wanted = []
            for head in alpha:
                each = []
                for t in range(3, 24, 3):
                    sigma = torch.linalg.svdvals(head[t:, :t] if first else head[t:, 1:t]).square()
                    each.append(
                        next(k for k in range(len(sigma) + 1) if sigma[k:].sum() <= eps * sigma.sum())
                    )
                wanted.append(max(each))
            assert lens.states(alpha, eps, first=first).tolist() == wanted
    sink = torch.zeros(8, 8)
    sink[:, 0] = 1
    assert lens.states(sink) == 1 and lens.states(sink, first=False) == 0 and lens.states(sink[:1, :1]) == 0
    with pytest.raises(ValueError, match="alpha must be causal"):
        lens.states(torch.ones(4, 4))


@pytest.mark.parametrize("states", [1, 3, 8])
def test_a_truncated_head_is_truncated_once(states):
    """That it has these states and how little it misses is checked on *how-many-states*."""
    alpha = causal_softmax(3, 20, 20, scale=2.0)
    found = lens.truncate(states).coefficients(alpha)
    again = lens.truncate(states).coefficients(found)
    torch.testing.assert_close(again, found, rtol=1e-6, atol=1e-7)
    with pytest.raises(ValueError, match="must be causal"):
        lens.truncate(2).coefficients(alpha.mT)


@pytest.mark.parametrize("n, states", [(24, 1), (41, 5), (70, 32)])
def test_compiled_truncation_drops_what_eigenvectors_say(n, states):
    """With a gradient the steps are PyTorch's; also with columns of zeros, few states and two texts.

    In the last heads later rows read less and less, so what is left of a sum over rows is rounding.
    """
    faded = (randn(2, n, 3) @ randn(2, n, 3, seed=1).mT).tril()
    sink = torch.nn.functional.pad(torch.ones(2, n, 1, dtype=F64), (0, n - 1))
    fall = (torch.exp(-2.0 * torch.arange(n, dtype=F64))[:, None] * randn(2, n, n)).tril()
    for alpha in (causal_softmax(2, n, n, scale=2.0), faded, sink, fall):
        alpha = torch.stack([alpha, alpha.flip(0)])
        wanted = lens.truncate(states).coefficients(alpha.clone().requires_grad_()).detach()
        found = lens.truncate(states).coefficients(alpha)
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-8 * float(alpha.abs().max()))


def test_a_state_space_layer_needs_no_more_states_than_it_has(build, ids):
    """4 in every channel of Mamba, 5 in every head of Mamba-2: truncation to these changes nothing."""
    texts = ids(2, N)
    for family, held in (("mamba", 4), ("mamba2", 5)):
        model = causal(build, family)
        wanted = logits(model, texts)
        for states, small in ((held, True), (1, False)):
            with lens.replace(model, {0: lens.truncate(states), 1: lens.truncate(states)}):
                assert (relative(logits(model, texts), wanted) < 1e-5) == small


def test_maps_of_the_book_and_of_torch_are_replaced_too():
    generator = torch.Generator().manual_seed(0)
    model = torch.nn.Sequential(maps.Attention(6, 6, H=3, head_width=2, generator=generator)).eval()
    x = torch.randn(2, N, 6, generator=generator)
    with lens.replace(model, {"0": cut([0, 2])}):
        y = model(x)
    alpha, V = model[0].coefficients(x), model[0].value_maps()
    torch.testing.assert_close(y, alpha[:, 1] @ (x @ V[1].mT))
    layer = torch.nn.TransformerEncoderLayer(6, 3, batch_first=True, dropout=0.0, dim_feedforward=8)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    with torch.no_grad():
        wanted = model(x)
        with lens.replace(model, {0: cut([])}):
            assert relative(model(x), wanted) < 1e-5
        with lens.replace(model, {0: cut([0])}):
            assert relative(model(x), wanted) > 1e-3
        assert torch.equal(model(x), wanted)


def test_generation_and_loss(build, ids):
    model, texts = causal(build, "llama"), ids(2, N)
    plain = model.generate(texts, max_new_tokens=4, do_sample=False)
    with lens.replace(model, {0: cut([])}):
        assert torch.equal(model.generate(texts, max_new_tokens=4, do_sample=False), plain)
        with pytest.raises(ValueError, match="use_cache=False"):
            model(texts, use_cache=True)
    wanted = model(texts[:1], labels=texts[:1]).loss
    torch.testing.assert_close(lens.loss(model, texts)[0], wanted.detach())
    with pytest.raises(ValueError, match="output head"):
        lens.loss(build("llama"), texts)
    with pytest.raises(ValueError, match="n >= 2"):
        lens.loss(model, texts[:, :1])
    with pytest.raises(ValueError, match="training mode"):
        lens.loss(model.train(), texts)


class Wordy(torch.nn.Module):
    """A model of as many words as trained ones have: the logits of each token are a row of a table."""

    def __init__(self, words):
        super().__init__()
        self.table = torch.nn.Embedding.from_pretrained(3 * randn(9, words).float())

    def forward(self, ids):
        return SimpleNamespace(logits=self.table(ids % 9))


def test_the_loss_is_right_to_single_precision():
    model, texts = Wordy(50_000).eval(), torch.arange(60).view(2, 30)
    log_p = model.table.weight.double().log_softmax(-1)
    wanted = -log_p[texts[:, :-1] % 9].gather(-1, texts[:, 1:, None]).mean((1, 2))
    torch.testing.assert_close(lens.loss(model, texts).double(), wanted, rtol=1e-6, atol=0)


def refused(words, model, changes, *texts):
    """The changes are refused at once, or where the model runs with them."""
    with pytest.raises(ValueError, match=words), lens.replace(model, changes):
        for each in texts:
            model(each)


def test_changes_that_are_refused(build, ids):
    model, texts = causal(build, "llama"), ids(2, N)
    observed = lens.observe(model, texts)["model.layers.0.self_attn"]
    for H in (0, 5):
        with pytest.raises(ValueError, match="H must be between 1 and 4"):
            observed.share(H)
    with pytest.raises(ValueError, match="fit must be one of operator, uncorrelated, output"):
        observed.share(2, "loss")
    with pytest.raises(ValueError, match="N must be at least 1"):
        lens.truncate(0)
    with pytest.raises(ValueError, match="one text"):
        lens.freeze(lens.layers(model)[0], texts)
    for key in ("model.layers.7.self_attn", 2, lens.layers(build("gpt2"))[0]):
        refused("changes must be for layers", model, {key: cut([0])})
    with pytest.raises(TypeError, match="lens.Change; got int"), lens.replace(model, {0: 4}):
        pass
    strange = torch.nn.ModuleDict({"body": model, "GRU": torch.nn.GRU(3, 3)}).eval()
    refused("got 'GRU', which no reader knows", strange, {"GRU": cut([0])})
    torn, few = model.model.layers[0].self_attn, {0: lens.truncate(2)}
    hook = torn.v_proj.register_forward_hook(lambda *_: 1.1 * _[2])
    refused("must be read exactly(.|\n)*got a relative miss of 0", model, few, texts)
    hook.remove()
    width, torn.head_dim = torn.head_dim, 5
    refused("heads of width 5", model, few, texts)
    torn.head_dim = width
    refused("self_attn twice", model, few | {"model.layers.0.self_attn": cut([0])})
    refused("heads must be between 0 and 3; got 4", model, {0: cut([4])}, texts)
    with pytest.raises(ValueError, match="heads with value maps"):
        lens.observe(build("mamba"), texts, ["layers.0.mixer"])
    with pytest.raises(ValueError, match="at least 8 tokens"):
        lens.observe(model, texts[:, :4])
    refused("training mode", model.train(), {})
